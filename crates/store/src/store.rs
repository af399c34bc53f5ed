//! Public interface of the store.

use crate::{
    Engine, Expired, Head, Key, List, Object, OpenError, Options, Revision, Scope, Usage, Watch, Write, WriteError,
    batch_builder::PendingWrite,
    list,
    quota::Alarm,
    state::State,
    writer::{self, Writer},
};
use parking_lot::{Mutex, RwLock};
use std::{
    collections::VecDeque,
    sync::{
        Arc, Weak,
        atomic::{AtomicUsize, Ordering},
    },
    thread::{self, JoinHandle},
};
use tokio::sync::{mpsc, oneshot, watch};

/// Versioned, durable, watchable object store; see the [crate] for its guarantees.
///
/// Clones are handles to the same store. Dropping the last handle finishes queued writes and closes the engine.
/// Watches do not keep a store open.
#[derive(Clone, Debug)]
pub struct Store {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    state: Arc<RwLock<State>>,
    /// `None` only while the last handle is being dropped.
    queue: Option<mpsc::Sender<PendingWrite>>,
    thread: Mutex<Option<JoinHandle<()>>>,
    /// Shared with the writer thread, which closes the engine when the queue is closed.
    writer: Weak<Mutex<Writer>>,
    /// Number of callers in `write`.
    callers: AtomicUsize,
    alarm: Arc<Alarm>,
    quota: u64,
}

impl Store {
    /// Loads all objects of the engine into memory and starts the writer thread.
    ///
    /// # Errors
    ///
    /// The engine could not read all acknowledged data; nothing was changed.
    pub fn open(mut engine: impl Engine, options: Options) -> Result<Self, OpenError> {
        let options = options.clamp_to_minimum();
        let mut state = State::new();
        let mut found = Head::default();
        let head = engine.load(&mut |mut record| {
            found.replace(None, Some(&record));
            found.revision = found.revision.max(record.revision);
            record.key = state.intern_key(record.key);
            state.load(Object::from(record));
        })?;
        if found.objects != head.objects || found.digest != head.digest || found.revision > head.revision {
            let detail = format!(
                "{} objects up to revision {} were found where {} up to revision {} should be, or their versions differ",
                found.objects, found.revision, head.objects, head.revision
            );
            return Err(OpenError::damaged(engine.path(), detail));
        }
        state.loaded(head.revision);
        let (quota, alarm) = (options.quota_bytes, Arc::new(Alarm::new(&options, state.used)));
        let state = Arc::new(RwLock::new(state));
        let path = engine.path().to_owned();
        let (queue, pending) = mpsc::channel(options.queue_writes);
        let batch_writes = options.batch_writes;
        let writer = Arc::new(Mutex::new(Writer::new(Box::new(engine), state.clone(), options, head, alarm.clone())));
        let inner = Inner {
            state,
            queue: Some(queue),
            thread: Mutex::new(None),
            writer: Arc::downgrade(&writer),
            callers: AtomicUsize::new(0),
            alarm,
            quota,
        };
        let thread = thread::Builder::new()
            .name("store-writer".to_owned())
            .spawn(move || writer::run(&writer, pending, batch_writes))
            .map_err(OpenError::io(path))?;
        *inner.thread.lock() = Some(thread);
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Returns the current version of an object.
    #[must_use]
    pub fn get(&self, key: &Key) -> Option<Object> {
        self.inner.state.read().get(key).cloned()
    }

    /// Lists the current objects of a scope: those after `after`, at most `limit`.
    #[must_use]
    pub fn list(&self, scope: &Scope, after: Option<&Key>, limit: Option<usize>) -> List {
        list::list(&self.inner.state.read(), scope, after, limit)
    }

    /// Lists the objects of a scope at `revision`: those after `after`, at most `limit`.
    ///
    /// # Errors
    ///
    /// `revision` is older than the watch cache of the resource, or in the future (`requested > current`).
    pub fn list_at(
        &self,
        scope: &Scope,
        revision: Revision,
        after: Option<&Key>,
        limit: Option<usize>,
    ) -> Result<List, Expired> {
        list::list_at(&self.inner.state.read(), scope, revision, after, limit)
    }

    /// Returns the revision of the newest durable write.
    #[must_use]
    pub fn revision(&self) -> Revision {
        self.inner.state.read().revision
    }

    /// Returns the oldest revision from which a resource can be watched or listed exactly.
    #[must_use]
    pub fn oldest_revision(&self, resource: &str) -> Revision {
        self.inner.state.read().oldest(resource)
    }

    /// Returns the used part of the quota.
    #[must_use]
    pub fn usage(&self) -> Usage {
        Usage { bytes: self.inner.state.read().used, quota: self.inner.quota }
    }

    /// Subscribes to the quota alarm (etcd's `NOSPACE`): raised when a write is refused because of the quota, cleared
    /// when some of it is free again.
    #[must_use]
    pub fn quota_alarm(&self) -> watch::Receiver<bool> {
        self.inner.alarm.subscribe()
    }

    /// Writes one change, and resolves when it is durable and visible: to the new version of the object, or for a
    /// delete to its last version, encoded at the revision of the delete.
    ///
    /// If the future is dropped before it resolves, the write may or may not be done.
    ///
    /// # Errors
    ///
    /// See [`WriteError`]: nothing was changed, except that with [`WriteError::Closed`] it is unknown.
    pub async fn write(&self, write: Write) -> Result<Object, WriteError> {
        let (reply, answer) = oneshot::channel();
        let queue = self.inner.queue.as_ref().ok_or(WriteError::Closed)?;
        let (_caller, others) = ActiveCaller::enter(&self.inner.callers);
        let mut pending = VecDeque::from([PendingWrite { write, reply }]);
        if others == 0 {
            self.inner.try_commit_inline(&mut pending);
        }
        if let Some(pending) = pending.pop_front() {
            queue.send(pending).await.map_err(|_| WriteError::Closed)?;
        }
        answer.await.map_err(|_| WriteError::Closed)?
    }

    /// Watches the events of a scope after `from`.
    ///
    /// A watch from a future revision starts there; compare with [`Store::revision`] to refuse one.
    ///
    /// # Errors
    ///
    /// `from` is older than the watch cache of the resource, which does not survive a restart.
    pub fn watch(&self, scope: Scope, from: Revision) -> Result<Watch, Expired> {
        Watch::new(&self.inner.state, scope, from)
    }
}

impl Inner {
    /// Commits a write on the caller's thread, if that is likely to be faster than to wake the writer thread.
    fn try_commit_inline(&self, write: &mut VecDeque<PendingWrite>) {
        let Some(writer) = self.writer.upgrade() else { return };
        if let Some(mut writer) = writer.try_lock()
            && writer.has_fast_commits()
        {
            writer.write_batch(write).send();
        }
    }
}

/// Counts a caller until it is dropped.
struct ActiveCaller<'a>(&'a AtomicUsize);

impl<'a> ActiveCaller<'a> {
    /// Counts the caller; returns the number of others, too.
    fn enter(callers: &'a AtomicUsize) -> (Self, usize) {
        let others = callers.fetch_add(1, Ordering::Relaxed);
        (Self(callers), others)
    }
}

impl Drop for ActiveCaller<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.queue = None;
        let thread = self.thread.lock().take();
        if let Some(thread) = thread.filter(|thread| thread.thread().id() != thread::current().id())
            && thread.join().is_err()
        {
            tracing::error!("store writer thread panicked");
        }
    }
}
