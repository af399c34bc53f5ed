//! Controller loop: watch events enqueue keys, which workers reconcile.

use crate::{clock::saturating_add, workqueue::WorkQueue};
use futures::{
    FutureExt,
    stream::{BoxStream, StreamExt},
};
use std::{collections::HashMap, panic::AssertUnwindSafe, sync::Arc, time::Duration};
use tokio::{
    task::{self, JoinError, JoinSet},
    time::Instant,
};
use tokio_util::sync::CancellationToken;
use tracing::{Instrument, Span};

/// Maximum delay of a failed key. client-go's is 1000 s: there, a quota that is raised or a webhook that is repaired
/// takes effect a quarter of an hour later.
const MAX_BACKOFF: Duration = Duration::from_secs(30);
/// Maximum number of events that are observed before keys are handed to workers.
const EVENT_BATCH_SIZE: usize = 256;
/// Reconcile timeout.
const RECONCILE_TIMEOUT: Duration = Duration::from_secs(60);
/// Minimum delay after an abandoned reconcile: its last request may still be committed, and must be observed before the
/// retry, which would create the same again.
const MIN_DELAY_AFTER_ABANDONED: Duration = Duration::from_secs(1);

/// A reconciler: it drives the observed state of a key's object towards the desired state.
///
/// Events are observed while keys are reconciled, and different keys are reconciled concurrently, so shared state is
/// behind a lock. One key is never reconciled twice at a time.
pub(crate) trait Controller: Send + Sync + 'static {
    /// Input of [`Controller::observe`].
    type Event: Send;

    /// Name in logs.
    const NAME: &'static str;

    /// Number of keys that are reconciled concurrently, as upstream's `--concurrent-*-syncs`. A few of upstream's
    /// controllers have one worker; here they have several, too, so that no object delays its kind.
    const WORKERS: usize = 5;

    /// Applies an event to the controller's state. Returns the keys to reconcile.
    fn observe(&self, event: Self::Event, now: Instant) -> Vec<String>;

    /// Reconciles a key. Returns the delay after which it is requeued without an event. The future is dropped when it
    /// times out or the controller stops.
    fn reconcile(&self, key: &str, now: Instant) -> impl Future<Output = Result<Option<Duration>, kube::Error>> + Send;
}

/// Why a reconcile failed.
#[derive(Debug, thiserror::Error)]
enum ReconcileError {
    #[error(transparent)]
    Request(kube::Error),
    #[error("reconcile panicked")]
    Panic,
    #[error("reconcile timed out after {} s", RECONCILE_TIMEOUT.as_secs())]
    Timeout,
}

impl ReconcileError {
    fn min_delay(&self) -> Duration {
        match self {
            Self::Request(_) => Duration::ZERO,
            Self::Panic | Self::Timeout => MIN_DELAY_AFTER_ABANDONED,
        }
    }
}

/// A finished reconcile.
struct Reconciled {
    key: String,
    result: Result<Option<Duration>, ReconcileError>,
    span: Span,
}

/// Runs a controller until cancelled. A worker is a task for one reconcile, so that an idle controller has none.
pub(crate) async fn run<C: Controller>(
    controller: C,
    mut events: BoxStream<'static, C::Event>,
    stop: CancellationToken,
) {
    let (controller, mut queue) = (Arc::new(controller), WorkQueue::new(MAX_BACKOFF));
    let mut workers = Workers::default();
    loop {
        // Before the events, which may never pause.
        while let Some(reconciled) = workers.tasks.try_join_next_with_id() {
            requeue(&mut queue, workers.reconciled::<C>(reconciled), Instant::now());
        }
        while workers.len() < C::WORKERS
            && let Some(key) = queue.get(Instant::now())
        {
            workers.spawn(&controller, key);
        }
        let due = queue.next_due().filter(|_| workers.len() < C::WORKERS);
        tokio::select! {
            () = stop.cancelled() => break,
            Some(event) = events.next() => {
                let now = Instant::now();
                // Events that belong together are observed before their keys are reconciled.
                let ready = std::iter::from_fn(|| events.next().now_or_never().flatten()).take(EVENT_BATCH_SIZE);
                for event in std::iter::once(event).chain(ready) {
                    controller.observe(event, now).into_iter().for_each(|key| queue.add(key, now));
                }
            }
            Some(joined) = workers.tasks.join_next_with_id() => {
                requeue(&mut queue, workers.reconciled::<C>(joined), Instant::now());
            }
            () = sleep_until(due) => {}
        }
    }
    workers.tasks.shutdown().await;
}

