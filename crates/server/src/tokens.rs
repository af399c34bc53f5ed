//! Bearer tokens: service account tokens, which are valid while their service account and bound object exist, bootstrap
//! tokens, and tokens of a file.

mod bearer_token;
mod bootstrap_token;
pub(crate) mod legacy;
mod lifetime;
mod openid_metadata;
mod service_account;
mod signing_key;
mod token_error;
mod token_file;
mod token_request;

pub(crate) use bearer_token::{authenticate_request, authenticate_token, bearer_token};
pub use lifetime::{TokenLifetime, TokenLifetimeError};
pub(crate) use openid_metadata::serve_openid_metadata;
pub use signing_key::SigningKey;
pub(crate) use token_error::TokenError;
pub use token_file::{TokenFile, TokenFileError};
pub(crate) use token_request::create;

/// Upstream's error for an invalid token.
pub(crate) const INVALID_TOKEN: &str = "invalid bearer token";
/// Issuer of the tokens, and their default audience: upstream's default for a cluster.
const ISSUER: &str = "https://kubernetes.default.svc.cluster.local";
