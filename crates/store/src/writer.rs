//! The writer thread: the only one that changes anything.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::RwLock;
use tokio::sync::mpsc;

use crate::draft::{Answers, Draft, Pending};
use crate::state::State;
use crate::{CommitError, Engine, Head, Options, WriteError};

/// Takes queued writes in batches until the queue is closed and empty.
pub(crate) struct Writer<E> {
    pub(crate) engine: E,
    pub(crate) state: Arc<RwLock<State>>,
    pub(crate) options: Options,
    /// The head of what is durable and published.
    pub(crate) head: Head,
    /// Whether the last commit failed: a disk that stays full is logged once, not with every write.
    pub(crate) failing: bool,
}

impl<E: Engine> Writer<E> {
    pub(crate) fn run(mut self, mut queue: mpsc::Receiver<Pending>) {
        let mut taken = Vec::with_capacity(self.options.batch_writes);
        let mut backlog = VecDeque::with_capacity(self.options.batch_writes);
        while queue.blocking_recv_many(&mut taken, self.options.batch_writes) > 0 {
            backlog.extend(taken.drain(..));
            while !backlog.is_empty() {
                self.write_batch(&mut backlog).send();
            }
        }
    }

    fn write_batch(&mut self, backlog: &mut VecDeque<Pending>) -> Answers {
        let mut draft = Draft::new(&self.state, &self.options, self.head);
        while !draft.is_full() {
            let Some(pending) = backlog.pop_front() else {
                break;
            };
            // Who gave up while waiting is not kept waiting for.
            if !pending.reply.is_closed() {
                draft.add(pending);
            }
        }
        if draft.is_empty() {
            return draft.committed().1;
        }
        let batch = draft.batch();
        if let Err(error) = self.engine.commit(&batch) {
            return draft.failed(failure(&mut self.failing, error));
        }
        if std::mem::take(&mut self.failing) {
            tracing::info!(revision = batch.head.revision, "the store can be written again");
        }
        self.head = draft.head();
        let (events, answers) = draft.committed();
        let bells = self.state.write().publish(events, &self.options);
        for bell in bells {
            bell.send_replace(self.head.revision);
        }
        answers
    }
}

/// Logs the first of a row of failures, and puts it into the words of the callers.
fn failure(failing: &mut bool, error: CommitError) -> WriteError {
    if !std::mem::replace(failing, true) {
        tracing::error!(error = &error as &dyn std::error::Error, "the store cannot be written");
    }
    match error {
        CommitError::Full => WriteError::Full,
        error => WriteError::Engine(Arc::new(error)),
    }
}
