//! Execution of planned actions. Every action is idempotent.

mod admit;
mod container;
mod ensure_image;
mod hook;
mod mounts;
mod oom_score;
mod prober;
mod resize;
mod sandbox;
mod security;
mod sub_path;

pub(crate) use container::runtime_image;

use crate::{
    Shared,
    cgroup::CgroupError,
    network_readiness::NetworkNotReadyError,
    pod_worker::PodMessage,
    status_manager,
    volumes::{self, RemovalError},
};
use api::static_pod::is_static;
use k8s_openapi::api::core::v1::Container;
use lifecycle::{Action, ContainerEvent, Hook, Pod, PodLifecycleEvent, SandboxEvent, VolumeEvent};
use runtime::{ContainerId, RuntimeError, SandboxId, StopSignal};
use std::{io, path::PathBuf, time::Duration};
use tokio::sync::mpsc::UnboundedSender;

/// Time for a command in a container to report its result after the container exited.
const EXEC_DRAIN_TIMEOUT: Duration = Duration::from_secs(1);

/// A failed action, which is retried.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ActionError {
    #[error(transparent)]
    UnknownContainer(#[from] UnknownContainerError),
    #[error(transparent)]
    Runtime(#[from] RuntimeError),
    #[error(transparent)]
    NetworkNotReady(#[from] NetworkNotReadyError),
    #[error("container is still running after it was stopped")]
    StillRunning,
    /// A log or termination message could not be removed.
    #[error("{}: {source}", .path.display())]
    RemoveLog { path: PathBuf, source: io::Error },
    #[error(transparent)]
    RemoveDirectory(#[from] RemovalError),
    #[error(transparent)]
    Cgroup(#[from] CgroupError),
    #[error("API server did not accept the deletion")]
    DeletionRejected,
    #[error("{container} has no {hook:?} hook")]
    NoHook { container: String, hook: Hook },
    #[error("{0} has no such probe")]
    NoProbe(String),
}

/// The Pod has no such container.
#[derive(Debug, thiserror::Error)]
#[error("container {0} is not in the spec")]
pub(crate) struct UnknownContainerError(String);

/// Returns the spec of a container.
fn container_spec<'a>(pod: &'a Pod, name: &str) -> Result<&'a Container, UnknownContainerError> {
    pod.spec_of(name).ok_or_else(|| UnknownContainerError(name.to_owned()))
}

/// Awaits a future that needs a running container; `None` if the container or the Pod ends first.
async fn while_running<T>(
    shared: &Shared,
    pod: &Pod,
    name: &str,
    id: &str,
    future: impl Future<Output = T>,
) -> Option<T> {
    let mut state = shared.pods.by_uid(pod.uid())?.state;
    let ended = async {
        let runs = |pod: &Pod| {
            pod.is_running(name) && pod.container_id(name, false).is_some_and(|(running_id, _)| running_id == id)
        };
        // The sender is dropped when the Pod is removed, which ends the wait, too.
        let _ = state.wait_for(|pod| !runs(pod)).await;
        tokio::time::sleep(EXEC_DRAIN_TIMEOUT).await;
    };
    tokio::select! {
        biased;
        result = future => Some(result),
        () = ended => None,
    }
}

/// Locks the Pod's volumes.
async fn lock_volumes(shared: &Shared, pod: &Pod) -> Option<tokio::sync::OwnedMutexGuard<()>> {
    let lock = shared.pods.by_uid(pod.uid())?.volumes;
    Some(lock.lock_owned().await)
}

async fn mount_volumes(shared: &Shared, pod: &Pod) -> VolumeEvent {
    let _guard = lock_volumes(shared, pod).await;
    match volumes::set_up(shared, pod).await {
        Ok(()) => VolumeEvent::Mounted,
        Err(errors) => VolumeEvent::Failed { messages: errors.messages() },
    }
}

async fn unmount_volumes(shared: &Shared, pod: &Pod) -> Result<VolumeEvent, ActionError> {
    let _guard = lock_volumes(shared, pod).await;
    volumes::tear_down(shared, pod).await?;
    shared.cgroups.remove(pod.object()).await?;
    update_burstable_shares(shared, Some(pod.uid())).await;
    Ok(VolumeEvent::Unmounted)
}

/// Updates the CPU shares of the Burstable QoS cgroup from the requests of active Pods; `terminating` is terminating now.
pub(crate) async fn update_burstable_shares(shared: &Shared, terminating: Option<&str>) {
    let active_pods = || {
        let pods: Vec<_> = shared.pods.all().iter().map(|h| h.state.borrow().clone()).collect();
        let active = pods.iter().filter(|p| p.is_admitted() && terminating != Some(p.uid()));
        active.map(|p| p.object().clone()).filter(|p| !api::pod::is_terminal(p)).collect()
    };
    shared.cgroups.update_burstable_shares(active_pods).await;
}

/// Executes one action and returns the resulting events. Intermediate events are sent to the worker.
pub(crate) async fn execute(
    shared: &Shared,
    pod: &Pod,
    action: Action,
    sender: &UnboundedSender<PodMessage>,
) -> Result<Vec<PodLifecycleEvent>, ActionError> {
    let key = action.key();
    match action {
        Action::Admit => Ok(vec![PodLifecycleEvent::Admission(admit::admit(shared, pod).await)]),
        Action::MountVolumes => Ok(vec![PodLifecycleEvent::Volumes(mount_volumes(shared, pod).await)]),
        Action::UnmountVolumes => Ok(vec![PodLifecycleEvent::Volumes(unmount_volumes(shared, pod).await?)]),
        Action::CreateSandbox { attempt } => {
            Ok(vec![PodLifecycleEvent::Sandbox(sandbox::create(shared, pod, attempt).await)])
        }
        Action::StopSandbox { id } => {
            shared.runtime.stop_sandbox(&SandboxId(id.clone())).await?;
            Ok(vec![PodLifecycleEvent::Sandbox(SandboxEvent::Stopped { id })])
        }
        Action::RemoveSandbox { id } => {
            shared.runtime.remove_sandbox(&SandboxId(id.clone())).await?;
            volumes::remove_pod_dirs(shared, pod).await?;
            shared.images.image_released.notify_one();
            Ok(vec![PodLifecycleEvent::Sandbox(SandboxEvent::Removed { id })])
        }
        Action::EnsureImage { container, pull, .. } => {
            let (image, event) = ensure_image::ensure_image_exists(shared, pod, &container, pull, sender).await;
            Ok(vec![PodLifecycleEvent::Image { container, image, event }])
        }
        Action::StartContainer { container, attempt, image_ref, sandbox } => {
            let events = container::start(shared, pod, &container, attempt, &image_ref, &sandbox).await?;
            Ok(events
                .into_iter()
                .map(|event| PodLifecycleEvent::Container { container: container.clone(), event })
                .collect())
        }
        Action::StopContainer { id, grace, signal, .. } => {
            let signal = signal.as_deref().and_then(StopSignal::parse);
            // The runtime also reports the exit as an event.
            shared.runtime.stop_container(&ContainerId(id.clone()), grace, signal).await?;
            container::exit_event(shared, pod, &id).await.map(|e| vec![e])
        }
        Action::RemoveContainer { container, id } => {
            container::remove_logs(shared, pod, &id).await?;
            shared.runtime.remove_container(&ContainerId(id.clone())).await?;
            shared.images.image_released.notify_one();
            Ok(vec![PodLifecycleEvent::Container { container, event: ContainerEvent::Removed { id } }])
        }
        Action::DeleteFromApi if is_static(pod.object()) => {
            shared.mirror_pods.remove(pod.object());
            Ok(vec![PodLifecycleEvent::ActionSucceeded(key), PodLifecycleEvent::Removed])
        }
        Action::DeleteFromApi => {
            if status_manager::delete(shared, pod).await {
                Ok(vec![PodLifecycleEvent::ActionSucceeded(key)])
            } else {
                Err(ActionError::DeletionRejected)
            }
        }
        Action::RunHook { container, id, hook, timeout } => hook::run(shared, pod, &container, id, hook, timeout).await,
        Action::Probe { container, id, probe, .. } => prober::run(shared, pod, &container, id, probe).await,
        Action::DecideResize { generation, .. } => Ok(vec![resize::decide(shared, pod, generation)]),
        Action::ActuateResources { .. } => Ok(vec![resize::actuate(shared, pod).await]),
        // Handled by the Pod worker.
        Action::Record(_) | Action::Forget => Ok(Vec::new()),
    }
}
