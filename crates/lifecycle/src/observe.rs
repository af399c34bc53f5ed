//! Facts are folded into what is known.

mod container_facts;
mod relist;

use crate::{
    Admission, Event, EventKind, Eviction, ImageFact, NodePolicy, Pod, PodEvent, SandboxFact, VolumesFact,
    container::{Container, Image},
    pod::{Sandbox, SandboxState, Trouble, Volumes},
};
use api::pod::containers;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod as ApiPod;
use std::{sync::Arc, time::Duration};

/// Folds one fact into what is known about a Pod.
pub fn observe(pod: &mut Pod, event: Event, policy: &NodePolicy, now: Timestamp) {
    match event {
        Event::Updated(object) => updated(pod, object, now),
        Event::Gone => {
            pod.gone_at.get_or_insert(now);
            pod.durable += 1;
        }
        Event::Admission(admission) => admitted(pod, admission),
        Event::Evicted(eviction) => evicted(pod, eviction, now),
        Event::Volumes(fact) => volumes(pod, fact, policy, now),
        Event::Sandbox(fact) => sandbox(pod, fact, policy, now),
        Event::Image { container, fact } => image(pod, &container, fact, policy, now),
        Event::Container { container, fact } => container_facts::observe(pod, &container, fact, policy, now),
        Event::StatusWritten(status) => {
            pod.written = Some(status);
            pod.durable += 1;
        }
        Event::Done(key) => done(pod, &key),
        // What these would change belongs to probes and hooks; admission refuses Pods that have any (see the kubelet).
        Event::Probed { .. } | Event::HookDone { .. } | Event::Failed { .. } => {}
        Event::Relisted(view) => relist::observe(pod, view, policy, now),
    }
    announce_kills(pod, now);
}

