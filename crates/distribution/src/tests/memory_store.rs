//! Blob store in memory.

use crate::{BlobStore, BlobWriter, Digest};
use parking_lot::Mutex;
use std::{
    collections::{HashMap, HashSet},
    io,
    sync::Arc,
};

#[derive(Default)]
pub(super) struct MemoryStore {
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    blobs: HashMap<Digest, Vec<u8>>,
    partial: HashMap<Digest, Vec<u8>>,
    /// Blobs that a writer or another process writes.
    locked: HashSet<Digest>,
    /// Bytes that were ever written.
    written: u64,
    is_full: bool,
    /// Number of calls of `open`.
    opened: usize,
}

impl MemoryStore {
    pub(super) fn blob(&self, digest: &Digest) -> Option<Vec<u8>> {
        self.state.lock().blobs.get(digest).cloned()
    }

    pub(super) fn partial(&self, digest: &Digest) -> Option<Vec<u8>> {
        self.state.lock().partial.get(digest).cloned()
    }

    pub(super) fn set_blob(&self, content: &[u8]) {
        self.state.lock().blobs.insert(Digest::of(content), content.to_vec());
    }

    pub(super) fn set_partial(&self, digest: Digest, content: &[u8]) {
        self.state.lock().partial.insert(digest, content.to_vec());
    }

    pub(super) fn set_locked(&self, digest: Digest, is_locked: bool) {
        let locked = &mut self.state.lock().locked;
        let _ = if is_locked { locked.insert(digest) } else { locked.remove(&digest) };
    }

    pub(super) fn set_full(&self) {
        self.state.lock().is_full = true;
    }

    pub(super) fn written(&self) -> u64 {
        self.state.lock().written
    }

    pub(super) fn opened(&self) -> usize {
        self.state.lock().opened
    }

    pub(super) fn is_locked(&self, digest: &Digest) -> bool {
        self.state.lock().locked.contains(digest)
    }
}

impl BlobStore for MemoryStore {
    fn contains(&self, digest: &Digest) -> io::Result<bool> {
        Ok(self.state.lock().blobs.contains_key(digest))
    }

    fn open(&self, digest: &Digest) -> io::Result<Option<Box<dyn BlobWriter>>> {
        let mut state = self.state.lock();
        state.opened += 1;
        if !state.locked.insert(*digest) {
            return Ok(None);
        }
        Ok(Some(Box::new(MemoryWriter { state: Arc::clone(&self.state), digest: *digest })))
    }
}

struct MemoryWriter {
    state: Arc<Mutex<State>>,
    digest: Digest,
}

impl BlobWriter for MemoryWriter {
    fn offset(&self) -> u64 {
        self.state.lock().partial.get(&self.digest).map_or(0, |partial| partial.len() as u64)
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut state = self.state.lock();
        if state.is_full {
            return Err(io::ErrorKind::StorageFull.into());
        }
        state.written += bytes.len() as u64;
        state.partial.entry(self.digest).or_default().extend_from_slice(bytes);
        Ok(())
    }

    fn truncate(&mut self) -> io::Result<()> {
        self.state.lock().partial.remove(&self.digest);
        Ok(())
    }

    fn commit(self: Box<Self>) -> io::Result<()> {
        let mut state = self.state.lock();
        let content = state.partial.get(&self.digest).cloned().unwrap_or_default();
        let found = Digest::of(&content);
        if found != self.digest {
            let message = format!("unexpected commit digest {found}, expected {}", self.digest);
            return Err(io::Error::new(io::ErrorKind::InvalidData, message));
        }
        state.partial.remove(&self.digest);
        state.blobs.insert(self.digest, content);
        Ok(())
    }
}

impl Drop for MemoryWriter {
    fn drop(&mut self) {
        self.state.lock().locked.remove(&self.digest);
    }
}
