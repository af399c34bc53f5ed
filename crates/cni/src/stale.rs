//! Sandboxes that are disconnected in the background: those that the runtime does not know, and those of an ADD that was
//! not completed or could not be undone.

use crate::{Error, Inner, operations, record};
use futures::{StreamExt, stream};
use parking_lot::Mutex;
use std::{collections::BTreeSet, sync::Arc, time::Duration};
use tokio::sync::Notify;

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
    retry: Notify,
}

#[derive(Debug, Default)]
struct State {
    sandboxes: BTreeSet<String>,
    is_running: bool,
}

/// Disconnects sandboxes in the background, again and again until it succeeds.
pub(crate) fn collect(inner: &Arc<Inner>, sandboxes: impl IntoIterator<Item = String>) {
    let mut state = inner.stale.state.lock();
    state.sandboxes.extend(sandboxes);
    if state.sandboxes.is_empty() {
        return;
    }
    if state.is_running {
        inner.stale.retry.notify_one();
        return;
    }
    state.is_running = true;
    tokio::spawn(run(inner.clone()));
}

/// Checks that another sandbox may be connected.
///
/// # Errors
/// When too many earlier ones could not be disconnected.
pub(crate) fn check(inner: &Inner) -> Result<(), Error> {
    let waiting = inner.stale.state.lock().sandboxes.len();
    if waiting < MAX_STALE { Ok(()) } else { Err(Error::TooManyStale(waiting)) }
}

/// Makes the next attempt now.
pub(crate) fn retry(inner: &Inner) {
    inner.stale.retry.notify_one();
}

async fn run(inner: Arc<Inner>) {
    let mut pause = BACKOFF.0;
    loop {
        let sandboxes: Vec<String> = inner.stale.state.lock().sandboxes.iter().cloned().collect();
        stream::iter(sandboxes).for_each_concurrent(CONCURRENCY, |sandbox| disconnect(&inner, sandbox)).await;
        {
            let mut state = inner.stale.state.lock();
            if state.sandboxes.is_empty() {
                state.is_running = false;
                return;
            }
        }
        // Elapsed or notified: another attempt in both cases.
        let _ = tokio::time::timeout(pause, inner.stale.retry.notified()).await;
        pause = (pause * 2).min(BACKOFF.1);
    }
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
