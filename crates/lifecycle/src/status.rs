//! Computes `PodStatus` (`generateAPIPodStatus`).

use crate::{
    Admission, ContainerExit, NodePolicy, Pod, StartFailureStage,
    conditions::conditions,
    container::{Container, ImageState, Instance, InstanceState, elapsed},
    hooks::PostStart,
    phase::phase,
    plan::start_failure_reason,
    probe_worker, resize, restart, restart_all,
};
use api::{feature_gates::Gate, pod::ContainerKind};
use jiff::Timestamp;
use k8s_openapi::{
    api::core::v1::{
        Container as Spec, ContainerState, ContainerStateRunning, ContainerStateTerminated, ContainerStateWaiting,
        ContainerStatus, HostIP, PodIP, PodStatus, VolumeMount, VolumeMountStatus,
    },
    apimachinery::pkg::apis::meta::v1::Time,
};
use std::time::Duration;

/// Time for which `ErrImagePull` is shown before `ImagePullBackOff`.
pub(crate) const ERR_IMAGE_PULL_SHOWN: Duration = Duration::from_secs(1);

/// Time for which `RunContainerError` is shown before `CrashLoopBackOff`.
pub(crate) const RUN_CONTAINER_ERROR_SHOWN: Duration = Duration::from_secs(1);

/// Maximum size of all termination messages of a Pod, shared evenly by its containers
/// (`MaxPodTerminationMessageLogLength`).
const MAX_POD_TERMINATION_MESSAGE_BYTES: usize = 12 * 1024;

/// Computes the `PodStatus` to report (`generateAPIPodStatus`).
///
/// A Pod that was restored from the API keeps its status there until the runtime was listed, as upstream, whose Pod worker
/// waits for the first relist: restored state lacks the runtime's own data, such as the previous container.
#[must_use]
pub fn status(pod: &Pod, policy: &NodePolicy, now: Timestamp) -> PodStatus {
    if let Some(status) = pod.object.status.as_ref().filter(|_| pod.unseen) {
        return status.clone();
    }
    let phase = phase(pod, now);
    let rejected = matches!(pod.admission, Some(Admission::Rejected { .. }));
    let list = |kinds: &[ContainerKind]| -> Option<Vec<ContainerStatus>> {
        // Upstream shows no container statuses of a rejected Pod.
        if rejected {
            return None;
        }
        let mut all: Vec<_> = pod
            .all_containers()
            .filter(|(kind, _)| kinds.contains(kind))
            .map(|(kind, c)| container_status(pod, kind, c, phase.is_terminal(), policy, now))
            .collect();
        // Init containers are sorted by start order, all others by name (`convertToAPIContainerStatuses`).
        if !kinds.contains(&ContainerKind::Init) {
            all.sort_by(|a, b| a.name.cmp(&b.name));
        }
        (!all.is_empty()).then_some(all)
    };
    let (init, app) = ([ContainerKind::Init, ContainerKind::Sidecar], [ContainerKind::App]);
    let known = pod.object.status.as_ref();
    let pod_ips: Vec<PodIP> = pod.ips.iter().map(|ip| PodIP { ip: ip.to_string() }).collect();
    let host_ips: Vec<HostIP> = policy.host_ips.iter().map(|ip| HostIP { ip: ip.to_string() }).collect();
    let mut conditions = conditions(pod, &phase, now);
    let reports_sandbox = policy.gates.enabled(Gate::PodReadyToStartContainersCondition);
    conditions.retain(|c| reports_sandbox || c.type_ != "PodReadyToStartContainers");
    PodStatus {
        conditions: Some(conditions),
        host_ip: policy.host_ips.first().map(ToString::to_string),
        host_ips: (!host_ips.is_empty()).then_some(host_ips),
        pod_ip: pod.ips.first().map(ToString::to_string),
        pod_ips: (!pod_ips.is_empty()).then_some(pod_ips),
        start_time: Some(Time(pod.seen_at)),
        qos_class: known
            .and_then(|s| s.qos_class.clone())
            .or_else(|| Some(api::resources::qos_class(pod.spec()).as_str().to_owned())),
        phase: Some(phase.phase.to_owned()),
        reason: phase.reason.clone(),
        message: phase.message.clone(),
        observed_generation: pod.object.metadata.generation,
        nominated_node_name: known.and_then(|s| s.nominated_node_name.clone()),
        init_container_statuses: list(&init),
        container_statuses: list(&app),
        ephemeral_container_statuses: list(&[ContainerKind::Ephemeral]),
        ..PodStatus::default()
    }
}

