//! Storage engines.

mod fjall;
mod memory;
mod transformed;

use crate::{Key, Object, OpenError, Record, Revision};
use std::{io, path::Path};
use thiserror::Error;

pub use self::fjall::{FjallEngine, FjallOptions};
pub use self::memory::MemoryEngine;
pub use self::transformed::TransformedEngine;

/// Durable storage of the store's objects.
///
/// The store calls it from one thread at a time. An engine with other writers (etcd) also needs a watch method,
/// which is added with the first such engine.
pub trait Engine: Send + 'static {
    /// Returns the location, for messages.
    fn path(&self) -> &Path;

    /// Loads every object, in any order, and then returns the head of the last committed batch ([`Head::default`] if
    /// there was none).
    ///
    /// # Errors
    ///
    /// Not all acknowledged data can be read. Nothing was changed.
    fn load(&mut self, each: &mut dyn FnMut(Record)) -> Result<Head, OpenError>;

    /// Commits a batch durably and atomically, with one sync.
    ///
    /// # Errors
    ///
    /// Nothing of the batch is or becomes visible until the engine is opened again. The next commit is independent.
    fn commit(&mut self, batch: &Batch) -> Result<(), CommitError>;

    /// Compacts the engine: removes replaced versions and deleted objects.
    ///
    /// # Errors
    ///
    /// Some of it may be left. Committed data is unchanged.
    fn compact(&mut self) -> Result<(), CommitError> {
        Ok(())
    }
}

/// Summary of the state after a batch. An engine stores it with the batch; the store verifies loaded data against it,
/// which detects a lost batch, table or object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// Number of committed batches.
    pub sequence: u64,
    /// Newest revision.
    pub revision: Revision,
    /// Number of objects.
    pub objects: u64,
    /// Sum of the fingerprints of the keys and revisions of all objects.
    pub digest: u64,
}

impl Default for Head {
    fn default() -> Self {
        Self { sequence: 0, revision: 1, objects: 0, digest: 0 }
    }
}

impl Head {
    /// Updates the summary for a replaced, created or deleted object.
    pub(crate) fn replace(&mut self, old: Option<&Record>, new: Option<&Record>) {
        if let Some(old) = old {
            self.objects = self.objects.wrapping_sub(1);
            self.digest = self.digest.wrapping_sub(fingerprint(old));
        }
        if let Some(new) = new {
            self.objects = self.objects.wrapping_add(1);
            self.digest = self.digest.wrapping_add(fingerprint(new));
        }
    }
}

/// FNV-1a hash of an object's key and revision: part of the on-disk format, so it must never change.
fn fingerprint(record: &Record) -> u64 {
    let Key { resource, namespace, name } = &record.key;
    let key = [resource, namespace, name].into_iter().flat_map(|part| part.bytes().chain([0]));
    key.chain(record.revision.to_le_bytes())
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

/// Changes that are committed together. Each key occurs once.
#[derive(Clone, Debug)]
pub struct Batch {
    /// Head after the batch.
    pub head: Head,
    /// Changes, in no particular order.
    pub changes: Vec<BatchChange>,
}

/// Change of one object in a batch.
#[derive(Clone, Debug)]
pub enum BatchChange {
    /// The object is created or replaced.
    Put(Object),
    /// The object is deleted, if it exists.
    Delete(Key),
}

/// Error of a commit.
#[derive(Debug, Error)]
pub enum CommitError {
    /// The disk is full.
    #[error("the disk is full")]
    Full,
    /// The engine failed to write.
    #[error("cannot write the batch")]
    Write(#[source] io::Error),
    /// The engine failed before and could not be reopened.
    #[error("the engine cannot be opened again after a failure")]
    Reopen(#[source] Box<OpenError>),
}
