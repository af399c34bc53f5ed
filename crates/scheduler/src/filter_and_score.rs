//! Filter and Score steps of a scheduling cycle. Does no I/O.
//!
//! The filters and their messages are those of upstream's default plugins, in their order; the first one that rejects
//! a node gives the reason.

use crate::{
    cache::{AssignedPod, NodeInfo, NodeUsage},
    fit_error,
    pod_constraints::PodConstraints,
    volume_binding::{PodClaims, PodVolumes},
};
use api::{
    affinity::{matches_node, matches_term},
    host_port::{HostPort, host_ports},
    quantity::Amount,
    resources::{self, Amounts, ResourceField},
    taint,
};
use k8s_openapi::api::core::v1::{PodSpec, Taint, Toleration};
use std::collections::BTreeSet;

/// Result of a filter that rejects a node (upstream's `Status`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FilterStatus {
    /// Reasons, e.g. one for each insufficient resource.
    pub(crate) reasons: Vec<String>,
    /// Whether preemption on the node could help; false is upstream's `UnschedulableAndUnresolvable`.
    pub(crate) resolvable: bool,
}

/// State of a scheduling cycle, computed once for all nodes (upstream's `CycleState` after PreFilter and PreScore).
pub(crate) struct CycleState<'a> {
    spec: &'a PodSpec,
    requests: Amounts,
    ports: Vec<HostPort>,
    tolerations: &'a [Toleration],
    /// Nodes that the required node affinity names, when each of its terms does (`PreFilterResult.NodeNames`).
    node_names: Option<BTreeSet<&'a str>>,
    claims: PodClaims<'a>,
    /// Whether another Pod uses a `ReadWriteOncePod` claim of this Pod.
    pub(crate) claim_in_use: bool,
    pub(crate) constraints: PodConstraints<'a>,
}

/// Score of a node; earlier fields precede later ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct NodeScore {
    /// Number of untolerated `PreferNoSchedule` taints; fewer is better.
    untolerated_taints: std::cmp::Reverse<usize>,
    /// Sum of the weights of the matching preferred node affinity terms.
    node_affinity: i64,
    /// Sum of the weights of the matching inter-Pod affinity terms.
    pod_affinity: i64,
    /// Number of matching Pods in the node's topology domains; fewer is better.
    topology_spread: std::cmp::Reverse<i64>,
    /// Free CPU and memory, in thousandths of the allocatable amounts.
    least_allocated: i64,
}

impl<'a> CycleState<'a> {
    pub(crate) fn of(
        spec: &'a PodSpec,
        claims: PodClaims<'a>,
        claim_in_use: bool,
        constraints: PodConstraints<'a>,
    ) -> Self {
        let mut requests = resources::pod_resources(spec, ResourceField::Requests);
        requests.retain(|_, amount| *amount > Amount::ZERO);
        Self {
            requests,
            ports: host_ports(spec),
            tolerations: spec.tolerations.as_deref().unwrap_or_default(),
            node_names: named_nodes(spec),
            claims,
            claim_in_use,
            constraints,
            spec,
        }
    }

    /// Runs [`Self::run_filters`] with the Pods that are nominated to the node, and without them
    /// (`RunFilterPluginsWithNominatedPods`).
    pub(crate) fn run_filters_with_nominated_pods(
        &mut self,
        nominated_pods: &[&AssignedPod],
        name: &str,
        node_info: &NodeInfo,
        used: Option<&NodeUsage>,
    ) -> Result<PodVolumes, FilterStatus> {
        if !nominated_pods.is_empty() {
            let mut with = used.cloned().unwrap_or_default();
            nominated_pods.iter().for_each(|assigned| with.add(assigned));
            let claim_in_use = self.claim_in_use;
            self.claim_in_use |= nominated_pods.iter().any(|assigned| self.shares_exclusive_claim(assigned));
            self.adjust(nominated_pods, name, 1);
            let with_nominated = self.run_filters(name, node_info, Some(&with));
            self.adjust(nominated_pods, name, -1);
            self.claim_in_use = claim_in_use;
            with_nominated?;
        }
        self.run_filters(name, node_info, used)
    }

    /// Returns whether the other Pod uses a `ReadWriteOncePod` claim of this Pod.
    pub(crate) fn shares_exclusive_claim(&self, other: &AssignedPod) -> bool {
        self.claims.read_write_once_pod().any(|claim| other.claims.contains(&claim))
    }

    /// Adds the Pods to the node's counts, or removes them: `by` is 1 or -1.
    fn adjust(&mut self, pods: &[&AssignedPod], node: &str, by: i64) {
        pods.iter().for_each(|assigned| self.constraints.adjust(&assigned.info, node, by));
    }

    /// Runs all filters (`RunFilterPlugins`). Returns the volumes to bind before the Pod can run on this node, or why
    /// the node is rejected.
    pub(crate) fn run_filters(
        &self,
        name: &str,
        node_info: &NodeInfo,
        used: Option<&NodeUsage>,
    ) -> Result<PodVolumes, FilterStatus> {
        if let Some(reason) = self.filter_static(name, node_info) {
            return Err(FilterStatus { reasons: vec![reason.to_owned()], resolvable: false });
        }
        let held = used.map(|u| u.ports.as_slice()).unwrap_or_default();
        if self.ports.iter().any(|port| held.iter().any(|have| port.conflicts(have))) {
            return Err(FilterStatus { reasons: vec![fit_error::NODE_PORTS.into()], resolvable: true });
        }
        if let Some(status) = self.filter_node_resources(node_info, used) {
            return Err(status);
        }
        if self.claim_in_use {
            return Err(FilterStatus {
                reasons: vec![fit_error::READ_WRITE_ONCE_POD_CONFLICT.into()],
                resolvable: true,
            });
        }
        let pod_volumes = self.claims.find_pod_volumes(&node_info.node)?;
        self.constraints.filter(&node_info.node).map_or(Ok(pod_volumes), Err)
    }

