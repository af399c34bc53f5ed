//! Where objects are kept durably.

mod fjall;
mod memory;
mod transformed;

use std::io;
use std::path::Path;

use thiserror::Error;

pub use self::fjall::{FjallEngine, FjallOptions};
pub use self::memory::MemoryEngine;
pub use self::transformed::TransformedEngine;
use crate::{Key, Object, OpenError, Record, Revision};

/// Durable storage of the store's objects.
///
/// The store calls it from one thread at a time. Engines that others write too (etcd) will also need to be followed;
/// that method comes with the first such engine.
pub trait Engine: Send + 'static {
    /// Where the objects are, for messages.
    fn path(&self) -> &Path;

    /// Hands out every object, in any order, and then the head of the last committed batch
    /// ([`Head::default`] if there was none).
    ///
    /// # Errors
    ///
    /// Not everything that was once acknowledged can be read. Nothing was changed.
    fn load(&mut self, each: &mut dyn FnMut(Record)) -> Result<Head, OpenError>;

    /// Makes a batch durable, all of it or nothing: one sync.
    ///
    /// # Errors
    ///
    /// Nothing of the batch is or will be visible in this life of the engine. The next commit is tried afresh.
    fn commit(&mut self, batch: &Batch) -> Result<(), CommitError>;

    /// Removes all that is not the current version of an object: replaced versions and deleted objects.
    ///
    /// # Errors
    ///
    /// Some of it may be left. What was committed is unchanged.
    fn compact(&mut self) -> Result<(), CommitError> {
        Ok(())
    }
}

/// What is true after a batch. An engine keeps it with the batch, and the store checks what was loaded against it,
/// so that an engine which has lost a batch, a table or an object is found out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// How many batches were committed.
    pub sequence: u64,
    /// The newest revision.
    pub revision: Revision,
    /// How many objects exist.
    pub objects: u64,
    /// The sum of the fingerprints of the keys and revisions of all objects.
    pub digest: u64,
}

impl Default for Head {
    fn default() -> Self {
        Self { sequence: 0, revision: 1, objects: 0, digest: 0 }
    }
}

impl Head {
    /// Accounts for one object that becomes another, appears, or goes.
    pub(crate) fn replace(&mut self, before: Option<&Record>, after: Option<&Record>) {
        if let Some(before) = before {
            self.objects = self.objects.wrapping_sub(1);
            self.digest = self.digest.wrapping_sub(fingerprint(before));
        }
        if let Some(after) = after {
            self.objects = self.objects.wrapping_add(1);
            self.digest = self.digest.wrapping_add(fingerprint(after));
        }
    }
}

/// FNV-1a of an object's key and revision: part of the format, so it must never change.
fn fingerprint(record: &Record) -> u64 {
    let Key { resource, namespace, name } = &record.key;
    let key = [resource, namespace, name].into_iter().flat_map(|part| part.bytes().chain([0]));
    key.chain(record.revision.to_le_bytes())
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

/// Changes that become durable together. Each key occurs once.
#[derive(Clone, Debug)]
pub struct Batch {
    /// What is true after the batch.
    pub head: Head,
    /// The changes, in no particular order.
    pub changes: Vec<BatchChange>,
}

/// What becomes of one object in a batch.
#[derive(Clone, Debug)]
pub enum BatchChange {
    /// It is now this.
    Put(Object),
    /// It is gone, if it was there before.
    Delete(Key),
}

/// Why a batch is not durable.
#[derive(Debug, Error)]
pub enum CommitError {
    /// No room on the disk.
    #[error("the disk is full")]
    Full,
    /// The engine wrote, or tried to, and failed.
    #[error("cannot write the batch")]
    Write(#[source] io::Error),
    /// The engine had failed before and could not be opened again.
    #[error("the engine cannot be opened again after a failure")]
    Reopen(#[source] Box<OpenError>),
}
