//! Relist: reconciles the state with all sandboxes and containers of the runtime (`PLEG.Relist`).

use super::{container_entry, container_events, sandbox_events};
use crate::{
    NodePolicy, Pod, RuntimeContainer, RuntimeContainerState, RuntimePodState, RuntimeSandbox,
    container::{EndedContainer, InstanceState},
    pod::{Sandbox, SandboxState},
};
use jiff::Timestamp;
use std::cmp::Ordering;

pub(super) fn observe(pod: &mut Pod, view: RuntimePodState, policy: &NodePolicy, now: Timestamp) {
    (pod.unseen, *pod.unlisted) = (false, false);
    // The kubelet relists only when no start is in flight.
    pod.containers.values_mut().for_each(|c| c.starting = false);
    sandboxes(pod, &view, now);
    let mut containers = view.containers;
    containers.sort_by_key(|c| c.attempt);
    let vanished: Vec<(String, String)> = pod
        .containers
        .iter()
        .filter_map(|(name, c)| {
            let active =
                c.current.as_ref().filter(|i| i.cleaning_up || matches!(i.state, InstanceState::Running { .. }))?;
            Some((name.clone(), active.id.clone()))
        })
        .filter(|(_, id)| !containers.iter().any(|c| c.id == *id))
        .collect();
    for (name, id) in vanished {
        container_events::lost(pod, &name, &id, policy, now);
    }
    for mut container in containers {
        if start_interrupted(pod, &container) {
            container.state = RuntimeContainerState::Created;
        }
        adopt(pod, container, &view.sandboxes, policy, now);
    }
}

/// Returns whether the start failed without a report, because the kubelet exited or gave up. It is retried.
fn start_interrupted(pod: &Pod, view: &RuntimeContainer) -> bool {
    let failed = matches!(&view.state, RuntimeContainerState::Exited(exit) if exit.never_ran());
    let known = pod.container(&view.name).current.as_ref();
    failed
        && known.is_none_or(|i| match i.attempt.cmp(&view.attempt) {
            Ordering::Less => true,
            Ordering::Equal => i.state == InstanceState::Created,
            Ordering::Greater => false,
        })
}

fn sandboxes(pod: &mut Pod, view: &RuntimePodState, now: Timestamp) {
    for s in &view.sandboxes {
        match pod.sandboxes.iter().position(|known| known.id == s.id) {
            None => {
                // A runtime that crashed while it created a sandbox leaves it not ready.
                let state = if s.ready { SandboxState::Ready } else { SandboxState::Lost(now) };
                pod.sandboxes.push(Sandbox { id: s.id.clone(), attempt: s.attempt, state });
                pod.next_sandbox = pod.next_sandbox.max(s.attempt + 1);
            }
            Some(_) if !s.ready => sandbox_events::lost(pod, &s.id, now),
            Some(_) => {}
        }
        if s.ready && !s.ips.is_empty() {
            pod.ips.clone_from(&s.ips);
        }
    }
    let missing: Vec<String> = pod
        .sandboxes
        .iter()
        .filter(|known| !view.sandboxes.iter().any(|s| s.id == known.id))
        .map(|s| s.id.clone())
        .collect();
    for id in missing {
        sandbox_events::lost(pod, &id, now);
        pod.sandboxes.retain(|s| s.id != id);
    }
    pod.sandboxes.sort_by_key(|s| s.attempt);
}

fn adopt(pod: &mut Pod, view: RuntimeContainer, sandboxes: &[RuntimeSandbox], policy: &NodePolicy, now: Timestamp) {
    if pod.container_spec(&view.name).is_none() {
        return;
    }
    let known = pod.container(&view.name).current.as_ref();
    // Names are unique: a container of the same attempt replaces one that no longer exists.
    let is_replacement =
        known.is_some_and(|i| i.attempt == view.attempt && i.id != view.id && i.state == InstanceState::Created);
    if is_replacement || known.is_none_or(|i| i.attempt < view.attempt) {
        container_events::created(pod, &view.name, view.id.clone(), view.attempt, view.image.clone(), policy, now);
    } else if known.is_some_and(|i| i.id != view.id) {
        return adopt_older(pod, view);
    }
    if let Some(instance) = container_entry(pod, &view.name).current.as_mut() {
        instance.sandbox = sandboxes.iter().find(|s| s.id == view.sandbox).map(|s| s.attempt).or(instance.sandbox);
        instance.image = instance.image.take().or(view.image.spec);
    }
    match view.state {
        RuntimeContainerState::Running { started_at } => {
            container_events::started(pod, &view.name, &view.id, started_at);
        }
        RuntimeContainerState::Exited(exit) => container_events::exited(pod, &view.name, &view.id, exit, policy, now),
        // Created and not started before the kubelet exited: the plan starts it.
        RuntimeContainerState::Created | RuntimeContainerState::Unknown => {}
    }
}

/// Adopts an older container: the previous one is kept for its logs, all others are removed.
fn adopt_older(pod: &mut Pod, view: RuntimeContainer) {
    let container = container_entry(pod, &view.name);
    if container.last.as_ref().is_some_and(|l| l.id == view.id) || container.dead.contains(&view.id) {
        return;
    }
    let is_previous = container.current.as_ref().is_some_and(|i| i.attempt == view.attempt + 1);
    match view.state {
        RuntimeContainerState::Exited(exit) if is_previous && container.last.is_none() => {
            container.last = Some(EndedContainer { id: view.id, exit });
        }
        _ => container.dead.push(view.id),
    }
}
