//! What the Pods that are placed mean to one that is to be placed: pure.

use crate::cluster::Cluster;
use crate::company::Company;
use crate::crowd::Traits;
use crate::fit::Refusal;
use k8s_openapi::api::core::v1::{Node, Pod};

/// Worked out once for all nodes.
pub(crate) struct Neighbours<'a> {
    me: Traits,
    company: Company<'a>,
}

/// Whether Pods that come or change, nodes that go or namespaces can let the Pod go.
pub(crate) fn cares(pod: &Pod) -> bool {
    let affinity = pod.spec.as_ref().and_then(|spec| spec.affinity.as_ref());
    let near = affinity.and_then(|a| a.pod_affinity.as_ref());
    let near = near.and_then(|a| a.required_during_scheduling_ignored_during_execution.as_ref());
    let far = affinity.and_then(|a| a.pod_anti_affinity.as_ref());
    let far = far.and_then(|a| a.required_during_scheduling_ignored_during_execution.as_ref());
    [near, far].iter().flatten().any(|terms| !terms.is_empty())
}

impl<'a> Neighbours<'a> {
    pub(crate) fn of(pod: &Pod, cluster: &'a Cluster) -> Self {
        let me = Traits::of(pod);
        Self { company: Company::of(&me, cluster), me }
    }

    /// Why the Pod may not go to this node.
    pub(crate) fn refuse(&self, node: &Node) -> Option<Refusal> {
        self.company.refuses(&self.me, node)
    }

    /// How much the Pod and those near the node like each other.
    pub(crate) fn liking(&self, node: &Node) -> i64 {
        self.company.liking(node)
    }
}
