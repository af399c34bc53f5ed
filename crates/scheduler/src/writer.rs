//! API writes of the scheduler: bindings, volumes, events, and the `PodScheduled` condition.

use crate::{cache::Uid, fit_error::truncate_note, volume_binding::PodVolumes};
use jiff::Timestamp;
use k8s_openapi::{
    api::{
        core::v1::{Binding, ObjectReference, PersistentVolume, PersistentVolumeClaim, Pod, PodCondition},
        events::v1::{Event, EventSeries},
    },
    apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta, Time},
};
use kube::{
    Api, Client,
    api::{Patch, PatchParams, PostParams},
};
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::{collections::HashMap, sync::Arc, time::Duration};
use tokio::time::Instant;

/// Timeout of a write.
const WRITE_TIMEOUT: Duration = Duration::from_secs(30);
/// Minimum interval between two writes of an event's series: the first backoffs are shorter.
const SERIES_INTERVAL: Duration = Duration::from_secs(10);

/// Error of a write.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WriteError {
    #[error(transparent)]
    Request(#[from] kube::Error),
    #[error("no answer within {} s", WRITE_TIMEOUT.as_secs())]
    Timeout,
}

/// Result of a write.
#[derive(Debug)]
pub(crate) enum WriteOutcome {
    /// The Pod is bound.
    Bound(Uid),
    /// The Pod does not exist any more.
    Gone(Uid),
    /// The binding failed, as far as is known. If it was written, the watch shows it.
    BindFailed(Uid),
    /// The condition and the event were written, or this failed: the next attempt repeats it.
    Reported(Uid),
    /// The volume bindings and provisioning requests are written.
    VolumesRequested(Uid),
    /// Writing them failed, maybe in part.
    VolumesFailed(Uid, Box<PodVolumes>),
    /// These victims could not be deleted.
    PreemptionFailed(Uid, Vec<Uid>),
}

/// Writes through the API; clones share their state.
#[derive(Clone)]
pub(crate) struct Writer {
    client: Client,
    name: String,
    /// Last `FailedScheduling` event of each pending Pod: repetitions update its series.
    failures: Arc<Mutex<HashMap<Uid, FailureEvent>>>,
}

/// `FailedScheduling` event as the API server has it, and the repetitions that it does not have yet.
#[derive(Clone)]
struct FailureEvent {
    event: Event,
    written: Instant,
    repetitions: i32,
}

impl Writer {
    pub(crate) fn new(client: Client, name: &str) -> Self {
        Self { client, name: name.to_owned(), failures: Arc::default() }
    }

    /// Returns the client.
    pub(crate) fn client(&self) -> Client {
        self.client.clone()
    }

    /// Forgets the events of a Pod that is no longer pending.
    pub(crate) fn forget(&self, uid: &str) {
        self.failures.lock().remove(uid);
    }

    /// Forgets the events of all other Pods.
    pub(crate) fn retain(&self, is_pending: impl Fn(&str) -> bool) {
        self.failures.lock().retain(|uid, _| is_pending(uid));
    }

