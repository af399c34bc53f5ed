//! What is to be done now.

mod stop;

use crate::{
    Action, ActionKey, Hook, NodePolicy, Pod, StartStage,
    container::{Container, Image, Instance, State},
    hooks::{self, PostStart},
    kill::KillCause,
    pod::{Sandbox, SandboxState, Volumes},
    probes, resize, restart_all,
    stop::Stop,
    time::after,
};
use api::pod::{ContainerKind, containers};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Container as Spec;
use serde::{Deserialize, Serialize};

/// What is to be done now, and when to look again.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// Actions, in the order in which they should begin.
    pub actions: Vec<Action>,
    /// The next moment at which the plan changes by itself.
    pub wake: Option<Timestamp>,
}

impl Plan {
    pub(crate) fn wake_at(&mut self, at: Timestamp) {
        self.wake = Some(self.wake.map_or(at, |w| w.min(at)));
    }
}

impl Action {
    /// What makes this action the same as another one.
    #[must_use]
    pub fn key(&self) -> ActionKey {
        ActionKey(match self {
            Self::Admit => "admit".to_owned(),
            Self::MountVolumes => "mount".to_owned(),
            Self::UnmountVolumes => "unmount".to_owned(),
            Self::CreateSandbox { attempt } => format!("create-sandbox/{attempt}"),
            Self::StopSandbox { id } => format!("stop-sandbox/{id}"),
            Self::RemoveSandbox { id } => format!("remove-sandbox/{id}"),
            // Another image is another question.
            Self::EnsureImage { container, image, .. } => format!("image/{container}/{image}"),
            Self::StartContainer { container, attempt, .. } => format!("start/{container}/{attempt}"),
            // A shorter grace is another request; the same one, seconds later, is not.
            Self::StopContainer { id, deadline, .. } => format!("stop/{id}/{deadline}"),
            Self::RemoveContainer { id, .. } => format!("remove/{id}"),
            Self::RunHook { id, hook, .. } => format!("hook/{hook:?}/{id}"),
            Self::Probe { id, probe, attempt, .. } => format!("probe/{probe:?}/{id}/{attempt}"),
            Self::DecideResize { generation, tries } => format!("resize/{generation}/{tries}"),
            Self::ActuateResources { generation, tries } => format!("actuate/{generation}/{tries}"),
            Self::Record(event) => format!("event/{}", event.sequence),
            Self::DeleteFromApi => "delete".to_owned(),
            Self::Forget => "forget".to_owned(),
        })
    }
}

/// What is to be done now. Asking again without a new fact gives the same actions with the same keys.
#[must_use]
pub fn plan(pod: &Pod, policy: &NodePolicy, now: Timestamp) -> Plan {
    // A plan without the runtime's word might make a second one of what runs.
    if pod.unseen {
        return Plan::default();
    }
    let mut plan = Plan { actions: pod.outbox.iter().cloned().map(Action::Record).collect(), wake: None };
    for (name, container) in &pod.containers {
        plan.actions.extend(
            container.dead.iter().map(|id| Action::RemoveContainer { container: name.clone(), id: id.clone() }),
        );
    }
    probes::plan(pod, now, &mut plan);
    match (pod.stop(now), &pod.restarting) {
        (Some(stop), _) => stopping(pod, &stop, policy, now, &mut plan),
        (None, Some(restarting)) => restart_all::plan(pod, restarting, &mut plan),
        (None, None) if pod.finished() => finishing(pod, policy, now, &mut plan),
        (None, None) => running(pod, policy, now, &mut plan),
    }
    plan
}

/// The Pod is to live: each step waits for the one before (LIFECYCLE.md 3.3, `SyncPod` order).
fn running(pod: &Pod, policy: &NodePolicy, now: Timestamp, plan: &mut Plan) {
    if let Some(deadline) = pod.active_deadline() {
        plan.wake_at(deadline);
    }
    if pod.awaits_admission(now) {
        plan.actions.push(Action::Admit);
        return;
    }
    match &pod.volumes {
        Volumes::Mounted => {}
        Volumes::Failed(trouble) if trouble.retry_at() > now => {
            return plan.wake_at(trouble.retry_at());
        }
        _ => return plan.actions.push(Action::MountVolumes),
    }
    if let Some((lost, since)) = pod.lost_sandbox() {
        return replace(pod, &lost.id, after(since, pod.own_grace()), policy, now, plan);
    }
    let Some(sandbox) = pod.ready_sandbox() else {
        return create_sandbox(pod, now, plan);
    };
    ephemeral(pod, sandbox, policy, now, plan);
    stop::killed(pod, policy, now, plan);
    resize::plan(pod, now, plan);
    if resize::holds_starts(pod) {
        return;
    }
    let turn = turn(pod, sandbox);
    for (place, (kind, spec)) in containers(pod.spec()).enumerate() {
        let over = place < turn;
        if kind == ContainerKind::Init && over {
            continue;
        }
        let container = pod.container(&spec.name);
        let busy = match &container.current {
            Some(i @ Instance { state: State::Running { .. }, .. }) => {
                replace_image(pod, kind, spec, now, plan);
                post_start(container, i, spec, plan)
            }
            Some(i @ Instance { state: State::Exited(exit), .. })
                if !pod.restarts(kind, spec, exit.code) && !again(kind, i, sandbox) =>
            {
                false
            }
            _ => start(pod, spec, &sandbox.id, policy, now, plan),
        };
        let passed = match kind {
            ContainerKind::Init => init_done(container, sandbox),
            ContainerKind::Sidecar => probes::is_started(container, spec),
            ContainerKind::App | ContainerKind::Ephemeral => true,
        };
        // What had its turn is brought to life again on its own.
        if !over && (busy || !passed) {
            return;
        }
    }
}