    /// Runs the filters whose result preemption cannot change.
    fn filter_static(&self, name: &str, node_info: &NodeInfo) -> Option<&'static str> {
        if self.node_names.as_ref().is_some_and(|node_names| !node_names.contains(name)) {
            return Some(fit_error::NOT_IN_NODE_NAMES);
        }
        let spec = node_info.node.spec.as_ref();
        let unschedulable_taint =
            Taint { key: fit_error::UNSCHEDULABLE_TAINT.into(), effect: "NoSchedule".into(), ..Default::default() };
        let tolerated = || self.tolerations.iter().any(|t| taint::tolerates(t, &unschedulable_taint));
        if spec.and_then(|s| s.unschedulable).unwrap_or(false) && !tolerated() {
            return Some(fit_error::UNSCHEDULABLE_NODE);
        }
        let taints = spec.and_then(|s| s.taints.as_deref()).unwrap_or_default();
        if taint::find_untolerated_taint(taints, self.tolerations, &["NoSchedule", "NoExecute"]).is_some() {
            return Some(fit_error::UNTOLERATED_TAINT);
        }
        (!matches_node(self.spec, &node_info.node)).then_some(fit_error::NODE_AFFINITY)
    }

    fn filter_node_resources(&self, node_info: &NodeInfo, used: Option<&NodeUsage>) -> Option<FilterStatus> {
        let (mut reasons, mut resolvable) = (Vec::new(), true);
        let max_pods = node_info.allocatable.get("pods").map_or(0, |a| a.value());
        if used.map_or(0, |u| u.pods) + 1 > max_pods {
            reasons.push(fit_error::TOO_MANY_PODS.into());
        }
        for (resource, request) in &self.requests {
            let allocatable = node_info.allocatable.get(resource).copied().unwrap_or_default();
            let taken = used.and_then(|u| u.requests.get(resource)).copied().unwrap_or_default();
            if *request > allocatable.saturating_sub(taken) {
                reasons.push(fit_error::insufficient(resource));
                // Not even an empty node has enough.
                resolvable &= *request <= allocatable;
            }
        }
        (!reasons.is_empty()).then_some(FilterStatus { reasons, resolvable })
    }

    /// Scores a node that fits (`RunScorePlugins`).
    pub(crate) fn score(&self, node_info: &NodeInfo, used: Option<&NodeUsage>) -> NodeScore {
        let taints = node_info.node.spec.as_ref().and_then(|s| s.taints.as_deref()).unwrap_or_default();
        let untolerated = taints
            .iter()
            .filter(|t| t.effect == "PreferNoSchedule")
            .filter(|t| !self.tolerations.iter().any(|x| taint::tolerates(x, t)))
            .count();
        let affinity = self.spec.affinity.as_ref().and_then(|a| a.node_affinity.as_ref());
        let preferred = affinity.and_then(|a| a.preferred_during_scheduling_ignored_during_execution.as_ref());
        let preferred = preferred.into_iter().flatten();
        // Default requests for scoring (`GetNonzeroRequests`), so that Pods without requests do not all land on one
        // node.
        let least_allocated = [("cpu", Amount::milli_units(100)), ("memory", Amount::units(200 << 20))]
            .map(|(resource, default)| {
                let has = node_info.allocatable.get(resource).copied().unwrap_or_default().milli();
                let taken = used.and_then(|u| u.requests.get(resource)).copied().unwrap_or_default();
                let requested = self.requests.get(resource).copied().unwrap_or(default);
                let left = has.saturating_sub(taken.saturating_add(requested).milli()).max(0);
                i64::try_from(i128::from(left) * 1000 / i128::from(has.max(1))).unwrap_or(0)
            })
            .iter()
            .sum();
        let (pod_affinity, topology_spread) = self.constraints.score(&node_info.node);
        NodeScore {
            untolerated_taints: std::cmp::Reverse(untolerated),
            node_affinity: preferred
                .filter(|p| matches_term(&p.preference, &node_info.node))
                .map(|p| i64::from(p.weight))
                .sum(),
            pod_affinity,
            topology_spread,
            least_allocated,
        }
    }
}

/// Returns the nodes that the required affinity names, when each of its terms names some by `metadata.name`.
fn named_nodes(spec: &PodSpec) -> Option<BTreeSet<&str>> {
    let affinity = spec.affinity.as_ref()?.node_affinity.as_ref()?;
    let terms = &affinity.required_during_scheduling_ignored_during_execution.as_ref()?.node_selector_terms;
    if terms.is_empty() {
        return None;
    }
    let mut names = BTreeSet::new();
    for term in terms {
        let fields = term.match_fields.iter().flatten();
        let by_name = fields.filter(|f| f.key == "metadata.name" && f.operator == "In");
        let mut of_term: Option<BTreeSet<&str>> = None;
        for field in by_name {
            let values: BTreeSet<_> = field.values.iter().flatten().map(String::as_str).collect();
            of_term = Some(match of_term {
                None => values,
                Some(others) => others.intersection(&values).copied().collect(),
            });
        }
        names.extend(of_term?);
    }
    Some(names)
}
