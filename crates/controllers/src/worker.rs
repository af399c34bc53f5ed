//! Controller loop: watch events enqueue keys, which are reconciled one after the other.

use crate::clock::saturating_add;
use futures::{
    FutureExt,
    stream::{BoxStream, StreamExt},
};
use std::{
    collections::{BTreeSet, HashMap},
    panic::AssertUnwindSafe,
    time::Duration,
};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

const BASE_BACKOFF: Duration = Duration::from_millis(100);
const MAX_BACKOFF: Duration = Duration::from_secs(30);
/// Reconcile timeout.
const RECONCILE_TIMEOUT: Duration = Duration::from_secs(60);

/// A reconciler: it drives the observed state of a key's object towards the desired state.
pub(crate) trait Controller: Send {
    /// Input of [`Controller::observe`].
    type Event: Send;

    /// Name in logs.
    const NAME: &'static str;

    /// Applies an event to the controller's state. Returns the keys to reconcile.
    fn observe(&mut self, event: Self::Event, now: Instant) -> Vec<String>;

    /// Reconciles a key. Returns the delay after which it is requeued without an event.
    fn reconcile(
        &mut self,
        key: &str,
        now: Instant,
    ) -> impl Future<Output = Result<Option<Duration>, kube::Error>> + Send;
}

/// Work queue: each key is queued at most once, with the time at which it is due.
#[derive(Debug, Default)]
struct WorkQueue {
    due: BTreeSet<(Instant, String)>,
    at: HashMap<String, Instant>,
    failures: HashMap<String, u32>,
}

impl WorkQueue {
    /// Enqueues a key; the earlier due time wins.
    fn add(&mut self, key: String, at: Instant) {
        match self.at.get(&key) {
            Some(known) if *known <= at => return,
            Some(known) => {
                self.due.remove(&(*known, key.clone()));
            }
            None => {}
        }
        self.due.insert((at, key.clone()));
        self.at.insert(key, at);
    }

    fn next_due(&self) -> Option<Instant> {
        self.due.first().map(|(at, _)| *at)
    }

    fn pop(&mut self, now: Instant) -> Option<String> {
        if self.next_due()? > now {
            return None;
        }
        let (_, key) = self.due.pop_first()?;
        self.at.remove(&key);
        Some(key)
    }

    fn add_rate_limited(&mut self, key: String, now: Instant) -> Duration {
        let failures = self.failures.entry(key.clone()).or_insert(0);
        let delay = (BASE_BACKOFF * 2_u32.pow((*failures).min(9))).min(MAX_BACKOFF);
        *failures += 1;
        self.add(key, saturating_add(now, delay));
        delay
    }
}

/// Runs a controller until cancelled.
pub(crate) async fn run<C: Controller>(
    mut controller: C,
    mut events: BoxStream<'static, C::Event>,
    stop: CancellationToken,
) {
    let mut queue = WorkQueue::default();
    loop {
        let due = queue.next_due();
        tokio::select! {
            () = stop.cancelled() => return,
            Some(event) = events.next() => {
                let now = Instant::now();
                for key in controller.observe(event, now) {
                    queue.add(key, now);
                }
            }
            () = sleep_until(due) => {
                let Some(key) = queue.pop(Instant::now()) else { continue };
                // Of the highest level, because a level filter that drops it would drop the fields of the lines in it.
                let span = tracing::error_span!("reconcile", controller = C::NAME, key);
                tokio::select! {
                    () = stop.cancelled() => return,
                    () = reconcile(&mut controller, &mut queue, key).instrument(span) => {}
                }
            }
        }
    }
}

async fn reconcile<C: Controller>(controller: &mut C, queue: &mut WorkQueue, key: String) {
    // A panic for one object must not stop the controller for all others.
    let reconcile = AssertUnwindSafe(controller.reconcile(&key, Instant::now())).catch_unwind();
    let done = tokio::time::timeout(RECONCILE_TIMEOUT, reconcile).await;
    let now = Instant::now();
    let reason = match done {
        Ok(Ok(Ok(requeue_after))) => {
            queue.failures.remove(&key);
            if let Some(delay) = requeue_after {
                queue.add(key, saturating_add(now, delay));
            }
            return;
        }
        Ok(Ok(Err(e))) => e.to_string(),
        Ok(Err(_)) => "reconcile panicked".to_owned(),
        Err(_) => format!("reconcile timed out after {} s", RECONCILE_TIMEOUT.as_secs()),
    };
    let delay = queue.add_rate_limited(key.clone(), now);
    tracing::warn!(?delay, error = reason, "reconcile failed, requeueing");
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
mod tests {
    use super::*;

    #[test]
    fn work_queue_keeps_a_key_once_at_its_earliest_time() {
        let (mut queue, start) = (WorkQueue::default(), Instant::now());
        let at = |s| start + Duration::from_secs(s);
        queue.add("a".into(), at(5));
        queue.add("a".into(), at(9));
        queue.add("b".into(), at(7));
        queue.add("b".into(), at(3));
        assert_eq!(queue.pop(at(2)), None);
        assert_eq!(queue.pop(at(9)).as_deref(), Some("b"));
        assert_eq!(queue.pop(at(9)).as_deref(), Some("a"));
        assert_eq!(queue.pop(at(9)), None);
    }

    #[test]
    fn failed_key_backs_off_up_to_30_seconds() {
        let (mut queue, now) = (WorkQueue::default(), Instant::now());
        let delays: Vec<u128> = (0..11).map(|_| queue.add_rate_limited("a".into(), now).as_millis()).collect();
        assert_eq!(delays, [100, 200, 400, 800, 1600, 3200, 6400, 12800, 25600, 30000, 30000]);
    }
}