/// Whose turn it is: the last init container or sidecar that was made in this sandbox, or the first app container once
/// one was. All before it had theirs, and nobody waits for them any more (upstream's `computeInitContainerActions`).
fn turn(pod: &Pod, sandbox: &Sandbox) -> usize {
    let made = |spec: &Spec| {
        let container = pod.container(&spec.name);
        let counts = !matches!(container.kill_cause(), Some(KillCause::RestartAll { .. }));
        counts && container.current.as_ref().is_some_and(|i| here(i, sandbox))
    };
    let before_app = containers(pod.spec()).take_while(|(kind, _)| *kind != ContainerKind::App).count();
    if containers(pod.spec()).skip(before_app).any(|(_, spec)| made(spec)) {
        return before_app;
    }
    let all = containers(pod.spec()).take(before_app).enumerate();
    all.filter(|(_, (_, spec))| made(spec)).last().map_or(0, |(place, _)| place)
}

/// Ephemeral containers are started while anything else goes on, and never again (LIFECYCLE.md 3.4, point 2).
fn ephemeral(pod: &Pod, sandbox: &Sandbox, policy: &NodePolicy, now: Timestamp, plan: &mut Plan) {
    for spec in &pod.ephemeral {
        let container = pod.container(&spec.name);
        // One that was made and not tried yet was cut off by a restart of the kubelet; it can be tried in its own sandbox.
        let fresh = match &container.current {
            None => true,
            Some(i) => i.state == State::Created && container.next_attempt() == i.attempt && here(i, sandbox),
        };
        if fresh {
            start(pod, spec, &sandbox.id, policy, now, plan);
        }
    }
}

/// Plans the hook that belongs to the start; gives whether the next container has to wait for it (LIFECYCLE.md 3.4).
fn post_start(container: &Container, instance: &Instance, spec: &Spec, plan: &mut Plan) -> bool {
    let pending = hooks::post_start(container, spec) == Some(PostStart::Pending);
    if pending {
        let (container, id) = (spec.name.clone(), instance.id.clone());
        plan.actions.push(Action::RunHook { container, id, hook: Hook::PostStart, timeout: None });
    }
    pending
}

/// Whether it was made in this sandbox, as far as is known.
fn here(instance: &Instance, sandbox: &Sandbox) -> bool {
    instance.sandbox.is_none_or(|attempt| attempt == sandbox.attempt)
}

/// An init container's work is done again in a new sandbox (LIFECYCLE.md 3.4, point 1): its network is another one.
fn again(kind: ContainerKind, instance: &Instance, sandbox: &Sandbox) -> bool {
    let succeeded = matches!(&instance.state, State::Exited(exit) if exit.code == 0);
    kind == ContainerKind::Init && succeeded && !here(instance, sandbox)
}

fn init_done(container: &Container, sandbox: &Sandbox) -> bool {
    container.exit().is_some_and(|e| e.code == 0) && container.current.as_ref().is_some_and(|i| here(i, sandbox))
}

/// A broken sandbox: what runs in it takes its leave, then it goes, then there will be a new one.
fn replace(pod: &Pod, id: &str, deadline: Timestamp, policy: &NodePolicy, now: Timestamp, plan: &mut Plan) {
    stop::all(pod, deadline, policy, now, plan);
    if !pod.occupied() {
        plan.actions.push(Action::StopSandbox { id: id.to_owned() });
    }
}

fn create_sandbox(pod: &Pod, now: Timestamp, plan: &mut Plan) {
    match &pod.sandbox_failure {
        _ if pod.unlisted => {}
        // Nothing is made anew before it is known how the old containers ended: there may be nothing left to run.
        _ if pod.occupied() => {}
        Some(trouble) if trouble.retry_at() > now => plan.wake_at(trouble.retry_at()),
        _ => plan.actions.push(Action::CreateSandbox { attempt: pod.next_sandbox }),
    }
}

