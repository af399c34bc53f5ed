//! Kubernetes Events about Pods and the node: recorded by one task, so that a slow API harms no Pod.

use crate::{Options, deadline::within_deadline};
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
use std::collections::HashMap;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

/// Events that wait at most; more than that is a flood, and is dropped with a word in the log.
const QUEUE: usize = 4096;
/// How many events are remembered to count repetitions.
const REMEMBERED: usize = 4096;

pub(crate) struct Recorder {
    queue: mpsc::Sender<(ObjectReference, PodEvent)>,
    node: ObjectReference,
}

impl Recorder {
    pub(crate) fn start(client: Client, options: &Options, stop: CancellationToken) -> Self {
        let (host, clock) = (options.node_name.clone(), options.clock.clone());
        let (queue, mut events) = mpsc::channel::<(ObjectReference, PodEvent)>(QUEUE);
        tokio::spawn(async move {
            let mut seen: HashMap<String, (String, i32)> = HashMap::new();
            while let Some(Some((about, event))) = stop.run_until_cancelled(events.recv()).await {
                if seen.len() > REMEMBERED {
                    seen.clear();
                }
                if let Err(error) = write(&client, &host, clock.now(), &about, &event, &mut seen).await {
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
        let (sequence, reason) = (0, reason.to_owned());
        self.send(self.node.clone(), PodEvent { sequence, kind, reason, message, field_path: None });
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
    seen: &mut HashMap<String, (String, i32)>,
) -> Result<(), kube::Error> {
    let namespace = about.namespace.as_deref().unwrap_or("default");
    let (name, uid) = (about.name.as_deref().unwrap_or_default(), about.uid.as_deref().unwrap_or_default());
    let api: Api<Event> = Api::namespaced(client.clone(), namespace);
    let key = format!("{uid} {} {} {}", event.reason, event.message, event.field_path.as_deref().unwrap_or(""));
    if let Some((known, count)) = seen.get_mut(&key) {
        *count += 1;
        let patch = json!({"count": count, "lastTimestamp": Time(now)});
        if within_deadline(api.patch(known, &PatchParams::default(), &Patch::Merge(patch))).await.is_ok() {
            return Ok(());
        }
    }
    let event_name = format!("{name}.{:x}{:04x}", now.as_nanosecond(), event.sequence % 0x1_0000);
    let object = Event {
        metadata: ObjectMeta {
            name: Some(event_name.clone()),
            namespace: Some(namespace.to_owned()),
            ..ObjectMeta::default()
        },
        involved_object: about.clone(),
        type_: Some(event.kind.as_str().to_owned()),
        reason: Some(event.reason.clone()),
        message: Some(event.message.chars().take(1024).collect()),
        source: Some(EventSource { component: Some("kubelet".to_owned()), host: Some(host.to_owned()) }),
        reporting_component: Some("kubelet".to_owned()),
        reporting_instance: Some(host.to_owned()),
        first_timestamp: Some(Time(now)),
        last_timestamp: Some(Time(now)),
        count: Some(1),
        ..Event::default()
    };
    within_deadline(api.create(&PostParams::default(), &object)).await?;
    seen.insert(key, (event_name, 1));
    Ok(())
}
