//! `podium explain`: the reasons for a Pod's state and its next step.

use crate::{
    Action, Hook, NodePolicy, Pod, ProbeKind,
    container_kill::KillCause,
    hooks::{self, PostStart},
    phase::phase,
    probe_worker,
    status::{format_duration, status},
    termination::TerminationCause,
};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Container as Spec;
use serde::{Deserialize, Serialize};

/// Output of `podium explain`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Explanation {
    /// Phase, and whether the Pod is terminating.
    pub state: String,
    /// Reasons, one sentence each.
    pub because: Vec<String>,
    /// Next actions.
    pub next: Vec<String>,
    /// Time of the next change if no event arrives.
    pub until: Option<Timestamp>,
}

/// Explains a Pod's state from the same data as the plan and the status.
#[must_use]
pub fn explain(pod: &Pod, policy: &NodePolicy, now: Timestamp) -> Explanation {
    let plan = crate::plan(pod, policy, now);
    let phase = phase(pod, now);
    let mut because = Vec::new();
    if let Some(reason) = &phase.reason {
        because.push(format!("{reason}: {}", phase.message.as_deref().unwrap_or("")));
    }
    because.extend(pod.stop(now).map(|stop| stop_reason(stop.cause).to_owned()));
    because.extend(pod.restarting.as_ref().map(|r| format!("all containers are being restarted: {}", r.message)));
    if let crate::pod::Volumes::Failed(trouble) = &*pod.volumes {
        because.push(format!("failed to mount volumes: {}", trouble.message));
    }
    if let Some(trouble) = &pod.sandbox_failure {
        because.push(format!("failed to create the Pod sandbox: {}", trouble.message));
    }
    because.extend(crate::resize::explain(pod, now));
    let status = status(pod, policy, now);
    let lists = [&status.init_container_statuses, &status.container_statuses, &status.ephemeral_container_statuses];
    for container in lists.into_iter().flatten().flatten() {
        because.extend(container_reason(container));
    }
    let cleaning_up = pod.containers.iter().filter(|(_, c)| c.is_cleaning_up());
    because.extend(cleaning_up.map(|(name, _)| format!("container {name}: the runtime is still cleaning up")));
    because.extend(api::pod::containers(pod.spec()).filter_map(|(_, spec)| pending_step(pod, spec, now)));
    let next = plan.actions.iter().filter(|a| !matches!(a, Action::Record(_))).map(describe).collect();
    let is_terminating = pod.stop(now).is_some() && !phase.is_terminal();
    Explanation {
        state: format!("{}{}", phase.phase, if is_terminating { ", terminating" } else { "" }),
        because,
        next,
        until: plan.wake,
    }
}

fn stop_reason(cause: TerminationCause) -> &'static str {
    match cause {
        TerminationCause::Rejected => "the node rejected the Pod",
        TerminationCause::Gone => "the Pod was removed from the API; the node is cleaning up",
        TerminationCause::Deleted => "the Pod is being deleted",
        TerminationCause::Evicted => "the node is terminating the Pod (eviction, preemption or node shutdown)",
        TerminationCause::DeadlineExceeded => "activeDeadlineSeconds exceeded",
        TerminationCause::Terminal => "the Pod's phase is terminal and never changes",
    }
}

fn container_reason(status: &k8s_openapi::api::core::v1::ContainerStatus) -> Option<String> {
    let name = &status.name;
    let state = status.state.as_ref()?;
    if let Some(w) = &state.waiting {
        let message = w.message.as_deref().map_or_else(String::new, |m| format!(": {m}"));
        return Some(format!("container {name} is waiting: {}{message}", w.reason.as_deref().unwrap_or("")));
    }
    if let Some(t) = &state.terminated {
        return Some(format!(
            "container {name} terminated with exit code {}: {}",
            t.exit_code,
            t.reason.as_deref().unwrap_or("")
        ));
    }
    let since = state.running.as_ref()?.started_at.as_ref()?;
    Some(format!("container {name} is running since {}, restarts: {}", since.0, status.restart_count))
}

