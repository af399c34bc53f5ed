//! Tokens of service accounts: signed statements about who somebody is, which hold while what they are about exists.

mod authenticate;
mod discovery;
mod key;
mod request;

pub(crate) use authenticate::authenticate;
pub(crate) use discovery::answer as discovery;
pub use key::SigningKey;
pub(crate) use request::create;

/// Upstream's words for a token that does not hold.
pub(crate) const INVALID: &str = "invalid bearer token";
/// Who issues the tokens, and the audience of those that name none: upstream's default for a cluster.
const ISSUER: &str = "https://kubernetes.default.svc.cluster.local";
