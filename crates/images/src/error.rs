//! Errors of the image store.

use crate::{Digest, DigestError, ReferenceError};
use std::io;

/// Error of the image store.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// An operation on a file failed. The text is `failed to <verb> <object>`.
    #[error("{context}: {source}")]
    Io {
        /// The operation and its object.
        context: String,
        /// Cause.
        source: io::Error,
    },
    /// No image has this name or ID. The text is containerd's.
    #[error("image {0:?}: not found")]
    NotFound(String),
    /// A blob that a manifest names is not in the store. The text is containerd's.
    #[error("content digest {0}: not found")]
    MissingBlob(Digest),
    /// A reference is malformed.
    #[error(transparent)]
    Reference(#[from] ReferenceError),
    /// A digest is malformed, or has another algorithm than SHA-256.
    #[error("digest {digest:?}: {source}")]
    Digest {
        /// The text.
        digest: String,
        /// The problem.
        source: DigestError,
    },
    /// A manifest, an index or a configuration is malformed or exceeds a limit.
    #[error("invalid image {digest}: {problem}")]
    InvalidImage {
        /// Digest of the document.
        digest: Digest,
        /// The problem.
        problem: String,
    },
    /// No manifest of an index is for this machine.
    #[error("{digest}: no match for platform {platform} in manifest")]
    NoPlatform {
        /// Digest of the index or manifest.
        digest: Digest,
        /// Platform of the machine.
        platform: String,
    },
    /// A layer is malformed, exceeds a limit or is not the layer that the configuration names.
    #[error("failed to unpack layer {diff_id}: {source}")]
    Unpack {
        /// Digest of the uncompressed layer.
        diff_id: Digest,
        /// Cause.
        source: io::Error,
    },
    /// Containers use an image that is removed.
    #[error("image {reference:?} is in use by {user} of {owner:?}")]
    InUse {
        /// The image as it was named.
        reference: String,
        /// Container.
        user: String,
        /// Data directory of the container's cluster.
        owner: std::path::PathBuf,
    },
    /// Other processes use the store; collection is possible later.
    #[error("the image store is in use")]
    Busy,
    /// An argument is malformed.
    #[error("{0}")]
    InvalidArgument(String),
}

impl Error {
    /// Returns whether the content of an image is the cause, and not the machine.
    #[must_use]
    pub fn is_invalid_content(&self) -> bool {
        match self {
            Self::Unpack { source, .. } => is_invalid_content(source),
            Self::Io { .. } | Self::Busy | Self::InUse { .. } | Self::InvalidArgument(_) => false,
            _ => true,
        }
    }
}

/// Returns whether malformed data caused the error. The kernel's refusals of an archive's names and links count as such.
pub(crate) fn is_invalid_content(error: &io::Error) -> bool {
    use io::ErrorKind as Kind;
    matches!(
        error.kind(),
        Kind::InvalidData
            | Kind::UnexpectedEof
            | Kind::InvalidInput
            | Kind::NotFound
            | Kind::NotADirectory
            | Kind::AlreadyExists
            | Kind::InvalidFilename
            | Kind::TooManyLinks
    )
}

/// Adds the operation to an error.
pub(crate) trait Context<T> {
    /// Adds `failed to <verb> <object>`.
    fn context(self, context: impl FnOnce() -> String) -> Result<T, Error>;
}

impl<T, E: Into<io::Error>> Context<T> for Result<T, E> {
    fn context(self, context: impl FnOnce() -> String) -> Result<T, Error> {
        self.map_err(|error| Error::Io { context: context(), source: error.into() })
    }
}

/// Returns an error about malformed data.
pub(crate) fn invalid(problem: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, problem.into())
}
