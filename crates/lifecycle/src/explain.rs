//! `podium explain`: the reasons for a Pod's state and its next step.

use crate::{
    Action, Hook, NodePolicy, Pod, ProbeKind,
    container_kill::KillCause,
    hooks::{self, PostStart},
    phase::phase,
    probes,
    status::{format_duration, status},
    termination::TerminationCause,
};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Container as Spec;
use serde::{Deserialize, Serialize};

/// The answer of `podium explain`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Explanation {
    /// The phase, and whether the Pod is ending.
    pub state: String,
    /// Why, one sentence each.
    pub because: Vec<String>,
    /// What happens next.
    pub next: Vec<String>,
    /// When the state changes by itself, if nothing else happens.
    pub until: Option<Timestamp>,
}

/// Why a Pod is in its state, from the same facts that the plan and the status come from.
#[must_use]
pub fn explain(pod: &Pod, policy: &NodePolicy, now: Timestamp) -> Explanation {
    let plan = crate::plan(pod, policy, now);
    let phase = phase(pod, now);
    let mut because = Vec::new();
    if let Some(reason) = &phase.reason {
        because.push(format!("{reason}: {}", phase.message.as_deref().unwrap_or("")));
    }
    because.extend(pod.stop(now).map(|stop| stop_reason(stop.cause).to_owned()));
    because.extend(pod.restarting.as_ref().map(|r| format!("all its containers are restarted: {}", r.message)));
    if let crate::pod::Volumes::Failed(trouble) = &pod.volumes {
        because.push(format!("its volumes cannot be set up: {}", trouble.message));
    }
    if let Some(trouble) = &pod.sandbox_failure {
        because.push(format!("its sandbox cannot be created: {}", trouble.message));
    }
    because.extend(crate::resize::explain(pod, now));
    let shown = status(pod, policy, now);
    let lists = [&shown.init_container_statuses, &shown.container_statuses, &shown.ephemeral_container_statuses];
    for container in lists.into_iter().flatten().flatten() {
        because.extend(container_reason(container));
    }
    let clearing = pod.containers.iter().filter(|(_, c)| c.is_cleaning_up());
    because.extend(clearing.map(|(name, _)| format!("the container runtime still clears up after container {name}")));
    because.extend(api::pod::containers(pod.spec()).filter_map(|(_, spec)| awaited(pod, spec, now)));
    let next = plan.actions.iter().filter(|a| !matches!(a, Action::Record(_))).map(describe).collect();
    let ending = pod.stop(now).is_some() && !phase.is_terminal();
    Explanation {
        state: format!("{}{}", phase.phase, if ending { ", ending" } else { "" }),
        because,
        next,
        until: plan.wake,
    }
}

fn stop_reason(cause: TerminationCause) -> &'static str {
    match cause {
        TerminationCause::Rejected => "the node did not take it",
        TerminationCause::Gone => "it was removed from the API; the node cleans up",
        TerminationCause::Deleted => "it is being deleted",
        TerminationCause::Evicted => "the node wants it away",
        TerminationCause::DeadlineExceeded => "its activeDeadlineSeconds are over",
        TerminationCause::Terminal => "it has ended; a terminal phase never changes",
    }
}

fn container_reason(status: &k8s_openapi::api::core::v1::ContainerStatus) -> Option<String> {
    let name = &status.name;
    let state = status.state.as_ref()?;
    if let Some(w) = &state.waiting {
        let message = w.message.as_deref().map_or_else(String::new, |m| format!(": {m}"));
        return Some(format!("container {name} waits, {}{message}", w.reason.as_deref().unwrap_or("")));
    }
    if let Some(t) = &state.terminated {
        return Some(format!(
            "container {name} ended with code {}, {}",
            t.exit_code,
            t.reason.as_deref().unwrap_or("")
        ));
    }
    let since = state.running.as_ref()?.started_at.as_ref()?;
    Some(format!("container {name} runs since {}, restarts: {}", since.0, status.restart_count))
}

