//! Partial blob in the blob store, whose writes block no other tasks.

use crate::{BlobStore, BlobWriter, Digest, PullError};
use std::{io, sync::Arc, time::Duration};

/// Bytes that are collected before they are written.
const BUFFER_SIZE: usize = 512 << 10;
/// First and maximum delay between looks at a blob that another process downloads.
const MIN_POLL: Duration = Duration::from_millis(50);
const MAX_POLL: Duration = Duration::from_secs(1);

/// Blob in the making.
pub(crate) struct PartialBlob {
    writer: Box<dyn BlobWriter>,
    buffer: Vec<u8>,
}

impl PartialBlob {
    /// Opens a blob; `None` if it is complete. While another process downloads it, waits for that process: it either
    /// completes the blob, or releases it.
    ///
    /// # Errors
    /// If the storage fails.
    pub(crate) async fn open(store: &Arc<dyn BlobStore>, digest: Digest) -> Result<Option<Self>, PullError> {
        let mut delay = MIN_POLL;
        loop {
            let opened = {
                let store = Arc::clone(store);
                blocking(move || if store.contains(&digest)? { Ok(None) } else { Ok(Some(store.open(&digest)?)) })
                    .await?
            };
            match opened {
                None => return Ok(None),
                Some(Some(writer)) => return Ok(Some(Self { writer, buffer: Vec::new() })),
                Some(None) => tokio::time::sleep(delay).await,
            }
            delay = delay.saturating_mul(2).min(MAX_POLL);
        }
    }

    /// Returns the number of bytes, with those that are not written yet.
    pub(crate) fn offset(&self) -> u64 {
        self.writer.offset().saturating_add(self.buffer.len() as u64)
    }

    /// Appends bytes. Returns whether bytes were written.
    ///
    /// # Errors
    /// If the storage fails.
    pub(crate) async fn append(self, bytes: &[u8]) -> Result<(Self, bool), PullError> {
        let mut blob = self;
        blob.buffer.extend_from_slice(bytes);
        if blob.buffer.len() < BUFFER_SIZE { Ok((blob, false)) } else { Ok((blob.flush().await?, true)) }
    }

    /// Writes the collected bytes.
    ///
    /// # Errors
    /// If the storage fails.
    pub(crate) async fn flush(self) -> Result<Self, PullError> {
        if self.buffer.is_empty() {
            return Ok(self);
        }
        let Self { mut writer, mut buffer } = self;
        let written = blocking(move || {
            writer.write(&buffer)?;
            buffer.clear();
            Ok(Self { writer, buffer })
        });
        Ok(written.await?)
    }

    /// Drops all bytes.
    ///
    /// # Errors
    /// If the storage fails.
    pub(crate) async fn truncate(self) -> Result<Self, PullError> {
        let Self { mut writer, mut buffer } = self;
        let truncated = blocking(move || {
            buffer.clear();
            writer.truncate()?;
            Ok(Self { writer, buffer })
        });
        Ok(truncated.await?)
    }

    /// Verifies and publishes the blob.
    ///
    /// # Errors
    /// If the storage fails, with [`io::ErrorKind::InvalidData`] if the content has another digest.
    pub(crate) async fn commit(self) -> io::Result<()> {
        let Self { mut writer, buffer } = self;
        blocking(move || {
            if !buffer.is_empty() {
                writer.write(&buffer)?;
            }
            writer.commit()
        })
        .await
    }
}

/// Runs a call that may block on the disk.
async fn blocking<T: Send + 'static>(call: impl FnOnce() -> io::Result<T> + Send + 'static) -> io::Result<T> {
    tokio::task::spawn_blocking(call).await.map_err(io::Error::other)?
}
