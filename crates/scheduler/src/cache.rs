//! Scheduler cache: nodes and assigned Pods, reduced to the fields that scheduling depends on.

use crate::{
    namespace_labels::NamespaceLabels,
    nominator::Nominator,
    pod_index::{PodIndex, PodInfo},
    volume_binding::{self, VolumeCache},
};
use api::{
    host_port::{HostPort, host_ports},
    quantity::Amount,
    resources::{self, Amounts, ResourceField},
};
use informer::{Cached, View, pod_summary::PodSummary};
use jiff::Timestamp;
use k8s_openapi::{
    api::{
        core::v1::{Node, NodeSpec, Pod, PodSpec},
        policy::v1::PodDisruptionBudget,
    },
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

/// `metadata.uid` of a Pod.
pub type Uid = String;

/// Scheduler cache: nodes, assigned and nominated Pods, volumes, namespaces and budgets.
#[derive(Debug, Default)]
pub struct Cache {
    pub(crate) storage: VolumeCache,
    pub(crate) namespaces: NamespaceLabels,
    pub(crate) pod_index: PodIndex,
    /// PodDisruptionBudgets by namespace and name.
    pub(crate) budgets: BTreeMap<String, Arc<PodDisruptionBudget>>,
    pub(crate) nominator: Nominator,
    nodes: BTreeMap<String, Arc<NodeInfo>>,
    /// Usage by node; also for nodes that are not in the cache yet, if their Pods were added first.
    used: HashMap<String, NodeUsage>,
    assigned: HashMap<Uid, AssignedPod>,
    /// Whether a Pod was assigned or changed, or a node removed, since the last `take_pods_changed`.
    pods_changed: bool,
    /// Number of assigned Pods by priority.
    priorities: BTreeMap<i32, usize>,
}

/// Fields of a node that scheduling depends on.
#[derive(Debug, Clone, PartialEq)]
pub struct NodeInfo {
    /// Name, labels, taints and `unschedulable`.
    pub node: Node,
    /// `status.allocatable`.
    pub allocatable: Amounts,
}

/// Resources in use by the Pods of a node.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct NodeUsage {
    /// Sum of their effective requests.
    pub requests: Amounts,
    /// Number of Pods.
    pub pods: i64,
    /// Host ports in use.
    pub ports: Vec<HostPort>,
}

/// Fields of an assigned Pod: its usage, and the data for victim selection.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct AssignedPod {
    pub(crate) node: String,
    pub(crate) name: Box<str>,
    pub(crate) priority: i32,
    /// Start time; `Timestamp::MAX` if it has not started.
    pub(crate) start: Timestamp,
    pub(crate) termination: Termination,
    requests: Amounts,
    ports: Vec<HostPort>,
    /// Keys of its PersistentVolumeClaims.
    pub(crate) claims: Vec<String>,
    pub(crate) info: Arc<PodInfo>,
    /// The Pod as the informer has it, `None` if it is assumed or nominated.
    observed: Option<Arc<PodSummary>>,
    /// Whether the Pod is assumed: its binding is in flight.
    assumed: bool,
}

/// Termination state of a Pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Termination {
    No,
    /// The Pod has a deletion timestamp.
    Deleted,
    /// The Pod is being deleted by preemption.
    Preempted,
    /// Preemption deletes the Pod; the API does not show it yet.
    PreemptionRequested,
}

impl AssignedPod {
    /// Returns the fields of a Pod that is, or will be, on this node.
    pub(crate) fn of(pod: &Pod, spec: &PodSpec, requests: Amounts, node: &str, info: Arc<PodInfo>) -> Self {
        let start = pod.status.as_ref().and_then(|status| status.start_time.as_ref());
        Self {
            node: node.to_owned(),
            name: pod.metadata.name.as_deref().unwrap_or_default().into(),
            priority: api::pod::priority(pod),
            start: start.map_or(Timestamp::MAX, |time| time.0),
            termination: Termination::of(pod),
            requests,
            ports: host_ports(spec),
            claims: volume_binding::claims(pod).collect(),
            info,
            observed: None,
            assumed: false,
        }
    }
}

