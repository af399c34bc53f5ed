//! Storage of blobs, which the image store implements.

use crate::Digest;

/// Content-addressed storage of manifests, configs and layers. Calls may block on the disk, but not on other processes.
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

/// Partial blob. A dropped writer keeps its bytes, and another one continues there.
pub trait BlobWriter: Send {
    /// Bytes that are stored already, from an interrupted download.
    fn offset(&self) -> u64;
    /// Appends bytes.
    ///
    /// # Errors
    /// If the storage cannot be written.
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<()>;
    /// Drops all bytes.
    ///
    /// # Errors
    /// If the storage cannot be written.
    fn truncate(&mut self) -> std::io::Result<()>;
    /// Verifies size and digest, and publishes the blob.
    ///
    /// # Errors
    /// [`std::io::ErrorKind::InvalidData`] if the content does not have the digest; others if the storage
    /// cannot be written.
    fn commit(self: Box<Self>) -> std::io::Result<()>;
}