pub(crate) fn updated(pod: &mut Pod, object: Arc<ApiPod>, now: Timestamp) {
    let deletion = object.metadata.deletion_timestamp.is_some();
    let grace = object.metadata.deletion_grace_period_seconds.unwrap_or(0);
    pod.object = object;
    for (_, spec) in containers(pod.object.spec.as_ref().unwrap_or(&Default::default())) {
        pod.containers.entry(spec.name.clone()).or_default();
    }
    if !deletion {
        return;
    }
    // Upstream's floor of 1 s; the grace period only ever falls, and counts from when it was asked for.
    let grace = Duration::from_secs(u64::try_from(grace).unwrap_or(0).max(1));
    match pod.deleted {
        Some((_, known)) if grace >= known => {}
        _ => {
            pod.deleted = Some((now, grace));
            pod.durable += 1;
        }
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
    pod.durable += 1;
}

fn evicted(pod: &mut Pod, eviction: Eviction, now: Timestamp) {
    if pod.evicted.is_none() {
        record(pod, EventKind::Warning, &eviction.reason, eviction.message.clone(), None);
        pod.evicted = Some((eviction, now));
        pod.durable += 1;
    }
}

fn trouble(before: Option<&Trouble>, message: String, policy: &NodePolicy, now: Timestamp) -> Trouble {
    Trouble { message, at: now, delay: policy.retry_backoff.next(before.map_or(Duration::ZERO, |t| t.delay)) }
}

fn volumes(pod: &mut Pod, fact: VolumesFact, policy: &NodePolicy, now: Timestamp) {
    pod.volumes = match fact {
        VolumesFact::Mounted => Volumes::Mounted,
        VolumesFact::Unmounted => Volumes::Removed,
        VolumesFact::Failed { message } => {
            record(pod, EventKind::Warning, "FailedMount", message.clone(), None);
            let before = if let Volumes::Failed(t) = &pod.volumes { Some(t) } else { None };
            Volumes::Failed(trouble(before, message, policy, now))
        }
    };
}

fn sandbox(pod: &mut Pod, fact: SandboxFact, policy: &NodePolicy, now: Timestamp) {
    let mut set = |id: &str, state| {
        pod.durable += 1;
        if let Some(s) = pod.sandboxes.iter_mut().find(|s| s.id == id) {
            s.state = state;
        }
    };
    match fact {
        SandboxFact::Ready { id, attempt, ips } => {
            if !pod.sandboxes.iter().any(|s| s.id == id) {
                pod.sandboxes.push(Sandbox { id, attempt, state: SandboxState::Ready });
            }
            pod.ips = ips;
            pod.sandbox_failure = None;
            pod.durable += 1;
        }
        SandboxFact::Failed { message } => {
            record(
                pod,
                EventKind::Warning,
                "FailedCreatePodSandBox",
                format!("Failed to create pod sandbox: {message}"),
                None,
            );
            pod.sandbox_failure = Some(trouble(pod.sandbox_failure.as_ref(), message, policy, now));
        }
        SandboxFact::Lost { id } => sandbox_lost(pod, &id),
        SandboxFact::Stopped { id } => set(&id, SandboxState::Stopped),
        SandboxFact::Removed { id } => {
            pod.sandboxes.retain(|s| s.id != id);
            pod.durable += 1;
        }
    }
}

pub(crate) fn sandbox_lost(pod: &mut Pod, id: &str) {
    let Some(s) = pod.sandboxes.iter_mut().find(|s| s.id == id && s.state == SandboxState::Ready) else {
        return;
    };
    s.state = SandboxState::Lost;
    pod.durable += 1;
    if !pod.finished() && pod.deleted.is_none() && pod.gone_at.is_none() {
        record(
            pod,
            EventKind::Normal,
            "SandboxChanged",
            "Pod sandbox changed, it will be killed and re-created.".to_owned(),
            None,
        );
    }
}

fn image(pod: &mut Pod, name: &str, fact: ImageFact, policy: &NodePolicy, now: Timestamp) {
    let Some(image) = pod.container_spec(name).map(|(_, c)| c.image.clone().unwrap_or_default()) else {
        return;
    };
    let before = pod.container(name).image.clone();
    let state = match fact {
        ImageFact::Pulling => {
            record(pod, EventKind::Normal, "Pulling", format!("Pulling image {image:?}"), Some(name));
            // While a failed pull is tried again, its reason stays visible.
            if matches!(before, Image::Failed { .. }) { before } else { Image::Pulling }
        }
        ImageFact::Present { image_ref } => {
            let text = format!("Container image {image:?} already present on machine and can be accessed by the pod");
            record(pod, EventKind::Normal, "Pulled", text, Some(name));
            Image::Present { image_ref }
        }
        ImageFact::Pulled { image_ref, took, took_with_wait, size } => {
            let ms = |d: Duration| format!("{d:.3?}");
            let text = format!(
                "Successfully pulled image {image:?} in {} ({} including waiting). Image size: {size} bytes.",
                ms(took),
                ms(took_with_wait)
            );
            record(pod, EventKind::Normal, "Pulled", text, Some(name));
            Image::Present { image_ref }
        }
        ImageFact::Failed { reason, message } => {
            let delay = match before {
                Image::Failed { delay, .. } => policy.image_backoff.next(delay),
                _ => policy.image_backoff.next(Duration::ZERO),
            };
            image_failed(pod, name, &image, &reason, &message);
            Image::Failed { reason, message, at: now, delay }
        }
    };
    pod.containers.entry(name.to_owned()).or_default().image = state;
}

fn image_failed(pod: &mut Pod, name: &str, image: &str, reason: &str, message: &str) {
    match reason {
        "ErrImageNeverPull" => record(pod, EventKind::Warning, reason, message.to_owned(), Some(name)),
        "InvalidImageName" => record(pod, EventKind::Warning, "InspectFailed", message.to_owned(), Some(name)),
        _ => {
            record(pod, EventKind::Warning, "Failed", format!("Failed to pull image {image:?}: {message}"), Some(name));
        }
    }
    record(pod, EventKind::Warning, "Failed", format!("Error: {reason}"), Some(name));
    if reason == "ErrImagePull" {
        record(pod, EventKind::Normal, "BackOff", format!("Back-off pulling image {image:?}"), Some(name));
    }
}

fn done(pod: &mut Pod, key: &crate::ActionKey) {
    let recorded = pod.outbox.len();
    pod.outbox.retain(|e| crate::Action::Record(e.clone()).key() != *key);
    if pod.outbox.len() != recorded {
        pod.durable += 1;
    }
    if *key == crate::Action::DeleteFromApi.key() {
        pod.delete_sent = true;
    }
}

/// Says once for each running container that it is being stopped (LIFECYCLE.md 3.11).
fn announce_kills(pod: &mut Pod, now: Timestamp) {
    if pod.stop(now).is_none() {
        return;
    }
    let fresh: Vec<(String, String)> = pod
        .containers
        .iter()
        .filter(|(_, c)| c.alive())
        .filter_map(|(name, c)| Some((name.clone(), c.current.as_ref()?.id.clone())))
        .filter(|(_, id)| !pod.killing.contains(id))
        .collect();
    for (name, id) in fresh {
        record(pod, EventKind::Normal, "Killing", format!("Stopping container {name}"), Some(&name));
        pod.killing.push(id);
        pod.durable += 1;
    }
}

/// Puts a Kubernetes Event into the outbox.
pub(crate) fn record(pod: &mut Pod, kind: EventKind, reason: &str, message: String, container: Option<&str>) {
    let list = container.and_then(|name| pod.container_spec(name)).map(|(kind, _)| match kind {
        api::pod::ContainerKind::App => "containers",
        api::pod::ContainerKind::Init | api::pod::ContainerKind::Sidecar => "initContainers",
    });
    let field_path = container.zip(list).map(|(name, list)| format!("spec.{list}{{{name}}}"));
    pod.sequence += 1;
    pod.durable += 1;
    pod.outbox.push(PodEvent { sequence: pod.sequence, kind, reason: reason.to_owned(), message, field_path });
}

/// The container of this name, made known if need be.
pub(crate) fn entry<'a>(pod: &'a mut Pod, name: &str) -> &'a mut Container {
    pod.containers.entry(name.to_owned()).or_default()
}
