//! Events about the Node that Podium itself creates.

use k8s_openapi::api::core::v1::Event;
use kube::{Api, Client, api::PostParams};
use serde_json::json;

/// Creates an Event about the Node; a failure is logged.
pub(crate) async fn create(client: &Client, event: &Event) {
    let events = Api::<Event>::namespaced(client.clone(), "default");
    if let Err(error) = events.create(&PostParams::default(), event).await {
        let reason = event.reason.as_deref().unwrap_or_default();
        tracing::warn!(%error, reason, "failed to create an Event about the Node");
    }
}

/// Returns an Event of type Normal or Warning about a Node, with the current time.
pub(crate) fn event(node: &str, kind: &str, reason: &str, message: &str) -> Event {
    let now = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let event = json!({
        "metadata": {"generateName": format!("{node}.")},
        // The kubelet, too, uses the node name as the UID.
        "involvedObject": {"apiVersion": "v1", "kind": "Node", "name": node, "uid": node},
        "type": kind, "reason": reason, "message": message, "count": 1,
        "source": {"component": "podium", "host": node}, "firstTimestamp": now, "lastTimestamp": now,
    });
    serde_json::from_value(event).unwrap_or_default()
}
