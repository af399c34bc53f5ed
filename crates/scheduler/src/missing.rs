//! What a Pod needs and nobody provides yet: devices by claim. No node is looked at then: pure.

use crate::message;
use k8s_openapi::api::core::v1::{Pod, PodSpec};

/// Why the Pod waits, in a cluster of so many nodes.
pub(crate) fn wait_for(pod: &Pod, nodes: usize) -> Option<String> {
    let claim = pod.spec.as_ref()?.resource_claims.iter().flatten().next()?;
    Some(message::nowhere(nodes, &api::pod::missing_claim(claim)))
}

pub(crate) fn never_preempts(spec: &PodSpec) -> bool {
    spec.preemption_policy.as_deref() == Some("Never")
}
