//! Volatile engine, for clusters that are not started again, and for tests.

use super::{Batch, BatchChange, CommitError, Engine, Head};
use crate::{Key, Object, OpenError, Record};
use parking_lot::Mutex;
use std::{collections::HashMap, io, path::Path, sync::Arc};

/// Engine in memory. Clones share their objects, so that a test can reopen "the same disk" and inject failures.
#[derive(Clone, Debug, Default)]
pub struct MemoryEngine {
    disk: Arc<Mutex<Disk>>,
}

#[derive(Debug, Default)]
struct Disk {
    objects: HashMap<Key, Object>,
    head: Head,
    failures: Vec<CommitError>,
    commits: u64,
}

impl MemoryEngine {
    /// Creates an empty engine.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Lets the next commit without an injected failure fail, without effect.
    pub fn fail_next_commit(&self, error: CommitError) {
        self.disk.lock().failures.insert(0, error);
    }

    /// Returns the number of committed batches.
    #[must_use]
    pub fn commits(&self) -> u64 {
        self.disk.lock().commits
    }

    /// Removes an object without updating the head; returns whether it existed.
    #[must_use]
    pub fn lose(&self, key: &Key) -> bool {
        self.disk.lock().objects.remove(key).is_some()
    }
}

impl CommitError {
    /// Injected failure.
    #[must_use]
    pub fn injected() -> Self {
        Self::Write(io::Error::other("injected"))
    }
}

impl Engine for MemoryEngine {
    fn path(&self) -> &Path {
        Path::new("memory")
    }

    fn load(&mut self, each: &mut dyn FnMut(Record)) -> Result<Head, OpenError> {
        let disk = self.disk.lock();
        disk.objects.values().for_each(|object| each(Record::clone(object)));
        Ok(disk.head)
    }

    fn commit(&mut self, batch: &Batch) -> Result<(), CommitError> {
        let mut disk = self.disk.lock();
        if let Some(failure) = disk.failures.pop() {
            return Err(failure);
        }
        for change in &batch.changes {
            match change {
                BatchChange::Put(object) => disk.objects.insert(object.key.clone(), object.clone()),
                BatchChange::Delete(key) => disk.objects.remove(key),
            };
        }
        disk.head = batch.head;
        disk.commits += 1;
        Ok(())
    }
}
