//! Events about the node that Podium itself creates.

use k8s_openapi::api::core::v1::Event;
use kube::{Api, Client, api::PostParams};
use serde_json::json;

/// Creates an Event on the node; that it cannot be is logged.
pub(crate) async fn create(client: &Client, event: &Event) {
    let events = Api::<Event>::namespaced(client.clone(), "default");
    if let Err(error) = events.create(&PostParams::default(), event).await {
        let reason = event.reason.as_deref().unwrap_or_default();
        tracing::warn!(%error, reason, "failed to create an Event on the node");
    }
}

/// An Event of type Normal or Warning on a node, of now.
pub(crate) fn event(node: &str, kind: &str, reason: &str, message: &str) -> Event {
    let now = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let event = json!({
        "metadata": {"generateName": format!("{node}.")},
        // As the kubelet refers to its node.
        "involvedObject": {"apiVersion": "v1", "kind": "Node", "name": node, "uid": node},
        "type": kind, "reason": reason, "message": message, "count": 1,
        "source": {"component": "podium", "host": node}, "firstTimestamp": now, "lastTimestamp": now,
    });
    serde_json::from_value(event).unwrap_or_default()
}
