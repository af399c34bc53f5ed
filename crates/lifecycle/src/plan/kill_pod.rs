//! Stopping of containers: preStop hook, stop signal, SIGKILL, within one grace period (`killContainer`).

use super::Plan;
use crate::{
    Action, Hook, NodePolicy, Pod,
    container::{Instance, InstanceState, elapsed},
    hooks,
};
use api::{
    feature_gates::Gate,
    pod::{ContainerKind, containers},
};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Container as Spec;

/// Stops all running containers (`killContainersWithSyncResult`); the sandbox follows in
/// [`sync_terminated_pod`](super::sync_terminated_pod). All preStop hooks start at once; the stop signals of sidecars
/// wait for the app containers and later sidecars to exit, at most until the end of the grace period.
pub(super) fn kill_pod(pod: &Pod, deadline: Timestamp, policy: &NodePolicy, now: Timestamp, plan: &mut Plan) {
    let hooks = pod.runs_pre_stop_hooks();
    let all: Vec<_> = pod.all_containers().collect();
    let apps_run = all.iter().any(|(kind, c)| *kind == ContainerKind::App && pod.container(&c.name).may_run());
    for (n, (kind, spec)) in all.iter().enumerate() {
        let Some(instance) = pod.container(&spec.name).current.as_ref() else {
            continue;
        };
        let later_runs =
            || all[n + 1..].iter().any(|(kind, c)| *kind == ContainerKind::Sidecar && pod.container(&c.name).may_run());
        let waits = *kind == ContainerKind::Sidecar && (apps_run || later_runs());
        // A container that was already being killed keeps its earlier deadline.
        let deadline = instance.kill.map_or(deadline, |kill| kill.deadline.min(deadline));
        kill_container(instance, spec, &ContainerStop { deadline, hooks, waits }, policy, now, plan);
    }
}

/// Stops containers that failed a probe or their postStart hook, while the Pod keeps running.
pub(super) fn kill_failed_containers(pod: &Pod, policy: &NodePolicy, now: Timestamp, plan: &mut Plan) {
    for (_, spec) in containers(pod.spec()) {
        let instance = pod.container(&spec.name).current.as_ref();
        if let Some((instance, kill)) = instance.and_then(|i| Some((i, i.kill?))) {
            kill_container(
                instance,
                spec,
                &ContainerStop { deadline: kill.deadline, hooks: true, waits: false },
                policy,
                now,
                plan,
            );
        }
    }
}

/// Parameters of stopping a container.
struct ContainerStop {
    /// Time of SIGKILL.
    deadline: Timestamp,
    /// Whether its preStop hook runs.
    hooks: bool,
    /// Whether the stop signal waits for other containers.
    waits: bool,
}

fn kill_container(
    instance: &Instance,
    spec: &Spec,
    stop: &ContainerStop,
    policy: &NodePolicy,
    now: Timestamp,
    plan: &mut Plan,
) {
    // preStop is not run for a container that exited by itself.
    if !matches!(instance.state, InstanceState::Running { .. }) {
        return;
    }
    let (container, id, remaining) = (spec.name.clone(), instance.id.clone(), elapsed(now, stop.deadline));
    let hook = stop.hooks && hooks::pre_stop_pending(instance, spec);
    // At the deadline nothing is awaited; the runtime's minimum grace period is the only extension.
    if !remaining.is_zero() && (hook || stop.waits) {
        plan.wake_at(stop.deadline);
        if hook {
            plan.actions.push(Action::RunHook { container, id, hook: Hook::PreStop, timeout: Some(remaining) });
        }
        return;
    }
    plan.actions.push(Action::StopContainer {
        container,
        id,
        grace: remaining.max(policy.minimum_grace),
        deadline: stop.deadline,
        signal: signal(spec, policy),
    });
}

/// Returns the stop signal of the spec, if its feature gate is on.
fn signal(spec: &Spec, policy: &NodePolicy) -> Option<String> {
    let stop_signal = spec.lifecycle.as_ref().and_then(|l| l.stop_signal.clone());
    stop_signal.filter(|_| policy.gates.enabled(Gate::ContainerStopSignals))
}