impl NodeInfo {
    /// Returns the fields of a node that scheduling depends on.
    #[must_use]
    pub fn of(node: &Node) -> Self {
        let spec = node.spec.as_ref();
        let allocatable = node.status.as_ref().and_then(|s| s.allocatable.as_ref());
        Self {
            node: Node {
                metadata: ObjectMeta {
                    name: node.metadata.name.clone(),
                    labels: node.metadata.labels.clone(),
                    ..Default::default()
                },
                spec: Some(NodeSpec {
                    taints: spec.and_then(|s| s.taints.clone()),
                    unschedulable: spec.and_then(|s| s.unschedulable),
                    ..Default::default()
                }),
                status: None,
            },
            allocatable: resources::amounts(allocatable),
        }
    }
}

impl Cached for NodeInfo {
    fn namespace(&self) -> &'static str {
        ""
    }

    fn name(&self) -> &str {
        self.node.metadata.name.as_deref().unwrap_or_default()
    }
}

impl View for NodeInfo {
    type Kind = Node;

    fn of(node: Node) -> Self {
        Self::of(&node)
    }
}

impl NodeUsage {
    pub(crate) fn add(&mut self, assigned: &AssignedPod) {
        resources::add_resource_list(&mut self.requests, &assigned.requests);
        self.ports.extend(assigned.ports.iter().cloned());
        self.pods += 1;
    }

    pub(crate) fn subtract(&mut self, assigned: &AssignedPod) {
        for (name, amount) in &assigned.requests {
            if let Some(sum) = self.requests.get_mut(name) {
                *sum = sum.saturating_sub(*amount);
            }
        }
        self.requests.retain(|_, sum| *sum != Amount::ZERO);
        for port in &assigned.ports {
            if let Some(at) = self.ports.iter().position(|p| p == port) {
                self.ports.swap_remove(at);
            }
        }
        self.pods -= 1;
    }
}

impl Cache {
    /// Returns the nodes sorted by name, each with its usage.
    pub fn nodes(&self) -> impl Iterator<Item = (&str, &NodeInfo, Option<&NodeUsage>)> {
        self.nodes.iter().map(|(name, node_info)| (name.as_str(), &**node_info, self.used.get(name)))
    }

    /// Returns the number of nodes.
    #[must_use]
    pub fn node_count(&self) -> usize {
        self.nodes.len()
    }

    pub(crate) fn node(&self, name: &str) -> Option<&Node> {
        self.nodes.get(name).map(|node_info| &node_info.node)
    }

    /// Returns and resets whether Pods that depend on other Pods may fit now, though no resource was freed.
    pub(crate) fn take_pods_changed(&mut self) -> bool {
        std::mem::take(&mut self.pods_changed)
    }

    /// Adds or updates a node; returns whether a relevant field has changed.
    pub fn set_node(&mut self, node: &Node) -> bool {
        self.set_node_info(Arc::new(NodeInfo::of(node)))
    }

    /// Like [`Self::set_node`].
    pub(crate) fn set_node_info(&mut self, node: Arc<NodeInfo>) -> bool {
        self.nodes.insert(node.name().to_owned(), Arc::clone(&node)).is_none_or(|before| before != node)
    }

    /// Removes a node.
    pub fn remove_node(&mut self, name: &str) {
        self.pods_changed |= self.nodes.remove(name).is_some();
    }

    /// Removes nodes that are not listed.
    pub fn retain_nodes(&mut self, listed: impl Fn(&str) -> bool) {
        let before = self.nodes.len();
        self.nodes.retain(|name, _| listed(name));
        self.pods_changed |= self.nodes.len() < before;
    }

    /// Assumes a Pod on a node while its binding is in flight.
    pub fn assume(&mut self, uid: &str, pod: &Pod, node: &str) {
        if let Some(spec) = &pod.spec {
            self.assign(uid, pod, spec, resources::pod_resources(spec, ResourceField::Requests), node, true);
        }
    }

