//! A batch in the making: what the queued writes would do, before any of it is durable or visible.

use std::collections::HashMap;

use parking_lot::RwLock;
use tokio::sync::oneshot;

use crate::quota::footprint;
use crate::state::State;
use crate::{
    Allowance, Batch, BatchChange, Change, Event, EventKind, Expect, Head, Key, Object, Options, Record, Write,
    WriteError,
};

pub(crate) type Answer = Result<Object, WriteError>;

/// A write that waits, and where its answer goes.
pub(crate) struct Pending {
    pub(crate) write: Write,
    pub(crate) reply: oneshot::Sender<Answer>,
}

/// An answer that waits for the commit.
struct Decided {
    reply: oneshot::Sender<Answer>,
    answer: Answer,
    /// Whether the answer is true only if the batch is committed: a success, or a refusal because of an earlier write
    /// of the same batch.
    depends: bool,
}

/// The effects of the writes that were added, in order.
pub(crate) struct Draft<'a> {
    state: &'a RwLock<State>,
    options: &'a Options,
    head: Head,
    /// What the objects that the batch touches will be.
    after: HashMap<Key, Option<Object>>,
    events: Vec<Event>,
    decided: Vec<Decided>,
    bytes: usize,
    /// The bytes that all objects will take.
    used: u64,
    /// Whether a write was refused for lack of space.
    is_out_of_space: bool,
}

impl<'a> Draft<'a> {
    pub(crate) fn new(state: &'a RwLock<State>, options: &'a Options, head: Head) -> Self {
        let used = state.read().used;
        Self {
            state,
            options,
            head,
            after: HashMap::new(),
            events: Vec::new(),
            decided: Vec::new(),
            bytes: 0,
            used,
            is_out_of_space: false,
        }
    }

    /// Whether a write was refused because of the quota.
    pub(crate) fn is_out_of_space(&self) -> bool {
        self.is_out_of_space
    }

    /// Whether no further write should be added.
    pub(crate) fn is_full(&self) -> bool {
        self.decided.len() >= self.options.batch_writes || self.bytes >= self.options.batch_bytes
    }

    /// Whether there is nothing to commit: every write was refused.
    pub(crate) fn is_empty(&self) -> bool {
        self.events.is_empty()
    }

    /// The store's head once the batch is committed.
    pub(crate) fn head(&self) -> Head {
        self.head
    }

    pub(crate) fn add(&mut self, pending: Pending) {
        let Pending { write, reply } = pending;
        let touched = self.after.contains_key(&write.key);
        let answer = self.apply(write);
        let depends = touched || answer.is_ok();
        self.decided.push(Decided { reply, answer, depends });
    }

    fn apply(&mut self, write: Write) -> Answer {
        let Write { key, expect, change, allowance } = write;
        check_size("key", key.bytes(), Key::MAX_BYTES)?;
        let previous = match self.after.get(&key) {
            Some(object) => object.clone(),
            None => self.state.read().get(&key).cloned(),
        };
        check_expectation(expect, &change, previous.as_ref())?;
        let revision = self.head.revision + 1;
        let create_revision = previous.as_ref().map_or(revision, |previous| previous.create_revision);
        let (kind, template) = match change {
            Change::Put(template) => (EventKind::Put, template),
            Change::Delete(template) => (EventKind::Delete, template),
        };
        let mut record = Record::new(key, revision, create_revision, &template);
        check_size("data", record.data.len(), self.options.object_bytes)?;
        if kind == EventKind::Put {
            self.check_quota(allowance, previous.as_deref(), &record)?;
        }
        record.key = match &previous {
            Some(previous) => previous.key.clone(),
            None => self.state.write().shared_key(record.key),
        };
        let object = Object::from(record);
        self.note(kind, object.clone(), previous);
        Ok(object)
    }

    /// A write that makes the object no larger is always allowed.
    fn check_quota(&mut self, allowance: Allowance, before: Option<&Record>, after: &Record) -> Result<(), WriteError> {
        let (before, after) = (before.map_or(0, footprint), footprint(after));
        let size = self.used.saturating_sub(before).saturating_add(after);
        let limit = allowance.limit(self.options.quota_bytes);
        if after <= before || size <= limit {
            return Ok(());
        }
        self.is_out_of_space = true;
        Err(WriteError::NoSpace { size, limit })
    }

    /// Takes a change that was found good into the batch.
    fn note(&mut self, kind: EventKind, object: Object, previous: Option<Object>) {
        let after = (kind == EventKind::Put).then(|| object.clone());
        self.head.revision = object.revision;
        self.head.replace(previous.as_deref(), after.as_deref());
        self.bytes += object.data.len();
        let size = |object: Option<&Object>| object.map_or(0, |object| footprint(object));
        self.used = self.used.saturating_sub(size(previous.as_ref())).saturating_add(size(after.as_ref()));
        self.after.insert(object.key.clone(), after);
        self.events.push(Event::new(kind, object, previous));
    }

    /// What the engine must make durable: the last state of each touched object.
    pub(crate) fn batch(&mut self) -> Batch {
        self.head.sequence += 1;
        let changes =
            self.after.drain().map(|(key, object)| object.map_or(BatchChange::Delete(key), BatchChange::Put)).collect();
        Batch { head: self.head, changes }
    }

    /// The batch is durable: its events, to publish, and the answers, to send after that.
    pub(crate) fn committed(self) -> (Vec<Event>, Answers) {
        (self.events, Answers { decided: self.decided, failure: None })
    }

    /// The batch failed and nothing of it happened.
    pub(crate) fn failed(self, failure: WriteError) -> Answers {
        Answers { decided: self.decided, failure: Some(failure) }
    }
}

/// Answers that are ready to be sent.
#[derive(Default)]
pub(crate) struct Answers {
    decided: Vec<Decided>,
    failure: Option<WriteError>,
}

impl Answers {
    pub(crate) fn send(self) {
        for Decided { reply, answer, depends } in self.decided {
            let answer = match &self.failure {
                Some(failure) if depends => Err(failure.clone()),
                _ => answer,
            };
            // A caller that went away does not want to know.
            let _ = reply.send(answer);
        }
    }
}

fn check_size(what: &'static str, size: usize, limit: usize) -> Result<(), WriteError> {
    if size > limit { Err(WriteError::TooLarge { what, size, limit }) } else { Ok(()) }
}

fn check_expectation(expect: Expect, change: &Change, current: Option<&Object>) -> Result<(), WriteError> {
    let must_exist = matches!(change, Change::Delete(_)) || matches!(expect, Expect::Exists | Expect::Revision(_));
    match (expect, current) {
        (Expect::Absent, Some(current)) => Err(WriteError::AlreadyExists { current: current.clone() }),
        (Expect::Revision(expected), Some(current)) if current.revision != expected => {
            Err(WriteError::Conflict { current: current.clone() })
        }
        (_, None) if must_exist => Err(WriteError::NotFound),
        _ => Ok(()),
    }
}
