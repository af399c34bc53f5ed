//! How containers are stopped: preStop hook, stop signal, SIGKILL, all within one grace period (LIFECYCLE.md 3.11).

use super::Plan;
use crate::{
    Action, Hook, NodePolicy, Pod,
    container::{Instance, State, elapsed},
    hooks,
};
use api::{
    feature_gates::Gate,
    pod::{ContainerKind, containers},
};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Container as Spec;

/// Stops what runs. All preStop hooks begin at once; then come the stop signals, those of sidecars after the end of the
/// app containers and of the sidecars after them, and at the end of the grace period at the latest.
pub(super) fn all(pod: &Pod, deadline: Timestamp, policy: &NodePolicy, now: Timestamp, plan: &mut Plan) {
    let hooks = pod.has_time_for_hooks();
    let all: Vec<_> = pod.all_containers().collect();
    let apps_run = all.iter().any(|(kind, c)| *kind == ContainerKind::App && pod.container(&c.name).may_run());
    for (n, (kind, spec)) in all.iter().enumerate() {
        let Some(instance) = pod.container(&spec.name).current.as_ref() else {
            continue;
        };
        let later_runs =
            || all[n + 1..].iter().any(|(kind, c)| *kind == ContainerKind::Sidecar && pod.container(&c.name).may_run());
        let waits = *kind == ContainerKind::Sidecar && (apps_run || later_runs());
        // What was to go before its Pod was goes no later.
        let deadline = instance.kill.map_or(deadline, |kill| kill.deadline.min(deadline));
        one(instance, spec, &Leave { deadline, hooks, waits }, policy, now, plan);
    }
}

/// Stops what failed a probe or its postStart hook, while the Pod lives on.
pub(super) fn killed(pod: &Pod, policy: &NodePolicy, now: Timestamp, plan: &mut Plan) {
    for (_, spec) in containers(pod.spec()) {
        let instance = pod.container(&spec.name).current.as_ref();
        if let Some((instance, kill)) = instance.and_then(|i| Some((i, i.kill?))) {
            one(instance, spec, &Leave { deadline: kill.deadline, hooks: true, waits: false }, policy, now, plan);
        }
    }
}

/// How a container takes its leave.
struct Leave {
    /// When SIGKILL comes.
    deadline: Timestamp,
    /// Whether its preStop hook is run.
    hooks: bool,
    /// Whether the stop signal waits for others.
    waits: bool,
}

fn one(instance: &Instance, spec: &Spec, leave: &Leave, policy: &NodePolicy, now: Timestamp, plan: &mut Plan) {
    // A hook is not run for what has ended by itself.
    if !matches!(instance.state, State::Running { .. }) {
        return;
    }
    let (container, id, left) = (spec.name.clone(), instance.id.clone(), elapsed(now, leave.deadline));
    let hook = leave.hooks && hooks::pre_stop_pending(instance, spec);
    // When the time is up nothing is waited for: the runtime's floor is the one extension.
    if !left.is_zero() && (hook || leave.waits) {
        plan.wake_at(leave.deadline);
        if hook {
            plan.actions.push(Action::RunHook { container, id, hook: Hook::PreStop, timeout: Some(left) });
        }
        return;
    }
    plan.actions.push(Action::StopContainer {
        container,
        id,
        grace: left.max(policy.minimum_grace),
        deadline: leave.deadline,
        signal: signal(spec, policy),
    });
}

/// The Pod's own signal for the container, where the feature is on.
fn signal(spec: &Spec, policy: &NodePolicy) -> Option<String> {
    let own = spec.lifecycle.as_ref().and_then(|l| l.stop_signal.clone());
    own.filter(|_| policy.gates.enabled(Gate::ContainerStopSignals))
}
