//! Applies events to the state of a Pod.

mod container_events;
mod hook_results;
mod image_events;
pub(crate) mod kills;
mod probe_results;
mod relist;
mod sandbox_events;

use crate::{
    ActionKey, Admission, EventKind, Eviction, NodePolicy, Pod, PodEvent, PodLifecycleEvent, VolumeEvent,
    container::{Container, ImageState},
    phase::{DEADLINE_EXCEEDED, DEADLINE_EXCEEDED_MESSAGE, phase},
    pod::{FailedAttempt, PodOutcome, Volumes},
    resize,
    restart::RestartFeatures,
    restart_all, shutdown,
    termination::TerminationCause,
    time::after,
};
use api::pod::containers;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod as ApiPod;
use std::{collections::BTreeMap, sync::Arc, time::Duration};

/// Applies one event to the state of a Pod, and counts a change of its durable state.
pub fn observe(pod: &mut Pod, event: PodLifecycleEvent, policy: &NodePolicy, now: Timestamp) {
    let old_pod = pod.clone();
    apply(pod, event, policy, now);
    // Volatile state is equal to all other.
    if *pod != old_pod {
        pod.revision += 1;
    }
}

fn apply(pod: &mut Pod, event: PodLifecycleEvent, policy: &NodePolicy, now: Timestamp) {
    pod.features = RestartFeatures::from(&policy.gates);
    // First apply the timeouts that have elapsed since the last event.
    store_terminal_phase(pod, now);
    match event {
        PodLifecycleEvent::Updated(object) => updated(pod, object, now),
        PodLifecycleEvent::Removed => {
            pod.gone_at.get_or_insert(now);
        }
        PodLifecycleEvent::Admission(admission) => admitted(pod, admission),
        PodLifecycleEvent::ActionStarted(key) => start_action(pod, &key),
        PodLifecycleEvent::Evicted(eviction) => evicted(pod, eviction, now),
        PodLifecycleEvent::Volumes(event) => volumes(pod, event, policy, now),
        PodLifecycleEvent::Sandbox(event) => sandbox_events::observe(pod, event, policy, now),
        PodLifecycleEvent::Image { container, image, event } => {
            image_events::observe(pod, &container, &image, event, policy, now);
        }
        PodLifecycleEvent::Container { container, event } => {
            container_events::observe(pod, &container, event, policy, now);
        }
        PodLifecycleEvent::StatusWritten(status) => {
            pod.written = Some(Arc::from(status));
            record_terminal_phase(pod, now);
        }
        PodLifecycleEvent::ActionSucceeded(key) => complete_action(pod, &key),
        PodLifecycleEvent::Probed { id, probe, outcome } => probe_results::observe(pod, &id, probe, &outcome, now),
        PodLifecycleEvent::HookDone { id, hook, outcome } => hook_results::observe(pod, &id, hook, &outcome, now),
        PodLifecycleEvent::ResizeDecided { generation, decision } => {
            resize::apply_decision(pod, generation, decision, now);
        }
        PodLifecycleEvent::DiskFull => reclaim_dead_containers(pod),
        PodLifecycleEvent::ResourcesReleased => resize::retry_pending(pod, now),
        PodLifecycleEvent::ResourcesActuated { ids, allocation } => resize::record_actuated(pod, &ids, allocation),
        PodLifecycleEvent::ResourcesFailed { message } => resize::record_failure(pod, message, policy, now),
        // The result of a failed action is only known after the next relist.
        PodLifecycleEvent::ActionFailed { .. } => {}
        PodLifecycleEvent::Relisted(view) => relist::observe(pod, view, policy, now),
        PodLifecycleEvent::KubeletStarted { at, random } => {
            *pod.kubelet = Some((at, random));
            *pod.unlisted = pod.is_admitted();
        }
    }
    restart_all::advance(pod);
    store_terminal_phase(pod, now);
    record_deadline_exceeded(pod, now);
    kills::kill_changed_containers(pod, now);
    resize::complete(pod, now);
    kills::record_killing_events(pod, now);
}