    /// Adds or updates a bound Pod; returns whether this frees resources.
    pub(crate) fn observe_pod(&mut self, summary: &Arc<PodSummary>, pod: &Pod) -> bool {
        let freed = self.set_pod(pod);
        if let Some(assigned) = self.assigned.get_mut(&summary.uid) {
            assigned.observed = Some(Arc::clone(summary));
        }
        freed
    }

    /// Returns whether the Pod is assigned as it is in this summary.
    pub(crate) fn has_observed(&self, summary: &Arc<PodSummary>) -> bool {
        let observed = self.assigned.get(&summary.uid).and_then(|assigned| assigned.observed.as_ref());
        observed.is_some_and(|observed| Arc::ptr_eq(observed, summary))
    }

    /// Adds or updates a bound Pod; returns whether this frees resources.
    pub fn set_pod(&mut self, pod: &Pod) -> bool {
        let (Some(uid), Some(spec), Some(node)) =
            (pod.metadata.uid.as_deref(), pod.spec.as_ref(), api::pod::node_name(pod))
        else {
            return false;
        };
        self.assign(uid, pod, spec, resources::pod_requests_during_resize(pod), node, false)
    }

    fn assign(&mut self, uid: &str, pod: &Pod, spec: &PodSpec, requests: Amounts, node: &str, assumed: bool) -> bool {
        let previous = self.assigned.get(uid).map(|previous| &previous.info).filter(|info| info.is_current_for(pod));
        let info = previous.map_or_else(|| Arc::new(PodInfo::of(pod)), Arc::clone);
        let mut assigned = AssignedPod { assumed, ..AssignedPod::of(pod, spec, requests, node, info) };
        let mut same_usage = false;
        if let Some(previous) = self.assigned.get_mut(uid) {
            if previous.termination == Termination::PreemptionRequested && assigned.termination == Termination::No {
                assigned.termination = Termination::PreemptionRequested;
            }
            same_usage = previous.node == assigned.node
                && previous.requests == assigned.requests
                && previous.ports == assigned.ports;
            if same_usage && previous.priority == assigned.priority && Arc::ptr_eq(&previous.info, &assigned.info) {
                *previous = assigned;
                return false;
            }
        }
        let freed = self.remove_pod(uid) && !same_usage;
        assigned.info = self.pod_index.insert(assigned.info, node);
        self.pods_changed = true;
        *self.priorities.entry(assigned.priority).or_default() += 1;
        self.used.entry(assigned.node.clone()).or_default().add(&assigned);
        self.assigned.insert(uid.to_owned(), assigned);
        freed
    }

    /// Returns whether the Pod is assumed.
    #[must_use]
    pub fn is_assumed(&self, uid: &str) -> bool {
        self.assigned.get(uid).is_some_and(|p| p.assumed)
    }

    /// Returns the assigned Pods, unordered.
    pub(crate) fn assigned(&self) -> impl Iterator<Item = (&str, &AssignedPod)> {
        self.assigned.iter().map(|(uid, assigned)| (uid.as_str(), assigned))
    }

    /// Returns whether an assigned Pod has a lower priority.
    #[must_use]
    pub fn has_lower_priority_pod(&self, priority: i32) -> bool {
        self.priorities.first_key_value().is_some_and(|(lowest, _)| *lowest < priority)
    }

    /// Marks a Pod as a preemption victim; returns whether it was not terminating before.
    pub(crate) fn mark_preempted(&mut self, uid: &str) -> bool {
        let remaining = self.assigned.get_mut(uid).filter(|assigned| assigned.termination == Termination::No);
        remaining.map(|assigned| assigned.termination = Termination::PreemptionRequested).is_some()
    }

    /// Resets the mark of a victim whose deletion failed.
    pub(crate) fn unmark_preempted(&mut self, uid: &str) {
        if let Some(assigned) =
            self.assigned.get_mut(uid).filter(|assigned| assigned.termination == Termination::PreemptionRequested)
        {
            assigned.termination = Termination::No;
        }
    }

    /// Returns whether an assigned Pod uses the claim.
    #[must_use]
    pub fn uses_claim(&self, key: &str) -> bool {
        self.assigned.values().any(|assigned| assigned.claims.iter().any(|claim| claim == key))
    }

