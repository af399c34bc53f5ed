//! Carrying out what the plan asks for. Each action can be repeated without harm.

mod admit;
mod container;
mod image;
mod mounts;
mod sandbox;
mod sub_path;

use crate::{Shared, actor::Mail, status, volumes};
use lifecycle::{Action, ContainerFact, Event, Pod, SandboxFact, VolumesFact};
use runtime::{ContainerId, SandboxId};
use tokio::sync::mpsc::UnboundedSender;

/// Keeps others away from the Pod's volumes for as long as it is held.
async fn volumes_turn(shared: &Shared, pod: &Pod) -> Option<tokio::sync::OwnedMutexGuard<()>> {
    let lock = shared.pods.by_uid(pod.uid())?.volumes;
    Some(lock.lock_owned().await)
}

async fn mount_volumes(shared: &Shared, pod: &Pod) -> VolumesFact {
    let _turn = volumes_turn(shared, pod).await;
    match volumes::set_up(shared, pod).await {
        Ok(()) => VolumesFact::Mounted,
        Err(message) => VolumesFact::Failed { message },
    }
}

async fn unmount_volumes(shared: &Shared, pod: &Pod) -> Result<VolumesFact, String> {
    let _turn = volumes_turn(shared, pod).await;
    volumes::tear_down(shared, pod).await?;
    shared.cgroups.remove(pod.object())?;
    weigh_burstable(shared, Some(pod.uid()));
    Ok(VolumesFact::Unmounted)
}

/// Burstable Pods together weigh what those ask for that are here and have not ended; `gone` is ending now.
fn weigh_burstable(shared: &Shared, gone: Option<&str>) {
    let pods: Vec<_> = shared.pods.all().iter().map(|h| h.known.borrow().clone()).collect();
    let alive = pods.iter().filter(|p| p.is_admitted() && gone != Some(p.uid())).map(|p| p.object().as_ref());
    shared.cgroups.weigh_burstable(alive.filter(|p| !api::pod::is_terminal(p)));
}

/// Carries out one action and says what came of it. Facts that are known before the end go to `mail`.
pub(crate) async fn carry_out(
    shared: &Shared,
    pod: &Pod,
    action: Action,
    mail: &UnboundedSender<Mail>,
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
            Ok(vec![Event::Sandbox(SandboxFact::Removed { id })])
        }
        Action::EnsureImage { container } => {
            let fact = image::ensure(shared, pod, &container, mail).await;
            Ok(vec![Event::Image { container, fact }])
        }
        Action::StartContainer { container, attempt, image_ref, sandbox } => {
            let facts = container::start(shared, pod, &container, attempt, &image_ref, &sandbox).await?;
            Ok(facts.into_iter().map(|fact| Event::Container { container: container.clone(), fact }).collect())
        }
        Action::StopContainer { id, grace, .. } => {
            // Its end comes as an exit, from the runtime's own events.
            shared.runtime.stop_container(&ContainerId(id.clone()), grace).await.map_err(|e| e.to_string())?;
            container::exit_of(shared, pod, &id).await.map(|e| vec![e])
        }
        Action::RemoveContainer { container, id } => {
            container::remove_logs(shared, pod, &id).await?;
            shared.runtime.remove_container(&ContainerId(id.clone())).await.map_err(|e| e.to_string())?;
            Ok(vec![Event::Container { container, fact: ContainerFact::Removed { id } }])
        }
        Action::DeleteFromApi => {
            if status::delete(shared, pod).await {
                Ok(vec![Event::Done(key)])
            } else {
                Err("the API did not take it".to_owned())
            }
        }
        Action::RunHook { .. } => Err("lifecycle hooks are not implemented yet".to_owned()),
        Action::Probe { .. } => Err("probes are not implemented yet".to_owned()),
        // The actor deals with these itself.
        Action::Record(_) | Action::Forget => Ok(Vec::new()),
    }
}
