//! Kills of single containers and their Events.

use super::{container_entry, record};
use crate::{
    EventKind, Pod, ProbeKind,
    container::ImageState,
    container_kill::{ContainerKill, KillCause},
    probe_worker,
    time::after,
};
use api::pod::{ContainerKind, containers};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Container as Spec;
use std::time::Duration;

/// Kills a container while its Pod keeps running, unless it is already being killed.
pub(crate) fn kill(pod: &mut Pod, name: &str, cause: KillCause, now: Timestamp) {
    let Some((container_kind, spec)) = pod.container_spec(name) else {
        return;
    };
    let probe = match cause {
        KillCause::Probe(kind) => probe_worker::probe(spec, kind),
        KillCause::PostStart
        | KillCause::Sandbox
        | KillCause::Definition
        | KillCause::Resize
        | KillCause::RestartAll { .. } => None,
    };
    let seconds = probe.and_then(|p| p.termination_grace_period_seconds).unwrap_or_else(|| pod.grace_period_seconds());
    let deadline = after(now, Duration::from_secs(u64::try_from(seconds).unwrap_or(0)));
    // Upstream kills and restarts in one step: the deletion of the Pod stops the new container and records its own
    // Event.
    let replaced_at_once = match cause {
        KillCause::Probe(_) => pod.restarts_on_failure(container_kind, spec),
        KillCause::Definition | KillCause::Resize => true,
        KillCause::PostStart | KillCause::Sandbox | KillCause::RestartAll { .. } => false,
    };
    // Upstream's text for init containers and sidecars has no suffix.
    let (subject, suffix) = match container_kind {
        ContainerKind::Init | ContainerKind::Sidecar => ("Init container", ""),
        _ if cause == KillCause::Definition => ("Container", ", will be restarted"),
        kind if pod.restarts_on_failure(kind, spec) => ("Container", ", will be restarted"),
        _ => ("Container", ""),
    };
    let message = match cause {
        KillCause::Probe(ProbeKind::Startup) => format!("{subject} {name} failed startup probe{suffix}"),
        KillCause::Probe(_) => format!("{subject} {name} failed liveness probe{suffix}"),
        // Upstream's message, equal to its reason.
        KillCause::PostStart => "FailedPostStartHook".to_owned(),
        KillCause::Definition => format!("{subject} {name} definition changed{suffix}"),
        KillCause::Sandbox | KillCause::RestartAll { .. } => format!("Stopping container {name}"),
        KillCause::Resize => format!("Container {name} resize requires restart"),
    };
    let Some(instance) = container_entry(pod, name).current.as_mut().filter(|i| i.kill.is_none()) else {
        return;
    };
    instance.kill = Some(ContainerKill { cause, deadline });
    let id = instance.id.clone();
    record(pod, EventKind::Normal, "Killing", message, Some(name));
    if !replaced_at_once {
        pod.killing.push(id);
    }
}

/// Kills containers whose image changed in the spec (`computePodActions`), once the new image is present or failed to
/// resolve. Init containers run to completion.
pub(super) fn kill_changed_containers(pod: &mut Pod, now: Timestamp) {
    if pod.restarting.is_some() || pod.kill_deadline(now).is_some() {
        return;
    }
    let is_changed = |spec: &Spec| {
        let container = pod.container(&spec.name);
        let resolved = matches!(*container.image, ImageState::Present { .. } | ImageState::Failed { .. });
        resolved && container.runs_another_image(spec)
    };
    let restartable = containers(pod.spec()).filter(|(kind, _)| *kind != ContainerKind::Init);
    let changed: Vec<String> =
        restartable.filter(|(_, spec)| is_changed(spec)).map(|(_, spec)| spec.name.clone()).collect();
    for name in changed {
        kill(pod, &name, KillCause::Definition, now);
    }
}

/// Records one `Killing` Event for each running container of a terminating Pod (`killContainer`), also for a container
/// that is being killed for a restart.
pub(super) fn record_killing_events(pod: &mut Pod, now: Timestamp) {
    if pod.kill_deadline(now).is_none() {
        return;
    }
    let unannounced: Vec<(String, String)> = pod
        .containers
        .iter()
        .filter(|(_, c)| c.is_running())
        .filter_map(|(name, c)| Some((name.clone(), c.current.as_ref()?.id.clone())))
        .filter(|(_, id)| !pod.killing.contains(id))
        .collect();
    for (name, id) in unannounced {
        record(pod, EventKind::Normal, "Killing", format!("Stopping container {name}"), Some(&name));
        pod.killing.push(id);
    }
}
