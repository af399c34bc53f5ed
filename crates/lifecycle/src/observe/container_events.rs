//! Container events.

use super::{container_entry, record};
use crate::{
    ContainerEvent, ContainerExit, EventKind, NodePolicy, Pod, RuntimeImage, StartFailureStage,
    container::{EndedContainer, ImageState, Instance, InstanceState, StartFailure},
    container_kill::{ContainerKill, KillCause},
    restart_all,
    time::after,
};
use jiff::Timestamp;
use std::time::Duration;

/// Reason of a lost container.
const LOST: &str = "ContainerStatusUnknown";

pub(super) fn observe(pod: &mut Pod, name: &str, event: ContainerEvent, policy: &NodePolicy, now: Timestamp) {
    match event {
        ContainerEvent::Created { id, attempt, image, stop_signal } => {
            if created(pod, name, id, attempt, image, policy, now) {
                if let Some(instance) = container_entry(pod, name).current.as_mut() {
                    instance.stop_signal = stop_signal;
                }
                record(pod, EventKind::Normal, "Created", "Container created".to_owned(), Some(name));
            }
        }
        ContainerEvent::Started { id, at } => {
            if started(pod, name, &id, at) {
                record(pod, EventKind::Normal, "Started", "Container started".to_owned(), Some(name));
            }
        }
        ContainerEvent::StartFailed { stage, message } => start_failed(pod, name, stage, message, policy, now),
        ContainerEvent::Reaped { id, exit } => reaped(pod, name, &id, exit, policy, now),
        ContainerEvent::Exited { id, exit } => exited(pod, name, &id, exit, policy, now),
        ContainerEvent::Lost { id } => lost(pod, name, &id, policy, now),
        ContainerEvent::Removed { id } => container_entry(pod, name).dead.retain(|d| *d != id),
    }
}

/// Replaces the current container. Returns whether the event is new.
pub(super) fn created(
    pod: &mut Pod,
    name: &str,
    id: String,
    attempt: u32,
    image: RuntimeImage,
    policy: &NodePolicy,
    now: Timestamp,
) -> bool {
    let Some((_, spec)) = pod.container_spec(name) else {
        return false;
    };
    let (spec, sandbox) = (spec.clone(), pod.sandboxes.last().map(|s| s.attempt));
    let container = container_entry(pod, name);
    let is_known = container.current.as_ref().is_some_and(|i| {
        // A container of the same attempt replaces one that was created and no longer exists.
        i.id == id || i.attempt > attempt || (i.attempt == attempt && i.state != InstanceState::Created)
    });
    if is_known {
        return false;
    }
    let has_backoff = container.has_backoff();
    match container.current.take() {
        Some(Instance { id: before, state: InstanceState::Exited(exit), .. }) => {
            if has_backoff {
                container.raise_delay(&spec, &policy.container_backoff, exit.finished_at, now);
            }
            container.dead.extend(container.last.replace(EndedContainer { id: before, exit }).map(|older| older.id));
        }
        never_ran => container.dead.extend(never_ran.map(|i| i.id)),
    }
    container.dead.retain(|dead| *dead != id);
    let early = container.early.iter().position(|e| e.id == id).map(|at| container.early.swap_remove(at));
    let mut instance = Instance::new(id.clone(), attempt, image, sandbox, InstanceState::Created);
    instance.resources = container.starting_with.take();
    instance.image = container.starting_image.take().or(instance.image);
    container.current = Some(instance);
    if let Some(early) = early {
        exited(pod, name, &id, early.exit, policy, now);
    }
    true
}

/// Returns whether the event is new.
pub(super) fn started(pod: &mut Pod, name: &str, id: &str, at: Timestamp) -> bool {
    let container = container_entry(pod, name);
    let Some(instance) = container.current.as_mut().filter(|i| i.id == id && i.state == InstanceState::Created) else {
        return false;
    };
    instance.state = InstanceState::Running { since: at };
    container.starting = false;
    container.start_failure = None;
    // The next start checks the image again: it may be removed, and `Always` pulls each time.
    *container.image = ImageState::Unknown;
    true
}

fn start_failed(
    pod: &mut Pod,
    name: &str,
    stage: StartFailureStage,
    message: String,
    policy: &NodePolicy,
    now: Timestamp,
) {
    let before = pod.container(name).start_failure.as_ref();
    // A running container, or one in backoff, has no pending start: the event is stale.
    if pod.container(name).is_running() || before.is_some_and(|f| after(f.at, f.delay) > now) {
        return;
    }
    let delay = policy.retry_backoff.next(before.map_or(Duration::ZERO, |f| f.delay));
    record(pod, EventKind::Warning, "Failed", format!("Error: {message}"), Some(name));
    let container = container_entry(pod, name);
    let attempt = container.current.as_ref().filter(|i| i.state == InstanceState::Created).map(|i| i.attempt);
    container.starting = false;
    *container.image = ImageState::Unknown;
    container.start_failure = Some(StartFailure { attempt, stage, message, at: now, delay });
}