/// The running reconciles.
#[derive(Default)]
struct Workers {
    tasks: JoinSet<Reconciled>,
    /// Keys by task, for tasks that end without a result.
    keys: HashMap<task::Id, String>,
}

impl Workers {
    fn len(&self) -> usize {
        self.tasks.len()
    }

    fn spawn<C: Controller>(&mut self, controller: &Arc<C>, key: String) {
        let task = self.tasks.spawn(reconcile(Arc::clone(controller), key.clone()));
        self.keys.insert(task.id(), key);
    }

    /// Returns the outcome of an ended task. A task panics if the drop of an abandoned reconcile does.
    fn reconciled<C: Controller>(&mut self, joined: Result<(task::Id, Reconciled), JoinError>) -> Reconciled {
        let id = joined.as_ref().map_or_else(JoinError::id, |(id, _)| *id);
        let key = self.keys.remove(&id).unwrap_or_default();
        match joined {
            Ok((_, reconciled)) => reconciled,
            Err(_) => Reconciled { span: span::<C>(&key), key, result: Err(ReconcileError::Panic) },
        }
    }
}

async fn reconcile<C: Controller>(controller: Arc<C>, key: String) -> Reconciled {
    let span = span::<C>(&key);
    // A panic for one object must not stop the controller for all others.
    let attempt = AssertUnwindSafe(controller.reconcile(&key, Instant::now())).catch_unwind();
    let result = match tokio::time::timeout(RECONCILE_TIMEOUT, attempt).instrument(span.clone()).await {
        Ok(Ok(result)) => result.map_err(ReconcileError::Request),
        Ok(Err(_)) => Err(ReconcileError::Panic),
        Err(_) => Err(ReconcileError::Timeout),
    };
    Reconciled { key, result, span }
}

/// Returns a span of the highest level, because a level filter that drops it would drop the fields of the lines in it.
fn span<C: Controller>(key: &str) -> Span {
    tracing::error_span!("reconcile", controller = C::NAME, key)
}

fn requeue(queue: &mut WorkQueue, Reconciled { key, result, span }: Reconciled, now: Instant) {
    let min_delay = result.as_ref().map_or_else(ReconcileError::min_delay, |_| Duration::ZERO);
    if !min_delay.is_zero() {
        queue.set_not_before(&key, saturating_add(now, min_delay));
    }
    queue.done(&key);
    match result {
        Ok(requeue_after) => {
            queue.forget(&key);
            if let Some(delay) = requeue_after {
                queue.add(key, saturating_add(now, delay));
            }
        }
        Err(error) => {
            let delay = queue.add_rate_limited(key, now).max(min_delay);
            span.in_scope(|| tracing::warn!(?delay, %error, "reconcile failed, requeueing"));
        }
    }
}

async fn sleep_until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

/// Returns whether the API server answered with this HTTP status code.
pub(crate) fn is_code(error: &kube::Error, code: u16) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == code)
}

/// Treats 404 and 409 as success: the object is gone, or was replaced or changed meanwhile.
pub(crate) fn ignore_not_found_or_conflict<T>(result: Result<T, kube::Error>) -> Result<(), kube::Error> {
    match result {
        Err(e) if is_code(&e, 404) || is_code(&e, 409) => Ok(()),
        other => other.map(drop),
    }
}

#[cfg(test)]
mod tests;
