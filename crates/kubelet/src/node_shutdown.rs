//! Graceful shutdown of the node: when the machine is told to go down, Pods end first, group by group (KEP-2000).
//!
//! Who goes when is decided by [`lifecycle::ShutdownPolicy`]. That the machine goes down is told by systemd-logind, which
//! waits for whoever holds a delay lock (upstream's `pkg/kubelet/nodeshutdown`).

mod logind;

use crate::{Shared, actor::PodMessage};
use jiff::Timestamp;
use lifecycle::{Event, EventKind, ShutdownGroup, ShutdownPod, ShutdownPolicy};
use logind::{Logind, LogindError};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};
use tokio::sync::watch;

/// Why the node is not Ready then.
pub(crate) const NOT_READY: &str = "node is shutting down";
/// When a connection that broke is tried again.
const RETRY: Duration = Duration::from_secs(1);

/// Whether the node is shutting down, and when it did.
pub(crate) struct NodeShutdown {
    /// `None` until logind was asked.
    on: watch::Sender<Option<bool>>,
    file: PathBuf,
    last: Mutex<Times>,
}

/// The last shutdown, as upstream's kubelet keeps it on disk: for `/metrics` only.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Times {
    start_time: Option<Timestamp>,
    end_time: Option<Timestamp>,
}

impl NodeShutdown {
    /// `file` may be there from the time before.
    pub(crate) fn new(file: &Path) -> Self {
        let last =
            crate::node_file::read(file).ok().and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or_default();
        Self { on: watch::Sender::new(None), file: file.to_owned(), last: Mutex::new(last) }
    }

    /// Whether the node is shutting down: it takes no Pods then, and is not Ready.
    pub(crate) fn is_on(&self) -> bool {
        *self.on.borrow() == Some(true)
    }

    /// Whether it is known that the node is not shutting down.
    pub(crate) fn is_over(&self) -> bool {
        *self.on.borrow() == Some(false)
    }

    /// Tells when that changes.
    pub(crate) fn changes(&self) -> watch::Receiver<Option<bool>> {
        self.on.subscribe()
    }

    /// When Pods were told to end, and when they had ended, the last time.
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
            tracing::error!(%error, "when the node was shut down could not be written");
        }
    }
}

/// Follows what logind says, until told to stop. A machine that has none when the kubelet starts goes down as it likes.
pub(crate) async fn run(shared: &Arc<Shared>) {
    // It was checked when it was read.
    let policy = shared.options.config.shutdown_policy(&shared.options.policy.gates).unwrap_or_default();
    if policy.is_empty() {
        shared.shutdown.set(shared, false);
        return;
    }
    let mut followed = false;
    loop {
        let ended = shared.stop.run_until_cancelled(follow(shared, &policy, &mut followed)).await;
        let Some(error) = ended else { return };
        if !followed {
            tracing::error!(%error, "Pods will not end before the machine does: systemd-logind is not to be had");
            shared.shutdown.set(shared, false);
            return;
        }
        tracing::error!(%error, "the connection to systemd-logind broke; it is made again");
        if shared.stop.run_until_cancelled(tokio::time::sleep(RETRY)).await.is_none() {
            return;
        }
    }
}

/// Follows one connection until it breaks, and says why it did.
async fn follow(shared: &Shared, policy: &ShutdownPolicy, followed: &mut bool) -> LogindError {
    let mut logind = match Logind::connect(policy.total()).await {
        Ok(logind) => logind,
        Err(error) => return error,
    };
    *followed = true;
    tracing::info!(total = ?policy.total(), "the machine will wait for Pods when it is told to shut down");
    let mut on = logind.preparing();
    loop {
        if on || shared.shutdown.is_on() {
            turned(shared, policy, on).await;
            logind.hold(!on).await.unwrap_or_else(|error| tracing::error!(%error, "no lock against shutdowns"));
        } else {
            shared.shutdown.set(shared, false);
        }
        on = match logind.next().await {
            Ok(on) => on,
            Err(error) => return error,
        };
    }
}

/// The machine goes down, or does not after all.
async fn turned(shared: &Shared, policy: &ShutdownPolicy, on: bool) {
    let what = if on { "event" } else { "cancellation" };
    tracing::info!(on, "the machine is told to shut down, or that was called off");
    let message = format!("Shutdown manager detected shutdown {what}");
    shared.recorder.record_node(EventKind::Normal, "NodeShutdown", message);
    shared.shutdown.set(shared, on);
    if on {
        let start = shared.now();
        shared.shutdown.note(start, None);
        end_all(shared, policy).await;
        shared.shutdown.note(start, Some(shared.now()));
    }
}

/// Ends all Pods, group by group.
async fn end_all(shared: &Shared, policy: &ShutdownPolicy) {
    let taken = shared.pods.admitted();
    let known = taken.iter().map(|handle| handle.state.borrow().clone());
    let active: Vec<ShutdownPod> = known.filter(|pod| !pod.has_left()).map(|pod| ShutdownPod::of(&pod)).collect();
    for group in policy.groups(&active) {
        let limit = group.limit;
        if tokio::time::timeout(limit, end_group(shared, group)).await.is_err() {
            tracing::warn!(?limit, "not all Pods of a group have ended in time; the next group's turn comes");
        }
    }
}

/// Ends the Pods of a group, and waits until nothing of them runs or is mounted.
async fn end_group(shared: &Shared, group: ShutdownGroup) {
    let mut leaving = Vec::new();
    for (uid, eviction) in group.pods {
        let Some(handle) = shared.pods.by_uid(&uid) else { continue };
        let _ = handle.messages.send(PodMessage::Event(Event::Evicted(eviction)));
        let mut known = handle.state;
        // A Pod that is forgotten has left, too.
        leaving.push(async move { drop(known.wait_for(|pod| pod.has_left()).await) });
    }
    futures::future::join_all(leaving).await;
}
