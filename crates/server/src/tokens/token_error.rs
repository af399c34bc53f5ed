//! Errors of bearer tokens.

use super::legacy;

/// Error of an invalid bearer token.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum TokenError {
    /// No authenticator accepts the token.
    #[error("")]
    Unknown,
    #[error("token audiences {actual} is invalid for the target audiences {target}")]
    InvalidAudience { actual: String, target: String },
    #[error("service account token has expired")]
    Expired,
    #[error("service account token is not valid yet")]
    NotValidYet,
    #[error("service account token has been invalidated")]
    Invalidated,
    #[error("sub claim is invalid")]
    InvalidSubject,
    #[error("token does not match server's copy")]
    Mismatch,
    #[error(
        "the token in secret {namespace}/{secret} for service account {namespace}/{service_account} has been marked invalid. Use tokens from the TokenRequest API or manually created secret-based tokens, or remove the '{}' label from the secret to temporarily allow use of this token",
        legacy::INVALID_SINCE
    )]
    MarkedInvalid { namespace: String, secret: String, service_account: String },
}
