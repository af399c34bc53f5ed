//! Plans the actions of a Pod (`computePodActions`, `SyncPod`).

mod kill_pod;

use crate::{
    Action, Hook, NodePolicy, Pod, StartFailureStage,
    container::{Container, ImageState, Instance, InstanceState},
    container_kill::KillCause,
    hooks::{self, PostStart},
    pod::{Sandbox, SandboxState, Volumes},
    probe_worker, resize, restart_all,
    termination::PodTermination,
    time::after,
};
use api::pod::{ContainerKind, containers};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Container as Spec;
use serde::{Deserialize, Serialize};

/// Actions that are due, and when to plan again.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// Actions, in start order.
    pub actions: Vec<Action>,
    /// The next time at which the plan changes without an event.
    pub wake: Option<Timestamp>,
}

impl Plan {
    pub(crate) fn wake_at(&mut self, at: Timestamp) {
        self.wake = Some(self.wake.map_or(at, |w| w.min(at)));
    }
}

/// Computes the actions that are due now (`computePodActions`). Without a new event, a repeated call returns the same
/// actions and keys.
#[must_use]
pub fn plan(pod: &Pod, policy: &NodePolicy, now: Timestamp) -> Plan {
    // Without a relist the plan could duplicate running containers.
    if pod.unseen {
        return Plan::default();
    }
    let mut plan = Plan { actions: pod.outbox.iter().cloned().map(Action::Record).collect(), wake: None };
    for (name, container) in &pod.containers {
        plan.actions.extend(
            container.dead.iter().map(|id| Action::RemoveContainer { container: name.clone(), id: id.clone() }),
        );
    }
    probe_worker::plan(pod, now, &mut plan);
    match (pod.stop(now), &pod.restarting) {
        (Some(stop), _) => sync_terminating_pod(pod, &stop, policy, now, &mut plan),
        (None, Some(restarting)) => restart_all::plan(pod, restarting, &mut plan),
        (None, None) if pod.finished() => sync_finished_pod(pod, policy, now, &mut plan),
        (None, None) => sync_pod(pod, policy, now, &mut plan),
    }
    plan
}

/// Plans the next step of a Pod that runs; each step waits for the one before (`SyncPod`).
fn sync_pod(pod: &Pod, policy: &NodePolicy, now: Timestamp, plan: &mut Plan) {
    if let Some(deadline) = pod.active_deadline() {
        plan.wake_at(deadline);
    }
    if pod.awaits_admission(now) {
        plan.actions.push(Action::Admit);
        return;
    }
    match &*pod.volumes {
        Volumes::Mounted => {}
        Volumes::Failed(trouble) if trouble.retry_at() > now => {
            return plan.wake_at(trouble.retry_at());
        }
        _ => return plan.actions.push(Action::MountVolumes),
    }
    if let Some((lost, since)) = pod.lost_sandbox() {
        return replace_sandbox(pod, &lost.id, after(since, pod.grace_period()), policy, now, plan);
    }
    let Some(sandbox) = pod.ready_sandbox() else {
        return create_sandbox(pod, now, plan);
    };
    start_ephemeral_containers(pod, sandbox, policy, now, plan);
    kill_pod::kill_failed_containers(pod, policy, now, plan);
    resize::plan(pod, now, plan);
    if resize::blocks_container_starts(pod) {
        return;
    }
    let current_index = init_index(pod, sandbox);
    for (index, (kind, spec)) in containers(pod.spec()).enumerate() {
        let is_past = index < current_index;
        if kind == ContainerKind::Init && is_past {
            continue;
        }
        let container = pod.container(&spec.name);
        let busy = match &container.current {
            Some(i @ Instance { state: InstanceState::Running { .. }, .. }) => {
                replace_image(pod, kind, spec, now, plan);
                plan_post_start(container, i, spec, plan)
            }
            Some(i @ Instance { state: InstanceState::Exited(exit), .. })
                if !pod.restarts(kind, spec, exit.code) && !reruns_in_new_sandbox(kind, i, sandbox) =>
            {
                false
            }
            _ => start_container(pod, spec, &sandbox.id, policy, now, plan),
        };
        let passed = match kind {
            ContainerKind::Init => has_init_succeeded(container, sandbox),
            ContainerKind::Sidecar => probe_worker::is_started(container, spec),
            ContainerKind::App | ContainerKind::Ephemeral => true,
        };
        // Containers before the current init container restart independently.
        if !is_past && (busy || !passed) {
            return;
        }
    }
}

