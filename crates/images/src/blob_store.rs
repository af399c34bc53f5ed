//! The storage that an image puller needs.

use crate::Digest;

/// Content-addressed storage of blobs.
pub trait BlobStore: Send + Sync {
    /// Returns whether the blob is complete.
    ///
    /// # Errors
    /// If the storage cannot be read.
    fn contains(&self, digest: &Digest) -> std::io::Result<bool>;
    /// Opens the partial blob for appending; waits for nobody: None if another process is writing it.
    ///
    /// # Errors
    /// If the storage cannot be written.
    fn open(&self, digest: &Digest) -> std::io::Result<Option<Box<dyn BlobWriter>>>;
}

/// A partial blob. Dropping it keeps the bytes for the next attempt.
pub trait BlobWriter: Send {
    /// Bytes that are stored already, from an interrupted download.
    fn offset(&self) -> u64;
    /// Appends bytes.
    ///
    /// # Errors
    /// If they cannot be written.
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<()>;
    /// Removes all bytes.
    ///
    /// # Errors
    /// If they cannot be removed.
    fn truncate(&mut self) -> std::io::Result<()>;
    /// Verifies size and digest, and publishes the blob.
    ///
    /// # Errors
    /// If the digest differs; the bytes are removed then. Or if the blob cannot be written.
    fn commit(self: Box<Self>) -> std::io::Result<()>;
}
