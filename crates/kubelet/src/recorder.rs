//! Event recorder: a task writes Events about Pods and the node, so that a slow API does not delay Pods.

mod correlator;

use crate::{Options, deadline::within_deadline};
use correlator::{Correlator, Occurrence};
use jiff::Timestamp;
use k8s_openapi::{
    api::core::v1::{Event, EventSource, ObjectReference, Pod},
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time},
};
use kube::{
    Api, Client,
    api::{Patch, PatchParams, PostParams},
};
use lifecycle::{EventKind, PodEvent};
use serde_json::json;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

/// Capacity of the queue; further Events are dropped and logged.
const QUEUE_CAPACITY: usize = 4096;
/// Limit of the API for a message in characters.
const MAX_MESSAGE_LENGTH: usize = 1024;

pub(crate) struct Recorder {
    queue: mpsc::Sender<(ObjectReference, PodEvent)>,
    node: ObjectReference,
}

impl Recorder {
    pub(crate) fn start(client: Client, options: &Options, stop: CancellationToken) -> Self {
        let (host, clock) = (options.node_name.clone(), options.clock.clone());
        let (queue, mut events) = mpsc::channel::<(ObjectReference, PodEvent)>(QUEUE_CAPACITY);
        tokio::spawn(async move {
            let mut correlator = Correlator::default();
            while let Some(Some((about, event))) = stop.run_until_cancelled(events.recv()).await {
                if let Err(error) = write(&client, &host, clock.now(), &about, &event, &mut correlator).await {
                    tracing::debug!(%error, reason = event.reason, "failed to record an event");
                }
            }
        });
        let name = Some(options.node_name.clone());
        // Upstream's kubelet uses the node's name as UID, and `kubectl describe` searches for both.
        let node = ObjectReference { kind: Some("Node".to_owned()), uid: name.clone(), name, ..Default::default() };
        Self { queue, node }
    }

    pub(crate) fn record(&self, pod: &Pod, event: PodEvent) {
        let meta = &pod.metadata;
        let about = ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Pod".to_owned()),
            name: meta.name.clone(),
            namespace: meta.namespace.clone(),
            uid: meta.uid.clone(),
            resource_version: meta.resource_version.clone(),
            field_path: event.field_path.clone(),
        };
        self.send(about, event);
    }

    /// Records an event about the node.
    pub(crate) fn record_node(&self, kind: EventKind, reason: &str, message: String) {
        self.send(self.node.clone(), PodEvent::new(kind, reason, message));
    }

    fn send(&self, about: ObjectReference, event: PodEvent) {
        if self.queue.try_send((about, event)).is_err() {
            tracing::warn!("event queue is full, dropping an event");
        }
    }
}

async fn write(
    client: &Client,
    host: &str,
    now: Timestamp,
    about: &ObjectReference,
    event: &PodEvent,
    correlator: &mut Correlator,
) -> Result<(), kube::Error> {
    let (kind, name, uid) = (about.kind.as_deref(), about.name.as_deref(), about.uid.as_deref());
    let object = format!("{}/{}", kind.unwrap_or_default(), uid.unwrap_or_default());
    let occurrence = Occurrence {
        object: &object,
        field_path: event.field_path.as_deref().unwrap_or_default(),
        kind: event.kind.as_str(),
        reason: &event.reason,
        message: &event.message,
    };
    let Some(correlated) = correlator.correlate(occurrence, now) else {
        tracing::debug!(object, reason = event.reason, "dropping an event, rate limit of the object exceeded");
        return Ok(());
    };
    let message: String = correlated.message.chars().take(MAX_MESSAGE_LENGTH).collect();
    let namespace = about.namespace.as_deref().unwrap_or("default");
    let api: Api<Event> = Api::namespaced(client.clone(), namespace);
    if let Some(known) = correlated.known.clone() {
        let patch = json!({"count": correlated.count, "lastTimestamp": Time(now), "message": message});
        match within_deadline(api.patch(&known, &PatchParams::default(), &Patch::Merge(patch))).await {
            Ok(_) => {
                correlator.written(&correlated, known);
                return Ok(());
            }
            // The Event has expired: a new one is created.
            Err(kube::Error::Api(e)) if e.code == 404 => {}
            Err(error) => return Err(error),
        }
    }
    let event_name = format!("{}.{:x}{:04x}", name.unwrap_or_default(), now.as_nanosecond(), event.sequence % 0x1_0000);
    let object = Event {
        metadata: ObjectMeta {
            name: Some(event_name.clone()),
            namespace: Some(namespace.to_owned()),
            annotations: Some(event.annotations.clone()).filter(|all| !all.is_empty()),
            ..ObjectMeta::default()
        },
        involved_object: about.clone(),
        type_: Some(event.kind.as_str().to_owned()),
        reason: Some(event.reason.clone()),
        message: Some(message),
        source: Some(EventSource { component: Some("kubelet".to_owned()), host: Some(host.to_owned()) }),
        reporting_component: Some("kubelet".to_owned()),
        reporting_instance: Some(host.to_owned()),
        first_timestamp: Some(Time(correlated.first)),
        last_timestamp: Some(Time(now)),
        count: Some(correlated.count),
        ..Event::default()
    };
    within_deadline(api.create(&PostParams::default(), &object)).await?;
    correlator.written(&correlated, event_name);
    Ok(())
}
