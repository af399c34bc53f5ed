//! Graceful node shutdown: Pods terminate by priority groups before the machine shuts down (KEP-2000).
//!
//! [`lifecycle::ShutdownPolicy`] decides the groups. systemd-logind announces the shutdown, and waits for holders of a
//! delay inhibitor lock (upstream's `pkg/kubelet/nodeshutdown`).

mod logind;

use crate::{Shared, pod_worker::PodMessage};
use jiff::Timestamp;
use lifecycle::{EventKind, PodLifecycleEvent, ShutdownGroup, ShutdownPod, ShutdownPolicy};
use logind::{Logind, LogindError};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};
use tokio::sync::watch;

/// Message of the Ready condition during a shutdown.
pub(crate) const NOT_READY: &str = "node is shutting down";
/// Delay before a broken connection is retried.
const RETRY: Duration = Duration::from_secs(1);

/// State of the node shutdown manager.
pub(crate) struct NodeShutdown {
    /// Whether the node is shutting down; `None` until logind has responded.
    on: watch::Sender<Option<bool>>,
    file: PathBuf,
    last: Mutex<Times>,
}

/// Times of the last shutdown, stored on disk like upstream's for `/metrics`.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Times {
    start_time: Option<Timestamp>,
    end_time: Option<Timestamp>,
}

impl NodeShutdown {
    /// Loads the times of the last shutdown from `file`, if it exists.
    pub(crate) fn new(file: &Path) -> Self {
        let last =
            crate::host_file::read(file).ok().and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or_default();
        Self { on: watch::Sender::new(None), file: file.to_owned(), last: Mutex::new(last) }
    }

    /// Whether the node is shutting down: it rejects Pods and is not Ready.
    pub(crate) fn is_on(&self) -> bool {
        *self.on.borrow() == Some(true)
    }

    /// Whether logind has reported that the node is not shutting down.
    pub(crate) fn is_over(&self) -> bool {
        *self.on.borrow() == Some(false)
    }

    /// Returns a receiver of changes.
    pub(crate) fn changes(&self) -> watch::Receiver<Option<bool>> {
        self.on.subscribe()
    }

    /// Returns start and end of the last graceful termination of Pods.
    pub(crate) fn last(&self) -> (Option<Timestamp>, Option<Timestamp>) {
        let last = *self.last.lock();
        (last.start_time, last.end_time)
    }

    fn set(&self, shared: &Shared, on: bool) {
        self.on.send_replace(Some(on));
        // Static Pods may run again.
        shared.pods.removed.notify_one();
    }

    fn note(&self, start_time: Timestamp, end_time: Option<Timestamp>) {
        let times = Times { start_time: Some(start_time), end_time };
        *self.last.lock() = times;
        let written = serde_json::to_vec(&times).map_err(std::io::Error::from);
        if let Err(error) = written.and_then(|text| files::replace_private(&self.file, &text)) {
            tracing::error!(%error, "failed to save the times of the node shutdown");
        }
    }
}

/// Watches logind until cancelled. Without logind at the start, graceful shutdown is disabled.
pub(crate) async fn run(shared: &Arc<Shared>) {
    // The configuration was validated when it was parsed.
    let policy = shared.options.config.shutdown_policy(&shared.options.policy.gates).unwrap_or_default();
    if policy.is_empty() {
        shared.shutdown.set(shared, false);
        return;
    }
    let mut has_connected = false;
    loop {
        let ended = shared.stop.run_until_cancelled(follow(shared, &policy, &mut has_connected)).await;
        let Some(error) = ended else { return };
        if !has_connected {
            tracing::error!(%error, "failed to connect to systemd-logind, graceful node shutdown is disabled");
            shared.shutdown.set(shared, false);
            return;
        }
        tracing::error!(%error, "lost the connection to systemd-logind, reconnecting");
        if shared.stop.run_until_cancelled(tokio::time::sleep(RETRY)).await.is_none() {
            return;
        }
    }
}

/// Watches one connection until it fails. Returns the error.
async fn follow(shared: &Shared, policy: &ShutdownPolicy, has_connected: &mut bool) -> LogindError {
    let mut logind = match Logind::connect(policy.total()).await {
        Ok(logind) => logind,
        Err(error) => return error,
    };
    *has_connected = true;
    tracing::info!(total = ?policy.total(), "acquired the shutdown inhibitor lock");
    let mut on = logind.preparing();
    loop {
        if on || shared.shutdown.is_on() {
            handle_shutdown_event(shared, policy, on).await;
            logind
                .set_lock(!on)
                .await
                .unwrap_or_else(|error| tracing::error!(%error, "failed to update the shutdown inhibitor lock"));
        } else {
            shared.shutdown.set(shared, false);
        }
        on = match logind.next().await {
            Ok(on) => on,
            Err(error) => return error,
        };
    }
}

/// Handles the start or the cancellation of a shutdown.
async fn handle_shutdown_event(shared: &Shared, policy: &ShutdownPolicy, on: bool) {
    let signal = if on { "event" } else { "cancellation" };
    tracing::info!(on, "shutdown state changed");
    let message = format!("Shutdown manager detected shutdown {signal}");
    shared.recorder.record_node(EventKind::Normal, "NodeShutdown", message);
    shared.shutdown.set(shared, on);
    if on {
        let start = shared.now();
        shared.shutdown.note(start, None);
        terminate_pods(shared, policy).await;
        shared.shutdown.note(start, Some(shared.now()));
    }
}

/// Terminates all Pods, group by group.
async fn terminate_pods(shared: &Shared, policy: &ShutdownPolicy) {
    let admitted = shared.pods.admitted();
    let pod_state = admitted.iter().map(|handle| handle.state.borrow().clone());
    let active: Vec<ShutdownPod> =
        pod_state.filter(|pod| !pod.is_terminated_and_unmounted()).map(|pod| ShutdownPod::new(&pod)).collect();
    for group in policy.groups(&active) {
        let limit = group.limit;
        if tokio::time::timeout(limit, terminate_group(shared, group)).await.is_err() {
            tracing::warn!(?limit, "Pods did not terminate within the grace period of their group");
        }
    }
}

/// Terminates the Pods of a group, and waits until their containers are stopped and their volumes unmounted.
async fn terminate_group(shared: &Shared, group: ShutdownGroup) {
    let mut terminating = Vec::new();
    for (uid, eviction) in group.pods {
        let Some(handle) = shared.pods.by_uid(&uid) else { continue };
        let _ = handle.messages.send(PodMessage::Event(PodLifecycleEvent::Evicted(eviction)));
        let mut pod_state = handle.state;
        // An error means that the worker has ended: the Pod has terminated, too.
        terminating.push(async move { drop(pod_state.wait_for(|pod| pod.is_terminated_and_unmounted()).await) });
    }
    futures::future::join_all(terminating).await;
}
