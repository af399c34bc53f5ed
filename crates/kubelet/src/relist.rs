//! Relist: lists all sandboxes and containers of the runtime, to recover from lost events (PLEG).

use crate::{Shared, pod_worker::PodMessage};
use lifecycle::{ContainerExit, RuntimeContainer, RuntimeContainerState, RuntimePodState, RuntimeSandbox};
use runtime::{ContainerState, ContainerStatus, RuntimeError, SandboxId};
use std::{collections::HashMap, time::Duration};

/// Relist period.
const RELIST: Duration = Duration::from_secs(60);

/// Minimum time between two relists.
const MIN_INTERVAL: Duration = Duration::from_millis(100);
/// First relist period after events may have been lost.
const FIRST_RELIST: Duration = Duration::from_millis(500);
/// Maximum backoff after a failed relist.
const MAX_BACKOFF: Duration = Duration::from_millis(500);

/// Relists on request and periodically. A failed list is retried: the runtime may be starting.
pub(crate) async fn run(shared: &Shared) {
    let mut interval = RELIST;
    loop {
        interval = match tokio::time::timeout(interval, shared.pods.relist_requested.notified()).await {
            // After an interruption of the events the runtime's lists may be behind: the period starts short and
            // doubles.
            Ok(()) => FIRST_RELIST,
            Err(_) => (interval * 2).min(RELIST),
        };
        let mut backoff = Duration::from_millis(25);
        while let Err(error) = relist(shared).await {
            tracing::debug!(%error, "failed to list the runtime's containers, retrying");
            tokio::time::sleep(backoff).await;
            backoff = (backoff * 2).min(MAX_BACKOFF);
        }
        // Limits the rate of requested relists.
        tokio::time::sleep(MIN_INTERVAL).await;
    }
}

/// Maps "not found" to `None`: the object was removed since the list. Other errors are kept.
fn optional<T>(answer: Result<T, RuntimeError>) -> Result<Option<T>, RuntimeError> {
    match answer {
        Ok(value) => Ok(Some(value)),
        Err(RuntimeError::NotFound(_)) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Lists everything and sends each Pod its state in the runtime. Sandboxes and cgroups of unknown Pods are removed
/// (`HandlePodCleanups`), once all Pods are known.
async fn relist(shared: &Shared) -> Result<(), RuntimeError> {
    let revisions: HashMap<String, u64> = shared
        .pods
        .all()
        .iter()
        .map(|h| {
            let pod = h.state.borrow();
            (pod.uid().to_owned(), pod.durable_revision())
        })
        .collect();
    let pods_are_known = shared.pods.sources.are_read();
    let (sandboxes, containers) = tokio::try_join!(shared.runtime.sandboxes(), shared.runtime.containers())?;
    let mut pod_states: HashMap<String, RuntimePodState> = HashMap::new();
    for s in sandboxes {
        let ips = match s.ready {
            true => optional(shared.runtime.sandbox(&s.id).await)?.map(|s| s.ips).unwrap_or_default(),
            false => Vec::new(),
        };
        let view = RuntimeSandbox { id: s.id.0, attempt: s.attempt, ready: s.ready, ips };
        pod_states.entry(s.uid).or_default().sandboxes.push(view);
    }
    for c in containers {
        let Some(status) = optional(shared.runtime.container(&c.id).await)? else { continue };
        let uid = c.uid.clone();
        let sandbox = c.sandbox.map(|s| s.0).unwrap_or_default();
        let view = container_view(shared, status, sandbox).await;
        pod_states.entry(uid).or_default().containers.push(view);
    }
    for handle in shared.pods.all() {
        let pod = handle.state.borrow().clone();
        let view = pod_states.remove(pod.uid()).unwrap_or_default();
        // Nothing exists in the runtime before admission.
        if let Some(revision) = revisions.get(pod.uid()).filter(|_| pod.is_admitted()) {
            let _ = handle.messages.send(PodMessage::Relisted(view, *revision));
        }
    }
    if !pods_are_known {
        return Ok(());
    }
    // Of adopted Pods, too: the start of Podium has set the minimum.
    crate::actions::update_burstable_shares(shared, None).await;
    shared.cgroups.remove_orphans(|uid| shared.pods.by_uid(uid).is_some()).await;
    // The sandbox of a Pod that was removed since the list is skipped; the next relist shows whether it is left.
    let orphans =
        pod_states.into_iter().filter(|(uid, _)| !revisions.contains_key(uid)).flat_map(|(_, view)| view.sandboxes);
    for sandbox in orphans {
        let id = SandboxId(sandbox.id);
        if optional(shared.runtime.sandbox(&id).await)?.is_none() {
            continue;
        }
        tracing::warn!(sandbox = id.0, "removing sandbox of an unknown Pod");
        let _ = shared.runtime.stop_sandbox(&id).await;
        let _ = shared.runtime.remove_sandbox(&id).await;
    }
    Ok(())
}

async fn container_view(shared: &Shared, status: ContainerStatus, sandbox: String) -> RuntimeContainer {
    let pod = shared.pods.by_uid(&status.uid).map(|h| h.state.borrow().clone());
    let state = match status.state {
        ContainerState::Created => RuntimeContainerState::Created,
        ContainerState::Running => {
            RuntimeContainerState::Running { started_at: status.started_at.unwrap_or(status.created_at) }
        }
        ContainerState::Exited => RuntimeContainerState::Exited(match pod {
            Some(pod) => crate::logs::container_exit(shared, &pod, &status).await,
            None => ContainerExit {
                code: status.exit.as_ref().map_or(137, |e| e.code),
                reason: String::new(),
                message: String::new(),
                started_at: status.started_at,
                finished_at: status.created_at,
            },
        }),
        ContainerState::Unknown => RuntimeContainerState::Unknown,
    };
    RuntimeContainer {
        id: status.id.0.clone(),
        name: status.name.clone(),
        attempt: status.attempt,
        sandbox,
        image: crate::actions::runtime_image(status),
        state,
    }
}
