//! The `PodTopologyLabels` admission plugin (KEP-4742): copies the zone and region labels of the Node to its Pods, for the
//! downward API.

use super::plugin::{AdmittedWrite, Plugin};
use crate::admission::admission_control::AdmissionControl;
use api::feature_gates::Gate;
use auth::stored_object;
use errors::ApiError;
use serde_json::{Map, Value};

const LABELS: [&str; 2] = ["topology.kubernetes.io/zone", "topology.kubernetes.io/region"];

/// Copies labels of the Node to new Pods that have a node.
pub(super) struct PodTopologyLabels;

impl Plugin for PodTopologyLabels {
    fn name(&self) -> &'static str {
        "PodTopologyLabels"
    }

    fn admit(&self, write: &AdmittedWrite<'_>, object: &mut Value) -> Result<(), ApiError> {
        if write.creates("", "Pod") {
            admit_pod(write.control, object);
        }
        Ok(())
    }
}

/// Sets the topology labels of a new Pod with a node name.
pub(super) fn admit_pod(control: &AdmissionControl, pod: &mut Value) {
    let node = pod["spec"]["nodeName"].as_str().unwrap_or("").to_owned();
    set_labels(pod, node_topology_labels(control, &node));
}

/// Sets the topology labels of a Binding, which are copied to the Pod.
pub(crate) fn admit_binding(control: &AdmissionControl, binding: &mut Value) {
    if binding["target"]["kind"] == "Node" {
        let node = binding["target"]["name"].as_str().unwrap_or("").to_owned();
        set_labels(binding, node_topology_labels(control, &node));
    }
}

/// Returns the topology labels of a Node; none for a missing one.
fn node_topology_labels(control: &AdmissionControl, name: &str) -> Map<String, Value> {
    if name.is_empty() || !control.gates.enabled(Gate::PodTopologyLabelsAdmission) {
        return Map::new();
    }
    let node = stored_object::get(&control.store, "nodes", "", name).unwrap_or_default();
    let labels = node["metadata"]["labels"].as_object().into_iter().flatten();
    labels.filter(|(key, _)| LABELS.contains(&key.as_str())).map(|(k, v)| (k.clone(), v.clone())).collect()
}

/// Sets labels, and replaces existing ones.
fn set_labels(object: &mut Value, labels: Map<String, Value>) {
    for (key, value) in labels {
        object["metadata"]["labels"][key] = value;
    }
}
