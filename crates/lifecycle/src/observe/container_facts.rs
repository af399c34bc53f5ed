//! Facts about containers.

use super::{entry, record};
use crate::{
    ContainerExit, ContainerFact, EventKind, NodePolicy, Pod, StartStage,
    container::{Ended, Image, Instance, StartFailure, State},
};
use jiff::Timestamp;
use std::time::Duration;

pub(super) fn observe(pod: &mut Pod, name: &str, fact: ContainerFact, policy: &NodePolicy, now: Timestamp) {
    match fact {
        ContainerFact::Created { id, attempt, image_id } => {
            if created(pod, name, id, attempt, image_id, policy, now) {
                record(pod, EventKind::Normal, "Created", "Container created".to_owned(), Some(name));
            }
        }
        ContainerFact::Started { id, at } => {
            if started(pod, name, &id, at) {
                record(pod, EventKind::Normal, "Started", "Container started".to_owned(), Some(name));
            }
        }
        ContainerFact::StartFailed { stage, message } => start_failed(pod, name, stage, message, policy, now),
        ContainerFact::Exited { id, exit } => exited(pod, name, &id, exit, policy),
        ContainerFact::Lost { id } => lost(pod, name, &id, policy, now),
        ContainerFact::Removed { id } => entry(pod, name).dead.retain(|d| *d != id),
    }
}

/// A new container takes the place of the one before; gives whether it was news.
pub(super) fn created(
    pod: &mut Pod,
    name: &str,
    id: String,
    attempt: u32,
    image_id: String,
    policy: &NodePolicy,
    now: Timestamp,
) -> bool {
    let spec = pod.container_spec(name).map(|(_, c)| c.clone());
    let container = entry(pod, name);
    if container.current.as_ref().is_some_and(|i| i.id == id || i.attempt >= attempt) {
        return false;
    }
    if let (Some(exit), Some(spec)) = (container.exit().cloned(), spec) {
        container.raise_delay(&spec, &policy.container_backoff, exit.finished_at, now);
        if let Some(before) = container.current.take()
            && let Some(older) = container.last.replace(Ended { id: before.id, exit })
        {
            container.dead.push(older.id);
        }
    }
    container.start_failure = None;
    // The next start asks anew: the image may be removed, and `Always` pulls each time.
    container.image = Image::Unknown;
    container.current = Some(Instance { id, attempt, image_id, state: State::Created });
    pod.durable += 1;
    true
}

/// Gives whether it was news.
pub(super) fn started(pod: &mut Pod, name: &str, id: &str, at: Timestamp) -> bool {
    let container = entry(pod, name);
    let Some(instance) = container.current.as_mut().filter(|i| i.id == id && i.state == State::Created) else {
        return false;
    };
    instance.state = State::Running { since: at };
    pod.durable += 1;
    true
}

fn start_failed(pod: &mut Pod, name: &str, stage: StartStage, message: String, policy: &NodePolicy, now: Timestamp) {
    let before = pod.container(name).start_failure.as_ref();
    let repeated = before.is_some_and(|f| f.message == message && f.stage == stage);
    let delay = policy.retry_backoff.next(before.map_or(Duration::ZERO, |f| f.delay));
    if !repeated {
        record(pod, EventKind::Warning, "Failed", format!("Error: {message}"), Some(name));
    }
    let container = entry(pod, name);
    container.image = Image::Unknown;
    container.start_failure = Some(StartFailure { stage, message, at: now, delay });
}

pub(super) fn exited(pod: &mut Pod, name: &str, id: &str, exit: ContainerExit, policy: &NodePolicy) {
    let container = entry(pod, name);
    let Some(instance) = container.current.as_mut().filter(|i| i.id == id && !matches!(i.state, State::Exited(_)))
    else {
        return;
    };
    let started = !matches!(instance.state, State::Created);
    instance.state = State::Exited(exit.clone());
    pod.durable += 1;
    if !started && exit.code != 0 {
        record(pod, EventKind::Warning, "Failed", format!("Error: {}", exit.message), Some(name));
    }
    backing_off(pod, name, &exit, policy);
}

fn backing_off(pod: &mut Pod, name: &str, exit: &ContainerExit, policy: &NodePolicy) {
    let Some((kind, spec)) = pod.container_spec(name) else {
        return;
    };
    let delay = pod.container(name).pending_delay(spec, &policy.container_backoff, exit.finished_at);
    let stopping = pod.deleted.is_some() || pod.gone_at.is_some() || pod.evicted.is_some();
    if stopping || delay.is_zero() || !pod.restarts(kind, spec, exit.code) {
        return;
    }
    let text =
        format!("Back-off restarting failed container {name} in pod {}_{}({})", pod.name(), pod.namespace(), pod.uid());
    record(pod, EventKind::Warning, "BackOff", text, Some(name));
}

/// The runtime lost it: upstream's words and code (LIFECYCLE.md 3.6, "Lost containers").
pub(super) fn lost(pod: &mut Pod, name: &str, id: &str, policy: &NodePolicy, now: Timestamp) {
    let started_at = match pod.container(name).current.as_ref().map(|i| &i.state) {
        Some(State::Running { since }) => Some(*since),
        _ => None,
    };
    let exit = ContainerExit {
        code: 137,
        reason: "ContainerStatusUnknown".to_owned(),
        message: "The container could not be located when the pod was deleted.  The container used to be Running"
            .to_owned(),
        started_at,
        finished_at: now,
    };
    exited(pod, name, id, exit, policy);
}
