//! Scheduling of one Pod (`schedulePod` in `pkg/scheduler/schedule_one.go`). Does no I/O.

use crate::{
    cache::Cache,
    dynamic_resources,
    filter_and_score::{CycleState, NodeScore},
    fit_error,
    pod_constraints::PodConstraints,
    preemption::{Preemption, PreemptionFailure, preempt},
    volume_binding::PodVolumes,
};
use k8s_openapi::api::core::v1::{Pod, PodSpec};

/// Result of a scheduling cycle.
#[derive(Debug, Clone, PartialEq)]
pub enum Decision {
    /// Bind the Pod to this node.
    Bind(String),
    /// Write these volume bindings and provisioning requests first; the Pod is bound once its volumes are.
    BindVolumes(Box<PodVolumes>),
    /// No node fits; the message is upstream's. The Pod's nomination is cleared.
    Unschedulable(String),
    /// No node fits; the Pod keeps its nomination.
    UnschedulableKeepingNomination(String),
    /// The Pod fits once these victims have terminated.
    Preempt(Box<Preemption>),
}

/// Selects a node for the Pod.
#[must_use]
pub fn schedule_pod(pod: &Pod, cache: &Cache) -> Decision {
    if cache.node_count() == 0 {
        return Decision::Unschedulable(fit_error::NO_NODES.into());
    }
    if let Some(message) = dynamic_resources::unsupported_claim_message(pod, cache.node_count()) {
        return Decision::Unschedulable(message);
    }
    let none = PodSpec::default();
    let spec = pod.spec.as_ref().unwrap_or(&none);
    let claims = match cache.storage.pod_claims(pod) {
        Ok(claims) => claims,
        Err(error) => return claims_unschedulable(spec, cache.node_count(), &error.to_string()),
    };
    let claim_in_use = claims.read_write_once_pod().any(|claim| cache.uses_claim(&claim));
    let mut cycle_state = CycleState::of(spec, claims, claim_in_use, PodConstraints::of(pod, spec, cache));
    let mut statuses = Vec::new();
    let uid = pod.metadata.uid.as_deref().unwrap_or_default();
    let (nominated_pods, nominated) =
        (cache.nominated_pods_by_node(uid, api::pod::priority(pod)), cache.nominated_node(uid));
    let mut best: Option<((bool, NodeScore), &str, PodVolumes)> = None;
    for (name, node_info, used) in cache.nodes() {
        let nominated_pods = nominated_pods.get(name).map(Vec::as_slice).unwrap_or_default();
        match cycle_state.run_filters_with_nominated_pods(nominated_pods, name, node_info, used) {
            Err(status) => statuses.push(status),
            Ok(pod_volumes) => {
                // Victims were deleted on the nominated node: it precedes all others.
                let score = (nominated == Some(name), cycle_state.score(node_info, used));
                // Nodes are sorted by name: the first one of equal score wins.
                if best.as_ref().is_none_or(|(other, ..)| score > *other) {
                    best = Some((score, name, pod_volumes));
                }
            }
        }
    }
    match best {
        Some((_, name, pod_volumes)) if pod_volumes.is_ready() => Decision::Bind(name.to_owned()),
        Some((.., pod_volumes)) => Decision::BindVolumes(Box::new(pod_volumes)),
        None => match preempt(pod, cycle_state, cache, &statuses) {
            Ok(preemption) => Decision::Preempt(Box::new(preemption)),
            Err(PreemptionFailure { message, keeps_nomination: true }) => {
                Decision::UnschedulableKeepingNomination(message)
            }
            Err(PreemptionFailure { message, keeps_nomination: false }) => Decision::Unschedulable(message),
        },
    }
}

/// Returns the decision for a Pod whose claims no node can satisfy, even after preemption.
fn claims_unschedulable(spec: &PodSpec, nodes: usize, message: &str) -> Decision {
    let message = fit_error::no_node_available_with_preemption(nodes, message, dynamic_resources::never_preempts(spec));
    if dynamic_resources::never_preempts(spec) {
        Decision::UnschedulableKeepingNomination(message)
    } else {
        Decision::Unschedulable(message)
    }
}

#[cfg(test)]
mod tests;