/// Stores the terminal phase once it is reached; it never changes.
pub(crate) fn store_terminal_phase(pod: &mut Pod, now: Timestamp) {
    if pod.ended.is_some() {
        return;
    }
    if pod.finished_at.is_none() && pod.finished() {
        pod.finished_at = Some(now);
    }
    let phase = phase(pod, now);
    if phase.is_terminal() {
        // The deadline may be noticed late: the Pod ended at the deadline.
        let at = pod.overdue(now).filter(|_| phase.reason.as_deref() == Some(DEADLINE_EXCEEDED)).unwrap_or(now);
        let succeeded = phase.phase == "Succeeded";
        pod.ended = Some(PodOutcome { at, succeeded, reason: phase.reason, message: phase.message });
    }
}

/// Records the `DeadlineExceeded` Event once (upstream's `activeDeadlineHandler`).
fn record_deadline_exceeded(pod: &mut Pod, now: Timestamp) {
    let is_overdue = pod.stop(now).is_some_and(|stop| stop.cause == TerminationCause::DeadlineExceeded);
    if is_overdue && !pod.deadline_event_recorded && pod.written_phase().is_none() {
        pod.deadline_event_recorded = true;
        record(pod, EventKind::Normal, DEADLINE_EXCEEDED, DEADLINE_EXCEEDED_MESSAGE.to_owned(), None);
    }
}

fn start_action(pod: &mut Pod, key: &ActionKey) {
    let object = Arc::clone(&pod.object);
    let Some((name, container)) = container_to_start(pod, key) else { return };
    container.starting = true;
    let spec = object.spec.as_ref().and_then(|spec| containers(spec).find(|(_, c)| c.name == name));
    container.starting_with = None;
    container.starting_image = spec.and_then(|(_, c)| c.image.clone());
}

/// Returns the container that this action starts.
fn container_to_start<'a, 'k>(pod: &'a mut Pod, key: &'k ActionKey) -> Option<(&'k str, &'a mut Container)> {
    let ActionKey::StartContainer { container: name, attempt } = key else { return None };
    let container = pod.containers.get_mut(name).filter(|c| c.next_attempt() == *attempt)?;
    Some((name, container))
}

pub(crate) fn updated(pod: &mut Pod, object: Arc<ApiPod>, now: Timestamp) {
    let is_deleted = object.metadata.deletion_timestamp.is_some();
    let grace = object.metadata.deletion_grace_period_seconds.unwrap_or(0);
    let object = resize::updated(pod, object);
    let old_object = std::mem::replace(&mut *pod.object, object);
    pod.ephemeral = api::pod::ephemeral_containers(pod.spec());
    let old = old_object.spec.as_ref();
    let containers_in_spec: Vec<_> =
        pod.all_containers().map(|(_, spec)| (spec.name.clone(), spec.image.clone())).collect();
    for (name, image) in containers_in_spec {
        let container = pod.containers.entry(name.clone()).or_default();
        let old = old.and_then(|old| containers(old).find(|(_, c)| c.name == name));
        if old.is_some_and(|(_, old)| old.image != image) {
            // The image state is that of the old image.
            *container.image = ImageState::Unknown;
        }
    }
    record_terminal_phase(pod, now);
    if !is_deleted {
        return;
    }
    // Upstream's minimum of 1 s. The grace period counts from the deletion request; a later update can only shorten it.
    let deadline = after(now, Duration::from_secs(u64::try_from(grace).unwrap_or(0).max(1)));
    if pod.deleted.is_none_or(|known| deadline < known) {
        pod.deleted = Some(deadline);
    }
}

/// Records that the API shows a terminal phase, set by any client: such a Pod is terminated.
fn record_terminal_phase(pod: &mut Pod, now: Timestamp) {
    if pod.terminal_at.is_none() && pod.written_phase().is_some() {
        pod.terminal_at = Some(now);
    }
}

