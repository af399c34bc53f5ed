//! What the Pods that are placed mean to one that is to be placed: pure.

use crate::cluster::Cluster;
use crate::company::Company;
use crate::crowd::Traits;
use crate::fit::Refusal;
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

    /// Why the Pod may not go to this node.
    pub(crate) fn refuse(&self, node: &Node) -> Option<Refusal> {
        self.spread.refuses(node).or_else(|| self.company.refuses(&self.me, node))
    }

    /// How good the node is for their sake.
    pub(crate) fn rank(&self, node: &Node) -> (i64, Reverse<i64>) {
        (self.company.liking(node), Reverse(self.spread.crowding(node)))
    }
}
