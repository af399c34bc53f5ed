//! Topology spread constraints (plugin `PodTopologySpread`). Does no I/O.

use crate::{
    affinity_term::{label_key_requirements, selector_with_requirements},
    cache::{Cache, NodeInfo},
    filter_and_score::FilterStatus,
    fit_error,
    pod_index::{PodInfo, PodsPerNode},
};
use api::{affinity::matches_node, selector::LabelRequirements, taint};
use k8s_openapi::api::core::v1::{Node, PodSpec, TopologySpreadConstraint};
use std::collections::HashMap;

/// State of the plugin: the Pod's constraints with their counts, computed once for all nodes.
pub(crate) struct PodTopologySpread<'a> {
    /// Constraints with `whenUnsatisfiable: DoNotSchedule`.
    required: Vec<ConstraintState<'a>>,
    /// Constraints with `whenUnsatisfiable: ScheduleAnyway`.
    preferred: Vec<ConstraintState<'a>>,
}

struct ConstraintState<'a> {
    constraint: &'a TopologySpreadConstraint,
    selector: Option<LabelRequirements>,
    /// Eligible nodes by name, each with its topology domain.
    nodes: HashMap<&'a str, &'a str>,
    /// Number of matching Pods by topology domain.
    domains: HashMap<&'a str, i64>,
    /// Smallest number of matching Pods of a domain (global minimum).
    global_minimum: i64,
    /// 1 if the Pod matches the constraint's selector, else 0 (`selfMatchNum`).
    self_match: i64,
}

pub(crate) fn is_required(constraint: &TopologySpreadConstraint) -> bool {
    constraint.when_unsatisfiable == "DoNotSchedule"
}

impl<'a> PodTopologySpread<'a> {
    pub(crate) fn of(spec: &'a PodSpec, pod: &PodInfo, cache: &'a Cache) -> Self {
        let all = spec.topology_spread_constraints.iter().flatten();
        let (required, preferred): (Vec<_>, Vec<_>) = all.partition(|constraint| is_required(constraint));
        let constraint_states = |all: &[&'a TopologySpreadConstraint]| {
            all.iter().map(|constraint| ConstraintState::of(constraint, all, spec, pod, cache)).collect()
        };
        Self { required: constraint_states(&required), preferred: constraint_states(&preferred) }
    }

    /// Adds Pods to the counts of their nodes' domains; negative numbers remove them.
    pub(crate) fn count(&mut self, pod: &PodInfo, other: &PodInfo, pods_per_node: &PodsPerNode) {
        for constraint_state in self.required.iter_mut().chain(&mut self.preferred) {
            constraint_state.count(pod, other, pods_per_node);
            constraint_state.update_global_minimum();
        }
    }

    /// Filter: returns why the node is rejected.
    pub(crate) fn filter(&self, node: &Node) -> Option<FilterStatus> {
        self.required.iter().find_map(|constraint_state| {
            let Some(pod_count) = constraint_state.pod_count(node) else {
                return Some(FilterStatus {
                    reasons: vec![fit_error::TOPOLOGY_SPREAD_MISSING_LABEL.into()],
                    resolvable: false,
                });
            };
            let within_max_skew = pod_count + constraint_state.self_match - constraint_state.global_minimum
                <= i64::from(constraint_state.constraint.max_skew);
            (!within_max_skew)
                .then(|| FilterStatus { reasons: vec![fit_error::TOPOLOGY_SPREAD.into()], resolvable: true })
        })
    }

    /// Score: returns the number of matching Pods in the node's domains, fewer is better. A node without a topology
    /// key gets the maximum.
    pub(crate) fn score(&self, node: &Node) -> i64 {
        self.preferred
            .iter()
            .map(|constraint_state| constraint_state.pod_count(node))
            .sum::<Option<i64>>()
            .unwrap_or(i64::MAX)
    }
}

impl<'a> ConstraintState<'a> {
    fn of(
        constraint: &'a TopologySpreadConstraint,
        all: &[&TopologySpreadConstraint],
        spec: &PodSpec,
        pod: &PodInfo,
        cache: &'a Cache,
    ) -> Self {
        let nodes = cache.nodes().filter(|(_, node_info, _)| {
            let has_all = all.iter().all(|other| domain(&node_info.node, other).is_some());
            has_all && is_node_counted(constraint, spec, node_info)
        });
        let nodes: HashMap<&str, &str> =
            nodes.filter_map(|(name, node_info, _)| Some((name, domain(&node_info.node, constraint)?))).collect();
        let domains = nodes.values().map(|domain| (*domain, 0)).collect();
        let keys = constraint.match_label_keys.as_deref().unwrap_or_default();
        let selector =
            selector_with_requirements(constraint.label_selector.as_ref(), label_key_requirements(pod, keys, "In"));
        let mut constraint_state = Self { constraint, selector, nodes, domains, global_minimum: 0, self_match: 0 };
        constraint_state.self_match = i64::from(constraint_state.selects(pod));
        for (other, pods_per_node) in cache.pod_index.groups() {
            constraint_state.count(pod, other, pods_per_node);
        }
        constraint_state.update_global_minimum();
        constraint_state
    }

    fn selects(&self, other: &PodInfo) -> bool {
        self.selector.as_ref().is_some_and(|selector| other.is_selected_by(selector))
    }

    /// Adds Pods to the counts of their nodes' domains; negative numbers remove them.
    fn count(&mut self, pod: &PodInfo, other: &PodInfo, pods_per_node: &PodsPerNode) {
        if other.is_terminating || other.namespace != pod.namespace || !self.selects(other) {
            return;
        }
        for (node, pod_count) in pods_per_node {
            if let Some(count) = self.nodes.get(&**node).and_then(|domain| self.domains.get_mut(domain)) {
                *count += pod_count;
            }
        }
    }

    fn update_global_minimum(&mut self) {
        let min_domains = usize::try_from(self.constraint.min_domains.unwrap_or(1)).unwrap_or(1);
        let global_minimum = self.domains.values().min().filter(|_| self.domains.len() >= min_domains);
        self.global_minimum = global_minimum.copied().unwrap_or(0);
    }

    /// Returns the number of matching Pods in the node's domain; 0 for a domain without eligible nodes.
    fn pod_count(&self, node: &Node) -> Option<i64> {
        domain(node, self.constraint).map(|domain| self.domains.get(domain).copied().unwrap_or(0))
    }
}

fn domain<'n>(node: &'n Node, constraint: &TopologySpreadConstraint) -> Option<&'n str> {
    node.metadata.labels.as_ref()?.get(&constraint.topology_key).map(String::as_str)
}

/// Returns whether the node is eligible (`nodeAffinityPolicy`, `nodeTaintsPolicy`).
fn is_node_counted(constraint: &TopologySpreadConstraint, spec: &PodSpec, node_info: &NodeInfo) -> bool {
    if constraint.node_affinity_policy.as_deref() != Some("Ignore") && !matches_node(spec, &node_info.node) {
        return false;
    }
    let taints = node_info.node.spec.as_ref().and_then(|s| s.taints.as_deref()).unwrap_or_default();
    let tolerations = spec.tolerations.as_deref().unwrap_or_default();
    constraint.node_taints_policy.as_deref() != Some("Honor")
        || taint::find_untolerated_taint(taints, tolerations, &["NoSchedule", "NoExecute"]).is_none()
}

#[cfg(test)]
mod tests;