/// Returns whether a container is ready: its probes succeed, or it is an init container that succeeded. An init
/// container that was killed for a restart is not ready, whatever its exit code.
pub(crate) fn is_ready(pod: &Pod, kind: ContainerKind, spec: &Spec, now: Timestamp) -> bool {
    let container = pod.container(&spec.name);
    let runs_again = |code| pod.restarts(kind, spec, code) && pod.stop(now).is_none() && !pod.finished();
    match kind {
        ContainerKind::Init => container.exit().is_some_and(|e| e.code == 0 && !runs_again(e.code)),
        ContainerKind::Sidecar | ContainerKind::App => probe_worker::is_ready(container, spec),
        ContainerKind::Ephemeral => false,
    }
}

fn container_status(
    pod: &Pod,
    kind: ContainerKind,
    spec: &Spec,
    terminal: bool,
    policy: &NodePolicy,
    now: Timestamp,
) -> ContainerStatus {
    let container = pod.container(&spec.name);
    let id = |id: &str| format!("{}://{id}", policy.runtime_name);
    let max_message_bytes = MAX_POD_TERMINATION_MESSAGE_BYTES / pod.all_containers().count().max(1);
    let terminated = |ended_id: &str, exit: &ContainerExit| ContainerState {
        terminated: Some(ContainerStateTerminated {
            container_id: Some(id(ended_id)),
            exit_code: exit.code,
            reason: Some(exit.reason.clone()),
            message: (!exit.message.is_empty())
                .then(|| api::text::truncate(&exit.message, max_message_bytes).to_owned()),
            // Upstream shows CRI's zero time for a container that never started.
            started_at: exit.started_at.or(exit.failed_to_start().then_some(Timestamp::UNIX_EPOCH)).map(Time),
            finished_at: Some(Time(exit.finished_at)),
            signal: None,
        }),
        ..ContainerState::default()
    };
    // Upstream shows resources of resizable containers from their creation on.
    let was_created = container.current.is_some() && resize::is_resizable(kind);
    let earlier = container.last.as_ref().map(|l| terminated(&l.id, &l.exit));
    let (state, last_state) = match &container.current {
        Some(Instance { state: InstanceState::Running { since }, .. }) => {
            (running_state(pod, spec, *since, now), earlier)
        }
        Some(Instance { id, state: InstanceState::Exited(exit), .. }) => {
            match restart_waiting_state(pod, kind, spec, container, policy, now) {
                Some(waiting) if !terminal => (waiting, Some(terminated(id, exit))),
                _ => (terminated(id, exit), earlier),
            }
        }
        Some(Instance { state: InstanceState::Created, .. }) | None if terminal && is_missing(pod, kind, spec) => {
            (missing_state(), earlier)
        }
        _ => (start_failure_state(pod, spec, container, now).unwrap_or_else(|| creating_state(pod)), earlier),
    };
    let state = if state.terminated.is_none() { immutable_terminated_state(pod, spec).unwrap_or(state) } else { state };
    ContainerStatus {
        name: spec.name.clone(),
        // The image of the current container until it is replaced, as the runtime reports it.
        image: container.current.as_ref().and_then(image).or(spec.image.clone()).unwrap_or_default(),
        image_id: container.current.as_ref().map(|i| i.image_id.clone()).unwrap_or_default(),
        container_id: container.current.as_ref().map(|i| id(&i.id)),
        ready: is_ready(pod, kind, spec, now) && !(terminal && kind != ContainerKind::Init),
        started: match kind {
            ContainerKind::Init => Some(container.is_running()),
            ContainerKind::Sidecar | ContainerKind::App => Some(probe_worker::is_started(container, spec)),
            ContainerKind::Ephemeral => None,
        },
        restart_count: i32::try_from(container.restart_count()).unwrap_or(i32::MAX),
        state: Some(state),
        last_state,
        resources: was_created.then(|| pod.actual_resources(&spec.name)),
        allocated_resources: spec.resources.as_ref().and_then(|r| r.requests.clone()).filter(|_| was_created),
        stop_signal: stop_signal(container, policy),
        volume_mounts: volume_mounts(spec, policy.recursive_read_only_mounts.for_pod(pod.spec())),
        ..ContainerStatus::default()
    }
}

fn image(instance: &Instance) -> Option<String> {
    instance.image_name.clone().or_else(|| instance.image.clone())
}

/// Returns the status of the volume mounts. `recursive_is_supported` is that of the runtime handler (KEP-3857).
fn volume_mounts(spec: &Spec, recursive_is_supported: bool) -> Option<Vec<VolumeMountStatus>> {
    let status = |mount: &VolumeMount| {
        let read_only = mount.read_only.filter(|read_only| *read_only);
        let is_recursive = resolve_recursive_read_only(mount, recursive_is_supported) == Ok(true);
        VolumeMountStatus {
            name: mount.name.clone(),
            mount_path: mount.mount_path.clone(),
            read_only,
            recursive_read_only: read_only.map(|_| if is_recursive { "Enabled" } else { "Disabled" }.to_owned()),
        }
    };
    spec.volume_mounts.as_ref().map(|mounts| mounts.iter().map(status).collect())
}

