//! The `PodTopologyLabels` admission (KEP-4742): a Pod has the zone and the region of its node, for the downward API.

use crate::service::ApiServer;
use api::feature_gates::Gate;
use serde_json::{Map, Value};
use store::Key;

const LABELS: [&str; 2] = ["topology.kubernetes.io/zone", "topology.kubernetes.io/region"];

/// A Pod that names its node when it comes.
pub(super) fn admit_pod(server: &ApiServer, pod: &mut Value) {
    let node = pod["spec"]["nodeName"].as_str().unwrap_or("").to_owned();
    put(pod, of_node(server, &node));
}

/// A Binding, whose labels become the Pod's.
pub(crate) fn admit_binding(server: &ApiServer, binding: &mut Value) {
    if binding["target"]["kind"] == "Node" {
        let node = binding["target"]["name"].as_str().unwrap_or("").to_owned();
        put(binding, of_node(server, &node));
    }
}

/// What the node says of where it is; a node that is not there says nothing.
fn of_node(server: &ApiServer, name: &str) -> Map<String, Value> {
    if name.is_empty() || !server.gates.enabled(Gate::PodTopologyLabelsAdmission) {
        return Map::new();
    }
    let stored = server.store.get(&Key::new("nodes", "", name));
    let node: Value = stored.and_then(|node| serde_json::from_slice(&node.data).ok()).unwrap_or_default();
    let labels = node["metadata"]["labels"].as_object().into_iter().flatten();
    labels.filter(|(key, _)| LABELS.contains(&key.as_str())).map(|(k, v)| (k.clone(), v.clone())).collect()
}

/// The node's labels take the place of those that are there.
fn put(object: &mut Value, labels: Map<String, Value>) {
    for (key, value) in labels {
        object["metadata"]["labels"][key] = value;
    }
}
