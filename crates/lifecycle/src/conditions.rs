//! Pod conditions (`pkg/kubelet/status/generate.go`).

use crate::{
    Pod,
    phase::{Phase, app_started},
    probe_worker, restart_all,
    status::is_ready,
};
use api::pod::{ContainerKind, containers};
use jiff::Timestamp;
use k8s_openapi::{
    api::core::v1::{PodCondition, PodStatus},
    apimachinery::pkg::apis::meta::v1::Time,
};

/// Condition types that the kubelet owns (`PodConditionsByKubelet`); it preserves all others.
pub const OWNED_CONDITIONS: [&str; 9] = [
    "PodReadyToStartContainers",
    "Initialized",
    "Ready",
    "ContainersReady",
    "PodScheduled",
    "DisruptionTarget",
    restart_all::CONDITION,
    RESIZE_CONDITIONS[0],
    RESIZE_CONDITIONS[1],
];
/// Condition types of a resize, which are removed when it is complete.
pub const RESIZE_CONDITIONS: [&str; 2] = ["PodResizePending", "PodResizeInProgress"];

/// A condition's status with its reason and message.
type ConditionValue = (bool, &'static str, String);

pub(crate) fn conditions(pod: &Pod, phase: &Phase, now: Timestamp) -> Vec<PodCondition> {
    let containers_ready = containers_ready(pod, phase, now);
    let ready = ready(pod, &containers_ready);
    // Until the runtime was listed, a true condition stays true.
    let sandbox = pod.ready_sandbox().is_some()
        || pod.unseen && api::pod::condition_is_true(&pod.object, "PodReadyToStartContainers");
    let values: [(&str, ConditionValue); 5] = [
        (OWNED_CONDITIONS[0], (sandbox, "", String::new())),
        (OWNED_CONDITIONS[1], initialized(pod, phase, now)),
        (OWNED_CONDITIONS[2], ready),
        (OWNED_CONDITIONS[3], containers_ready),
        (OWNED_CONDITIONS[4], (true, "", String::new())),
    ];
    let mut all: Vec<PodCondition> = values.into_iter().map(|(kind, value)| condition(pod, kind, value, now)).collect();
    all.extend(restarting_condition(pod, now));
    if let Some((eviction, _)) = pod.evicted.as_ref().filter(|(e, _)| e.disruption_target && phase.is_terminal()) {
        let message = eviction.disruption_message.as_ref().unwrap_or(&eviction.message).clone();
        all.push(condition(pod, OWNED_CONDITIONS[5], (true, "TerminationByKubelet", message), now));
    }
    all.extend(resize_conditions(pod, now));
    let current = pod.object.status.iter().flat_map(|s| s.conditions.iter().flatten());
    let is_replaced = |c: &PodCondition, all: &[PodCondition]| {
        RESIZE_CONDITIONS.contains(&c.type_.as_str()) || all.iter().any(|condition| condition.type_ == c.type_)
    };
    let preserved: Vec<PodCondition> = current.filter(|c| !is_replaced(c, &all)).cloned().collect();
    all.extend(preserved);
    all
}

/// Returns the conditions of a resize in progress, with the generation that requested it.
fn resize_conditions(pod: &Pod, now: Timestamp) -> Vec<PodCondition> {
    let mut all = Vec::new();
    if let Some(p) = &pod.resize.pending {
        let value = (true, p.reason.as_str(), p.message.clone());
        all.push((p.generation, condition(pod, RESIZE_CONDITIONS[0], value, now)));
    }
    if let Some(p) = &pod.resize.progress {
        let error = p.error.as_ref().map_or(("", String::new()), |e| ("Error", e.message.clone()));
        all.push((p.generation, condition(pod, RESIZE_CONDITIONS[1], (true, error.0, error.1), now)));
    }
    all.into_iter().map(|(generation, c)| PodCondition { observed_generation: Some(generation), ..c }).collect()
}

/// Returns the condition of a restart of all containers. It stays once it was set (KEP-5532).
fn restarting_condition(pod: &Pod, now: Timestamp) -> Option<PodCondition> {
    let value = match &pod.restarting {
        Some(restarting) => (true, "ContainerExited", restarting.message.clone()),
        None if existing(pod, restart_all::CONDITION).is_some() => (false, "", String::new()),
        None => return None,
    };
    Some(condition(pod, restart_all::CONDITION, value, now))
}

/// Returns the last written condition of this type, else that of the API object, for its last transition time.
fn existing(pod: &Pod, kind: &str) -> Option<PodCondition> {
    let condition = |s: &PodStatus| s.conditions.iter().flatten().find(|c| c.type_ == kind).cloned();
    pod.written.as_deref().and_then(condition).or_else(|| pod.object.status.as_ref().and_then(condition))
}

fn condition(pod: &Pod, kind: &str, (is_true, reason, message): ConditionValue, now: Timestamp) -> PodCondition {
    let status = if is_true { "True" } else { "False" };
    let since = existing(pod, kind).filter(|c| c.status == status).and_then(|c| c.last_transition_time);
    PodCondition {
        type_: kind.to_owned(),
        status: status.to_owned(),
        reason: (!reason.is_empty()).then(|| reason.to_owned()),
        message: (!message.is_empty()).then_some(message),
        last_transition_time: Some(since.unwrap_or(Time(now))),
        observed_generation: pod.object.metadata.generation,
        last_probe_time: None,
    }
}

fn initialized(pod: &Pod, phase: &Phase, now: Timestamp) -> ConditionValue {
    if phase.phase == "Succeeded" {
        return (true, "PodCompleted", String::new());
    }
    let incomplete = names(pod, |kind, c| match kind {
        ContainerKind::Init => !is_ready(pod, kind, c, now),
        ContainerKind::Sidecar => !probe_worker::is_started(pod.container(&c.name), c),
        ContainerKind::App | ContainerKind::Ephemeral => false,
    });
    if incomplete.is_empty() || app_started(pod) {
        return (true, "", String::new());
    }
    (false, "ContainersNotInitialized", format!("containers with incomplete status: [{}]", incomplete.join(" ")))
}

fn containers_ready(pod: &Pod, phase: &Phase, now: Timestamp) -> ConditionValue {
    match phase.phase {
        "Succeeded" => return (false, "PodCompleted", String::new()),
        "Failed" => return (false, "PodFailed", String::new()),
        _ => {}
    }
    let unready = names(pod, |kind, c| kind != ContainerKind::Init && !is_ready(pod, kind, c, now));
    if unready.is_empty() {
        return (true, "", String::new());
    }
    (false, "ContainersNotReady", format!("containers with unready status: [{}]", unready.join(" ")))
}

fn ready(pod: &Pod, containers_ready: &ConditionValue) -> ConditionValue {
    if !containers_ready.0 {
        return containers_ready.clone();
    }
    let conditions = pod.object.status.as_ref().and_then(|s| s.conditions.as_deref()).unwrap_or_default();
    let problems: Vec<String> = pod
        .spec()
        .readiness_gates
        .iter()
        .flatten()
        .filter_map(|gate| match conditions.iter().find(|c| c.type_ == gate.condition_type) {
            None => {
                Some(format!("corresponding condition of pod readiness gate {:?} does not exist.", gate.condition_type))
            }
            Some(c) if c.status != "True" => Some(format!(
                "the status of pod readiness gate {:?} is not \"True\", but {}",
                gate.condition_type, c.status
            )),
            Some(_) => None,
        })
        .collect();
    if problems.is_empty() { (true, "", String::new()) } else { (false, "ReadinessGatesNotReady", problems.join(", ")) }
}

fn names(pod: &Pod, matches: impl Fn(ContainerKind, &k8s_openapi::api::core::v1::Container) -> bool) -> Vec<&str> {
    containers(pod.spec()).filter(|(kind, c)| matches(*kind, c)).map(|(_, c)| c.name.as_str()).collect()
}