/// Returns the index of the current init container: the last init container or sidecar created in this sandbox, or the
/// first app container once one was created. Start order no longer applies to those before it
/// (`computeInitContainerActions`).
fn init_index(pod: &Pod, sandbox: &Sandbox) -> usize {
    let was_created = |spec: &Spec| {
        let container = pod.container(&spec.name);
        let counts = !matches!(container.kill_cause(), Some(KillCause::RestartAll { .. }));
        counts && container.current.as_ref().is_some_and(|i| was_created_in(i, sandbox))
    };
    let before_app = containers(pod.spec()).take_while(|(kind, _)| *kind != ContainerKind::App).count();
    if containers(pod.spec()).skip(before_app).any(|(_, spec)| was_created(spec)) {
        return before_app;
    }
    let all = containers(pod.spec()).take(before_app).enumerate();
    all.filter(|(_, (_, spec))| was_created(spec)).last().map_or(0, |(index, _)| index)
}

/// Starts ephemeral containers, whatever the other containers do; they are never restarted (`computePodActions`).
fn start_ephemeral_containers(pod: &Pod, sandbox: &Sandbox, policy: &NodePolicy, now: Timestamp, plan: &mut Plan) {
    for spec in &pod.ephemeral {
        let container = pod.container(&spec.name);
        // A kubelet restart interrupted its start; it can be retried in its own sandbox.
        let is_startable = match &container.current {
            None => true,
            Some(i) => {
                i.state == InstanceState::Created && container.next_attempt() == i.attempt && was_created_in(i, sandbox)
            }
        };
        if is_startable {
            start_container(pod, spec, &sandbox.id, policy, now, plan);
        }
    }
}

/// Plans the postStart hook. Returns whether the next container must wait for it (`computePodActions`).
fn plan_post_start(container: &Container, instance: &Instance, spec: &Spec, plan: &mut Plan) -> bool {
    let pending = hooks::post_start(container, spec) == Some(PostStart::Pending);
    if pending {
        let (container, id) = (spec.name.clone(), instance.id.clone());
        plan.actions.push(Action::RunHook { container, id, hook: Hook::PostStart, timeout: None });
    }
    pending
}

/// Returns whether the container was created in this sandbox, or that is unknown.
fn was_created_in(instance: &Instance, sandbox: &Sandbox) -> bool {
    instance.sandbox.is_none_or(|attempt| attempt == sandbox.attempt)
}

/// Returns whether a succeeded init container runs again: a new sandbox has another network (`computePodActions`).
fn reruns_in_new_sandbox(kind: ContainerKind, instance: &Instance, sandbox: &Sandbox) -> bool {
    let succeeded = matches!(&instance.state, InstanceState::Exited(exit) if exit.code == 0);
    kind == ContainerKind::Init && succeeded && !was_created_in(instance, sandbox)
}

fn has_init_succeeded(container: &Container, sandbox: &Sandbox) -> bool {
    container.exit().is_some_and(|e| e.code == 0)
        && container.current.as_ref().is_some_and(|i| was_created_in(i, sandbox))
}

/// Replaces a lost sandbox (`PodSandboxChanged`): stops its containers, then the sandbox (`killPodWithSyncResult`); a
/// new one is created afterwards.
fn replace_sandbox(pod: &Pod, id: &str, deadline: Timestamp, policy: &NodePolicy, now: Timestamp, plan: &mut Plan) {
    kill_pod::kill_pod(pod, deadline, policy, now, plan);
    if !pod.has_active_containers() {
        plan.actions.push(Action::StopSandbox { id: id.to_owned() });
    }
}

/// Creates a sandbox when none is ready (`PodSandboxChanged`).
fn create_sandbox(pod: &Pod, now: Timestamp, plan: &mut Plan) {
    match &pod.sandbox_failure {
        _ if *pod.unlisted => {}
        // The exits of the old containers decide whether anything is restarted.
        _ if pod.has_active_containers() => {}
        Some(trouble) if trouble.retry_at() > now => plan.wake_at(trouble.retry_at()),
        _ => plan.actions.push(Action::CreateSandbox { attempt: pod.next_sandbox }),
    }
}

