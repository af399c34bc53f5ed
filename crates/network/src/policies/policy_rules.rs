//! nft rules of one policy in one direction: pure (documentation of `NetworkPolicySpec` in upstream's
//! `pkg/apis/networking/types.go`).

use super::pod_addresses::{Labels, PolicyPod, selects};
use crate::services::service_ports::{network, protocol};
use ipnet::Ipv4Net;
use k8s_openapi::{
    api::networking::v1::{NetworkPolicyPeer, NetworkPolicyPort, NetworkPolicySpec},
    apimachinery::pkg::util::intstr::IntOrString,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    net::Ipv4Addr,
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Direction {
    Ingress,
    Egress,
}

impl Direction {
    /// Returns whether the policy isolates Pods in this direction (`policyTypes`).
    pub(super) fn is_isolated_by(self, spec: &NetworkPolicySpec) -> bool {
        match spec.policy_types.as_deref().unwrap_or_default() {
            [] => self == Self::Ingress || spec.egress.as_ref().is_some_and(|rules| !rules.is_empty()),
            types => types.iter().any(|name| name == self.name()),
        }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Ingress => "Ingress",
            Self::Egress => "Egress",
        }
    }

    /// Returns the nft expression of the peer's address.
    fn peer_match_field(self) -> &'static str {
        match self {
            Self::Ingress => "ip saddr",
            Self::Egress => "ip daddr",
        }
    }
}

/// Pods and namespaces of the cluster.
#[derive(Clone, Copy)]
pub(super) struct ClusterState<'a> {
    pub(super) pods_by_ip: &'a BTreeMap<Ipv4Addr, PolicyPod<'a>>,
    /// Labels by namespace.
    pub(super) namespaces: &'a BTreeMap<&'a str, Option<&'a Labels>>,
}

/// Ingress or egress rule of a policy.
pub(super) struct PolicyRule<'a> {
    direction: Direction,
    peers: Peers,
    /// Ports; empty allows all.
    ports: &'a [NetworkPolicyPort],
}

/// Peers of a rule.
enum Peers {
    All,
    Selected { pods: BTreeSet<Ipv4Addr>, blocks: Vec<IpBlock> },
}

struct IpBlock {
    cidr: Ipv4Net,
    except: Vec<Ipv4Net>,
}

/// Returns the policy's rules for a direction.
pub(super) fn policy_rules<'a>(
    spec: &'a NetworkPolicySpec,
    namespace: &str,
    direction: Direction,
    cluster: ClusterState<'_>,
) -> Vec<PolicyRule<'a>> {
    let policy_rule = |peers: &Option<Vec<NetworkPolicyPeer>>, ports: &'a Option<Vec<NetworkPolicyPort>>| PolicyRule {
        direction,
        peers: Peers::of(peers.as_deref().unwrap_or_default(), namespace, cluster),
        ports: ports.as_deref().unwrap_or_default(),
    };
    match direction {
        Direction::Ingress => spec.ingress.iter().flatten().map(|rule| policy_rule(&rule.from, &rule.ports)).collect(),
        Direction::Egress => spec.egress.iter().flatten().map(|rule| policy_rule(&rule.to, &rule.ports)).collect(),
    }
}

impl Peers {
    fn of(peers: &[NetworkPolicyPeer], namespace: &str, cluster: ClusterState<'_>) -> Self {
        if peers.is_empty() {
            return Self::All;
        }
        let (blocks, selectors): (Vec<_>, Vec<_>) = peers.iter().partition(|peer| peer.ip_block.is_some());
        let is_peer = |pod: &PolicyPod<'_>| selectors.iter().any(|peer| is_selected(peer, namespace, pod, cluster));
        let pods = cluster.pods_by_ip.values().filter(|pod| is_peer(pod)).map(|pod| pod.ip).collect();
        Self::Selected { pods, blocks: blocks.into_iter().filter_map(IpBlock::of).collect() }
    }

    fn contains(&self, ip: Ipv4Addr) -> bool {
        match self {
            Self::All => true,
            Self::Selected { pods, blocks } => {
                let in_block =
                    |b: &IpBlock| b.cidr.contains(&ip) && !b.except.iter().any(|except| except.contains(&ip));
                pods.contains(&ip) || blocks.iter().any(in_block)
            }
        }
    }

    /// Returns the nft expressions that match the peers, one rule each.
    fn match_expressions(&self, peer_match_field: &str) -> Vec<String> {
        let Self::Selected { pods, blocks } = self else { return vec![String::new()] };
        let pods = (!pods.is_empty()).then(|| format!("{peer_match_field} {} ", format_set(pods)));
        pods.into_iter().chain(blocks.iter().map(|block| block.match_expressions(peer_match_field))).collect()
    }
}