fn admitted(pod: &mut Pod, admission: Admission) {
    if pod.admission.is_some() {
        return;
    }
    if let Admission::Rejected { reason, message } = &admission {
        record(pod, EventKind::Warning, reason, message.clone(), None);
    }
    pod.admission = Some(admission);
}

fn evicted(pod: &mut Pod, eviction: Eviction, now: Timestamp) {
    if pod.evicted.is_none() && pod.ended.is_none() {
        // The node's own Event reports a shutdown.
        if eviction.reason != shutdown::REASON {
            let (message, annotations) = (eviction.message.clone(), eviction.annotations.clone());
            record_with(pod, EventKind::Warning, &eviction.reason, message, None, annotations);
        }
        pod.evicted = Some((eviction, now));
    }
}

/// Marks all containers of a terminated Pod for removal, with their logs; their status is kept.
fn reclaim_dead_containers(pod: &mut Pod) {
    if !pod.is_terminated_and_unmounted() || pod.emptied {
        return;
    }
    for container in pod.containers.values_mut() {
        let ids = container.current.iter().map(|i| &i.id).chain(container.last.iter().map(|ended| &ended.id));
        let new_ids: Vec<String> = ids.filter(|id| !container.dead.contains(id)).cloned().collect();
        container.dead.extend(new_ids);
    }
    pod.emptied = true;
}

fn failed_attempt(
    before: Option<&FailedAttempt>,
    message: String,
    policy: &NodePolicy,
    now: Timestamp,
) -> FailedAttempt {
    FailedAttempt { message, at: now, delay: policy.retry_backoff.next(before.map_or(Duration::ZERO, |t| t.delay)) }
}

fn volumes(pod: &mut Pod, event: VolumeEvent, policy: &NodePolicy, now: Timestamp) {
    if *pod.volumes == Volumes::Removed {
        return;
    }
    *pod.volumes = match event {
        VolumeEvent::Mounted => Volumes::Mounted,
        VolumeEvent::Unmounted => Volumes::Removed,
        VolumeEvent::Failed { .. } if matches!(&*pod.volumes, Volumes::Failed(t) if t.retry_at() > now) => return,
        VolumeEvent::Failed { messages } => {
            for message in &messages {
                record(pod, EventKind::Warning, "FailedMount", message.clone(), None);
            }
            let message = messages.join("; ");
            let before = if let Volumes::Failed(t) = &*pod.volumes { Some(t) } else { None };
            Volumes::Failed(failed_attempt(before, message, policy, now))
        }
    };
}

fn complete_action(pod: &mut Pod, key: &ActionKey) {
    match key {
        ActionKey::Record { sequence } => pod.outbox.retain(|event| event.sequence != *sequence),
        ActionKey::DeleteFromApi => *pod.delete_sent = true,
        _ => {}
    }
}

/// Queues a Kubernetes Event.
pub(crate) fn record(pod: &mut Pod, kind: EventKind, reason: &str, message: String, container: Option<&str>) {
    record_with(pod, kind, reason, message, container, BTreeMap::new());
}

fn record_with(
    pod: &mut Pod,
    kind: EventKind,
    reason: &str,
    message: String,
    container: Option<&str>,
    annotations: BTreeMap<String, String>,
) {
    let list = container.and_then(|name| pod.container_spec(name)).map(|(kind, _)| match kind {
        api::pod::ContainerKind::App => "containers",
        api::pod::ContainerKind::Init | api::pod::ContainerKind::Sidecar => "initContainers",
        api::pod::ContainerKind::Ephemeral => "ephemeralContainers",
    });
    let field_path = container.zip(list).map(|(name, list)| format!("spec.{list}{{{name}}}"));
    pod.sequence += 1;
    pod.outbox.push(PodEvent {
        sequence: pod.sequence,
        kind,
        reason: reason.to_owned(),
        message,
        field_path,
        annotations,
    });
}

/// Returns the container of this name; creates its state if missing.
pub(crate) fn container_entry<'a>(pod: &'a mut Pod, name: &str) -> &'a mut Container {
    pod.containers.entry(name.to_owned()).or_default()
}
