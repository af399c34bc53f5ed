//! Lists of all that the runtime has: they repair what events lost.

use crate::{Shared, actor::PodMessage};
use lifecycle::{ContainerExit, ContainerView, ContainerViewState, RuntimeView, SandboxView};
use runtime::{ContainerState, ContainerStatus, RuntimeError, SandboxId};
use std::{collections::HashMap, time::Duration};

/// How often everything is listed again, to repair what events lost.
const RELIST: Duration = Duration::from_secs(60);

/// The least time between two lists.
const SPACING: Duration = Duration::from_millis(100);
/// When everything is listed again after events may have been lost.
const SOON: Duration = Duration::from_millis(500);
/// The longest pause between two tries.
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

/// Lists when somebody wants it, and now and then. The runtime may be starting: a list that fails is tried again.
pub(crate) async fn when_wanted(shared: &Shared) {
    let mut interval = RELIST;
    loop {
        interval = match tokio::time::timeout(interval, shared.pods.relist_requested.notified()).await {
            // After a break in the events the runtime's own lists may be behind: look again soon, then less and less.
            Ok(()) => SOON,
            Err(_) => (interval * 2).min(RELIST),
        };
        let mut pause = Duration::from_millis(25);
        while let Err(error) = relist(shared).await {
            tracing::debug!(%error, "the runtime could not be listed; it is tried again");
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
        // Who wants lists all the time gets them now and then.
        tokio::time::sleep(SPACING).await;
    }
}

/// What is gone since the list is none; what could not be asked for is not gone.
fn found<T>(answer: Result<T, RuntimeError>) -> Result<Option<T>, RuntimeError> {
    match answer {
        Ok(value) => Ok(Some(value)),
        Err(RuntimeError::NotFound(_)) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Lists everything and tells each Pod what the runtime has of it. What belongs to no Pod is removed.
async fn relist(shared: &Shared) -> Result<(), RuntimeError> {
    let before: HashMap<String, u64> = shared
        .pods
        .all()
        .iter()
        .map(|h| {
            let pod = h.state.borrow();
            (pod.uid().to_owned(), pod.durable_revision())
        })
        .collect();
    let (sandboxes, containers) = tokio::try_join!(shared.runtime.sandboxes(), shared.runtime.containers())?;
    let mut views: HashMap<String, RuntimeView> = HashMap::new();
    for s in sandboxes {
        let ips = match s.ready {
            true => found(shared.runtime.sandbox(&s.id).await)?.map(|s| s.ips).unwrap_or_default(),
            false => Vec::new(),
        };
        let view = SandboxView { id: s.id.0, attempt: s.attempt, ready: s.ready, ips };
        views.entry(s.uid).or_default().sandboxes.push(view);
    }
    for c in containers {
        let Some(status) = found(shared.runtime.container(&c.id).await)? else { continue };
        let uid = c.uid.clone();
        let sandbox = c.sandbox.map(|s| s.0).unwrap_or_default();
        let view = container_view(shared, status, sandbox).await;
        views.entry(uid).or_default().containers.push(view);
    }
    for handle in shared.pods.all() {
        let pod = handle.state.borrow().clone();
        let view = views.remove(pod.uid()).unwrap_or_default();
        // A Pod of which nothing was made yet has nothing to learn.
        if let Some(revision) = before.get(pod.uid()).filter(|_| pod.is_admitted()) {
            let _ = handle.messages.send(PodMessage::Relisted(view, *revision));
        }
    }
    shared.cgroups.remove_orphans(|uid| shared.pods.by_uid(uid).is_some());
    // The sandbox of a Pod that has left since was that Pod's to remove; the next list shows whether it did.
    let strays = views.into_iter().filter(|(uid, _)| !before.contains_key(uid)).flat_map(|(_, view)| view.sandboxes);
    for sandbox in strays {
        let id = SandboxId(sandbox.id);
        if found(shared.runtime.sandbox(&id).await)?.is_none() {
            continue;
        }
        tracing::warn!(sandbox = id.0, "a sandbox belongs to no Pod and is removed");
        let _ = shared.runtime.stop_sandbox(&id).await;
        let _ = shared.runtime.remove_sandbox(&id).await;
    }
    Ok(())
}

async fn container_view(shared: &Shared, status: ContainerStatus, sandbox: String) -> ContainerView {
    let pod = shared.pods.by_uid(&status.uid).map(|h| h.state.borrow().clone());
    let state = match status.state {
        ContainerState::Created => ContainerViewState::Created,
        ContainerState::Running => {
            ContainerViewState::Running { started_at: status.started_at.unwrap_or(status.created_at) }
        }
        ContainerState::Exited => ContainerViewState::Exited(match pod {
            Some(pod) => crate::logs::exit(shared, &pod, &status).await,
            None => ContainerExit {
                code: status.exit.as_ref().map_or(137, |e| e.code),
                reason: String::new(),
                message: String::new(),
                started_at: status.started_at,
                finished_at: status.created_at,
            },
        }),
        ContainerState::Unknown => ContainerViewState::Unknown,
    };
    ContainerView {
        id: status.id.0.clone(),
        name: status.name.clone(),
        attempt: status.attempt,
        sandbox,
        image: crate::actions::made_of(status),
        state,
    }
}
