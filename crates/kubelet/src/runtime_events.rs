//! Runtime events: forwards exits of containers and sandboxes to their Pod workers.

use crate::{
    Shared, container_exits,
    logs::{KILLED, OOM_KILLED},
    pod_worker::{Handle, PodMessage},
};
use futures::StreamExt;
use lifecycle::{Pod, PodLifecycleEvent, SandboxEvent};
use runtime::{ContainerId, ContainerState, ContainerStatus, Exit, RuntimeError, RuntimeEvent, SandboxId};
use std::{sync::Arc, time::Duration};

/// Maximum time until the runtime shows an exit that it reported as an event.
const EXIT_TIMEOUT: Duration = Duration::from_secs(30);
/// Poll interval until [`POLL_BACKOFF_AFTER`]; then it doubles.
const POLL_INTERVAL: Duration = Duration::from_millis(10);
const POLL_BACKOFF_AFTER: Duration = Duration::from_millis(100);
/// Maximum poll interval.
const MAX_POLL_INTERVAL: Duration = Duration::from_millis(500);
/// Maximum delay between containerd's exit event and its separate OOM event.
const OOM_EVENT_TIMEOUT: Duration = Duration::from_millis(500);

pub(crate) async fn run(shared: &Arc<Shared>) {
    let mut events = shared.runtime.events();
    while let Some(event) = events.next().await {
        match event {
            RuntimeEvent::ContainerExited(id, exit) => {
                let shared = Arc::clone(shared);
                tokio::spawn(async move { report_exit(&shared, id, exit).await });
            }
            RuntimeEvent::SandboxExited(id) => report_sandbox_exit(shared, &id),
            RuntimeEvent::Resync => shared.pods.request_relist(),
        }
    }
}

/// Returns the Pod of a container. A short-lived container may exit before its worker has observed its creation.
async fn wait_owner(shared: &Shared, id: &str) -> Option<Handle> {
    for _ in 0..200 {
        if let Some(handle) = shared.pods.by_container_or_sandbox_id(id) {
            return Some(handle);
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    None
}

/// Reports an exit early if possible, and again when the runtime shows it.
async fn report_exit(shared: &Shared, id: ContainerId, exit: Option<Exit>) {
    let Some(handle) = wait_owner(shared, &id.0).await else { return };
    let pod = handle.state.borrow().clone();
    let early = match exit {
        Some(exit) => container_exits::early_exit(shared, &pod, &id.0, &exit).await,
        None => None,
    };
    let reported_early = early.is_some();
    if let Some(event) = early {
        let _ = handle.messages.send(PodMessage::Event(event));
    }
    // containerd sends the event a moment before its CRI plugin records the exit; after its own restart, long before.
    let (mut interval, started) = (POLL_INTERVAL, tokio::time::Instant::now());
    while started.elapsed() < EXIT_TIMEOUT {
        match shared.runtime.container(&id).await {
            Ok(status) if status.state == ContainerState::Exited => {
                let pod = handle.state.borrow().clone();
                // An early report already has a reason.
                let status = if reported_early { status } else { wait_oom_reason(shared, &pod, status).await };
                let exit = crate::logs::container_exit(shared, &pod, &status).await;
                // A failed start is reported by the start action. If that belonged to an earlier kubelet, a relist
                // reports it.
                if exit.never_ran() {
                    return shared.pods.request_relist();
                }
                let event = lifecycle::ContainerEvent::Exited { id: id.0, exit };
                let _ = handle
                    .messages
                    .send(PodMessage::Event(PodLifecycleEvent::Container { container: status.name, event }));
                return;
            }
            // A sandbox, or removed: a relist reports it.
            Err(RuntimeError::NotFound(_)) => {
                if reported_early {
                    shared.pods.request_relist();
                }
                return;
            }
            Ok(_) | Err(_) => {
                tokio::time::sleep(interval).await;
                interval = if started.elapsed() < POLL_BACKOFF_AFTER {
                    POLL_INTERVAL
                } else {
                    (interval * 2).min(MAX_POLL_INTERVAL)
                };
            }
        }
    }
    tracing::warn!(container = %id, "runtime does not show a reported exit, waiting for the next relist");
}

fn report_sandbox_exit(shared: &Shared, id: &SandboxId) {
    if let Some(handle) =
        shared.pods.by_container_or_sandbox_id(&id.0).filter(|h| h.state.borrow().sandbox_id() == Some(&id.0))
    {
        let _ = handle
            .messages
            .send(PodMessage::Event(PodLifecycleEvent::Sandbox(SandboxEvent::Lost { id: id.0.clone() })));
    }
}

/// Waits for the reason of a killed container: the runtime's OOM event may arrive a moment later.
async fn wait_oom_reason(shared: &Shared, pod: &Pod, mut status: ContainerStatus) -> ContainerStatus {
    let limited = container_exits::has_memory_limit(pod, &status.name);
    // Containers of a deleted Pod are killed by the kubelet.
    let is_deleted = pod.object().metadata.deletion_timestamp.is_some();
    let deadline = tokio::time::Instant::now() + OOM_EVENT_TIMEOUT;
    let unexplained = |s: &ContainerStatus| {
        s.exit.as_ref().is_some_and(|e| e.code == KILLED && e.reason != OOM_KILLED)
            && !crate::oom::was_oom_killed(&s.id.0)
    };
    while limited && !is_deleted && unexplained(&status) && tokio::time::Instant::now() < deadline {
        tokio::time::sleep(Duration::from_millis(20)).await;
        match shared.runtime.container(&status.id).await {
            Ok(newer) => status = newer,
            Err(_) => break,
        }
    }
    status
}