/// What a container that runs waits for: to be gone, its postStart hook, or a probe.
fn awaited(pod: &Pod, spec: &Spec, now: Timestamp) -> Option<String> {
    let (name, container) = (&spec.name, pod.container(&spec.name));
    let instance = container.current.as_ref().filter(|_| container.is_running())?;
    if let Some(kill) = instance.kill {
        let why = match kill.cause {
            KillCause::Probe(kind) => format!("failed its {} probe", word(kind)),
            KillCause::PostStart => "failed its postStart hook".to_owned(),
            KillCause::Sandbox => "has lost its sandbox".to_owned(),
            KillCause::Definition => "runs of another image than its spec has now".to_owned(),
            KillCause::RestartAll { .. } => return Some(format!("container {name} is killed, to be restarted")),
            KillCause::Resize => {
                return Some(format!("container {name} is restarted with new resources, SIGKILL at {}", kill.deadline));
            }
        };
        return Some(format!("container {name} {why} and is stopped, SIGKILL at {}", kill.deadline));
    }
    if hooks::post_start(container, spec) == Some(PostStart::Pending) {
        return Some(format!("container {name} waits for its postStart hook"));
    }
    let leaving = pod.kill_deadline(now).is_some();
    let open = |kind: &ProbeKind| probes::verdict(container, *kind) != Some(true);
    let waits = [ProbeKind::Startup, ProbeKind::Readiness].into_iter().filter(open);
    let (kind, due) = waits.filter_map(|k| Some((k, probes::due(pod, spec, k, leaving)?))).next()?;
    let failed = match instance.probes.track(kind).failures() {
        0 => String::new(),
        1 => ", which failed the last time".to_owned(),
        n => format!(", which failed the last {n} times"),
    };
    let next = if due > now { format!("next at {due}") } else { "which is due now".to_owned() };
    Some(format!("container {name} waits for its {} probe{failed}, {next}", word(kind)))
}

fn word(kind: ProbeKind) -> &'static str {
    match kind {
        ProbeKind::Startup => "startup",
        ProbeKind::Liveness => "liveness",
        ProbeKind::Readiness => "readiness",
    }
}

fn describe(action: &Action) -> String {
    match action {
        Action::Admit => "decide whether the node takes it".to_owned(),
        Action::MountVolumes => "set up its volumes".to_owned(),
        Action::UnmountVolumes => "remove its volumes".to_owned(),
        Action::CreateSandbox { .. } => "create its sandbox and network".to_owned(),
        Action::StopSandbox { .. } => "stop its sandbox".to_owned(),
        Action::RemoveSandbox { .. } => "remove its sandbox".to_owned(),
        Action::EnsureImage { container, pull: true, .. } => format!("find or pull the image of {container}"),
        Action::EnsureImage { container, pull: false, .. } => format!("look for the image of {container}"),
        Action::StartContainer { container, attempt, .. } => format!("start {container} (restart count {attempt})"),
        Action::StopContainer { container, grace, .. } => {
            format!("stop {container}, SIGKILL after {}", format_duration(*grace))
        }
        Action::RemoveContainer { container, .. } => {
            format!("remove an old container of {container}")
        }
        Action::RunHook { container, hook, .. } => {
            let hook = if *hook == Hook::PostStart { "postStart" } else { "preStop" };
            format!("run the {hook} hook of {container}")
        }
        Action::Probe { container, probe, .. } => format!("carry out the {} probe of {container}", word(*probe)),
        Action::DecideResize { .. } => {
            "decide whether the node takes it with the resources that it asks for".to_owned()
        }
        Action::ActuateResources { .. } => "give it the resources that are allocated".to_owned(),
        Action::Record(event) => format!("record the event {}", event.reason),
        Action::DeleteFromApi => "remove it from the API".to_owned(),
        Action::Forget => "forget it".to_owned(),
    }
}
