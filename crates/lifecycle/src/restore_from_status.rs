//! Restores the state of a Pod from its `status` in the API when the checkpoint is lost, so that restart counts
//! continue and exits are kept.

use crate::{
    Admission, ContainerExit, Pod, RuntimeImage,
    container::{Container, EndedContainer, Instance, InstanceState},
    container_kill::{ContainerKill, KillCause},
    hooks::PostStart,
    probe_worker::ProbeWorkerState,
    restart_all::{self, RestartAll},
};
use api::pod::containers;
use jiff::Timestamp;
use k8s_openapi::{
    api::core::v1::{ContainerState, ContainerStateTerminated, ContainerStatus, PodStatus},
    apimachinery::pkg::apis::meta::v1::Time,
};

/// Restores containers from the status in the API. A later list of the runtime takes precedence.
pub(crate) fn restore_from_status(pod: &mut Pod) {
    let Some(status) = pod.object.status.clone() else {
        return;
    };
    let lists = [&status.init_container_statuses, &status.container_statuses, &status.ephemeral_container_statuses];
    let statuses = lists.into_iter().flatten().flatten();
    let known: Vec<_> = statuses.filter_map(|s| Some((s.name.clone(), container_from_status(s)?))).collect();
    let statuses = status.init_container_statuses.iter().chain(&status.container_statuses).flatten();
    let allocated = statuses.filter_map(|s| Some((s.name.clone(), s.resources.clone()?))).collect();
    // A Pod that had a sandbox may have containers that the status does not show.
    if known.is_empty() && !api::pod::condition_is_true(&pod.object, "PodReadyToStartContainers") {
        return;
    }
    // A Pod is never re-admitted.
    pod.admission = Some(Admission::Admitted);
    pod.unseen = pod.written_phase().is_none();
    pod.containers.extend(known);
    crate::resize::restore(pod, &allocated);
    pod.ips = ips(&status);
    restore_restarts(pod, &status);
}

/// Restores restarts in progress: of all containers, or of a waiting container that no restart policy would restart.
fn restore_restarts(pod: &mut Pod, status: &PodStatus) {
    let condition =
        status.conditions.iter().flatten().find(|c| c.type_ == restart_all::CONDITION && c.status == "True");
    pod.restarting = condition.map(|c| RestartAll {
        message: c.message.clone().unwrap_or_default(),
        since: time(c.last_transition_time.as_ref()),
        ended: false,
    });
    let statuses = status.init_container_statuses.iter().chain(&status.container_statuses).flatten();
    let waiting = |s: &&ContainerStatus| s.state.as_ref().is_some_and(|state| state.waiting.is_some());
    let waiting: Vec<&str> = statuses.filter(waiting).map(|s| s.name.as_str()).collect();
    let specs: Vec<_> = containers(pod.spec()).map(|(kind, c)| (kind, c.clone())).collect();
    for (kind, spec) in specs {
        let Some(exit) = pod.container(&spec.name).any_exit() else { continue };
        let is_final = !pod.restarts(kind, &spec, exit.code);
        let deadline = exit.finished_at;
        if pod.restarting.is_some() || is_final && waiting.contains(&spec.name.as_str()) {
            let instance = pod.containers.get_mut(&spec.name).and_then(|c| c.current.as_mut());
            let kill = ContainerKill { cause: KillCause::RestartAll { requested: false }, deadline };
            instance.into_iter().for_each(|i| i.kill = Some(kill));
        }
    }
}

fn ips(status: &PodStatus) -> Vec<std::net::IpAddr> {
    status.pod_ips.iter().flatten().filter_map(|ip| ip.ip.parse().ok()).collect()
}

fn container_from_status(status: &ContainerStatus) -> Option<Container> {
    let id = bare_id(status.container_id.as_deref()?);
    let last = status.last_state.as_ref().and_then(ended);
    let state = status.state.as_ref();
    let (id, state, last) = match (state.and_then(|s| s.running.as_ref()), state.and_then(ended)) {
        (Some(running), _) => (id, InstanceState::Running { since: time(running.started_at.as_ref()) }, last),
        (None, Some(current)) => (id, InstanceState::Exited(current.exit), last),
        // The container waited for its restart: its last state is that of the newest container.
        (None, None) => match last {
            Some(last) if last.id == id => (id, InstanceState::Exited(last.exit), None),
            last => (id, InstanceState::Created, last),
        },
    };
    let attempt = u32::try_from(status.restart_count).unwrap_or(0);
    // The image name of the spec is only known once the runtime was listed.
    let image = RuntimeImage { name: status.image.clone(), id: status.image_id.clone(), spec: None };
    let mut instance = Instance::new(id, attempt, image, None, state);
    instance.stop_signal.clone_from(&status.stop_signal);
    if matches!(instance.state, InstanceState::Running { .. }) {
        restore_hooks_and_probes(&mut instance, status);
    }
    Some(Container { current: Some(instance), last, ..Container::default() })
}

/// Restores hook and probe state. A container is shown as running only after its postStart hook, and keeps its
/// readiness until a probe changes it (KEP-4781).
fn restore_hooks_and_probes(instance: &mut Instance, status: &ContainerStatus) {
    instance.hooks.post_start = PostStart::Done;
    instance.probes.readiness = ProbeWorkerState::restored(status.ready);
    if status.started == Some(true) {
        instance.probes.startup = ProbeWorkerState::restored(true);
    }
}

fn ended(state: &ContainerState) -> Option<EndedContainer> {
    let terminated = state.terminated.as_ref()?;
    Some(EndedContainer { id: bare_id(terminated.container_id.as_deref().unwrap_or("")), exit: exit(terminated) })
}

fn exit(terminated: &ContainerStateTerminated) -> ContainerExit {
    ContainerExit {
        code: terminated.exit_code,
        reason: terminated.reason.clone().unwrap_or_default(),
        message: terminated.message.clone().unwrap_or_default(),
        started_at: terminated.started_at.as_ref().map(|t| t.0).filter(|at| *at != Timestamp::UNIX_EPOCH),
        finished_at: time(terminated.finished_at.as_ref()),
    }
}

fn time(t: Option<&Time>) -> Timestamp {
    t.map_or(Timestamp::UNIX_EPOCH, |t| t.0)
}

/// Strips the scheme: `containerd://abc` becomes `abc`.
fn bare_id(id: &str) -> String {
    id.split_once("://").map_or(id, |(_, id)| id).to_owned()
}
