//! Sandbox events.

use super::{failed_attempt, record};
use crate::{
    EventKind, NodePolicy, Pod, SandboxEvent,
    pod::{Sandbox, SandboxState},
};
use api::pod::ContainerKind;
use jiff::Timestamp;
use std::net::IpAddr;

pub(super) fn observe(pod: &mut Pod, event: SandboxEvent, policy: &NodePolicy, now: Timestamp) {
    match event {
        SandboxEvent::Ready { id, attempt, ips } => ready(pod, id, attempt, ips),
        SandboxEvent::Failed { message } => failed(pod, message, policy, now),
        SandboxEvent::Lost { id } => lost(pod, &id, now),
        SandboxEvent::Stopped { id } => {
            if let Some(s) = pod.sandboxes.iter_mut().find(|s| s.id == id && s.state != SandboxState::Stopped) {
                s.state = SandboxState::Stopped;
            }
        }
        SandboxEvent::Removed { id } => {
            pod.sandboxes.retain(|s| s.id != id);
            if pod.sandboxes.is_empty() {
                // Its containers were removed with it.
                pod.containers.values_mut().for_each(|c| c.dead.clear());
            }
        }
    }
}

fn ready(pod: &mut Pod, id: String, attempt: u32, ips: Vec<IpAddr>) {
    // An event of an older sandbox is ignored.
    if attempt < pod.next_sandbox {
        return;
    }
    pod.sandboxes.push(Sandbox { id, attempt, state: SandboxState::Ready });
    pod.next_sandbox = attempt + 1;
    pod.ips = ips;
    pod.sandbox_failure = None;
}

fn failed(pod: &mut Pod, message: String, policy: &NodePolicy, now: Timestamp) {
    // During the backoff no creation was requested: the event is stale.
    if pod.ready_sandbox().is_some() || pod.sandbox_failure.as_ref().is_some_and(|t| t.retry_at() > now) {
        return;
    }
    let text = format!("Failed to create pod sandbox: {message}");
    record(pod, EventKind::Warning, "FailedCreatePodSandBox", text, None);
    pod.sandbox_failure = Some(failed_attempt(pod.sandbox_failure.as_ref(), message, policy, now));
}

/// Marks a sandbox that is no longer ready as lost: the plan replaces it (`PodSandboxChanged`).
pub(super) fn lost(pod: &mut Pod, id: &str, now: Timestamp) {
    let Some(s) = pod.sandboxes.iter_mut().find(|s| s.id == id && s.state == SandboxState::Ready) else {
        return;
    };
    s.state = SandboxState::Lost(now);
    // If no container may be restarted, no new sandbox is created (`computePodActions`).
    let apps = || pod.spec().containers.iter();
    let is_last = apps().any(|spec| pod.container(&spec.name).has_run())
        && !apps().any(|spec| pod.restarts_on_failure(ContainerKind::App, spec));
    if !is_last && !pod.finished() && pod.stop(now).is_none() {
        let text = "Pod sandbox changed, it will be killed and re-created.".to_owned();
        record(pod, EventKind::Normal, "SandboxChanged", text, None);
    }
}