/// Returns whether submounts of a mount are read-only, too (upstream's `resolveRecursiveReadOnly`).
///
/// # Errors
/// When the mount requires it and cannot have it, with upstream's message.
pub fn resolve_recursive_read_only(mount: &VolumeMount, is_supported: bool) -> Result<bool, String> {
    let mode = mount.recursive_read_only.as_deref().unwrap_or("Disabled");
    let refused = |problem: String| {
        Err(format!("volume {:?} requested recursive read-only mode, but it is {problem}", mount.name))
    };
    match (mode, mount.mount_propagation.as_deref()) {
        ("Disabled", _) => Ok(false),
        _ if mount.read_only != Some(true) => refused("not read-only".to_owned()),
        (_, Some(propagation)) if propagation != "None" => {
            refused(format!("not compatible with propagation {propagation:?}"))
        }
        ("IfPossible", _) => Ok(is_supported),
        ("Enabled", _) if is_supported => Ok(true),
        ("Enabled", _) => refused("not supported by the runtime".to_owned()),
        (mode, _) => Err(format!("unknown recursive read-only mode {mode:?}")),
    }
}

/// Returns the terminated state that the API server protects (`ValidateContainerStateTransition`): it is shown until
/// the next exit. It occurs for an init container that reruns in a new sandbox.
fn immutable_terminated_state(pod: &Pod, spec: &Spec) -> Option<ContainerState> {
    let status = pod.written.as_deref().or(pod.object.status.as_ref())?;
    let lists = [&status.init_container_statuses, &status.container_statuses];
    let known = lists.into_iter().flatten().flatten().find(|c| c.name == spec.name)?.state.as_ref()?;
    let code = known.terminated.as_ref()?.exit_code;
    (spec.restart_policy.is_none() && !restart::may_restart_all(pod.spec()))
        .then(|| pod.spec().restart_policy.as_deref().unwrap_or("Always"))
        .filter(|policy| *policy == "Never" || *policy == "OnFailure" && code == 0)
        .map(|_| known.clone())
}

/// Returns the effective stop signal, if its feature gate is on (KEP-4960).
fn stop_signal(container: &Container, policy: &NodePolicy) -> Option<String> {
    let known = container.current.as_ref().and_then(|i| i.stop_signal.clone());
    known.filter(|_| policy.gates.enabled(Gate::ContainerStopSignals))
}

fn waiting_state(reason: &str, message: Option<String>) -> ContainerState {
    ContainerState {
        waiting: Some(ContainerStateWaiting { reason: Some(reason.to_owned()), message }),
        ..ContainerState::default()
    }
}

/// Returns the state of a running process, which is waiting until its postStart hook is done.
fn running_state(pod: &Pod, spec: &Spec, since: Timestamp, now: Timestamp) -> ContainerState {
    match pod.pending_post_start(spec, now) {
        Some(PostStart::Failed) => post_start_error_state(),
        Some(_) => creating_state(pod),
        None => ContainerState {
            running: Some(ContainerStateRunning { started_at: Some(Time(since)) }),
            ..ContainerState::default()
        },
    }
}

fn post_start_error_state() -> ContainerState {
    waiting_state("PostStartHookError", Some("PostStartHook failed".to_owned()))
}

fn creating_state(pod: &Pod) -> ContainerState {
    let init = pod.spec().init_containers.as_ref().is_some_and(|c| !c.is_empty());
    waiting_state(if init { "PodInitializing" } else { "ContainerCreating" }, None)
}

/// Returns the terminated state of a container that was never created (`TerminatePod`).
fn missing_state() -> ContainerState {
    ContainerState {
        terminated: Some(ContainerStateTerminated {
            exit_code: 137,
            reason: Some("ContainerStatusUnknown".to_owned()),
            message: Some("The container could not be located when the pod was terminated".to_owned()),
            ..ContainerStateTerminated::default()
        }),
        ..ContainerState::default()
    }
}

/// Returns whether a terminated Pod misses this container: app containers once the Pod was initialized, and init
/// containers up to the last started one, or the first (`TerminatePod`). The others simply never ran.
fn is_missing(pod: &Pod, kind: ContainerKind, spec: &Spec) -> bool {
    let started = |c: &Spec| pod.container(&c.name).has_run();
    let init = pod.spec().init_containers.as_deref().unwrap_or_default();
    match kind {
        ContainerKind::App => {
            init.last().is_none_or(|last| pod.container(&last.name).exit().is_some_and(|e| e.code == 0))
                || pod.spec().containers.iter().any(started)
        }
        ContainerKind::Init | ContainerKind::Sidecar => {
            let last = init.iter().rposition(started).unwrap_or(0);
            init.iter().position(|c| c.name == spec.name).is_some_and(|at| at <= last)
        }
        ContainerKind::Ephemeral => false,
    }
}

