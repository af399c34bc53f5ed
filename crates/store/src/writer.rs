//! Commits: done by the caller itself when it is alone and the disk is quick, else by the writer thread for many at once.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Mutex, RwLock};
use tokio::sync::mpsc;

use crate::draft::{Answers, Draft, Pending};
use crate::quota::Alarm;
use crate::state::State;
use crate::{CommitError, Engine, Head, Options, WriteError};

/// How long the last commit may have taken for a caller to do the next one itself. It saves two wake-ups of sleeping
/// threads, which cost more than such a commit; a slower one would hold up what else runs on the caller's thread.
const QUICK: Duration = Duration::from_micros(500);

/// The only one that changes anything, one batch at a time.
pub(crate) struct Writer {
    engine: Box<dyn Engine>,
    state: Arc<RwLock<State>>,
    options: Options,
    /// The head of what is durable and published.
    head: Head,
    /// Whether the last commit failed: a disk that stays full is logged once, not with every write.
    failing: bool,
    /// How long the last commit took; unknown before the first.
    took: Option<Duration>,
    /// Whether the engine panicked: nothing is known of it any more.
    broken: bool,
    alarm: Arc<Alarm>,
}

impl Writer {
    pub(crate) fn new(
        engine: Box<dyn Engine>,
        state: Arc<RwLock<State>>,
        options: Options,
        head: Head,
        alarm: Arc<Alarm>,
    ) -> Self {
        Self { engine, state, options, head, failing: false, took: None, broken: false, alarm }
    }

    /// Whether the next commit is likely to be over before a thread could be woken to do it.
    pub(crate) fn is_quick(&self) -> bool {
        !self.failing && self.took.is_some_and(|took| took < QUICK)
    }

    /// Takes writes from the front of a backlog, as many as one batch holds, and commits them.
    ///
    /// Dropping the answers without sending them tells the callers that the store is closed.
    pub(crate) fn write_batch(&mut self, backlog: &mut VecDeque<Pending>) -> Answers {
        if self.broken {
            backlog.clear();
            return Answers::default();
        }
        let answers = catch_unwind(AssertUnwindSafe(|| self.write_draft(backlog)));
        if answers.is_err() {
            tracing::error!("the store's engine panicked: nothing can be written until the store is opened again");
            self.broken = true;
            backlog.clear();
        }
        answers.unwrap_or_default()
    }

    fn write_draft(&mut self, backlog: &mut VecDeque<Pending>) -> Answers {
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
        let is_out_of_space = draft.is_out_of_space();
        if draft.is_empty() {
            let used = self.state.read().used;
            self.alarm.update(used, is_out_of_space);
            return draft.committed().1;
        }
        let batch = draft.batch();
        let begin = Instant::now();
        let committed = self.engine.commit(&batch);
        self.took = Some(begin.elapsed());
        if let Err(error) = committed {
            return draft.failed(failure(&mut self.failing, error));
        }
        if std::mem::take(&mut self.failing) {
            tracing::info!(revision = batch.head.revision, "the store can be written again");
        }
        self.head = draft.head();
        let (events, answers) = draft.committed();
        let (bells, used) = {
            let mut state = self.state.write();
            (state.publish(events, &self.options), state.used)
        };
        self.alarm.update(used, is_out_of_space);
        for bell in bells {
            bell.send_replace(self.head.revision);
        }
        answers
    }
}

/// The writer thread: takes queued writes in batches until the queue is closed and empty.
pub(crate) fn run(writer: &Mutex<Writer>, mut queue: mpsc::Receiver<Pending>, batch_writes: usize) {
    let mut taken = Vec::with_capacity(batch_writes);
    let mut backlog = VecDeque::with_capacity(batch_writes);
    while queue.blocking_recv_many(&mut taken, batch_writes) > 0 {
        let mut writer = writer.lock();
        backlog.extend(taken.drain(..));
        while !backlog.is_empty() {
            writer.write_batch(&mut backlog).send();
        }
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
