//! Bearer tokens: service account tokens, which are valid while their service account and bound object exist, bootstrap
//! tokens, and tokens of a file. Each kind has an authenticator ([`AuthenticateToken`]); [`TokenAuthenticator`] is the
//! ordered list of them.

mod bearer_token;
mod bootstrap_token;
pub mod legacy;
mod lifetime;
mod service_account;
pub mod signing_key;
mod token_authenticator;
mod token_error;
mod token_file;

pub use bearer_token::bearer_token;
pub use bootstrap_token::BootstrapTokenAuthenticator;
pub use lifetime::{TokenLifetime, TokenLifetimeError};
pub use service_account::ServiceAccountTokenAuthenticator;
pub use signing_key::SigningKey;
pub use token_authenticator::{AuthenticateToken, AuthenticatedToken, TokenAuthenticator};
pub use token_error::TokenError;
pub use token_file::{TokenFile, TokenFileError};

/// Upstream's error for an invalid token.
pub const INVALID_TOKEN: &str = "invalid bearer token";
/// Issuer of the tokens, and their default audience: upstream's default for a cluster.
pub const ISSUER: &str = "https://kubernetes.default.svc.cluster.local";

/// Whether a token without audiences, which is valid for the API server only, is valid for one of these audiences.
fn are_for_api_server(audiences: &[String]) -> bool {
    audiences.is_empty() || audiences.iter().any(|audience| audience == ISSUER)
}