    /// Removes a Pod; returns whether it was assigned.
    pub fn remove_pod(&mut self, uid: &str) -> bool {
        let Some(assigned) = self.assigned.remove(uid) else {
            return false;
        };
        self.pod_index.remove(&assigned.info, &assigned.node);
        if let Some(count) = self.priorities.get_mut(&assigned.priority) {
            *count -= 1;
        }
        self.priorities.retain(|_, count| *count > 0);
        if let Some(used) = self.used.get_mut(&assigned.node) {
            used.subtract(&assigned);
            if used.pods == 0 {
                self.used.remove(&assigned.node);
            }
        }
        true
    }

    /// Removes Pods that are not listed; returns whether there were any.
    pub fn retain_pods(&mut self, listed: impl Fn(&str) -> bool) -> bool {
        let removed: Vec<Uid> = self.assigned.keys().filter(|uid| !listed(uid)).cloned().collect();
        for uid in &removed {
            self.remove_pod(uid);
        }
        !removed.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pod(uid: &str, node: &str, cpu: &str) -> Pod {
        serde_json::from_value(json!({
            "metadata": { "name": uid, "uid": uid },
            "spec": { "nodeName": node, "containers": [{
                "name": "c",
                "resources": { "requests": { "cpu": cpu } },
                "ports": [{ "containerPort": 80, "hostPort": 80 }],
            }] },
        }))
        .expect("a Pod")
    }

    #[track_caller]
    fn check(cache: &Cache, node: &str, expected: Option<(i64, i64, usize)>) {
        let used = cache.used.get(node);
        assert_eq!(used.map(|u| (u.requests["cpu"].milli(), u.pods, u.ports.len())), expected);
    }

    #[test]
    fn pod_usage_is_added_and_subtracted() {
        let mut cache = Cache::default();
        assert!(!cache.set_pod(&pod("a", "n", "100m")));
        cache.set_pod(&pod("b", "n", "200m"));
        check(&cache, "n", Some((300, 2, 2)));
        // An identical update frees nothing; smaller requests do.
        assert!(!cache.set_pod(&pod("b", "n", "200m")));
        assert!(cache.set_pod(&pod("b", "n", "50m")));
        check(&cache, "n", Some((150, 2, 2)));
        assert!(cache.remove_pod("a"));
        assert!(!cache.remove_pod("a"));
        check(&cache, "n", Some((50, 1, 1)));
        assert!(cache.retain_pods(|uid| uid != "b"));
        check(&cache, "n", None);
    }

    #[test]
    fn lowest_priority_follows_assigned_pods() {
        let mut cache = Cache::default();
        assert!(!cache.has_lower_priority_pod(1));
        for uid in ["a", "b"] {
            cache.set_pod(&pod(uid, "n", "1"));
        }
        assert!(cache.has_lower_priority_pod(1) && !cache.has_lower_priority_pod(0));
        cache.remove_pod("a");
        assert!(cache.has_lower_priority_pod(1));
        cache.remove_pod("b");
        assert!(!cache.has_lower_priority_pod(1));
    }

    #[test]
    fn confirmed_assumed_pod_is_counted_once() {
        let mut cache = Cache::default();
        let bound = pod("a", "n", "100m");
        cache.assume("a", &bound, "n");
        assert!(cache.is_assumed("a"));
        cache.set_pod(&bound);
        assert!(!cache.is_assumed("a"));
        check(&cache, "n", Some((100, 1, 1)));
    }

    #[test]
    fn node_heartbeat_is_not_a_relevant_change() {
        let node = |heartbeat: &str, cpu: &str| -> Node {
            serde_json::from_value(json!({
                "metadata": { "name": "n", "resourceVersion": heartbeat },
                "status": { "allocatable": { "cpu": cpu }, "conditions": [
                    { "type": "Ready", "status": "True", "reason": heartbeat },
                ] },
            }))
            .expect("a node")
        };
        let mut cache = Cache::default();
        assert!(cache.set_node(&node("1", "4")));
        assert!(!cache.set_node(&node("2", "4")));
        assert!(cache.set_node(&node("2", "8")));
    }
}
