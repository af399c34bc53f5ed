//! What the scheduler writes: bindings, events, and the condition of a Pod that has to wait.

use crate::cluster::Uid;
use crate::message::note;
use crate::storage::Orders;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{
    Binding, ObjectReference, PersistentVolume, PersistentVolumeClaim, Pod, PodCondition,
};
use k8s_openapi::api::events::v1::{Event, EventSeries};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta, Time};
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

/// No write is waited for longer.
const DEADLINE: Duration = Duration::from_secs(30);

/// How a write ended.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// The Pod is bound.
    Bound(Uid),
    /// The Pod is gone.
    Gone(Uid),
    /// The binding was not written, as far as is known. If it was, or if somebody else did, the watch says so.
    BindFailed(Uid),
    /// It is known to its user why the Pod waits (or this could not be written: the next attempt says it again).
    Reported(Uid),
    /// What the Pod's volumes need is written; others bind them.
    Ordered(Uid),
    /// Not all of it is.
    NotOrdered(Uid, Box<Orders>),
    /// Some of the Pods that were to make room for it could not be deleted.
    NotPreempted(Uid, Vec<Uid>),
}

/// Writes through the API. Clones share what they remember.
#[derive(Clone)]
pub(crate) struct Writer {
    client: Client,
    name: String,
    /// The last `FailedScheduling` of each waiting Pod: the same again counts up instead of piling up.
    failures: Arc<Mutex<HashMap<Uid, Event>>>,
}

impl Writer {
    pub(crate) fn new(client: Client, name: &str) -> Self {
        Self { client, name: name.to_owned(), failures: Arc::default() }
    }

    /// What it writes through.
    pub(crate) fn client(&self) -> Client {
        self.client.clone()
    }

    /// The Pod waits no longer.
    pub(crate) fn forget(&self, uid: &str) {
        self.failures.lock().remove(uid);
    }

    /// Only these Pods wait.
    pub(crate) fn retain(&self, waits: impl Fn(&str) -> bool) {
        self.failures.lock().retain(|uid, _| waits(uid));
    }

