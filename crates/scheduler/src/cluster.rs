//! What the scheduler knows of the cluster: of each node what decides, of each placed Pod what it takes away.

use crate::crowd::{Crowd, Traits};
use crate::namespaces::Namespaces;
use crate::nominations::Nominations;
use crate::storage::{self, Storage};
use api::host_port::{HostPort, host_ports};
use api::quantity::Amount;
use api::resources::{self, Amounts, Side};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, NodeSpec, Pod, PodSpec};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// A Pod's `metadata.uid`.
pub type Uid = String;

/// Nodes and what is placed on them, and the storage that there is.
#[derive(Debug, Default)]
pub struct Cluster {
    pub(crate) storage: Storage,
    pub(crate) namespaces: Namespaces,
    pub(crate) crowd: Crowd,
    /// By namespace and name.
    pub(crate) budgets: BTreeMap<String, PodDisruptionBudget>,
    pub(crate) nominations: Nominations,
    nodes: BTreeMap<String, NodeFacts>,
    /// Also of nodes that are not known (yet): their Pods were seen first.
    used: HashMap<String, Used>,
    placed: HashMap<Uid, Placed>,
    /// Whether a Pod was placed or changed, or a node went, since somebody asked.
    moved: bool,
    /// How many placed Pods have which priority.
    priorities: BTreeMap<i32, usize>,
}

/// What decides of a node. Everything else of the object is dropped.
#[derive(Debug, Clone, PartialEq)]
pub struct NodeFacts {
    /// Name, labels, taints and `unschedulable`.
    pub node: Node,
    /// `status.allocatable`.
    pub allocatable: Amounts,
}

/// What the Pods of a node take away.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Used {
    /// The sum of their effective requests.
    pub requests: Amounts,
    /// How many there are.
    pub pods: i64,
    /// The host ports that they hold.
    pub ports: Vec<HostPort>,
}

/// What is kept of a Pod on a node: what it takes away, and what decides whether it has to go for another one.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Placed {
    pub(crate) node: String,
    pub(crate) name: Box<str>,
    pub(crate) priority: i32,
    /// One that has not started yet is the last one that did.
    pub(crate) start: Timestamp,
    pub(crate) leaving: Leaving,
    requests: Amounts,
    ports: Vec<HostPort>,
    /// The keys of the claims to storage that it uses.
    pub(crate) claims: Vec<String>,
    pub(crate) traits: Arc<Traits>,
    /// Decided, and not yet seen in the API.
    assumed: bool,
}

/// Whether a Pod is on its way out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Leaving {
    No,
    /// It is being deleted.
    Deleted,
    /// It is being deleted to make room.
    Preempted,
    /// It is to be deleted to make room, and not yet seen so in the API.
    Ordered,
}

impl Placed {
    /// Keeps of a Pod that is, or shall be, on this node what decides.
    pub(crate) fn of(pod: &Pod, spec: &PodSpec, requests: Amounts, node: &str, traits: Arc<Traits>) -> Self {
        let start = pod.status.as_ref().and_then(|status| status.start_time.as_ref());
        Self {
            node: node.to_owned(),
            name: pod.metadata.name.as_deref().unwrap_or_default().into(),
            priority: api::pod::priority(pod),
            start: start.map_or(Timestamp::MAX, |time| time.0),
            leaving: Leaving::of(pod),
            requests,
            ports: host_ports(spec),
            claims: storage::claims(pod).collect(),
            traits,
            assumed: false,
        }
    }
}

impl NodeFacts {
    /// Keeps of a node what decides.
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

impl Used {
    pub(crate) fn add(&mut self, placed: &Placed) {
        resources::add(&mut self.requests, &placed.requests);
        self.ports.extend(placed.ports.iter().cloned());
        self.pods += 1;
    }

    pub(crate) fn subtract(&mut self, placed: &Placed) {
        for (name, amount) in &placed.requests {
            if let Some(sum) = self.requests.get_mut(name) {
                *sum = sum.minus(*amount);
            }
        }
        self.requests.retain(|_, sum| *sum != Amount::ZERO);
        for port in &placed.ports {
            if let Some(at) = self.ports.iter().position(|p| p == port) {
                self.ports.swap_remove(at);
            }
        }
        self.pods -= 1;
    }
}

impl Cluster {
    /// The nodes in the order of their names, each with what is used on it.
    pub fn nodes(&self) -> impl Iterator<Item = (&str, &NodeFacts, Option<&Used>)> {
        self.nodes.iter().map(|(name, facts)| (name.as_str(), facts, self.used.get(name)))
    }

