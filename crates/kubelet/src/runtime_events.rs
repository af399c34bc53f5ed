//! What happens in the runtime, as it happens, told to the Pods it concerns.

use crate::{
    Shared,
    actor::{Handle, PodMessage},
    exits,
    logs::{KILLED, OOM_KILLED},
};
use futures::StreamExt;
use lifecycle::{Event, Pod, SandboxFact};
use runtime::{ContainerId, ContainerState, ContainerStatus, Exit, RuntimeError, RuntimeEvent, SandboxId};
use std::{sync::Arc, time::Duration};

/// How long the runtime may take to show an exit that it told of.
const NOTED: Duration = Duration::from_secs(30);
/// It is looked for this often as long as it usually takes, and less and less often then.
const LOOK: Duration = Duration::from_millis(10);
const USUAL: Duration = Duration::from_millis(100);
/// The longest pause between two looks.
const LONGEST_PAUSE: Duration = Duration::from_millis(500);
/// How long containerd may take to say that it was lack of memory that killed a container: it hears of both separately.
const OUT_OF_MEMORY: Duration = Duration::from_millis(500);

pub(crate) async fn follow(shared: &Arc<Shared>) {
    let mut events = shared.runtime.events();
    while let Some(event) = events.next().await {
        match event {
            RuntimeEvent::ContainerExited(id, told) => {
                let shared = Arc::clone(shared);
                tokio::spawn(async move { exited(&shared, id, told).await });
            }
            RuntimeEvent::SandboxExited(id) => sandbox_exited(shared, &id),
            RuntimeEvent::Resync => shared.pods.request_relist(),
        }
    }
}

/// The Pod of a container. One that ends right after its start may end before its Pod's task has heard that it was made.
async fn owner_of(shared: &Shared, id: &str) -> Option<Handle> {
    for _ in 0..200 {
        if let Some(handle) = shared.pods.by_container_or_sandbox_id(id) {
            return Some(handle);
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    None
}

/// Tells its Pod at once what is told of the end, and again when the runtime shows it.
async fn exited(shared: &Shared, id: ContainerId, told: Option<Exit>) {
    let Some(handle) = owner_of(shared, &id.0).await else { return };
    let pod = handle.state.borrow().clone();
    let early = match told {
        Some(exit) => exits::at_once(shared, &pod, &id.0, &exit).await,
        None => None,
    };
    let told_early = early.is_some();
    if let Some(event) = early {
        let _ = handle.messages.send(PodMessage::Event(event));
    }
    // containerd sends the event a moment before its CRI plugin has taken note; after its own restart, long before.
    let (mut pause, begun) = (LOOK, tokio::time::Instant::now());
    while begun.elapsed() < NOTED {
        match shared.runtime.container(&id).await {
            Ok(status) if status.state == ContainerState::Exited => {
                let pod = handle.state.borrow().clone();
                // What was told early has its reason.
                let status = if told_early { status } else { last_word(shared, &pod, status).await };
                let exit = crate::logs::exit(shared, &pod, &status).await;
                // Of a start that failed tells who asked for it. If that was a kubelet that is gone, it was given up with it.
                if exit.never_ran() {
                    return shared.pods.request_relist();
                }
                let fact = lifecycle::ContainerFact::Exited { id: id.0, exit };
                let _ = handle.messages.send(PodMessage::Event(Event::Container { container: status.name, fact }));
                return;
            }
            // A sandbox, or gone: a relist tells.
            Err(RuntimeError::NotFound(_)) => {
                if told_early {
                    shared.pods.request_relist();
                }
                return;
            }
            Ok(_) | Err(_) => {
                tokio::time::sleep(pause).await;
                pause = if begun.elapsed() < USUAL { LOOK } else { (pause * 2).min(LONGEST_PAUSE) };
            }
        }
    }
    tracing::warn!(container = %id, "an exit was told that the runtime does not show; the next relist looks again");
}

fn sandbox_exited(shared: &Shared, id: &SandboxId) {
    if let Some(handle) = shared.pods.by_container_or_sandbox_id(&id.0).filter(|h| h.state.borrow().sandbox_id() == Some(&id.0)) {
        let _ = handle.messages.send(PodMessage::Event(Event::Sandbox(SandboxFact::Lost { id: id.0.clone() })));
    }
}

/// A container that was killed may have been out of memory, of which the runtime hears a moment later.
async fn last_word(shared: &Shared, pod: &Pod, mut status: ContainerStatus) -> ContainerStatus {
    let limited = exits::memory_is_limited(pod, &status.name);
    // Who is being deleted was killed by us.
    let ours = pod.object().metadata.deletion_timestamp.is_some();
    let deadline = tokio::time::Instant::now() + OUT_OF_MEMORY;
    let unexplained = |s: &ContainerStatus| {
        s.exit.as_ref().is_some_and(|e| e.code == KILLED && e.reason != OOM_KILLED) && !crate::oom::killed(&s.id.0)
    };
    while limited && !ours && unexplained(&status) && tokio::time::Instant::now() < deadline {
        tokio::time::sleep(Duration::from_millis(20)).await;
        match shared.runtime.container(&status.id).await {
            Ok(newer) => status = newer,
            Err(_) => break,
        }
    }
    status
}