    pub(crate) async fn bind(self, uid: Uid, pod: Arc<Pod>, node: String) -> WriteOutcome {
        let meta = &pod.metadata;
        let (namespace, name) = namespaced_name(meta);
        let binding = Binding {
            metadata: ObjectMeta {
                name: meta.name.clone(),
                namespace: meta.namespace.clone(),
                // A precondition: another Pod may have this name by now.
                uid: meta.uid.clone(),
                ..Default::default()
            },
            target: ObjectReference { kind: Some("Node".into()), name: Some(node.clone()), ..Default::default() },
        };
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), namespace);
        let params = PostParams::default();
        let bound = pods.create_subresource::<_, Value>("binding", name, &params, &binding);
        match tokio::time::timeout(WRITE_TIMEOUT, bound).await {
            Ok(Ok(_)) => {
                let message = format!("Successfully assigned {namespace}/{name} to {node}");
                self.create_event(self.event(&pod, "Normal", "Scheduled", "Binding", &message)).await;
                WriteOutcome::Bound(uid)
            }
            Ok(Err(kube::Error::Api(status))) if status.code == 404 => {
                tracing::info!(namespace, name, "pod was deleted before its binding");
                WriteOutcome::Gone(uid)
            }
            Ok(Err(e)) => {
                tracing::warn!(namespace, name, node, error = %e, "failed to bind pod");
                WriteOutcome::BindFailed(uid)
            }
            Err(_) => {
                tracing::warn!(namespace, name, node, "timed out binding pod");
                WriteOutcome::BindFailed(uid)
            }
        }
    }

    /// Writes the volume bindings and provisioning requests; the resource versions detect conflicts.
    pub(crate) async fn bind_volumes(self, uid: Uid, pod_volumes: Box<PodVolumes>) -> WriteOutcome {
        match with_timeout(self.write_pod_volumes(&pod_volumes)).await {
            Ok(()) => WriteOutcome::VolumesRequested(uid),
            Err(e) => {
                tracing::info!(uid, error = %e, "failed to bind volumes");
                WriteOutcome::VolumesFailed(uid, pod_volumes)
            }
        }
    }

    async fn write_pod_volumes(&self, pod_volumes: &PodVolumes) -> kube::Result<()> {
        let params = PostParams::default();
        let volumes: Api<PersistentVolume> = Api::all(self.client.clone());
        for (_, volume) in &pod_volumes.bindings {
            volumes.replace(namespaced_name(&volume.metadata).1, &params, volume).await?;
        }
        for (_, claim) in &pod_volumes.provisions {
            let (namespace, name) = namespaced_name(&claim.metadata);
            let claims: Api<PersistentVolumeClaim> = Api::namespaced(self.client.clone(), namespace);
            claims.replace(name, &params, claim).await?;
        }
        Ok(())
    }

    /// Reports by event and condition why a Pod is unschedulable, and its nominated node.
    pub(crate) async fn unschedulable(
        self,
        uid: Uid,
        pod: Arc<Pod>,
        message: String,
        nominated: Option<String>,
    ) -> WriteOutcome {
        self.report_unschedulable(&uid, &pod, &message, nominated.as_deref()).await;
        WriteOutcome::Reported(uid)
    }

    pub(crate) async fn report_unschedulable(&self, uid: &str, pod: &Pod, message: &str, nominated: Option<&str>) {
        self.record_scheduling_failure(uid, pod, message).await;
        self.patch_scheduled_condition(pod, "Unschedulable", message, nominated).await;
    }

    /// Reports scheduling gates by condition, unless the API server did so at creation.
    pub(crate) async fn gated(self, uid: Uid, pod: Arc<Pod>) -> WriteOutcome {
        self.patch_scheduled_condition(
            &pod,
            "SchedulingGated",
            crate::fit_error::SCHEDULING_GATED,
            nominated_node(&pod),
        )
        .await;
        WriteOutcome::Reported(uid)
    }

    /// Returns whether the Pod's condition differs.
    pub(crate) fn needs_condition_update(&self, pod: &Pod, reason: &str, message: &str) -> bool {
        pod_scheduled_condition(pod).is_none_or(|c| {
            c.status != "False" || c.reason.as_deref() != Some(reason) || c.message.as_deref() != Some(message)
        })
    }

    async fn patch_scheduled_condition(&self, pod: &Pod, reason: &str, message: &str, nominated: Option<&str>) {
        if !self.needs_condition_update(pod, reason, message) && nominated == nominated_node(pod) {
            return;
        }
        let since = pod_scheduled_condition(pod).filter(|c| c.status == "False");
        let since = since.and_then(|c| c.last_transition_time.clone()).unwrap_or_else(|| Time(Timestamp::now()));
        let condition = PodCondition {
            type_: "PodScheduled".into(),
            status: "False".into(),
            reason: Some(reason.into()),
            message: Some(message.into()),
            last_transition_time: Some(since),
            observed_generation: pod.metadata.generation,
            ..Default::default()
        };
        let mut patch = json!({ "metadata": { "uid": pod.metadata.uid }, "status": { "conditions": [condition] } });
        if nominated != nominated_node(pod) {
            patch["status"]["nominatedNodeName"] = json!(nominated);
        }
        let (namespace, name) = namespaced_name(&pod.metadata);
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), namespace);
        let (params, patch) = (PatchParams::default(), Patch::Strategic(patch));
        let patched = pods.patch_status(name, &params, &patch);
        if let Err(e) = with_timeout(patched).await {
            tracing::debug!(namespace, name, error = %e, "failed to patch pod condition");
        }
    }

    async fn record_scheduling_failure(&self, uid: &str, pod: &Pod, message: &str) {
        let now = Instant::now();
        let last = self.failures.lock().get(uid).cloned();
        let Some(mut failure) = last.filter(|f| f.event.note.as_deref() == Some(&truncate_note(message))) else {
            let event = self.event(pod, "Warning", "FailedScheduling", "Scheduling", message);
            let failure = FailureEvent { event: event.clone(), written: now, repetitions: 0 };
            self.failures.lock().insert(uid.to_owned(), failure);
            self.create_event(event).await;
            return;
        };
        failure.repetitions = failure.repetitions.saturating_add(1);
        if now >= failure.written + SERIES_INTERVAL {
            let count = failure.event.series.as_ref().map_or(1, |s| s.count).saturating_add(failure.repetitions);
            failure.event.series = Some(EventSeries { count, last_observed_time: MicroTime(Timestamp::now()) });
            (failure.written, failure.repetitions) = (now, 0);
            if let Err(e) = self.patch_event_series(&failure.event).await {
                let (namespace, name) = namespaced_name(&pod.metadata);
                tracing::debug!(namespace, name, error = %e, "failed to update event series");
                // The event may have expired: create a new one next time.
                self.forget(uid);
                return;
            }
        }
        self.failures.lock().insert(uid.to_owned(), failure);
    }

    async fn patch_event_series(&self, event: &Event) -> Result<(), WriteError> {
        let (namespace, name) = namespaced_name(&event.metadata);
        let events: Api<Event> = Api::namespaced(self.client.clone(), namespace);
        let (params, patch) = (PatchParams::default(), Patch::Merge(json!({ "series": event.series })));
        with_timeout(events.patch(name, &params, &patch)).await.map(drop)
    }

    pub(crate) fn event(&self, pod: &Pod, type_: &str, reason: &str, action: &str, message: &str) -> Event {
        let now = Timestamp::now();
        let (namespace, name) = namespaced_name(&pod.metadata);
        Event {
            metadata: ObjectMeta {
                name: Some(format!("{name}.{:x}", now.as_nanosecond())),
                namespace: Some(namespace.into()),
                ..Default::default()
            },
            event_time: Some(MicroTime(now)),
            type_: Some(type_.into()),
            reason: Some(reason.into()),
            action: Some(action.into()),
            note: Some(truncate_note(message)),
            regarding: Some(reference(pod)),
            reporting_controller: Some(self.name.clone()),
            reporting_instance: Some(self.name.clone()),
            ..Default::default()
        }
    }

    pub(crate) async fn create_event(&self, event: Event) {
        let namespace = event.metadata.namespace.as_deref().unwrap_or("default");
        let events: Api<Event> = Api::namespaced(self.client.clone(), namespace);
        if let Err(e) = with_timeout(events.create(&PostParams::default(), &event)).await {
            tracing::debug!(reason = event.reason, error = %e, "failed to create event");
        }
    }
}