    /// How many nodes there are.
    #[must_use]
    pub fn node_count(&self) -> usize {
        self.nodes.len()
    }

    pub(crate) fn node(&self, name: &str) -> Option<&Node> {
        self.nodes.get(name).map(|facts| &facts.node)
    }

    /// Whether those that care for other Pods may fit since the last call, though nothing was freed.
    pub(crate) fn take_moved(&mut self) -> bool {
        std::mem::take(&mut self.moved)
    }

    /// Takes a node's newest state; says whether anything changed that decides.
    pub fn set_node(&mut self, node: &Node) -> bool {
        let Some(name) = node.metadata.name.clone() else {
            return false;
        };
        let facts = NodeFacts::of(node);
        self.nodes.insert(name, facts.clone()) != Some(facts)
    }

    /// Forgets a node.
    pub fn remove_node(&mut self, name: &str) {
        self.moved |= self.nodes.remove(name).is_some();
    }

    /// Forgets the nodes that are not listed.
    pub fn retain_nodes(&mut self, listed: impl Fn(&str) -> bool) {
        let before = self.nodes.len();
        self.nodes.retain(|name, _| listed(name));
        self.moved |= self.nodes.len() < before;
    }

    /// Reserves a node for a Pod whose binding is on its way.
    pub fn assume(&mut self, uid: &str, pod: &Pod, node: &str) {
        if let Some(spec) = &pod.spec {
            self.place(uid, pod, spec, resources::pod(spec, Side::Requests), node, true);
        }
    }

    /// Takes a bound Pod as the API has it; says whether this frees something.
    pub fn set_pod(&mut self, pod: &Pod) -> bool {
        let (Some(uid), Some(spec), Some(node)) =
            (pod.metadata.uid.as_deref(), pod.spec.as_ref(), api::pod::node_name(pod))
        else {
            return false;
        };
        self.place(uid, pod, spec, resources::pod_in_use(pod), node, false)
    }

    fn place(&mut self, uid: &str, pod: &Pod, spec: &PodSpec, requests: Amounts, node: &str, assumed: bool) -> bool {
        let known = self.placed.get(uid).map(|known| &known.traits).filter(|traits| traits.are_of(pod));
        let traits = known.map_or_else(|| Arc::new(Traits::of(pod)), Arc::clone);
        let mut placed = Placed { assumed, ..Placed::of(pod, spec, requests, node, traits) };
        let mut takes_the_same = false;
        if let Some(known) = self.placed.get_mut(uid) {
            if known.leaving == Leaving::Ordered && placed.leaving == Leaving::No {
                placed.leaving = Leaving::Ordered;
            }
            takes_the_same =
                known.node == placed.node && known.requests == placed.requests && known.ports == placed.ports;
            if takes_the_same && known.priority == placed.priority && Arc::ptr_eq(&known.traits, &placed.traits) {
                *known = placed;
                return false;
            }
        }
        let frees = self.remove_pod(uid) && !takes_the_same;
        placed.traits = self.crowd.join(placed.traits, node);
        self.moved = true;
        *self.priorities.entry(placed.priority).or_default() += 1;
        self.used.entry(placed.node.clone()).or_default().add(&placed);
        self.placed.insert(uid.to_owned(), placed);
        frees
    }

    /// Whether a decision on this Pod is on its way.
    #[must_use]
    pub fn is_assumed(&self, uid: &str) -> bool {
        self.placed.get(uid).is_some_and(|p| p.assumed)
    }

    /// The Pods on nodes, in no order.
    pub(crate) fn placed(&self) -> impl Iterator<Item = (&str, &Placed)> {
        self.placed.iter().map(|(uid, placed)| (uid.as_str(), placed))
    }

    /// Whether any Pod on any node has a lower priority.
    #[must_use]
    pub fn has_lower(&self, priority: i32) -> bool {
        self.priorities.first_key_value().is_some_and(|(lowest, _)| *lowest < priority)
    }

    /// From now on a Pod counts as one that leaves to make room; says whether it was to stay until now.
    pub(crate) fn order_away(&mut self, uid: &str) -> bool {
        let staying = self.placed.get_mut(uid).filter(|placed| placed.leaving == Leaving::No);
        staying.map(|placed| placed.leaving = Leaving::Ordered).is_some()
    }

