//! All that the runtime has of a Pod, asked for as a whole: what was missed is made up for.

use super::{container_facts, entry, sandbox_lost};
use crate::{
    ContainerView, ContainerViewState, NodePolicy, Pod, RuntimeView,
    container::State,
    pod::{Sandbox, SandboxState},
};
use jiff::Timestamp;

pub(super) fn observe(pod: &mut Pod, view: RuntimeView, policy: &NodePolicy, now: Timestamp) {
    sandboxes(pod, &view);
    let mut containers = view.containers;
    containers.sort_by_key(|c| c.attempt);
    let vanished: Vec<(String, String)> = pod
        .containers
        .iter()
        .filter_map(|(name, c)| {
            Some((name.clone(), c.current.as_ref().filter(|i| !matches!(i.state, State::Exited(_)))?.id.clone()))
        })
        .filter(|(_, id)| !containers.iter().any(|c| c.id == *id))
        .collect();
    for (name, id) in vanished {
        container_facts::lost(pod, &name, &id, policy, now);
    }
    for container in containers {
        adopt(pod, container, policy, now);
    }
}

fn sandboxes(pod: &mut Pod, view: &RuntimeView) {
    for s in &view.sandboxes {
        match pod.sandboxes.iter().position(|known| known.id == s.id) {
            None => {
                let state = if s.ready { SandboxState::Ready } else { SandboxState::Stopped };
                pod.sandboxes.push(Sandbox { id: s.id.clone(), attempt: s.attempt, state });
                pod.durable += 1;
            }
            Some(_) if !s.ready => sandbox_lost(pod, &s.id),
            Some(_) => {}
        }
        if s.ready && !s.ips.is_empty() {
            pod.ips.clone_from(&s.ips);
        }
    }
    let gone: Vec<String> = pod
        .sandboxes
        .iter()
        .filter(|known| !view.sandboxes.iter().any(|s| s.id == known.id))
        .map(|s| s.id.clone())
        .collect();
    for id in gone {
        sandbox_lost(pod, &id);
        pod.sandboxes.retain(|s| s.id != id);
    }
    pod.sandboxes.sort_by_key(|s| s.attempt);
}

fn adopt(pod: &mut Pod, view: ContainerView, policy: &NodePolicy, now: Timestamp) {
    let known = pod.container(&view.name).current.as_ref();
    let newer = known.is_none_or(|i| i.attempt < view.attempt);
    let same = known.is_some_and(|i| i.id == view.id);
    if newer {
        container_facts::created(pod, &view.name, view.id.clone(), view.attempt, view.image_id, policy, now);
    } else if !same {
        let container = entry(pod, &view.name);
        let kept = container.last.as_ref().is_some_and(|l| l.id == view.id);
        if !kept && !container.dead.contains(&view.id) {
            container.dead.push(view.id);
        }
        return;
    }
    match view.state {
        ContainerViewState::Running { started_at } => {
            container_facts::started(pod, &view.name, &view.id, started_at);
        }
        ContainerViewState::Exited(exit) => container_facts::exited(pod, &view.name, &view.id, exit, policy),
        // Made but never started: a kubelet died in between. It ends here; the plan starts the next one.
        ContainerViewState::Created if newer => container_facts::lost(pod, &view.name, &view.id, policy, now),
        ContainerViewState::Created | ContainerViewState::Unknown => {}
    }
}
