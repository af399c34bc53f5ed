//! Warning Events of the node.

use k8s_openapi::{
    api::core::v1::{Event, EventSource, ObjectReference},
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time},
    jiff::Timestamp,
};
use kube::{Api, Client, api::PostParams};
use std::time::Duration;

const COMPONENT: &str = "network-policy-controller";
/// Number of attempts, and the pause between them.
const TRIES: u32 = 5;
const RETRY: Duration = Duration::from_secs(2);

/// Records a Warning Event of a node. Failures are logged and ignored.
pub(crate) async fn warn(client: &Client, node: &str, reason: &str, message: &str) {
    let events: Api<Event> = Api::namespaced(client.clone(), "default");
    let event = event(node, reason, message, Timestamp::now());
    for _ in 0..TRIES {
        match events.create(&PostParams::default(), &event).await {
            Ok(_) => return,
            Err(error) => tracing::debug!(%error, reason, "failed to record an Event"),
        }
        tokio::time::sleep(RETRY).await;
    }
}

fn event(node: &str, reason: &str, message: &str, now: Timestamp) -> Event {
    // Upstream's kubelet has the node's name as its UID, and `kubectl describe` looks for both.
    let involved_object = ObjectReference {
        kind: Some("Node".to_owned()),
        name: Some(node.to_owned()),
        uid: Some(node.to_owned()),
        ..ObjectReference::default()
    };
    Event {
        metadata: ObjectMeta {
            name: Some(format!("{node}.{:x}", now.as_nanosecond())),
            namespace: Some("default".to_owned()),
            ..ObjectMeta::default()
        },
        involved_object,
        type_: Some("Warning".to_owned()),
        reason: Some(reason.to_owned()),
        message: Some(message.to_owned()),
        source: Some(EventSource { component: Some(COMPONENT.to_owned()), host: Some(node.to_owned()) }),
        reporting_component: Some(COMPONENT.to_owned()),
        reporting_instance: Some(node.to_owned()),
        first_timestamp: Some(Time(now)),
        last_timestamp: Some(Time(now)),
        count: Some(1),
        ..Event::default()
    }
}
