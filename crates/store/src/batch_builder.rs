//! Group commit: the effects of queued writes, before they are durable or visible.

use crate::{
    Batch, BatchChange, Event, EventKind, Head, Key, Object, Options, Precondition, QuotaAllowance, Record, Write,
    WriteError, WriteOperation, quota::object_size, state::State,
};
use parking_lot::RwLock;
use std::collections::HashMap;
use tokio::sync::oneshot;

pub(crate) type WriteResult = Result<Object, WriteError>;

/// Queued write with the channel of its result.
pub(crate) struct PendingWrite {
    pub(crate) write: Write,
    pub(crate) reply: oneshot::Sender<WriteResult>,
}

/// Result that is sent after the commit.
struct PendingReply {
    reply: oneshot::Sender<WriteResult>,
    answer: WriteResult,
    /// Whether the result is valid only if the batch is committed: a success, or a refusal because of an earlier write
    /// of the same batch.
    depends_on_commit: bool,
}

/// Builder of a batch, with the effects of its writes in order.
pub(crate) struct BatchBuilder<'a> {
    state: &'a RwLock<State>,
    options: &'a Options,
    head: Head,
    /// Objects after the batch; `None` for deleted ones.
    pending_objects: HashMap<Key, Option<Object>>,
    events: Vec<Event>,
    replies: Vec<PendingReply>,
    bytes: usize,
    /// Bytes of all objects after the batch.
    used: u64,
    /// Whether a write was refused because of the quota.
    is_out_of_space: bool,
}

impl<'a> BatchBuilder<'a> {
    pub(crate) fn new(state: &'a RwLock<State>, options: &'a Options, head: Head) -> Self {
        let used = state.read().used;
        Self {
            state,
            options,
            head,
            pending_objects: HashMap::new(),
            events: Vec::new(),
            replies: Vec::new(),
            bytes: 0,
            used,
            is_out_of_space: false,
        }
    }

    /// Returns whether a write was refused because of the quota.
    pub(crate) fn is_out_of_space(&self) -> bool {
        self.is_out_of_space
    }

    /// Returns whether the batch has reached a limit.
    pub(crate) fn is_full(&self) -> bool {
        self.replies.len() >= self.options.batch_writes || self.bytes >= self.options.batch_bytes
    }

    /// Returns whether there is nothing to commit: every write was refused.
    pub(crate) fn is_empty(&self) -> bool {
        self.events.is_empty()
    }

    /// Returns the store's head after the batch.
    pub(crate) fn head(&self) -> Head {
        self.head
    }

    pub(crate) fn add(&mut self, pending: PendingWrite) {
        let PendingWrite { write, reply } = pending;
        let was_touched = self.pending_objects.contains_key(&write.key);
        let answer = self.apply(write);
        let depends_on_commit = was_touched || answer.is_ok();
        self.replies.push(PendingReply { reply, answer, depends_on_commit });
    }

    fn apply(&mut self, write: Write) -> WriteResult {
        let Write { key, precondition: expect, operation, allowance } = write;
        check_size("key", key.bytes(), Key::MAX_BYTES)?;
        let previous = match self.pending_objects.get(&key) {
            Some(object) => object.clone(),
            None => self.state.read().get(&key).cloned(),
        };
        check_expectation(expect, &operation, previous.as_ref())?;
        let revision = self.head.revision + 1;
        let create_revision = previous.as_ref().map_or(revision, |previous| previous.create_revision);
        let (kind, template) = match operation {
            WriteOperation::Put(template) => (EventKind::Put, template),
            WriteOperation::Delete(template) => (EventKind::Delete, template),
        };
        let mut record = Record::new(key, revision, create_revision, &template);
        check_size("data", record.data.len(), self.options.object_bytes)?;
        if kind == EventKind::Put {
            self.check_quota(allowance, previous.as_deref(), &record)?;
        }
        record.key = match &previous {
            Some(previous) => previous.key.clone(),
            None => self.state.write().intern_key(record.key),
        };
        let object = Object::from(record);
        self.add_event(kind, object.clone(), previous);
        Ok(object)
    }

    /// Checks the quota. A write that does not grow its object is always allowed.
    fn check_quota(
        &mut self,
        allowance: QuotaAllowance,
        old_size: Option<&Record>,
        pending_objects: &Record,
    ) -> Result<(), WriteError> {
        let (old_size, pending_objects) = (old_size.map_or(0, object_size), object_size(pending_objects));
        let size = self.used.saturating_sub(old_size).saturating_add(pending_objects);
        let limit = allowance.limit(self.options.quota_bytes);
        if pending_objects <= old_size || size <= limit {
            return Ok(());
        }
        self.is_out_of_space = true;
        Err(WriteError::NoSpace { size, limit })
    }

    /// Adds a valid change to the batch.
    fn add_event(&mut self, kind: EventKind, object: Object, previous: Option<Object>) {
        let pending_objects = (kind == EventKind::Put).then(|| object.clone());
        self.head.revision = object.revision;
        self.head.replace(previous.as_deref(), pending_objects.as_deref());
        self.bytes += object.data.len();
        let size = |object: Option<&Object>| object.map_or(0, |object| object_size(object));
        self.used = self.used.saturating_sub(size(previous.as_ref())).saturating_add(size(pending_objects.as_ref()));
        self.pending_objects.insert(object.key.clone(), pending_objects);
        self.events.push(Event::new(kind, object, previous));
    }

    /// Returns the batch for the engine: the last state of each changed object.
    pub(crate) fn batch(&mut self) -> Batch {
        self.head.sequence += 1;
        let changes = self
            .pending_objects
            .drain()
            .map(|(key, object)| object.map_or(BatchChange::Delete(key), BatchChange::Put))
            .collect();
        Batch { head: self.head, changes }
    }

    /// Completes a durable batch: returns its events, and the results to send after they are published.
    pub(crate) fn committed(self) -> (Vec<Event>, PendingReplies) {
        (self.events, PendingReplies { replies: self.replies, failure: None })
    }

    /// Completes a failed batch, which has no effect.
    pub(crate) fn failed(self, failure: WriteError) -> PendingReplies {
        PendingReplies { replies: self.replies, failure: Some(failure) }
    }
}

/// Results to send.
#[derive(Default)]
pub(crate) struct PendingReplies {
    replies: Vec<PendingReply>,
    failure: Option<WriteError>,
}

impl PendingReplies {
    pub(crate) fn send(self) {
        for PendingReply { reply, answer, depends_on_commit } in self.replies {
            let answer = match &self.failure {
                Some(failure) if depends_on_commit => Err(failure.clone()),
                _ => answer,
            };
            // The caller may have dropped its future.
            let _ = reply.send(answer);
        }
    }
}

fn check_size(field: &'static str, size: usize, limit: usize) -> Result<(), WriteError> {
    if size > limit { Err(WriteError::TooLarge { field, size, limit }) } else { Ok(()) }
}

fn check_expectation(
    precondition: Precondition,
    operation: &WriteOperation,
    current: Option<&Object>,
) -> Result<(), WriteError> {
    let must_exist = matches!(operation, WriteOperation::Delete(_))
        || matches!(precondition, Precondition::Exists | Precondition::Revision(_));
    match (precondition, current) {
        (Precondition::Absent, Some(current)) => Err(WriteError::AlreadyExists { current: current.clone() }),
        (Precondition::Revision(expected), Some(current)) if current.revision != expected => {
            Err(WriteError::Conflict { current: current.clone() })
        }
        (_, None) if must_exist => Err(WriteError::NotFound),
        _ => Ok(()),
    }
}
