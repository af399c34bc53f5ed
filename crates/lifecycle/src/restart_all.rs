//! All containers of a Pod are restarted in their sandbox, because a rule of one that ended says so (KEP-5532).
//!
//! They are killed all at once, without order, grace or preStop hooks, then removed from the runtime; the sandbox, its
//! address and the volumes stay. What follows is an ordinary start, from the first init container on.

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

/// The condition that tells of it.
pub(crate) const CONDITION: &str = "AllContainersRestarting";
/// Why a container waits, or has ended, meanwhile.
pub(crate) const REASON: &str = "RestartingAllContainers";
/// The same in words.
pub(crate) const MESSAGE: &str = "The container is removed because RestartAllContainers in place";

/// It goes on, until the runtime has nothing of the old containers any more.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RestartAll {
    /// What the condition says.
    pub(crate) message: String,
    pub(crate) since: Timestamp,
    /// All have ended, and are to be removed.
    pub(crate) ended: bool,
}

/// A container has ended: do its rules restart all?
pub(crate) fn ended(pod: &mut Pod, name: &str, code: i32, now: Timestamp) {
    let Some((_, spec)) = pod.container_spec(name) else { return };
    let asked = pod.features.rule(spec, code) == Some(RuleAction::RestartAllContainers);
    // Another takes its place already, or what ends anyhow is not begun anew.
    let cause = pod.container(name).current.as_ref().and_then(|i| i.kill).map(|kill| kill.cause);
    let replaced = !matches!(cause, None | Some(KillCause::Probe(_) | KillCause::PostStart));
    if !asked || replaced || pod.restarting.is_some() || pod.kill_deadline(now).is_some() {
        return;
    }
    if let Some(instance) = pod.containers.get_mut(name).and_then(|c| c.current.as_mut()) {
        instance.kill = Some(ContainerKill { cause: KillCause::RestartAll { asked: true }, deadline: now });
    }
    let message = format!("Container {name} exited with code {code}, triggering pod restart");
    pod.restarting = Some(RestartAll { message, since: now, ended: false });
    pod.durable += 1;
    advance(pod);
}

/// Takes it as far as the facts allow.
pub(crate) fn advance(pod: &mut Pod) {
    let Some(restarting) = pod.restarting.clone() else { return };
    // What the runtime has is not known yet.
    if pod.unseen {
        return;
    }
    doom(pod, restarting.since);
    if pod.has_active_containers() {
        return;
    }
    if !restarting.ended {
        for container in pod.containers.values_mut() {
            let known = container.current.iter().map(|i| i.id.clone()).chain(container.last.take().map(|l| l.id));
            let fresh: Vec<String> = known.filter(|id| !container.dead.contains(id)).collect();
            container.dead.extend(fresh);
            container.image = crate::container::ImageState::Unknown;
            container.start_failure = None;
        }
        pod.restarting = Some(RestartAll { ended: true, ..restarting });
        pod.durable += 1;
    }
    if pod.containers.values().all(|c| c.dead.is_empty()) {
        pod.restarting = None;
        pod.durable += 1;
    }
}

/// None of the containers that there are, however it ended, counts any more: another takes the place of each.
fn doom(pod: &mut Pod, since: Timestamp) {
    let mut running = Vec::new();
    let mut news = 0;
    for (name, container) in &mut pod.containers {
        let Some(instance) = container.current.as_mut() else { continue };
        if instance.kill.is_some_and(|kill| matches!(kill.cause, KillCause::RestartAll { .. })) {
            continue;
        }
        instance.kill = Some(ContainerKill { cause: KillCause::RestartAll { asked: false }, deadline: since });
        news += 1;
        if matches!(instance.state, InstanceState::Running { .. }) {
            running.push((name.clone(), instance.id.clone()));
        }
    }
    pod.durable += news;
    for (name, id) in running.into_iter().filter(|(_, id)| !pod.killing.contains(id)).collect::<Vec<_>>() {
        record(pod, EventKind::Normal, "Killing", format!("Stopping container {name}"), Some(&name));
        pod.killing.push(id);
    }
}

/// Kills all at once. What is to be removed is planned as for every container that is dead.
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
