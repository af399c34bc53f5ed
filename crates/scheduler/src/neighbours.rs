//! What the Pods that are placed mean to one that is to be placed: pure.

use crate::ask::Refusal;
use crate::cluster::Cluster;
use crate::company::Company;
use crate::crowd::{Places, Traits};
use crate::spread::{Spread, is_required};
use k8s_openapi::api::core::v1::{Node, Pod, PodSpec};
use std::cmp::Reverse;

/// Worked out once for all nodes.
pub(crate) struct Neighbours<'a> {
    me: Traits,
    spread: Spread<'a>,
    company: Company<'a>,
}

/// Whether Pods that come or change, nodes that go or namespaces can let the Pod go.
pub(crate) fn cares(pod: &Pod) -> bool {
    let affinity = pod.spec.as_ref().and_then(|spec| spec.affinity.as_ref());
    let near = affinity.and_then(|a| a.pod_affinity.as_ref());
    let near = near.and_then(|a| a.required_during_scheduling_ignored_during_execution.as_ref());
    let far = affinity.and_then(|a| a.pod_anti_affinity.as_ref());
    let far = far.and_then(|a| a.required_during_scheduling_ignored_during_execution.as_ref());
    let spread = pod.spec.iter().flat_map(|spec| spec.topology_spread_constraints.iter().flatten());
    [near, far].iter().flatten().any(|terms| !terms.is_empty()) || spread.into_iter().any(is_required)
}

impl<'a> Neighbours<'a> {
    pub(crate) fn of(pod: &Pod, spec: &'a PodSpec, cluster: &'a Cluster) -> Self {
        let me = Traits::of(pod);
        Self { spread: Spread::of(spec, &me, cluster), company: Company::of(&me, cluster), me }
    }

    /// Lets a Pod count on a node as it does not, or no more: 1 or -1.
    pub(crate) fn shift(&mut self, other: &Traits, node: &str, by: i64) {
        let places = Places::from([(node.into(), by)]);
        self.spread.count(&self.me, other, &places);
        self.company.count(&self.me, other, &places);
    }

    /// Why the Pod may not go to this node.
    pub(crate) fn refuse(&self, node: &Node) -> Option<Refusal> {
        self.spread.refuses(node).or_else(|| self.company.refuses(&self.me, node))
    }

    /// How good the node is for their sake.
    pub(crate) fn rank(&self, node: &Node) -> (i64, Reverse<i64>) {
        (self.company.liking(node), Reverse(self.spread.crowding(node)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_cluster::{cluster, pod, read, selector};
    use serde_json::{Value, json};

    /// Whether node `a1` refuses the Pod while the other is on it, and after each of the shifts: it goes and comes back,
    /// and one more is on `b1`.
    #[track_caller]
    fn check(other: Value, come: Value, expected: [bool; 4]) {
        let cluster = cluster(&["a1", "b1"], &[("a1", other.clone())]);
        let (other, come): (Pod, Pod) = (read(other), read(come));
        let spec = come.spec.as_ref().expect("a spec");
        let mut neighbours = Neighbours::of(&come, spec, &cluster);
        let node = cluster.node("a1").expect("a node");
        let refused = [("a1", 0), ("a1", -1), ("a1", 1), ("b1", 1)].map(|(at, by)| {
            neighbours.shift(&Traits::of(&other), at, by);
            neighbours.refuse(node).is_some()
        });
        assert_eq!(refused, expected);
    }

    #[test]
    fn what_would_be_without_some_can_be_asked() {
        let affinity = |kind: &str, app: &str| {
            let term = json!({ "topologyKey": "zone", "labelSelector": selector(app) });
            json!({ "affinity": { kind: { "requiredDuringSchedulingIgnoredDuringExecution": [term] } } })
        };
        let spread = json!({ "topologySpreadConstraints": [{ "maxSkew": 1, "topologyKey": "zone",
            "whenUnsatisfiable": "DoNotSchedule", "labelSelector": selector("web") }] });
        let web = || pod("web", json!({}));
        check(web(), pod("me", affinity("podAffinity", "web")), [false, true, false, false]);
        check(web(), pod("me", affinity("podAntiAffinity", "web")), [true, false, true, true]);
        check(pod("db", affinity("podAntiAffinity", "web")), web(), [true, false, true, true]);
        check(web(), pod("web", spread), [true, false, true, false]);
        // The first of its group may go anywhere, also when the last one has gone.
        check(web(), pod("web", affinity("podAffinity", "web")), [false, false, false, false]);
    }
}