/// Only a running container is reaped early; for all others `Exited` follows.
fn reaped(pod: &mut Pod, name: &str, id: &str, exit: ContainerExit, policy: &NodePolicy, now: Timestamp) {
    let is_running = |i: &&mut Instance| i.id == id && matches!(i.state, InstanceState::Running { .. });
    if let Some(instance) = container_entry(pod, name).current.as_mut().filter(is_running) {
        instance.cleaning_up = true;
        record_exit(pod, name, id, exit, policy, now);
    }
}

pub(super) fn exited(pod: &mut Pod, name: &str, id: &str, exit: ContainerExit, policy: &NodePolicy, now: Timestamp) {
    if let Some(instance) = container_entry(pod, name).current.as_mut().filter(|i| i.id == id && i.cleaning_up) {
        // The exit was recorded when it was reaped.
        instance.cleaning_up = false;
        return;
    }
    record_exit(pod, name, id, exit, policy, now);
}

fn record_exit(pod: &mut Pod, name: &str, id: &str, mut exit: ContainerExit, policy: &NodePolicy, now: Timestamp) {
    let container = container_entry(pod, name);
    let restarts_with_all = matches!(container.kill_cause(), Some(KillCause::RestartAll { .. }));
    match container.current.as_mut() {
        Some(instance) if instance.id == id && !matches!(instance.state, InstanceState::Exited(_)) => {
            if restarts_with_all {
                restart_all::REASON.clone_into(&mut exit.reason);
            }
            instance.state = InstanceState::Exited(exit.clone());
        }
        Some(instance) if instance.id == id => return,
        _ => return keep_early_exit(pod, name, id, exit),
    }
    container.starting = false;
    container.start_failure = None;
    // An image that was resolved before the kill is for the container's replacement.
    if container.kill_cause() != Some(KillCause::Definition) {
        *container.image = ImageState::Unknown;
    }
    if exit.started_at.is_none() && exit.code != 0 && exit.reason != LOST {
        record(pod, EventKind::Warning, "Failed", format!("Error: {}", exit.message), Some(name));
    }
    let announced = pod.killing.iter().position(|k| k == id).map(|at| pod.killing.swap_remove(at)).is_some();
    // A deadline passes without an event; it is reported with the next one.
    if !announced && pod.overdue(now).is_some_and(|at| at <= exit.finished_at) {
        record(pod, EventKind::Normal, "Killing", format!("Stopping container {name}"), Some(name));
    }
    mark_failed_without_sandbox(pod, name, &exit, now);
    restart_all::handle_exit(pod, name, exit.code, now);
    record_backoff(pod, name, &exit, policy, now);
}

/// Marks a container that ran when its sandbox was lost as failed, whatever its exit code: the restart policy for
/// failures applies.
fn mark_failed_without_sandbox(pod: &mut Pod, name: &str, exit: &ContainerExit, now: Timestamp) {
    let ran = pod.lost_sandbox().is_some_and(|(_, since)| since <= exit.finished_at) && pod.stop(now).is_none();
    let restarts = pod.container_spec(name).is_some_and(|(kind, spec)| pod.restarts_on_failure(kind, spec));
    let instance = container_entry(pod, name).current.as_mut();
    if let Some(instance) = instance.filter(|i| ran && restarts && i.kill.is_none()) {
        instance.kill = Some(ContainerKill { cause: KillCause::Sandbox, deadline: now });
    }
}

/// Keeps the exit of a container that was not reported yet. Only a few are kept, for most of them are stale.
fn keep_early_exit(pod: &mut Pod, name: &str, id: &str, exit: ContainerExit) {
    const MAX_EARLY_EXITS: usize = 4;
    let container = container_entry(pod, name);
    let known = container.last.as_ref().is_some_and(|l| l.id == id) || container.dead.iter().any(|d| d == id);
    if known || container.early.iter().any(|e| e.id == id) {
        return;
    }
    if container.early.len() == MAX_EARLY_EXITS {
        container.early.remove(0);
    }
    container.early.push(EndedContainer { id: id.to_owned(), exit });
}

fn record_backoff(pod: &mut Pod, name: &str, exit: &ContainerExit, policy: &NodePolicy, now: Timestamp) {
    let Some((kind, spec)) = pod.container_spec(name) else {
        return;
    };
    let delay = pod.container(name).pending_delay(spec, &policy.container_backoff, exit.finished_at);
    if pod.stop(now).is_some()
        || delay.is_zero()
        || !pod.container(name).has_backoff()
        || !pod.restarts(kind, spec, exit.code)
    {
        return;
    }
    let text =
        format!("Back-off restarting failed container {name} in pod {}_{}({})", pod.name(), pod.namespace(), pod.uid());
    record(pod, EventKind::Warning, "BackOff", text, Some(name));
}

/// Records the exit of a lost container, with upstream's message and code (`convertToAPIContainerStatuses`).
pub(super) fn lost(pod: &mut Pod, name: &str, id: &str, policy: &NodePolicy, now: Timestamp) {
    let started_at = match pod.container(name).current.as_ref().map(|i| &i.state) {
        Some(InstanceState::Running { since }) => Some(*since),
        _ => None,
    };
    let exit = ContainerExit {
        code: 137,
        reason: LOST.to_owned(),
        message: "The container could not be located when the pod was deleted.  The container used to be Running"
            .to_owned(),
        started_at,
        finished_at: now,
    };
    exited(pod, name, id, exit, policy, now);
}
