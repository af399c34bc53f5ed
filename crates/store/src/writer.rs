//! Commits: inline by a lone caller if the disk is fast, else in groups by the writer thread.

use crate::{
    CommitError, Engine, Head, Options, WriteError,
    batch_builder::{BatchBuilder, PendingReplies, PendingWrite},
    quota::Alarm,
    state::State,
};
use parking_lot::{Mutex, RwLock};
use std::{
    collections::VecDeque,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::sync::mpsc;

/// Maximum duration of the last commit for inline commits. They save two thread wake-ups, which cost more than such a
/// commit; slower ones would block the caller's runtime thread.
const FAST_COMMIT: Duration = Duration::from_micros(500);

/// The only writer of the store, one batch at a time.
pub(crate) struct Writer {
    engine: Box<dyn Engine>,
    state: Arc<RwLock<State>>,
    options: Options,
    /// Head of the durable and published state.
    head: Head,
    /// Whether the last commit failed: a row of failures is logged once.
    failing: bool,
    /// Duration of the last commit; `None` before the first.
    last_commit_time: Option<Duration>,
    /// Whether the engine panicked: its state is unknown.
    has_panicked: bool,
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
        Self { engine, state, options, head, failing: false, last_commit_time: None, has_panicked: false, alarm }
    }

    /// Returns whether an inline commit is likely to be faster than waking the writer thread.
    pub(crate) fn has_fast_commits(&self) -> bool {
        !self.failing && self.last_commit_time.is_some_and(|last_commit_time| last_commit_time < FAST_COMMIT)
    }

    /// Commits writes from the front of a backlog, as many as one batch holds.
    ///
    /// Dropping the result without sending it reports [`WriteError::Closed`] to the callers.
    pub(crate) fn write_batch(&mut self, backlog: &mut VecDeque<PendingWrite>) -> PendingReplies {
        if self.has_panicked {
            backlog.clear();
            return PendingReplies::default();
        }
        let answers = catch_unwind(AssertUnwindSafe(|| self.commit_batch(backlog)));
        if answers.is_err() {
            tracing::error!("store engine panicked, refusing writes until restart");
            self.has_panicked = true;
            backlog.clear();
        }
        answers.unwrap_or_default()
    }

    fn commit_batch(&mut self, backlog: &mut VecDeque<PendingWrite>) -> PendingReplies {
        let mut builder = BatchBuilder::new(&self.state, &self.options, self.head);
        while !builder.is_full() {
            let Some(pending) = backlog.pop_front() else {
                break;
            };
            // The caller may have dropped its future.
            if !pending.reply.is_closed() {
                builder.add(pending);
            }
        }
        let is_out_of_space = builder.is_out_of_space();
        if builder.is_empty() {
            let used = self.state.read().used;
            self.alarm.update(used, is_out_of_space);
            return builder.committed().1;
        }
        let batch = builder.batch();
        let begin = Instant::now();
        let committed = self.engine.commit(&batch);
        self.last_commit_time = Some(begin.elapsed());
        if let Err(error) = committed {
            return builder.failed(to_write_error(&mut self.failing, error));
        }
        if std::mem::take(&mut self.failing) {
            tracing::info!(revision = batch.head.revision, "store accepts writes again");
        }
        self.head = builder.head();
        let (events, answers) = builder.committed();
        let (notifiers, used) = {
            let mut state = self.state.write();
            (state.publish(events, &self.options), state.used)
        };
        self.alarm.update(used, is_out_of_space);
        for notifier in notifiers {
            notifier.send_replace(self.head.revision);
        }
        answers
    }
}

/// Runs the writer thread: commits queued writes in batches until the queue is closed and empty.
pub(crate) fn run(writer: &Mutex<Writer>, mut queue: mpsc::Receiver<PendingWrite>, batch_writes: usize) {
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

/// Logs the first of a row of failures, and converts the error.
fn to_write_error(failing: &mut bool, error: CommitError) -> WriteError {
    if !std::mem::replace(failing, true) {
        tracing::error!(error = &error as &dyn std::error::Error, "failed to write store");
    }
    match error {
        CommitError::Full => WriteError::Full,
        error => WriteError::Engine(Arc::new(error)),
    }
}