/// Describes the pending step of a running container: its kill, its postStart hook or a probe.
fn pending_step(pod: &Pod, spec: &Spec, now: Timestamp) -> Option<String> {
    let (name, container) = (&spec.name, pod.container(&spec.name));
    let instance = container.current.as_ref().filter(|_| container.is_running())?;
    if let Some(kill) = instance.kill {
        let message = match kill.cause {
            KillCause::Probe(kind) => format!("failed its {} probe", probe_name(kind)),
            KillCause::PostStart => "failed its postStart hook".to_owned(),
            KillCause::Sandbox => "lost its sandbox".to_owned(),
            KillCause::Definition => "runs an image that is no longer in its spec".to_owned(),
            KillCause::RestartAll { .. } => return Some(format!("container {name} is being killed for a restart")),
            KillCause::Resize => {
                return Some(format!(
                    "container {name} is being restarted with new resources, SIGKILL at {}",
                    kill.deadline
                ));
            }
        };
        return Some(format!("container {name} {message} and is being stopped, SIGKILL at {}", kill.deadline));
    }
    if hooks::post_start(container, spec) == Some(PostStart::Pending) {
        return Some(format!("container {name}: postStart hook is still running"));
    }
    let terminating = pod.kill_deadline(now).is_some();
    let has_not_passed = |kind: &ProbeKind| probe_worker::result(container, *kind) != Some(true);
    let probes = [ProbeKind::Startup, ProbeKind::Readiness].into_iter().filter(has_not_passed);
    let (kind, due) = probes.filter_map(|k| Some((k, probe_worker::due(pod, spec, k, terminating)?))).next()?;
    let failed = match instance.probes.worker(kind).failures() {
        0 => String::new(),
        1 => ", 1 failure".to_owned(),
        n => format!(", {n} consecutive failures"),
    };
    let next = if due > now { format!("next probe at {due}") } else { "next probe is due now".to_owned() };
    Some(format!("container {name}: {} probe has not succeeded{failed}, {next}", probe_name(kind)))
}

fn probe_name(kind: ProbeKind) -> &'static str {
    match kind {
        ProbeKind::Startup => "startup",
        ProbeKind::Liveness => "liveness",
        ProbeKind::Readiness => "readiness",
    }
}

fn describe(action: &Action) -> String {
    match action {
        Action::Admit => "decide whether to admit the Pod".to_owned(),
        Action::MountVolumes => "mount volumes".to_owned(),
        Action::UnmountVolumes => "unmount volumes".to_owned(),
        Action::CreateSandbox { .. } => "create the Pod sandbox and its network".to_owned(),
        Action::StopSandbox { .. } => "stop the Pod sandbox".to_owned(),
        Action::RemoveSandbox { .. } => "remove the Pod sandbox".to_owned(),
        Action::EnsureImage { container, pull: true, .. } => {
            format!("pull the image of container {container} if needed")
        }
        Action::EnsureImage { container, pull: false, .. } => format!("check for the image of container {container}"),
        Action::StartContainer { container, attempt, .. } => {
            format!("start container {container} (restart count {attempt})")
        }
        Action::StopContainer { container, grace, .. } => {
            format!("stop container {container}, SIGKILL after {}", format_duration(*grace))
        }
        Action::RemoveContainer { container, .. } => {
            format!("remove a dead container of {container}")
        }
        Action::RunHook { container, hook, .. } => {
            let hook = if *hook == Hook::PostStart { "postStart" } else { "preStop" };
            format!("run the {hook} hook of container {container}")
        }
        Action::Probe { container, probe, .. } => {
            format!("run the {} probe of container {container}", probe_name(*probe))
        }
        Action::DecideResize { .. } => "decide whether the requested resize fits on the node".to_owned(),
        Action::ActuateResources { .. } => "apply the allocated resources".to_owned(),
        Action::Record(event) => format!("record the Event {}", event.reason),
        Action::DeleteFromApi => "delete the Pod from the API".to_owned(),
        Action::Forget => "forget the Pod".to_owned(),
    }
}
