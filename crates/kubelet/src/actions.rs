//! Carrying out what the plan asks for. Each action can be repeated without harm.

mod admit;
mod container;
mod hook;
mod image;
mod mounts;
mod oom_score;
mod probe;
mod resize;
mod sandbox;
mod security;
mod sub_path;

pub(crate) use container::made_of;

use crate::{Shared, actor::PodMessage, status, volumes};
use api::static_pod::is_static;
use k8s_openapi::api::core::v1::Container;
use lifecycle::{Action, ContainerFact, Event, Pod, SandboxFact, VolumesFact};
use runtime::{ContainerId, SandboxId, StopSignal};
use std::time::Duration;
use tokio::sync::mpsc::UnboundedSender;

/// How long what was begun in a container may still speak after the container's end: a command ends a moment later.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// What the spec says of a container.
fn spec_of<'a>(pod: &'a Pod, name: &str) -> Result<&'a Container, String> {
    pod.spec_of(name).ok_or_else(|| format!("the container {name} is not in the spec"))
}

/// What comes of work with a container; `None` when the container, or the Pod, ends first.
async fn while_running<T>(
    shared: &Shared,
    pod: &Pod,
    name: &str,
    id: &str,
    work: impl Future<Output = T>,
) -> Option<T> {
    let mut known = shared.pods.by_uid(pod.uid())?.state;
    let ended = async {
        let runs = |pod: &Pod| pod.is_running(name) && pod.container_id(name, false).is_some_and(|(own, _)| own == id);
        // Nobody who might tell is there any more: that is an end, too.
        let _ = known.wait_for(|pod| !runs(pod)).await;
        tokio::time::sleep(LAST_WORDS).await;
    };
    tokio::select! {
        biased;
        result = work => Some(result),
        () = ended => None,
    }
}

/// Keeps others away from the Pod's volumes for as long as it is held.
async fn volumes_turn(shared: &Shared, pod: &Pod) -> Option<tokio::sync::OwnedMutexGuard<()>> {
    let lock = shared.pods.by_uid(pod.uid())?.volumes;
    Some(lock.lock_owned().await)
}

async fn mount_volumes(shared: &Shared, pod: &Pod) -> VolumesFact {
    let _turn = volumes_turn(shared, pod).await;
    match volumes::set_up(shared, pod).await {
        Ok(()) => VolumesFact::Mounted,
        Err(messages) => VolumesFact::Failed { messages },
    }
}

async fn unmount_volumes(shared: &Shared, pod: &Pod) -> Result<VolumesFact, String> {
    let _turn = volumes_turn(shared, pod).await;
    volumes::tear_down(shared, pod).await?;
    shared.cgroups.remove(pod.object()).await?;
    weigh_burstable(shared, Some(pod.uid()));
    Ok(VolumesFact::Unmounted)
}

/// Burstable Pods together weigh what those ask for that are here and have not ended; `gone` is ending now.
fn weigh_burstable(shared: &Shared, gone: Option<&str>) {
    let pods: Vec<_> = shared.pods.all().iter().map(|h| h.state.borrow().clone()).collect();
    let alive = pods.iter().filter(|p| p.is_admitted() && gone != Some(p.uid())).map(|p| p.object().as_ref());
    shared.cgroups.weigh_burstable(alive.filter(|p| !api::pod::is_terminal(p)));
}

/// Carries out one action and says what came of it. Facts that are known before the end go to `messages`.
pub(crate) async fn carry_out(
    shared: &Shared,
    pod: &Pod,
    action: Action,
    messages: &UnboundedSender<PodMessage>,
) -> Result<Vec<Event>, String> {
    let key = action.key();
    match action {
        Action::Admit => Ok(vec![Event::Admission(admit::admit(shared, pod).await)]),
        Action::MountVolumes => Ok(vec![Event::Volumes(mount_volumes(shared, pod).await)]),
        Action::UnmountVolumes => Ok(vec![Event::Volumes(unmount_volumes(shared, pod).await?)]),
        Action::CreateSandbox { attempt } => Ok(vec![Event::Sandbox(sandbox::create(shared, pod, attempt).await)]),
        Action::StopSandbox { id } => {
            shared.runtime.stop_sandbox(&SandboxId(id.clone())).await.map_err(|e| e.to_string())?;
            Ok(vec![Event::Sandbox(SandboxFact::Stopped { id })])
        }
        Action::RemoveSandbox { id } => {
            shared.runtime.remove_sandbox(&SandboxId(id.clone())).await.map_err(|e| e.to_string())?;
            volumes::remove_pod_dirs(shared, pod).await?;
            shared.images.unused.notify_one();
            Ok(vec![Event::Sandbox(SandboxFact::Removed { id })])
        }
        Action::EnsureImage { container, pull, .. } => {
            let (image, fact) = image::ensure(shared, pod, &container, pull, messages).await;
            Ok(vec![Event::Image { container, image, fact }])
        }
        Action::StartContainer { container, attempt, image_ref, sandbox } => {
            let facts = container::start(shared, pod, &container, attempt, &image_ref, &sandbox).await?;
            Ok(facts.into_iter().map(|fact| Event::Container { container: container.clone(), fact }).collect())
        }
        Action::StopContainer { id, grace, signal, .. } => {
            let signal = signal.as_deref().and_then(StopSignal::parse);
            // Its end comes as an exit, from the runtime's own events.
            shared.runtime.stop_container(&ContainerId(id.clone()), grace, signal).await.map_err(|e| e.to_string())?;
            container::exit_of(shared, pod, &id).await.map(|e| vec![e])
        }
        Action::RemoveContainer { container, id } => {
            container::remove_logs(shared, pod, &id).await?;
            shared.runtime.remove_container(&ContainerId(id.clone())).await.map_err(|e| e.to_string())?;
            shared.images.unused.notify_one();
            Ok(vec![Event::Container { container, fact: ContainerFact::Removed { id } }])
        }
        Action::DeleteFromApi if is_static(pod.object()) => {
            shared.mirrors.remove(pod.object());
            Ok(vec![Event::Done(key), Event::Gone])
        }
        Action::DeleteFromApi => {
            if status::delete(shared, pod).await {
                Ok(vec![Event::Done(key)])
            } else {
                Err("the API did not take it".to_owned())
            }
        }
        Action::RunHook { container, id, hook, timeout } => hook::run(shared, pod, &container, id, hook, timeout).await,
        Action::Probe { container, id, probe, .. } => probe::run(shared, pod, &container, id, probe).await,
        Action::DecideResize { generation, .. } => Ok(vec![resize::decide(shared, pod, generation)]),
        Action::ActuateResources { .. } => Ok(vec![resize::actuate(shared, pod).await]),
        // The actor deals with these itself.
        Action::Record(_) | Action::Forget => Ok(Vec::new()),
    }
}