/// Plans what brings this container to life; gives whether the next one has to wait for it.
fn start(pod: &Pod, spec: &Spec, sandbox: &str, policy: &NodePolicy, now: Timestamp, plan: &mut Plan) -> bool {
    if pod.unlisted {
        return true;
    }
    let container = pod.container(&spec.name);
    // It takes the place of one that the runtime has not cleared away yet.
    if container.clearing() {
        return false;
    }
    if let Some(at) = container.restart_at(spec, &policy.container_backoff).filter(|at| *at > now) {
        // The reason shown changes from RunContainerError to CrashLoopBackOff in between.
        let failed = container.exit().filter(|e| e.failed_to_start());
        let turn = failed.map(|e| after(e.finished_at, crate::status::RUN_CONTAINER_ERROR_SHOWN));
        plan.wake_at(turn.filter(|turn| *turn > now).unwrap_or(at).min(at));
        return false;
    }
    if let Some(failure) = container.start_failure.as_ref() {
        let at = after(failure.at, failure.delay);
        if at > now {
            plan.wake_at(at);
            return false;
        }
    }
    match &container.image {
        Image::Present { image_ref } => plan.actions.push(Action::StartContainer {
            container: spec.name.clone(),
            attempt: container.next_attempt(),
            image_ref: image_ref.clone(),
            sandbox: sandbox.to_owned(),
        }),
        Image::Failed { at, delay, .. } if after(*at, *delay) > now => {
            // The reason shown changes from ErrImagePull to ImagePullBackOff in between.
            let pulls = pod.images_of(spec).filter_map(|image| pod.pulls.get(image));
            let turn = pulls.map(|pull| after(pull.at, crate::status::ERR_IMAGE_PULL_SHOWN)).max();
            plan.wake_at(turn.filter(|turn| *turn > now).unwrap_or(after(*at, *delay)));
            return false;
        }
        _ => {
            // One that may not be pulled yet holds up the others: without it there is nothing to start.
            plan.actions.push(ensure_image(pod, spec, now));
        }
    }
    true
}

fn ensure_image(pod: &Pod, spec: &Spec, now: Timestamp) -> Action {
    let pull = pod.images_of(spec).all(|image| pod.pull_backoff(image, now).is_none());
    Action::EnsureImage { container: spec.name.clone(), image: spec.image.clone().unwrap_or_default(), pull }
}

/// What runs goes on while its new image is pulled.
fn replace_image(pod: &Pod, kind: ContainerKind, spec: &Spec, now: Timestamp, plan: &mut Plan) {
    let container = pod.container(&spec.name);
    let unsought = matches!(container.image, Image::Unknown | Image::Pulling);
    if kind != ContainerKind::Init && unsought && container.runs_another_image(spec) {
        plan.actions.push(ensure_image(pod, spec, now));
    }
}

/// All that counts has ended: sidecars are stopped, then what held them goes.
fn finishing(pod: &Pod, policy: &NodePolicy, now: Timestamp, plan: &mut Plan) {
    match pod.kill_deadline(now) {
        Some(deadline) if pod.any_alive() => stop::all(pod, deadline, policy, now, plan),
        _ if pod.occupied() || pod.unlisted => {}
        _ => settle(pod, plan),
    }
}

/// The Pod is to end: containers first, then what held them (LIFECYCLE.md 3.3 and 3.11).
fn stopping(pod: &Pod, stop: &Stop, policy: &NodePolicy, now: Timestamp, plan: &mut Plan) {
    stop::all(pod, stop.deadline, policy, now, plan);
    // An earlier kubelet may have made what only a list shows: nothing is over before there was one.
    if pod.occupied() || pod.unlisted {
        return;
    }
    settle(pod, plan);
    if !pod.is_settled() {
        return;
    }
    if pod.gone_at.is_some() {
        let removals = pod.sandboxes.iter().map(|s| Action::RemoveSandbox { id: s.id.clone() });
        plan.actions.extend(removals);
        if pod.sandboxes.is_empty() && pod.outbox.is_empty() {
            plan.actions = vec![Action::Forget];
        }
    } else if pod.deleted.is_some() && pod.written_phase().is_some() && !pod.delete_sent {
        plan.actions.push(Action::DeleteFromApi);
    }
}

/// Nothing runs and nothing will: the sandbox stops, then the volumes go. Containers and logs stay for people to read.
fn settle(pod: &Pod, plan: &mut Plan) {
    let standing = pod.sandboxes.iter().filter(|s| s.state != SandboxState::Stopped);
    let before = plan.actions.len();
    plan.actions.extend(standing.map(|s| Action::StopSandbox { id: s.id.clone() }));
    if plan.actions.len() == before && matches!(pod.volumes, Volumes::Mounted | Volumes::Failed(_)) {
        plan.actions.push(Action::UnmountVolumes);
    }
}

/// The waiting reason for a failed start (LIFECYCLE.md 3.12).
pub(crate) fn start_failure_reason(stage: StartStage) -> &'static str {
    match stage {
        StartStage::Config => "CreateContainerConfigError",
        StartStage::Create => "CreateContainerError",
        StartStage::Start => "RunContainerError",
    }
}
