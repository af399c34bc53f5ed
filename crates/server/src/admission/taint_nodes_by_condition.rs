//! The `TaintNodesByCondition` admission plugin: a new Node has the not-ready taint until it reports that it is ready.

use super::plugin::{AdmittedWrite, Plugin};
use errors::ApiError;
use serde_json::{Value, json};

const NOT_READY: &str = "node.kubernetes.io/not-ready";

/// Taints new Nodes.
pub(super) struct TaintNodesByCondition;

impl Plugin for TaintNodesByCondition {
    fn name(&self) -> &'static str {
        "TaintNodesByCondition"
    }

    fn admit(&self, write: &AdmittedWrite<'_>, object: &mut Value) -> Result<(), ApiError> {
        if write.creates("", "Node") {
            admit(object);
        }
        Ok(())
    }
}

pub(super) fn admit(node: &mut Value) {
    let taint = json!({"key": NOT_READY, "effect": "NoSchedule"});
    let taints = &mut node["spec"]["taints"];
    match taints.as_array_mut() {
        Some(all) if all.iter().any(|t| t["key"] == NOT_READY && t["effect"] == "NoSchedule") => {}
        Some(all) => all.push(taint),
        None => *taints = json!([taint]),
    }
}