/// Plans the start of a container. Returns whether the next container must wait for it.
fn start_container(
    pod: &Pod,
    spec: &Spec,
    sandbox: &str,
    policy: &NodePolicy,
    now: Timestamp,
    plan: &mut Plan,
) -> bool {
    if *pod.unlisted {
        return true;
    }
    let container = pod.container(&spec.name);
    // It replaces a container that the runtime is still cleaning up.
    if container.is_cleaning_up() {
        return false;
    }
    if let Some(at) = container.restart_at(spec, &policy.container_backoff).filter(|at| *at > now) {
        // The reason shown changes from RunContainerError to CrashLoopBackOff in between.
        let failed = container.exit().filter(|e| e.failed_to_start());
        let reason_change = failed.map(|e| after(e.finished_at, crate::status::RUN_CONTAINER_ERROR_SHOWN));
        plan.wake_at(reason_change.filter(|at| *at > now).unwrap_or(at).min(at));
        return false;
    }
    if let Some(failure) = container.start_failure.as_ref() {
        let at = after(failure.at, failure.delay);
        if at > now {
            plan.wake_at(at);
            return false;
        }
    }
    match &*container.image {
        ImageState::Present { image_ref } => plan.actions.push(Action::StartContainer {
            container: spec.name.clone(),
            attempt: container.next_attempt(),
            image_ref: image_ref.clone(),
            sandbox: sandbox.to_owned(),
        }),
        ImageState::Failed { at, delay, .. } if after(*at, *delay) > now => {
            // The reason shown changes from ErrImagePull to ImagePullBackOff in between.
            let pulls = pod.images_of(spec).filter_map(|image| pod.pulls.get(image));
            let reason_change = pulls.map(|pull| after(pull.at, crate::status::ERR_IMAGE_PULL_SHOWN)).max();
            plan.wake_at(reason_change.filter(|at| *at > now).unwrap_or(after(*at, *delay)));
            return false;
        }
        _ => {
            // An image in pull backoff blocks the start, and so the next containers.
            plan.actions.push(ensure_image(pod, spec, now));
        }
    }
    true
}

/// Plans that the container's image is found or pulled (`EnsureImageExists`).
fn ensure_image(pod: &Pod, spec: &Spec, now: Timestamp) -> Action {
    let pull = pod.images_of(spec).all(|image| pod.pull_backoff(image, now).is_none());
    Action::EnsureImage { container: spec.name.clone(), image: spec.image.clone().unwrap_or_default(), pull }
}

/// Pulls the new image of a changed container while the old container still runs.
fn replace_image(pod: &Pod, kind: ContainerKind, spec: &Spec, now: Timestamp, plan: &mut Plan) {
    let container = pod.container(&spec.name);
    let not_pulled = matches!(*container.image, ImageState::Unknown | ImageState::Pulling);
    if kind != ContainerKind::Init && not_pulled && container.runs_another_image(spec) {
        plan.actions.push(ensure_image(pod, spec, now));
    }
}

/// Ends a Pod whose containers have all finished: stops sidecars, then cleans up.
fn sync_finished_pod(pod: &Pod, policy: &NodePolicy, now: Timestamp, plan: &mut Plan) {
    match pod.kill_deadline(now) {
        Some(deadline) if pod.any_may_run() => kill_pod::kill_pod(pod, deadline, policy, now, plan),
        _ if pod.has_active_containers() || *pod.unlisted => {}
        _ => sync_terminated_pod(pod, plan),
    }
}

/// Terminates a Pod: stops its containers, then its sandbox and volumes (`SyncTerminatingPod`,
/// `killPodWithSyncResult`).
fn sync_terminating_pod(pod: &Pod, stop: &PodTermination, policy: &NodePolicy, now: Timestamp, plan: &mut Plan) {
    kill_pod::kill_pod(pod, stop.deadline, policy, now, plan);
    // A previous kubelet may have created containers that only a relist shows.
    if pod.has_active_containers() || *pod.unlisted {
        return;
    }
    sync_terminated_pod(pod, plan);
    if !pod.is_settled() {
        return;
    }
    if pod.gone_at.is_some() {
        let removals = pod.sandboxes.iter().map(|s| Action::RemoveSandbox { id: s.id.clone() });
        plan.actions.extend(removals);
        if pod.sandboxes.is_empty() && pod.outbox.is_empty() {
            plan.actions = vec![Action::Forget];
        }
    } else if pod.deleted.is_some() && pod.written_phase().is_some() && !*pod.delete_sent {
        plan.actions.push(Action::DeleteFromApi);
    }
}

/// Stops the sandbox and unmounts volumes (`SyncTerminatedPod`). Containers are kept so that their logs can be read.
fn sync_terminated_pod(pod: &Pod, plan: &mut Plan) {
    let standing = pod.sandboxes.iter().filter(|s| s.state != SandboxState::Stopped);
    let before = plan.actions.len();
    plan.actions.extend(standing.map(|s| Action::StopSandbox { id: s.id.clone() }));
    if plan.actions.len() == before && matches!(*pod.volumes, Volumes::Mounted | Volumes::Failed(_)) {
        plan.actions.push(Action::UnmountVolumes);
    }
}

/// Returns the waiting reason for a failed start (`pkg/kubelet/events`).
pub(crate) fn start_failure_reason(stage: StartFailureStage) -> &'static str {
    match stage {
        StartFailureStage::Config => "CreateContainerConfigError",
        StartFailureStage::Create => "CreateContainerError",
        StartFailureStage::Start => "RunContainerError",
    }
}
