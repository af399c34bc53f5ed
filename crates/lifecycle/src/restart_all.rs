//! In-place restart of all containers of a Pod, requested by a restart rule (KEP-5532).
//!
//! All containers are killed at once, without order, grace period or preStop hooks, and removed from the runtime; the
//! sandbox, its IP addresses and the volumes stay. Then the Pod starts normally from its first init container.

use crate::{
    Action, EventKind, Plan, Pod,
    container::InstanceState,
    container_kill::{ContainerKill, KillCause},
    observe::record,
    restart::RuleAction,
};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Condition type while the restart is in progress.
pub(crate) const CONDITION: &str = "AllContainersRestarting";
/// Reason of the waiting and terminated states of its containers meanwhile.
pub(crate) const REASON: &str = "RestartingAllContainers";
/// Message of those states.
pub(crate) const MESSAGE: &str = "The container is removed because RestartAllContainers in place";

/// A restart in progress, until the old containers are removed from the runtime.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RestartAll {
    /// Message of the condition.
    pub(crate) message: String,
    pub(crate) since: Timestamp,
    /// Whether all containers have exited and are to be removed.
    pub(crate) ended: bool,
}

/// Starts the restart if a rule of the exited container requests it.
pub(crate) fn handle_exit(pod: &mut Pod, name: &str, code: i32, now: Timestamp) {
    let Some((_, spec)) = pod.container_spec(name) else { return };
    let requested = pod.features.rule(spec, code) == Some(RuleAction::RestartAllContainers);
    // A container that is already being replaced does not trigger a restart, nor does one of a Pod that terminates.
    let cause = pod.container(name).current.as_ref().and_then(|i| i.kill).map(|kill| kill.cause);
    let replaced = !matches!(cause, None | Some(KillCause::Probe(_) | KillCause::PostStart));
    if !requested || replaced || pod.restarting.is_some() || pod.kill_deadline(now).is_some() {
        return;
    }
    if let Some(instance) = pod.containers.get_mut(name).and_then(|c| c.current.as_mut()) {
        instance.kill = Some(ContainerKill { cause: KillCause::RestartAll { requested: true }, deadline: now });
    }
    let message = format!("Container {name} exited with code {code}, triggering pod restart");
    pod.restarting = Some(RestartAll { message, since: now, ended: false });
    advance(pod);
}

/// Moves the restart to its next step, if the state of the containers allows.
pub(crate) fn advance(pod: &mut Pod) {
    let Some(restarting) = pod.restarting.clone() else { return };
    // The runtime was not listed yet.
    if pod.unseen {
        return;
    }
    mark_all_for_restart(pod, restarting.since);
    if pod.has_active_containers() {
        return;
    }
    if !restarting.ended {
        for container in pod.containers.values_mut() {
            let ids = container.current.iter().map(|i| i.id.clone()).chain(container.last.take().map(|l| l.id));
            let new_ids: Vec<String> = ids.filter(|id| !container.dead.contains(id)).collect();
            container.dead.extend(new_ids);
            *container.image = crate::container::ImageState::Unknown;
            container.start_failure = None;
        }
        pod.restarting = Some(RestartAll { ended: true, ..restarting });
    }
    if pod.containers.values().all(|c| c.dead.is_empty()) {
        pod.restarting = None;
    }
}

/// Marks every container for replacement, however it exited.
fn mark_all_for_restart(pod: &mut Pod, since: Timestamp) {
    let mut running = Vec::new();
    for (name, container) in &mut pod.containers {
        let Some(instance) = container.current.as_mut() else { continue };
        if instance.kill.is_some_and(|kill| matches!(kill.cause, KillCause::RestartAll { .. })) {
            continue;
        }
        instance.kill = Some(ContainerKill { cause: KillCause::RestartAll { requested: false }, deadline: since });
        if matches!(instance.state, InstanceState::Running { .. }) {
            running.push((name.clone(), instance.id.clone()));
        }
    }
    for (name, id) in running.into_iter().filter(|(_, id)| !pod.killing.contains(id)).collect::<Vec<_>>() {
        record(pod, EventKind::Normal, "Killing", format!("Stopping container {name}"), Some(&name));
        pod.killing.push(id);
    }
}

/// Plans the kill of all running containers. Dead containers are removed by the regular plan.
pub(crate) fn plan(pod: &Pod, restarting: &RestartAll, plan: &mut Plan) {
    if let Some(deadline) = pod.active_deadline() {
        plan.wake_at(deadline);
    }
    let running = pod.containers.iter().filter(|(_, c)| c.is_running());
    plan.actions.extend(running.filter_map(|(name, c)| {
        Some(Action::StopContainer {
            container: name.clone(),
            id: c.current.as_ref()?.id.clone(),
            grace: Duration::ZERO,
            deadline: restarting.since,
            signal: None,
        })
    }));
}