    /// It could not be deleted.
    pub(crate) fn let_stay(&mut self, uid: &str) {
        if let Some(placed) = self.placed.get_mut(uid).filter(|placed| placed.leaving == Leaving::Ordered) {
            placed.leaving = Leaving::No;
        }
    }

    /// Whether a Pod on a node uses the claim of this key.
    #[must_use]
    pub fn uses_claim(&self, key: &str) -> bool {
        self.placed.values().any(|placed| placed.claims.iter().any(|claim| claim == key))
    }

    /// Forgets a Pod; says whether it held anything.
    pub fn remove_pod(&mut self, uid: &str) -> bool {
        let Some(placed) = self.placed.remove(uid) else {
            return false;
        };
        self.crowd.leave(&placed.traits, &placed.node);
        if let Some(count) = self.priorities.get_mut(&placed.priority) {
            *count -= 1;
        }
        self.priorities.retain(|_, count| *count > 0);
        if let Some(used) = self.used.get_mut(&placed.node) {
            used.subtract(&placed);
            if used.pods == 0 {
                self.used.remove(&placed.node);
            }
        }
        true
    }

    /// Forgets the Pods that are not listed; says whether there were any.
    pub fn retain_pods(&mut self, listed: impl Fn(&str) -> bool) -> bool {
        let gone: Vec<Uid> = self.placed.keys().filter(|uid| !listed(uid)).cloned().collect();
        for uid in &gone {
            self.remove_pod(uid);
        }
        !gone.is_empty()
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
    fn check(cluster: &Cluster, node: &str, expected: Option<(i64, i64, usize)>) {
        let used = cluster.used.get(node);
        assert_eq!(used.map(|u| (u.requests["cpu"].milli(), u.pods, u.ports.len())), expected);
    }

    #[test]
    fn what_pods_take_is_added_and_given_back() {
        let mut cluster = Cluster::default();
        assert!(!cluster.set_pod(&pod("a", "n", "100m")));
        cluster.set_pod(&pod("b", "n", "200m"));
        check(&cluster, "n", Some((300, 2, 2)));
        // The same again changes nothing; less frees something.
        assert!(!cluster.set_pod(&pod("b", "n", "200m")));
        assert!(cluster.set_pod(&pod("b", "n", "50m")));
        check(&cluster, "n", Some((150, 2, 2)));
        assert!(cluster.remove_pod("a"));
        assert!(!cluster.remove_pod("a"));
        check(&cluster, "n", Some((50, 1, 1)));
        assert!(cluster.retain_pods(|uid| uid != "b"));
        check(&cluster, "n", None);
    }

    #[test]
    fn the_lowest_priority_is_that_of_a_pod_that_is_there() {
        let mut cluster = Cluster::default();
        assert!(!cluster.has_lower(1));
        for uid in ["a", "b"] {
            cluster.set_pod(&pod(uid, "n", "1"));
        }
        assert!(cluster.has_lower(1) && !cluster.has_lower(0));
        cluster.remove_pod("a");
        assert!(cluster.has_lower(1));
        cluster.remove_pod("b");
        assert!(!cluster.has_lower(1));
    }

    #[test]
    fn an_assumption_becomes_a_fact_without_counting_twice() {
        let mut cluster = Cluster::default();
        let bound = pod("a", "n", "100m");
        cluster.assume("a", &bound, "n");
        assert!(cluster.is_assumed("a"));
        cluster.set_pod(&bound);
        assert!(!cluster.is_assumed("a"));
        check(&cluster, "n", Some((100, 1, 1)));
    }

    #[test]
    fn only_what_decides_counts_as_a_change_of_a_node() {
        let node = |heartbeat: &str, cpu: &str| -> Node {
            serde_json::from_value(json!({
                "metadata": { "name": "n", "resourceVersion": heartbeat },
                "status": { "allocatable": { "cpu": cpu }, "conditions": [
                    { "type": "Ready", "status": "True", "reason": heartbeat },
                ] },
            }))
            .expect("a node")
        };
        let mut cluster = Cluster::default();
        assert!(cluster.set_node(&node("1", "4")));
        assert!(!cluster.set_node(&node("2", "4")));
        assert!(cluster.set_node(&node("2", "8")));
    }
}