/// Returns the waiting state of a container that will be restarted: its backoff, or the cause that blocks its start.
fn restart_waiting_state(
    pod: &Pod,
    kind: ContainerKind,
    spec: &Spec,
    container: &Container,
    policy: &NodePolicy,
    now: Timestamp,
) -> Option<ContainerState> {
    let exit = container.any_exit().filter(|e| pod.restarts(kind, spec, e.code))?;
    if pod.stop(now).is_some() || pod.finished() {
        return None;
    }
    if pod.restarting.is_some() {
        return Some(waiting_state(restart_all::REASON, Some(restart_all::MESSAGE.to_owned())));
    }
    if let Some(failed) = run_container_error_state(exit, now) {
        return Some(failed);
    }
    let at = container.restart_at(spec, &policy.container_backoff);
    if at.is_none_or(|at| at <= now) {
        let hook = container.current.as_ref().filter(|i| i.hooks.post_start == PostStart::Failed);
        // An exit that the restart policy would not restart is not final if the container is replaced; the API server
        // protects final exits.
        let replaced = || container.replaced() || !pod.restarts_after(kind, spec, exit.code);
        let blocked = start_failure_state(pod, spec, container, now).or(hook.map(|_| post_start_error_state()));
        if let Some(state) = blocked.or_else(|| replaced().then(|| creating_state(pod))) {
            return Some(state);
        }
    }
    match at.filter(|at| *at > exit.finished_at) {
        // The reason is kept until the start succeeds, as in upstream's `reasonCache`.
        Some(at) => Some(crash_loop_state(pod, spec, exit, at)),
        // Upstream kills and restarts in one step, so the exit is not shown.
        None => container.kill_cause().map(|_| creating_state(pod)),
    }
}

fn crash_loop_state(pod: &Pod, spec: &Spec, exit: &ContainerExit, at: Timestamp) -> ContainerState {
    let delay = elapsed(exit.finished_at, at);
    let message = format!(
        "back-off {} restarting failed container={} pod={}_{}({}), next try at {}",
        format_duration(delay),
        spec.name,
        pod.name(),
        pod.namespace(),
        pod.uid(),
        at.round(jiff::Unit::Second).unwrap_or(at)
    );
    waiting_state("CrashLoopBackOff", Some(message))
}

/// Returns `RunContainerError` for a failed start, which upstream shows until its next sync.
fn run_container_error_state(exit: &ContainerExit, now: Timestamp) -> Option<ContainerState> {
    let is_recent = exit.failed_to_start() && elapsed(exit.finished_at, now) < RUN_CONTAINER_ERROR_SHOWN;
    is_recent.then(|| waiting_state(start_failure_reason(StartFailureStage::Start), Some(exit.message.clone())))
}

/// Returns the waiting state of a failed start or pull, if any.
fn start_failure_state(pod: &Pod, spec: &Spec, container: &Container, now: Timestamp) -> Option<ContainerState> {
    if let Some(failure) = &container.start_failure {
        return Some(waiting_state(start_failure_reason(failure.stage), Some(failure.message.clone())));
    }
    let ImageState::Failed { reason, message, volume, .. } = &*container.image else {
        return None;
    };
    let image = volume.as_deref().or(spec.image.as_deref()).unwrap_or("");
    let pull = pod.pulls.get(image).filter(|pull| pull.reason == *reason);
    if pull.is_some_and(|pull| elapsed(pull.at, now) >= ERR_IMAGE_PULL_SHOWN) {
        let text = format!("Back-off pulling image {image:?}: {reason}: {message}");
        return Some(waiting_state("ImagePullBackOff", Some(text)));
    }
    Some(waiting_state(reason, Some(message.clone())))
}

/// Formats a duration as Go does, in milliseconds: `345ms`, `1.5s`, `1m20s`, `1h0m3.2s`.
pub(crate) fn format_duration(d: Duration) -> String {
    api::duration::format_duration(Duration::from_millis(u64::try_from(d.as_millis()).unwrap_or(u64::MAX)))
}

#[cfg(test)]
mod tests {
    use super::format_duration;
    use std::time::Duration;

    #[test]
    fn duration_is_formatted_like_go() {
        for (millis, expected) in [
            (0, "0s"),
            (345, "345ms"),
            (1_000, "1s"),
            (1_050, "1.05s"),
            (10_000, "10s"),
            (80_000, "1m20s"),
            (300_001, "5m0.001s"),
            (3_603_200, "1h0m3.2s"),
        ] {
            assert_eq!(format_duration(Duration::from_millis(millis)), expected);
        }
    }
}
