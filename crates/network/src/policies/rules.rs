//! Rules of NetworkPolicies. Does no I/O.
//!
//! Only the first packet of a connection is evaluated: connection tracking accepts the others and the replies. Verdict
//! maps look up the Pod by source and by destination address; the verdict of an isolated Pod's element is a `goto` to a
//! chain that returns for allowed packets and drops the rest. Traffic of the node itself is not forwarded and not evaluated.
//!
//! If a policy isolates a direction, packets of Pod addresses without a known Pod are dropped in it. Pods of this node
//! are known before they start ([`super::gate`]; section "Pod lifecycle" of the NetworkPolicy concept page).

use super::{
    gate::IpOwners,
    pod_addresses::{Labels, PolicyPod, pods_by_ip},
    policy_rules::{ClusterState, Direction, PolicyRule, policy_rules},
};
use crate::nft_table::{Chain, Map, Table, digest};
use ipnet::Ipv4Net;
use k8s_openapi::api::{
    core::v1::{Namespace, Pod},
    networking::v1::{NetworkPolicy, NetworkPolicySpec},
};
use std::{collections::BTreeMap, sync::Arc};

pub(crate) const FORWARD: &str = "forward";
/// Pairs of a Pod's address with itself: hairpin traffic through a Service is always allowed.
const SELF_TRAFFIC: &str = "itself";
/// Bytes of the digest that alone distinguishes two chains.
const DIGEST_LENGTH: usize = 8;

/// Returns the direction's map, its chain, and the nft expression of the Pod's address.
fn map_names(direction: Direction) -> (&'static str, &'static str, &'static str) {
    match direction {
        Direction::Ingress => ("destinations", "to-pods", "ip daddr"),
        Direction::Egress => ("sources", "from-pods", "ip saddr"),
    }
}

/// Returns the table; `block` is the node's Pod CIDR, `owners` the addresses that the kubelet has reported.
pub(crate) fn table(
    policies: &[Arc<NetworkPolicy>],
    pods: &[Arc<Pod>],
    owners: &IpOwners,
    namespaces: &[Arc<Namespace>],
    block: Ipv4Net,
) -> Table {
    let pods_by_ip = pods_by_ip(pods, owners);
    let namespaces: BTreeMap<&str, Option<&Labels>> = namespaces
        .iter()
        .filter_map(|namespace| Some((namespace.metadata.name.as_deref()?, namespace.metadata.labels.as_ref())))
        .collect();
    let cluster = ClusterState { pods_by_ip: &pods_by_ip, namespaces: &namespaces };
    let mut rules = Rules { table: Table::default(), forward: vec!["ct state established,related accept".to_owned()] };
    // Maps always exist: only chains are added and removed.
    rules.map(SELF_TRAFFIC, "ipv4_addr . ipv4_addr");
    for direction in [Direction::Egress, Direction::Ingress] {
        rules.map(map_names(direction).0, "ipv4_addr");
    }
    rules.forward.push(format!("ip saddr . ip daddr vmap @{SELF_TRAFFIC}"));
    // Egress is evaluated before ingress.
    for direction in [Direction::Egress, Direction::Ingress] {
        rules.add(policies, direction, cluster, block);
    }
    let forward = Chain { hook: Some("type filter hook forward priority -100"), rules: rules.forward };
    rules.table.chains.insert(FORWARD.to_owned(), forward);
    rules.table
}

/// Policy that isolates Pods in a direction, with its rules.
struct Isolation<'a> {
    namespace: &'a str,
    spec: &'a NetworkPolicySpec,
    allowed: Vec<PolicyRule<'a>>,
}

impl<'a> Isolation<'a> {
    fn of(policy: &'a NetworkPolicy, direction: Direction, cluster: ClusterState<'_>) -> Option<Self> {
        let spec = policy.spec.as_ref().filter(|spec| direction.is_isolated_by(spec))?;
        let namespace = policy.metadata.namespace.as_deref()?;
        Some(Self { namespace, spec, allowed: policy_rules(spec, namespace, direction, cluster) })
    }

    fn selects(&self, pod: &PolicyPod<'_>) -> bool {
        pod.namespace == self.namespace && pod.is_selected(self.spec.pod_selector.as_ref())
    }
}

struct Rules {
    table: Table,
    forward: Vec<String>,
}

impl Rules {
    fn map(&mut self, name: &'static str, key_type: &'static str) {
        self.table.maps.insert(name, Map { key_type, ..Map::default() });
    }

    fn element(&mut self, map: &'static str, key: String, verdict: String) {
        if let Some(map) = self.table.maps.get_mut(map) {
            map.elements.insert(key, verdict);
        }
    }

    fn chain(&mut self, name: &str, rules: Vec<String>) {
        self.table.chains.insert(name.to_owned(), Chain { hook: None, rules });
    }

    fn add(
        &mut self,
        policies: &[Arc<NetworkPolicy>],
        direction: Direction,
        cluster: ClusterState<'_>,
        block: Ipv4Net,
    ) {
        let mut policies: Vec<&NetworkPolicy> = policies.iter().map(AsRef::as_ref).collect();
        policies.sort_by_key(|policy| (&policy.metadata.namespace, &policy.metadata.name));
        let isolations: Vec<Isolation<'_>> =
            policies.into_iter().filter_map(|policy| Isolation::of(policy, direction, cluster)).collect();
        if isolations.is_empty() {
            return;
        }
        let (map, chain, match_field) = map_names(direction);
        self.forward.push(format!("{match_field} {block} jump {chain}"));
        self.chain(chain, vec![format!("{match_field} vmap @{map}"), "drop".to_owned()]);
        for pod in cluster.pods_by_ip.values().filter(|pod| block.contains(&pod.ip)) {
            let selecting: Vec<&Isolation<'_>> = isolations.iter().filter(|i| i.selects(pod)).collect();
            let verdict = if selecting.is_empty() {
                "return".to_owned()
            } else {
                self.element(SELF_TRAFFIC, format!("{0} . {0}", pod.ip), "accept".to_owned());
                let rules = selecting.iter().flat_map(|i| &i.allowed).flat_map(|a| a.rules(pod, cluster));
                format!("goto {}", self.isolation_chain(direction, pod.namespace, rules.collect()))
            };
            self.element(map, pod.ip.to_string(), verdict);
        }
    }

    /// Adds a chain with these rules, which Pods of a namespace share; returns its name.
    fn isolation_chain(&mut self, direction: Direction, namespace: &str, mut rules: Vec<String>) -> String {
        rules.push("drop".to_owned());
        let name =
            format!("{}-{}-{namespace}", direction.name().to_lowercase(), digest(&rules.join("\n"), DIGEST_LENGTH));
        self.table.chains.entry(name.clone()).or_insert(Chain { hook: None, rules });
        name
    }
}
