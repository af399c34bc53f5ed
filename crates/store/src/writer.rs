//! The writer thread: the only one that changes anything.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::RwLock;
use tokio::sync::mpsc;

use crate::draft::{Answers, Draft, Pending};
use crate::state::State;
use crate::{Batch, CommitError, Engine, Head, Options, WriteError};

/// Takes queued writes in batches until the queue is closed and empty.
pub(crate) struct Writer<E> {
    pub(crate) engine: E,
    pub(crate) state: Arc<RwLock<State>>,
    pub(crate) options: Options,
    /// The head of what is durable and published.
    pub(crate) head: Head,
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
            draft.add(pending);
        }
        if draft.is_empty() {
            return draft.committed().1;
        }
        let batch = draft.batch();
        if let Err(error) = commit(&mut self.engine, &batch) {
            return draft.failed(error);
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

fn commit(engine: &mut impl Engine, batch: &Batch) -> Result<(), WriteError> {
    let revision = batch.head.revision;
    engine.commit(batch).map_err(|error| match error {
        CommitError::Full => {
            tracing::warn!(revision, "the disk that holds the store is full");
            WriteError::Full
        }
        error => {
            tracing::error!(
                revision,
                error = &error as &dyn std::error::Error,
                "cannot commit a batch"
            );
            WriteError::Engine(Arc::new(error))
        }
    })
}
