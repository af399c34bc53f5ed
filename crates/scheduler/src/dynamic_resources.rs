//! Pods with `resourceClaims`, which are unschedulable: no dynamic resource allocation yet. Does no I/O.

use crate::fit_error;
use k8s_openapi::api::core::v1::{Pod, PodSpec};

/// Returns the message for a Pod with resource claims, in a cluster of `nodes` nodes.
pub(crate) fn unsupported_claim_message(pod: &Pod, nodes: usize) -> Option<String> {
    let claim = pod.spec.as_ref()?.resource_claims.iter().flatten().next()?;
    Some(fit_error::no_node_available(nodes, &api::pod::unsatisfied_resource_claim(claim)))
}

pub(crate) fn never_preempts(spec: &PodSpec) -> bool {
    spec.preemption_policy.as_deref() == Some("Never")
}
