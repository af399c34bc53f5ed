//! Errors of pulls.

use std::{collections::HashSet, time::Duration};

/// Maximum number of characters of a text from a registry in an error.
const MAX_FOREIGN_TEXT: usize = 256;

/// Cause of a failed pull.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PullErrorKind {
    /// The reference violates the grammar.
    InvalidReference,
    /// A `hosts.toml` or a certificate file cannot be read.
    InvalidConfiguration,
    /// The registry has no such repository, tag, manifest or blob.
    NotFound,
    /// The registry or its token endpoint refused the credentials, or requires some.
    Unauthorized,
    /// The registry limits the rate of pulls.
    TooManyRequests,
    /// The name of the registry has no address.
    NameResolution,
    /// Nothing listens at the registry's address.
    ConnectionRefused,
    /// The connection failed or was closed.
    Connection,
    /// The TLS handshake failed.
    Tls,
    /// The registry did not respond in time, or a transfer made no progress.
    Timeout,
    /// Other status of the registry, or a response that violates the protocol.
    UnexpectedResponse,
    /// The content does not have the digest or the size of its descriptor.
    DigestMismatch,
    /// The manifest, the index or the config is invalid.
    InvalidManifest,
    /// Content exceeds a limit.
    TooLarge,
    /// The image has no variant for the platform.
    NoPlatform,
    /// Schema 1, foreign layers, or unknown types of layers.
    Unsupported,
    /// The blob store failed.
    Storage,
}

/// Failed pull, with containerd's message where it has one. The message contains no credentials.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{message}")]
pub struct PullError {
    kind: PullErrorKind,
    message: String,
    /// Whether another attempt may succeed, and how long the registry wants the client to wait before it.
    retry: Option<Duration>,
}

impl PullError {
    pub(crate) fn new(kind: PullErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), retry: None }
    }

    /// Marks an error that another attempt may avoid, after a time that the registry requested.
    pub(crate) fn transient(mut self, retry_after: Duration) -> Self {
        self.retry = Some(retry_after);
        self
    }

    /// Returns the time to wait at least before another attempt; `None` if another attempt is useless.
    pub(crate) fn retry_after(&self) -> Option<Duration> {
        self.retry
    }

    /// Returns the cause.
    #[must_use]
    pub fn kind(&self) -> PullErrorKind {
        self.kind
    }

    /// Prefixes the message.
    pub(crate) fn context(mut self, prefix: &str) -> Self {
        self.message = format!("{prefix}: {}", self.message);
        self
    }

    /// Joins the distinct errors of several attempts as the kubelet does (Go's aggregate). The kind is the last one's.
    pub(crate) fn aggregate(mut errors: Vec<Self>) -> Option<Self> {
        let kind = errors.last()?.kind;
        let mut seen = HashSet::new();
        errors.retain(|error| seen.insert(error.message.clone()));
        let message = if errors.len() == 1 {
            errors.remove(0).message
        } else {
            format!("[{}]", errors.into_iter().map(|error| error.message).collect::<Vec<_>>().join(", "))
        };
        Some(Self { kind, message, retry: None })
    }
}

impl From<std::io::Error> for PullError {
    /// Converts an error of the blob store.
    fn from(error: std::io::Error) -> Self {
        Self::new(PullErrorKind::Storage, format!("failed to store content: {error}"))
    }
}

/// Returns a text from a registry for an error: without control characters, and with at most 256 characters.
pub(crate) fn printable(text: &str) -> String {
    let mut printable: String =
        text.chars().take(MAX_FOREIGN_TEXT).map(|c| if c.is_control() { ' ' } else { c }).collect();
    if text.chars().nth(MAX_FOREIGN_TEXT).is_some() {
        printable.push_str("...");
    }
    printable
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distinct_errors_are_joined() {
        let errors = |messages: &[&str]| {
            messages.iter().map(|m| PullError::new(PullErrorKind::Unauthorized, *m)).collect::<Vec<_>>()
        };
        assert!(PullError::aggregate(Vec::new()).is_none());
        assert_eq!(PullError::aggregate(errors(&["a", "a"])).unwrap().to_string(), "a");
        assert_eq!(PullError::aggregate(errors(&["a", "b", "a"])).unwrap().to_string(), "[a, b]");
    }

    #[test]
    fn foreign_text_is_shortened_and_has_no_controls() {
        assert_eq!(printable("a\x1b[31m\nb"), "a [31m b");
        assert_eq!(printable(&"é".repeat(300)).chars().count(), 259);
    }
}
