//! Errors of bearer tokens.

use super::legacy;

/// Error of an invalid bearer token.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// No authenticator accepts the token.
    #[error("")]
    Unknown,
    /// The token is for other audiences.
    #[error("token audiences {actual} is invalid for the target audiences {target}")]
    InvalidAudience {
        /// Audiences of the token.
        actual: String,
        /// Requested audiences.
        target: String,
    },
    /// It has expired.
    #[error("service account token has expired")]
    Expired,
    /// Its time has not come.
    #[error("service account token is not valid yet")]
    NotValidYet,
    /// Its account or the bound object does not exist any more.
    #[error("service account token has been invalidated")]
    Invalidated,
    /// The subject is not the account.
    #[error("sub claim is invalid")]
    InvalidSubject,
    /// The Secret has another token.
    #[error("token does not match server's copy")]
    Mismatch,
    /// The token was unused for long, and is marked invalid.
    #[error(
        "the token in secret {namespace}/{secret} for service account {namespace}/{service_account} has been marked invalid. Use tokens from the TokenRequest API or manually created secret-based tokens, or remove the '{}' label from the secret to temporarily allow use of this token",
        legacy::INVALID_SINCE
    )]
    MarkedInvalid {
        /// Namespace of Secret and account.
        namespace: String,
        /// Name of the Secret.
        secret: String,
        /// Name of the account.
        service_account: String,
    },
}
