//! Constraints that depend on assigned Pods: inter-Pod affinity and topology spread. Does no I/O.

use crate::{
    cache::Cache,
    filter_and_score::FilterStatus,
    inter_pod_affinity::InterPodAffinity,
    pod_index::{PodInfo, PodsPerNode},
    pod_topology_spread::{PodTopologySpread, is_required},
};
use k8s_openapi::api::core::v1::{Node, Pod, PodSpec};
use std::cmp::Reverse;

/// State of both plugins, computed once for all nodes.
pub(crate) struct PodConstraints<'a> {
    pod_info: PodInfo,
    topology_spread: PodTopologySpread<'a>,
    inter_pod_affinity: InterPodAffinity<'a>,
}

/// Returns whether events of other Pods, nodes or namespaces can make the Pod schedulable.
pub(crate) fn depends_on_other_pods(pod: &Pod) -> bool {
    let affinity = pod.spec.as_ref().and_then(|spec| spec.affinity.as_ref());
    let required_affinity = affinity.and_then(|a| a.pod_affinity.as_ref());
    let required_affinity =
        required_affinity.and_then(|a| a.required_during_scheduling_ignored_during_execution.as_ref());
    let required_anti_affinity = affinity.and_then(|a| a.pod_anti_affinity.as_ref());
    let required_anti_affinity =
        required_anti_affinity.and_then(|a| a.required_during_scheduling_ignored_during_execution.as_ref());
    let topology_spread = pod.spec.iter().flat_map(|spec| spec.topology_spread_constraints.iter().flatten());
    [required_affinity, required_anti_affinity].iter().flatten().any(|terms| !terms.is_empty())
        || topology_spread.into_iter().any(is_required)
}

impl<'a> PodConstraints<'a> {
    pub(crate) fn of(pod: &Pod, spec: &'a PodSpec, cache: &'a Cache) -> Self {
        let pod_info = PodInfo::of(pod);
        Self {
            topology_spread: PodTopologySpread::of(spec, &pod_info, cache),
            inter_pod_affinity: InterPodAffinity::of(&pod_info, cache),
            pod_info,
        }
    }

    /// Adds a Pod to a node's counts, or removes it: `by` is 1 or -1.
    pub(crate) fn adjust(&mut self, other: &PodInfo, node: &str, by: i64) {
        let pods_per_node = PodsPerNode::from([(node.into(), by)]);
        self.topology_spread.count(&self.pod_info, other, &pods_per_node);
        self.inter_pod_affinity.count(&self.pod_info, other, &pods_per_node);
    }

    /// Filter: returns why the node is rejected.
    pub(crate) fn filter(&self, node: &Node) -> Option<FilterStatus> {
        self.topology_spread.filter(node).or_else(|| self.inter_pod_affinity.filter(&self.pod_info, node))
    }

    /// Score: returns inter-Pod affinity and topology spread.
    pub(crate) fn score(&self, node: &Node) -> (i64, Reverse<i64>) {
        (self.inter_pod_affinity.score(node), Reverse(self.topology_spread.score(node)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_cache::{cache, pod, read, selector};
    use serde_json::{Value, json};

    /// Checks whether node `a1` rejects the Pod with the other one on it, and after each step: remove it, add it
    /// again, add one on `b1`.
    #[track_caller]
    fn check(other: Value, incoming: Value, expected: [bool; 4]) {
        let cache = cache(&["a1", "b1"], &[("a1", other.clone())]);
        let (other, incoming): (Pod, Pod) = (read(other), read(incoming));
        let spec = incoming.spec.as_ref().expect("a spec");
        let mut constraints = PodConstraints::of(&incoming, spec, &cache);
        let node = cache.node("a1").expect("a node");
        let refused = [("a1", 0), ("a1", -1), ("a1", 1), ("b1", 1)].map(|(at, by)| {
            constraints.adjust(&PodInfo::of(&other), at, by);
            constraints.filter(node).is_some()
        });
        assert_eq!(refused, expected);
    }

    #[test]
    fn adjusting_counts_simulates_pod_removal() {
        let affinity = |kind: &str, app: &str| {
            let term = json!({ "topologyKey": "zone", "labelSelector": selector(app) });
            json!({ "affinity": { kind: { "requiredDuringSchedulingIgnoredDuringExecution": [term] } } })
        };
        let topology_spread = json!({ "topologySpreadConstraints": [{ "maxSkew": 1, "topologyKey": "zone",
            "whenUnsatisfiable": "DoNotSchedule", "labelSelector": selector("web") }] });
        let web = || pod("web", json!({}));
        check(web(), pod("me", affinity("podAffinity", "web")), [false, true, false, false]);
        check(web(), pod("me", affinity("podAntiAffinity", "web")), [true, false, true, true]);
        check(pod("db", affinity("podAntiAffinity", "web")), web(), [true, false, true, true]);
        check(web(), pod("web", topology_spread), [true, false, true, false]);
        // The first Pod of its group may run anywhere, also after the last one was removed.
        check(web(), pod("web", affinity("podAffinity", "web")), [false, false, false, false]);
    }
}