pub(crate) async fn with_timeout<T>(write: impl Future<Output = kube::Result<T>>) -> Result<T, WriteError> {
    match tokio::time::timeout(WRITE_TIMEOUT, write).await {
        Ok(result) => Ok(result?),
        Err(_) => Err(WriteError::Timeout),
    }
}

pub(crate) fn reference(pod: &Pod) -> ObjectReference {
    ObjectReference {
        api_version: Some("v1".into()),
        kind: Some("Pod".into()),
        name: pod.metadata.name.clone(),
        namespace: pod.metadata.namespace.clone(),
        uid: pod.metadata.uid.clone(),
        resource_version: pod.metadata.resource_version.clone(),
        ..Default::default()
    }
}

fn namespaced_name(meta: &ObjectMeta) -> (&str, &str) {
    (meta.namespace.as_deref().unwrap_or("default"), meta.name.as_deref().unwrap_or_default())
}

fn pod_scheduled_condition(pod: &Pod) -> Option<&PodCondition> {
    let conditions = pod.status.as_ref()?.conditions.as_ref()?;
    conditions.iter().find(|c| c.type_ == "PodScheduled")
}

/// Returns the nominated node in the Pod's status.
fn nominated_node(pod: &Pod) -> Option<&str> {
    pod.status.as_ref()?.nominated_node_name.as_deref().filter(|node| !node.is_empty())
}
