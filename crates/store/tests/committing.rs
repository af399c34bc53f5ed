//! Tests of inline and group commits, and of an engine that panics.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on panics")]

#[cfg(test)]
mod common;

use common::{block_on, create, outcome, pod, put};
use parking_lot::Mutex;
use std::{
    path::Path,
    sync::Arc,
    thread::{self, ThreadId},
};
use store::{Batch, CommitError, Engine, Head, MemoryEngine, OpenError, Options, Precondition, Record, Store};

/// Engine that records the committing thread, and panics at a given commit.
struct RecordingEngine {
    inner: MemoryEngine,
    threads: Arc<Mutex<Vec<ThreadId>>>,
    panics_at: usize,
}

impl Engine for RecordingEngine {
    fn path(&self) -> &Path {
        self.inner.path()
    }

    fn load(&mut self, each: &mut dyn FnMut(Record)) -> Result<Head, OpenError> {
        self.inner.load(each)
    }

    fn commit(&mut self, batch: &Batch) -> Result<(), CommitError> {
        let mut threads = self.threads.lock();
        assert!(threads.len() != self.panics_at, "injected panic");
        threads.push(thread::current().id());
        self.inner.commit(batch)
    }
}

fn open(panics_at: usize) -> (Store, Arc<Mutex<Vec<ThreadId>>>) {
    let threads = Arc::<Mutex<Vec<ThreadId>>>::default();
    let engine = RecordingEngine { inner: MemoryEngine::new(), threads: threads.clone(), panics_at };
    (Store::open(engine, Options::default()).unwrap(), threads)
}

#[test]
fn lone_caller_commits_inline_on_fast_disk() {
    let (store, threads) = open(usize::MAX);
    let own = thread::current().id();
    block_on(async {
        // A writer that waits for a CPU looks like a slow disk, so there are many tries.
        for number in 0..1000 {
            create(&store, &pod(&number.to_string()), "text").await;
            if threads.lock().contains(&own) {
                break;
            }
        }
    });
    let threads = threads.lock();
    assert_ne!(threads[0], own, "the disk is not measured yet");
    assert!(threads.contains(&own), "{threads:?}");
}

#[test]
fn engine_panic_closes_store_for_writes() {
    // The second commit is inline, so that the panic is on the caller's thread.
    for panics_at in [0, 1, 2] {
        let (store, _) = open(panics_at);
        block_on(async {
            for number in 0..4 {
                let answer = store.write(put(&pod(&number.to_string()), Precondition::Absent, "text")).await;
                let expected = if number < panics_at { "done" } else { "closed" };
                assert_eq!(outcome(&answer), expected, "write {number} of a store that panics at {panics_at}");
            }
            let found = (0..4).filter(|number| store.get(&pod(&number.to_string())).is_some()).count();
            assert_eq!(found, panics_at, "panics at {panics_at}: acknowledged data can be read");
        });
    }
}