    pub(crate) async fn bind(self, uid: Uid, pod: Arc<Pod>, node: String) -> Outcome {
        let meta = &pod.metadata;
        let (namespace, name) = names(meta);
        let binding = Binding {
            metadata: ObjectMeta {
                name: meta.name.clone(),
                namespace: meta.namespace.clone(),
                // The Pod of this name may be another one by now.
                uid: meta.uid.clone(),
                ..Default::default()
            },
            target: ObjectReference { kind: Some("Node".into()), name: Some(node.clone()), ..Default::default() },
        };
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), namespace);
        let params = PostParams::default();
        let bound = pods.create_subresource::<_, Value>("binding", name, &params, &binding);
        match tokio::time::timeout(DEADLINE, bound).await {
            Ok(Ok(_)) => {
                let message = format!("Successfully assigned {namespace}/{name} to {node}");
                self.create_event(self.event(&pod, "Normal", "Scheduled", "Binding", &message)).await;
                Outcome::Bound(uid)
            }
            Ok(Err(kube::Error::Api(status))) if status.code == 404 => {
                tracing::info!(namespace, name, "is gone before it was bound");
                Outcome::Gone(uid)
            }
            Ok(Err(e)) => {
                tracing::warn!(namespace, name, node, "could not be bound: {e}");
                Outcome::BindFailed(uid)
            }
            Err(_) => {
                tracing::warn!(namespace, name, node, "was not bound in time");
                Outcome::BindFailed(uid)
            }
        }
    }

    /// Binds volumes to claims of a Pod, and has volumes made for others. What has changed meanwhile is refused.
    pub(crate) async fn order(self, uid: Uid, orders: Box<Orders>) -> Outcome {
        match in_time(self.write_orders(&orders)).await {
            Ok(()) => Outcome::Ordered(uid),
            Err(e) => {
                tracing::info!(uid, "its volumes could not be bound: {e}");
                Outcome::NotOrdered(uid, orders)
            }
        }
    }

    async fn write_orders(&self, orders: &Orders) -> kube::Result<()> {
        let params = PostParams::default();
        let volumes: Api<PersistentVolume> = Api::all(self.client.clone());
        for (_, volume) in &orders.bindings {
            volumes.replace(names(&volume.metadata).1, &params, volume).await?;
        }
        for (_, claim) in &orders.provisions {
            let (namespace, name) = names(&claim.metadata);
            let claims: Api<PersistentVolumeClaim> = Api::namespaced(self.client.clone(), namespace);
            claims.replace(name, &params, claim).await?;
        }
        Ok(())
    }

    /// Says by event and condition why a Pod fits nowhere, and where a place is kept for it.
    pub(crate) async fn unschedulable(
        self,
        uid: Uid,
        pod: Arc<Pod>,
        message: String,
        nominated: Option<String>,
    ) -> Outcome {
        self.say_unschedulable(&uid, &pod, &message, nominated.as_deref()).await;
        Outcome::Reported(uid)
    }

    pub(crate) async fn say_unschedulable(&self, uid: &str, pod: &Pod, message: &str, nominated: Option<&str>) {
        self.failed_event(uid, pod, message).await;
        self.report(pod, "Unschedulable", message, nominated).await;
    }

    /// Says by condition that a Pod has scheduling gates, where the API server has not said so at its creation.
    pub(crate) async fn gated(self, uid: Uid, pod: Arc<Pod>) -> Outcome {
        self.report(&pod, "SchedulingGated", crate::message::GATED, nominated_node(&pod)).await;
        Outcome::Reported(uid)
    }

    /// Whether the Pod's condition says something else.
    pub(crate) fn needs_report(&self, pod: &Pod, reason: &str, message: &str) -> bool {
        scheduled_condition(pod).is_none_or(|c| {
            c.status != "False" || c.reason.as_deref() != Some(reason) || c.message.as_deref() != Some(message)
        })
    }

    async fn report(&self, pod: &Pod, reason: &str, message: &str, nominated: Option<&str>) {
        if !self.needs_report(pod, reason, message) && nominated == nominated_node(pod) {
            return;
        }
        let since = scheduled_condition(pod).filter(|c| c.status == "False");
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
        let (namespace, name) = names(&pod.metadata);
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), namespace);
        let (params, patch) = (PatchParams::default(), Patch::Strategic(patch));
        let patched = pods.patch_status(name, &params, &patch);
        if let Err(e) = in_time(patched).await {
            tracing::debug!(namespace, name, "its condition could not be written: {e}");
        }
    }

    async fn failed_event(&self, uid: &str, pod: &Pod, message: &str) {
        let last = self.failures.lock().get(uid).cloned();
        let Some(mut event) = last.filter(|e| e.note.as_deref() == Some(&note(message))) else {
            let event = self.event(pod, "Warning", "FailedScheduling", "Scheduling", message);
            self.failures.lock().insert(uid.to_owned(), event.clone());
            self.create_event(event).await;
            return;
        };
        let count = event.series.as_ref().map_or(1, |s| s.count).saturating_add(1);
        let series = EventSeries { count, last_observed_time: MicroTime(Timestamp::now()) };
        event.series = Some(series.clone());
        let (namespace, name) = names(&event.metadata);
        let events: Api<Event> = Api::namespaced(self.client.clone(), namespace);
        let (params, patch) = (PatchParams::default(), Patch::Merge(json!({ "series": series })));
        if let Err(e) = in_time(events.patch(name, &params, &patch)).await {
            tracing::debug!(namespace, name, "the event could not be counted up: {e}");
            // It may have expired: the next one is a new one.
            self.forget(uid);
            return;
        }
        self.failures.lock().insert(uid.to_owned(), event);
    }

    pub(crate) fn event(&self, pod: &Pod, type_: &str, reason: &str, action: &str, message: &str) -> Event {
        let now = Timestamp::now();
        let (namespace, name) = names(&pod.metadata);
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
            note: Some(note(message)),
            regarding: Some(reference(pod)),
            reporting_controller: Some(self.name.clone()),
            reporting_instance: Some(self.name.clone()),
            ..Default::default()
        }
    }

    pub(crate) async fn create_event(&self, event: Event) {
        let namespace = event.metadata.namespace.as_deref().unwrap_or("default");
        let events: Api<Event> = Api::namespaced(self.client.clone(), namespace);
        if let Err(e) = in_time(events.create(&PostParams::default(), &event)).await {
            tracing::debug!(reason = event.reason, "the event could not be written: {e}");
        }
    }
}

pub(crate) async fn in_time<T>(write: impl Future<Output = kube::Result<T>>) -> Result<T, String> {
    match tokio::time::timeout(DEADLINE, write).await {
        Ok(result) => result.map_err(|e| e.to_string()),
        Err(_) => Err(format!("no answer within {} s", DEADLINE.as_secs())),
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

fn names(meta: &ObjectMeta) -> (&str, &str) {
    (meta.namespace.as_deref().unwrap_or("default"), meta.name.as_deref().unwrap_or_default())
}

fn scheduled_condition(pod: &Pod) -> Option<&PodCondition> {
    let conditions = pod.status.as_ref()?.conditions.as_ref()?;
    conditions.iter().find(|c| c.type_ == "PodScheduled")
}

/// Where the API says that a place is kept for it.
fn nominated_node(pod: &Pod) -> Option<&str> {
    pod.status.as_ref()?.nominated_node_name.as_deref().filter(|node| !node.is_empty())
}
