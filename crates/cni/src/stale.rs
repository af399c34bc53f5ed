//! Sandboxes that are disconnected in the background: those that the runtime does not know, and those of an ADD that was
//! not completed or could not be undone.

use crate::{Error, Inner, operations, record};
use futures::{StreamExt, stream};
use parking_lot::Mutex;
use std::{collections::BTreeSet, sync::Arc, time::Duration};
use tokio::{sync::Notify, time::Instant};

/// First and last pause between attempts.
const BACKOFF: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(300));

/// Maximum number of sandboxes that are disconnected at the same time.
const CONCURRENCY: usize = 16;
/// Maximum number of sandboxes that wait for DEL while others are connected: a network that is broken for days must not
/// fill the disk.
const MAX_STALE: usize = 1024;

/// Sandboxes to disconnect.
#[derive(Debug, Default)]
pub(crate) struct Stale {
    state: Mutex<State>,
    /// Sandboxes were added.
    added: Notify,
    /// The plugins work again, perhaps.
    retry: Notify,
}

#[derive(Debug, Default)]
struct State {
    sandboxes: BTreeSet<String>,
    /// Those that were not attempted yet.
    added: BTreeSet<String>,
    is_running: bool,
}

impl State {
    /// Returns the sandboxes of an attempt.
    fn attempt(&mut self, all: bool) -> Vec<String> {
        let added = std::mem::take(&mut self.added);
        if all { self.sandboxes.iter().cloned().collect() } else { added.into_iter().collect() }
    }
}

/// Disconnects sandboxes in the background, again and again until it succeeds.
pub(crate) fn collect(inner: &Arc<Inner>, sandboxes: impl IntoIterator<Item = String>) {
    let mut state = inner.stale.state.lock();
    for sandbox in sandboxes {
        if state.sandboxes.insert(sandbox.clone()) {
            state.added.insert(sandbox);
        }
    }
    if state.is_running {
        inner.stale.added.notify_one();
    } else if !state.sandboxes.is_empty() {
        state.is_running = true;
        tokio::spawn(run(inner.clone()));
    }
}

/// Checks that another sandbox may be connected.
///
/// # Errors
/// When too many earlier ones could not be disconnected.
pub(crate) fn check(inner: &Inner) -> Result<(), Error> {
    let waiting = inner.stale.state.lock().sandboxes.len();
    if waiting < MAX_STALE { Ok(()) } else { Err(Error::TooManyStale(waiting)) }
}

/// Makes the next attempt now, but only one in each pause: Pods may start all the time.
pub(crate) fn retry(inner: &Inner) {
    inner.stale.retry.notify_waiters();
}

async fn run(inner: Arc<Inner>) {
    let stale = &inner.stale;
    let mut pause = BACKOFF.0;
    disconnect_all(&inner, true).await;
    loop {
        let pause_end = Instant::now() + pause;
        let mut may_retry = true;
        loop {
            {
                let mut state = stale.state.lock();
                if state.sandboxes.is_empty() {
                    state.is_running = false;
                    return;
                }
            }
            let is_retry = tokio::select! {
                () = tokio::time::sleep_until(pause_end) => break,
                () = stale.added.notified() => false,
                () = stale.retry.notified(), if may_retry => true,
            };
            may_retry &= !is_retry;
            disconnect_all(&inner, is_retry).await;
        }
        disconnect_all(&inner, true).await;
        pause = (pause * 2).min(BACKOFF.1);
    }
}

/// Disconnects all sandboxes, or those that were added since the last attempt.
async fn disconnect_all(inner: &Inner, all: bool) {
    let sandboxes = inner.stale.state.lock().attempt(all);
    stream::iter(sandboxes).for_each_concurrent(CONCURRENCY, |sandbox| disconnect(inner, sandbox)).await;
}

async fn disconnect(inner: &Inner, sandbox: String) {
    let (data_dir, id) = (inner.options.data_dir.clone(), sandbox.clone());
    let undone = match operations::blocking(move || record::load(&data_dir, &id)).await {
        Ok(Some(record)) => operations::undo(&inner.options.data_dir, record, inner.timeout).await,
        Ok(None) => Ok(()),
        Err(error) => Err(error),
    };
    match undone {
        Ok(()) => drop(inner.stale.state.lock().sandboxes.remove(&sandbox)),
        Err(error) => tracing::warn!(sandbox, %error, "failed to disconnect a stale sandbox"),
    }
}
