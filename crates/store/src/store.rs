//! The store itself.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::thread::{self, JoinHandle};

use parking_lot::{Mutex, RwLock};
use tokio::sync::{mpsc, oneshot, watch};

use crate::draft::Pending;
use crate::quota::Alarm;
use crate::state::State;
use crate::writer::{self, Writer};
use crate::{
    Engine, Expired, Head, Key, Listing, Object, OpenError, Options, Revision, Scope, Usage, Watch, Write, WriteError,
    list,
};

/// Versioned, durable, watchable objects; see the [crate] for what it promises.
///
/// A clone is another handle to the same store. When the last handle is dropped, the writes that are queued are
/// finished and the engine is closed before the drop returns. Watches do not keep a store open.
#[derive(Clone, Debug)]
pub struct Store {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    state: Arc<RwLock<State>>,
    /// `None` only while the last handle is being dropped.
    queue: Option<mpsc::Sender<Pending>>,
    thread: Mutex<Option<JoinHandle<()>>>,
    /// Shared with the writer thread, which closes the engine when the queue is closed.
    writer: Weak<Mutex<Writer>>,
    /// Callers that have a write to make, or wait for one.
    callers: AtomicUsize,
    alarm: Arc<Alarm>,
    quota: u64,
}

impl Store {
    /// Loads everything that the engine holds into memory, and starts the writer thread.
    ///
    /// # Errors
    ///
    /// The engine could not read all of what it once acknowledged; nothing was changed.
    pub fn open(mut engine: impl Engine, options: Options) -> Result<Self, OpenError> {
        let options = options.at_least_one();
        let mut state = State::new();
        let mut found = Head::default();
        let head = engine.load(&mut |mut record| {
            found.replace(None, Some(&record));
            found.revision = found.revision.max(record.revision);
            record.key = state.shared_key(record.key);
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

    /// The object as it is now.
    #[must_use]
    pub fn get(&self, key: &Key) -> Option<Object> {
        self.inner.state.read().get(key).cloned()
    }

    /// The objects of a scope as they are now: those after `after`, at most `limit` of them.
    #[must_use]
    pub fn list(&self, scope: &Scope, after: Option<&Key>, limit: Option<usize>) -> Listing {
        list::list(&self.inner.state.read(), scope, after, limit)
    }

    /// The objects of a scope as they were at `revision`: those after `after`, at most `limit` of them.
    ///
    /// # Errors
    ///
    /// `revision` is older than the window of the resource, or is in the future (`requested > current`).
    pub fn list_at(
        &self,
        scope: &Scope,
        revision: Revision,
        after: Option<&Key>,
        limit: Option<usize>,
    ) -> Result<Listing, Expired> {
        list::list_at(&self.inner.state.read(), scope, revision, after, limit)
    }

    /// The revision of the newest durable write.
    #[must_use]
    pub fn revision(&self) -> Revision {
        self.inner.state.read().revision
    }

    /// The oldest revision from which a resource can be watched or listed exactly.
    #[must_use]
    pub fn oldest_revision(&self, resource: &str) -> Revision {
        self.inner.state.read().oldest(resource)
    }

    /// How much of the quota is used.
    #[must_use]
    pub fn usage(&self) -> Usage {
        Usage { bytes: self.inner.state.read().used, quota: self.inner.quota }
    }

    /// Whether the store has run out of space: raised when a write is refused because of the quota, cleared when some of
    /// it is free again.
    #[must_use]
    pub fn quota_alarm(&self) -> watch::Receiver<bool> {
        self.inner.alarm.subscribe()
    }

    /// Makes one change, and resolves when it is durable and visible: to the new version of the object, or for a
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
        let (_caller, others) = Caller::enter(&self.inner.callers);
        let mut pending = VecDeque::from([Pending { write, reply }]);
        if others == 0 {
            self.inner.write_alone(&mut pending);
        }
        if let Some(pending) = pending.pop_front() {
            queue.send(pending).await.map_err(|_| WriteError::Closed)?;
        }
        answer.await.map_err(|_| WriteError::Closed)?
    }

    /// The events of a scope after `from`.
    ///
    /// A watch from a future revision delivers what comes after it; compare with [`Store::revision`] to refuse one.
    ///
    /// # Errors
    ///
    /// `from` is older than the window of the resource; history is not kept from one opening to the next.
    pub fn watch(&self, scope: Scope, from: Revision) -> Result<Watch, Expired> {
        Watch::new(&self.inner.state, scope, from)
    }
}

impl Inner {
    /// Makes a write on the caller's thread, if that is likely to be quicker than to wake the writer.
    fn write_alone(&self, write: &mut VecDeque<Pending>) {
        let Some(writer) = self.writer.upgrade() else { return };
        if let Some(mut writer) = writer.try_lock()
            && writer.is_quick()
        {
            writer.write_batch(write).send();
        }
    }
}

/// Counts a caller for as long as it is there.
struct Caller<'a>(&'a AtomicUsize);

impl<'a> Caller<'a> {
    /// The caller, and how many others there are.
    fn enter(callers: &'a AtomicUsize) -> (Self, usize) {
        let others = callers.fetch_add(1, Ordering::Relaxed);
        (Self(callers), others)
    }
}

impl Drop for Caller<'_> {
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
            tracing::error!("the store's writer thread had panicked");
        }
    }
}
