//! Bearer tokens. Most are those of service accounts: signed statements about who somebody is, which hold while what they
//! are about exists.

mod authenticate;
mod bearer;
mod bootstrap;
mod discovery;
mod key;
pub(crate) mod legacy;
mod lifetime;
mod listed;
mod request;

pub(crate) use bearer::{bearer, identify, shown};
pub(crate) use discovery::answer as discovery;
pub use key::SigningKey;
pub use lifetime::TokenLifetime;
pub use listed::{TokenFile, TokenFileError};
pub(crate) use request::create;

/// Upstream's words for a token that does not hold.
pub(crate) const INVALID: &str = "invalid bearer token";
/// Who issues the tokens, and the audience of those that name none: upstream's default for a cluster.
const ISSUER: &str = "https://kubernetes.default.svc.cluster.local";