/// Without a `namespaceSelector`, Pods of the policy's own namespace match.
fn is_selected(peer: &NetworkPolicyPeer, namespace: &str, pod: &PolicyPod<'_>, cluster: ClusterState<'_>) -> bool {
    let is_in_namespace = match &peer.namespace_selector {
        None => pod.namespace == namespace,
        Some(selector) => cluster.namespaces.get(pod.namespace).is_some_and(|labels| selects(Some(selector), *labels)),
    };
    is_in_namespace && pod.is_selected(peer.pod_selector.as_ref())
}

impl IpBlock {
    /// Parses an `ipBlock`; `None` for IPv6.
    fn of(peer: &NetworkPolicyPeer) -> Option<Self> {
        let block = peer.ip_block.as_ref()?;
        let except = block.except.iter().flatten().filter_map(|except| network(except)).collect();
        Some(Self { cidr: network(&block.cidr)?, except })
    }

    /// Returns one expression per exception: they may overlap, which an anonymous set rejects.
    fn match_expressions(&self, peer_match_field: &str) -> String {
        let cidr = (self.cidr.prefix_len() > 0).then(|| format!("{peer_match_field} {} ", self.cidr));
        let except = self.except.iter().map(|except| format!("{peer_match_field} != {except} "));
        cidr.into_iter().chain(except).collect()
    }
}

impl PolicyRule<'_> {
    /// Returns the nft rules for a selected Pod.
    pub(super) fn rules(&self, pod: &PolicyPod<'_>, cluster: ClusterState<'_>) -> Vec<String> {
        let (peer_match_field, ports) = (self.direction.peer_match_field(), self.port_matches(pod));
        let peers = self.peers.match_expressions(peer_match_field);
        let pairs = peers.iter().flat_map(|peers| ports.iter().map(move |ports| format!("{peers}{ports}return")));
        pairs.chain(self.named_egress_ports(cluster)).collect()
    }

    /// Returns the expressions that match the ports, one per protocol, without named egress ports.
    fn port_matches(&self, pod: &PolicyPod<'_>) -> Vec<String> {
        if self.ports.is_empty() {
            return vec![String::new()];
        }
        let mut by_protocol: BTreeMap<&str, Vec<(u16, u16)>> = BTreeMap::new();
        for port in self.ports {
            let Some(protocol) = protocol(port.protocol.as_deref()) else { continue };
            by_protocol.entry(protocol).or_default().extend(self.numbers(port, protocol, pod));
        }
        let expressions = by_protocol.into_iter().filter(|(_, numbers)| !numbers.is_empty());
        expressions.map(|(protocol, numbers)| port_expression(protocol, numbers)).collect()
    }

    fn numbers(&self, port: &NetworkPolicyPort, protocol: &'static str, pod: &PolicyPod<'_>) -> Vec<(u16, u16)> {
        let number = |n: i32| u16::try_from(n).ok();
        match (&port.port, self.direction) {
            (None, _) => vec![(0, u16::MAX)],
            (Some(IntOrString::Int(first)), _) => {
                let last = number(port.end_port.unwrap_or(*first));
                number(*first).zip(last).filter(|(first, last)| first <= last).into_iter().collect()
            }
            (Some(IntOrString::String(name)), Direction::Ingress) => {
                pod.ports(name, protocol).map(|n| (n, n)).collect()
            }
            (Some(IntOrString::String(_)), Direction::Egress) => Vec::new(),
        }
    }

    /// Returns the rule for named egress ports, which each peer Pod resolves on its own.
    fn named_egress_ports(&self, cluster: ClusterState<'_>) -> Option<String> {
        let mut found = BTreeSet::new();
        for port in self.ports.iter().filter(|_| self.direction == Direction::Egress) {
            let Some(IntOrString::String(name)) = &port.port else { continue };
            let Some(protocol) = protocol(port.protocol.as_deref()) else { continue };
            for pod in cluster.pods_by_ip.values().filter(|pod| self.peers.contains(pod.ip)) {
                found.extend(pod.ports(name, protocol).map(|n| format!("{} . {protocol} . {n}", pod.ip)));
            }
        }
        (!found.is_empty()).then(|| format!("ip daddr . meta l4proto . th dport {} return", format_set(&found)))
    }
}

fn format_set<T: ToString>(all: &BTreeSet<T>) -> String {
    let all: Vec<String> = all.iter().map(ToString::to_string).collect();
    format!("{{ {} }}", all.join(", "))
}

/// Merges overlapping ranges, which a set rejects.
fn port_expression(protocol: &str, mut ranges: Vec<(u16, u16)>) -> String {
    ranges.sort_unstable();
    let mut merged: Vec<(u16, u16)> = Vec::new();
    for (first, last) in ranges {
        match merged.last_mut() {
            Some(before) if first <= before.1.saturating_add(1) => before.1 = before.1.max(last),
            _ => merged.push((first, last)),
        }
    }
    if merged == [(0, u16::MAX)] {
        return format!("meta l4proto {protocol} ");
    }
    let text = |(first, last): &(u16, u16)| if first == last { first.to_string() } else { format!("{first}-{last}") };
    format!("{protocol} dport {{ {} }} ", merged.iter().map(text).collect::<Vec<_>>().join(", "))
}
