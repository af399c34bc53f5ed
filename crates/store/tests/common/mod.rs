//! Helpers of the store's tests.
#![allow(dead_code, reason = "each test file uses a part of it")]

use std::{future::Future, path::Path, sync::mpsc, time::Duration};
use store::{
    Batch, CommitError, Engine, FjallEngine, FjallOptions, Head, Key, MemoryEngine, Object, OpenError, Options,
    Precondition, Record, Revision, Store, Template, Write, WriteError,
};

/// Timeout of a test.
pub(crate) const DEADLINE: Duration = Duration::from_secs(30);

pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(async { tokio::time::timeout(DEADLINE, future).await.unwrap() })
}

pub(crate) fn memory() -> (MemoryEngine, Store) {
    memory_with(Options::default())
}

pub(crate) fn memory_with(options: Options) -> (MemoryEngine, Store) {
    let engine = MemoryEngine::new();
    (engine.clone(), Store::open(engine, options).unwrap())
}

/// Without a reserve: the disk of the test machine may be nearly full.
pub(crate) fn fjall_options() -> FjallOptions {
    FjallOptions { reserve_bytes: 0, ..FjallOptions::default() }
}

pub(crate) fn fjall(path: &Path) -> Result<Store, OpenError> {
    Store::open(FjallEngine::open(path, fjall_options())?, Options::default())
}

pub(crate) fn pod(name: &str) -> Key {
    Key::new("pods", "default", name)
}

/// Returns data that contains its revision, as a real object does.
pub(crate) fn data(text: &str, revision: Revision) -> Vec<u8> {
    format!("{text}@{revision}").into_bytes()
}

/// Returns the template of [`data`].
pub(crate) fn template(text: &str) -> Template {
    let text = format!("{text}@").into_bytes();
    let end = text.len();
    Template::new(text, end)
}

pub(crate) fn put(key: &Key, expect: Precondition, text: &str) -> Write {
    Write::put(key.clone(), expect, template(text))
}

pub(crate) fn delete(key: &Key, expect: Precondition) -> Write {
    Write::delete(key.clone(), expect, template("deleted"))
}

pub(crate) async fn create(store: &Store, key: &Key, text: &str) -> Object {
    store.write(put(key, Precondition::Absent, text)).await.unwrap()
}

/// Returns the result as one word, for tables.
pub(crate) fn outcome(answer: &Result<Object, WriteError>) -> &'static str {
    match answer {
        Ok(_) => "done",
        Err(WriteError::Conflict { .. }) => "conflict",
        Err(WriteError::AlreadyExists { .. }) => "exists",
        Err(WriteError::NotFound) => "not found",
        Err(WriteError::TooLarge { .. }) => "too large",
        Err(WriteError::NoSpace { .. }) => "no space",
        Err(WriteError::Full) => "full",
        Err(WriteError::Engine(_)) => "failed",
        Err(WriteError::Closed) => "closed",
    }
}

/// Engine whose commits wait for the test.
pub(crate) struct GatedEngine {
    inner: MemoryEngine,
    begun: mpsc::Sender<usize>,
    go: mpsc::Receiver<Result<(), CommitError>>,
}

/// Control of a [`GatedEngine`].
pub(crate) struct Gate {
    begun: mpsc::Receiver<usize>,
    go: mpsc::Sender<Result<(), CommitError>>,
}

impl GatedEngine {
    pub(crate) fn new() -> (Self, Gate) {
        let (begin, begun) = mpsc::channel();
        let (go, wait) = mpsc::channel();
        (Self { inner: MemoryEngine::new(), begun: begin, go: wait }, Gate { begun, go })
    }
}

impl Gate {
    /// Waits for a commit to start; returns the number of changed objects.
    pub(crate) fn wait(&self) -> usize {
        self.begun.recv_timeout(DEADLINE).unwrap()
    }

    pub(crate) fn finish(&self, result: Result<(), CommitError>) {
        self.go.send(result).unwrap();
    }
}

impl Engine for GatedEngine {
    fn path(&self) -> &Path {
        self.inner.path()
    }

    fn load(&mut self, each: &mut dyn FnMut(Record)) -> Result<Head, OpenError> {
        self.inner.load(each)
    }

    fn commit(&mut self, batch: &Batch) -> Result<(), CommitError> {
        self.begun.send(batch.changes.len()).unwrap();
        self.go.recv_timeout(DEADLINE).unwrap()?;
        self.inner.commit(batch)
    }
}
