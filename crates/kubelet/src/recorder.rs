//! Kubernetes Events about Pods and the node: recorded by one task, so that a slow API harms no Pod.

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

/// Events that wait at most; more than that is a flood, and is dropped with a word in the log.
const QUEUE: usize = 4096;
/// In characters: the API takes no longer one.
const LONGEST_MESSAGE: usize = 1024;

pub(crate) struct Recorder {
    queue: mpsc::Sender<(ObjectReference, PodEvent)>,
    node: ObjectReference,
}

impl Recorder {
    pub(crate) fn start(client: Client, options: &Options, stop: CancellationToken) -> Self {
        let (host, clock) = (options.node_name.clone(), options.clock.clone());
        let (queue, mut events) = mpsc::channel::<(ObjectReference, PodEvent)>(QUEUE);
        tokio::spawn(async move {
            let mut correlator = Correlator::default();
            while let Some(Some((about, event))) = stop.run_until_cancelled(events.recv()).await {
                if let Err(error) = write(&client, &host, clock.now(), &about, &event, &mut correlator).await {
                    tracing::debug!(%error, reason = event.reason, "an event was not recorded");
                }
            }
        });
        let name = Some(options.node_name.clone());
        // Upstream's kubelet has the node's name where its UID would be, and `kubectl describe` looks for both.
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
            tracing::warn!("too many events wait to be recorded; one was dropped");
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
    let Some(told) = correlator.correlate(occurrence, now) else {
        tracing::debug!(object, reason = event.reason, "too much is told about an object; an event was dropped");
        return Ok(());
    };
    let message: String = told.message.chars().take(LONGEST_MESSAGE).collect();
    let namespace = about.namespace.as_deref().unwrap_or("default");
    let api: Api<Event> = Api::namespaced(client.clone(), namespace);
    if let Some(known) = told.known.clone() {
        let patch = json!({"count": told.count, "lastTimestamp": Time(now), "message": message});
        match within_deadline(api.patch(&known, &PatchParams::default(), &Patch::Merge(patch))).await {
            Ok(_) => {
                correlator.written(&told, known);
                return Ok(());
            }
            // Events are forgotten after a while: it is told anew.
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
        first_timestamp: Some(Time(told.first)),
        last_timestamp: Some(Time(now)),
        count: Some(told.count),
        ..Event::default()
    };
    within_deadline(api.create(&PostParams::default(), &object)).await?;
    correlator.written(&told, event_name);
    Ok(())
}
