//! What one policy allows in one direction, as rules that let packets pass: pure
//! (the documentation of `NetworkPolicySpec` in upstream's `pkg/apis/networking/types.go`).

use super::members::{Labels, Member, selects};
use crate::services::traffic::{network, protocol};
use ipnet::Ipv4Net;
use k8s_openapi::api::networking::v1::{NetworkPolicyPeer, NetworkPolicyPort, NetworkPolicySpec};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Direction {
    Ingress,
    Egress,
}

impl Direction {
    /// Whether a policy isolates those whom it selects in this direction (`policyTypes`).
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

    /// Where packets have the address of the other side.
    fn far(self) -> &'static str {
        match self {
            Self::Ingress => "ip saddr",
            Self::Egress => "ip daddr",
        }
    }
}

/// Everybody who may be meant.
#[derive(Clone, Copy)]
pub(super) struct World<'a> {
    pub(super) members: &'a BTreeMap<Ipv4Addr, Member<'a>>,
    /// The labels of namespaces.
    pub(super) namespaces: &'a BTreeMap<&'a str, Option<&'a Labels>>,
}

/// One rule of a policy: whom it is about, and at which ports.
pub(super) struct Allowed<'a> {
    direction: Direction,
    peers: Peers,
    /// All of them where it is empty.
    ports: &'a [NetworkPolicyPort],
}

/// Who may be on the other side.
enum Peers {
    Anybody,
    These { pods: BTreeSet<Ipv4Addr>, blocks: Vec<Block> },
}

struct Block {
    whole: Ipv4Net,
    except: Vec<Ipv4Net>,
}

/// A policy's rules for a direction.
pub(super) fn allowed<'a>(
    spec: &'a NetworkPolicySpec,
    namespace: &str,
    direction: Direction,
    world: World<'_>,
) -> Vec<Allowed<'a>> {
    let of = |peers: &Option<Vec<NetworkPolicyPeer>>, ports: &'a Option<Vec<NetworkPolicyPort>>| Allowed {
        direction,
        peers: Peers::of(peers.as_deref().unwrap_or_default(), namespace, world),
        ports: ports.as_deref().unwrap_or_default(),
    };
    match direction {
        Direction::Ingress => spec.ingress.iter().flatten().map(|rule| of(&rule.from, &rule.ports)).collect(),
        Direction::Egress => spec.egress.iter().flatten().map(|rule| of(&rule.to, &rule.ports)).collect(),
    }
}

impl Peers {
    fn of(peers: &[NetworkPolicyPeer], namespace: &str, world: World<'_>) -> Self {
        if peers.is_empty() {
            return Self::Anybody;
        }
        let (blocks, selectors): (Vec<_>, Vec<_>) = peers.iter().partition(|peer| peer.ip_block.is_some());
        let is_meant = |member: &Member<'_>| selectors.iter().any(|peer| is_selected(peer, namespace, member, world));
        let pods = world.members.values().filter(|member| is_meant(member)).map(|member| member.ip).collect();
        Self::These { pods, blocks: blocks.into_iter().filter_map(Block::of).collect() }
    }

    fn contain(&self, ip: Ipv4Addr) -> bool {
        match self {
            Self::Anybody => true,
            Self::These { pods, blocks } => {
                let in_block = |b: &Block| b.whole.contains(&ip) && !b.except.iter().any(|except| except.contains(&ip));
                pods.contains(&ip) || blocks.iter().any(in_block)
            }
        }
    }

    /// How their packets are told, once for each of these.
    fn matches(&self, far: &str) -> Vec<String> {
        let Self::These { pods, blocks } = self else { return vec![String::new()] };
        let pods = (!pods.is_empty()).then(|| format!("{far} {} ", set(pods)));
        pods.into_iter().chain(blocks.iter().map(|block| block.matches(far))).collect()
    }
}

/// Without a selector of namespaces, Pods of the policy's own are meant.
fn is_selected(peer: &NetworkPolicyPeer, namespace: &str, member: &Member<'_>, world: World<'_>) -> bool {
    let is_near = match &peer.namespace_selector {
        None => member.namespace == namespace,
        Some(selector) => world.namespaces.get(member.namespace).is_some_and(|labels| selects(Some(selector), *labels)),
    };
    is_near && member.is_selected(peer.pod_selector.as_ref())
}

impl Block {
    /// Blocks of IPv6 are nobody's here.
    fn of(peer: &NetworkPolicyPeer) -> Option<Self> {
        let block = peer.ip_block.as_ref()?;
        let except = block.except.iter().flatten().filter_map(|except| network(except)).collect();
        Some(Self { whole: network(&block.cidr)?, except })
    }

    /// One match for each exception: they may overlap, and a set of such blocks is refused.
    fn matches(&self, far: &str) -> String {
        let whole = (self.whole.prefix_len() > 0).then(|| format!("{far} {} ", self.whole));
        let except = self.except.iter().map(|except| format!("{far} != {except} "));
        whole.into_iter().chain(except).collect()
    }
}

impl Allowed<'_> {
    /// The rules for a Pod that the policy selects.
    pub(super) fn rules(&self, pod: &Member<'_>, world: World<'_>) -> Vec<String> {
        let (far, ports) = (self.direction.far(), self.port_matches(pod));
        let peers = self.peers.matches(far);
        let pairs = peers.iter().flat_map(|peers| ports.iter().map(move |ports| format!("{peers}{ports}return")));
        pairs.chain(self.named_far(world)).collect()
    }

    /// How packets to these ports are told, once for each protocol; names on the other side are not among them.
    fn port_matches(&self, pod: &Member<'_>) -> Vec<String> {
        if self.ports.is_empty() {
            return vec![String::new()];
        }
        let mut by_protocol: BTreeMap<&str, Vec<(u16, u16)>> = BTreeMap::new();
        for port in self.ports {
            let Some(protocol) = protocol(port.protocol.as_deref()) else { continue };
            by_protocol.entry(protocol).or_default().extend(self.numbers(port, protocol, pod));
        }
        let told = by_protocol.into_iter().filter(|(_, numbers)| !numbers.is_empty());
        told.map(|(protocol, numbers)| ports_of(protocol, numbers)).collect()
    }

    fn numbers(&self, port: &NetworkPolicyPort, protocol: &'static str, pod: &Member<'_>) -> Vec<(u16, u16)> {
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

    /// A port that is named on the other side has the number that each Pod there gives it.
    fn named_far(&self, world: World<'_>) -> Option<String> {
        let mut found = BTreeSet::new();
        for port in self.ports.iter().filter(|_| self.direction == Direction::Egress) {
            let Some(IntOrString::String(name)) = &port.port else { continue };
            let Some(protocol) = protocol(port.protocol.as_deref()) else { continue };
            for member in world.members.values().filter(|member| self.peers.contain(member.ip)) {
                found.extend(member.ports(name, protocol).map(|n| format!("{} . {protocol} . {n}", member.ip)));
            }
        }
        (!found.is_empty()).then(|| format!("ip daddr . meta l4proto . th dport {} return", set(&found)))
    }
}

fn set<T: ToString>(all: &BTreeSet<T>) -> String {
    let all: Vec<String> = all.iter().map(ToString::to_string).collect();
    format!("{{ {} }}", all.join(", "))
}

/// Ranges that overlap are one: a set of such is refused.
fn ports_of(protocol: &str, mut ranges: Vec<(u16, u16)>) -> String {
    ranges.sort_unstable();
    let mut apart: Vec<(u16, u16)> = Vec::new();
    for (first, last) in ranges {
        match apart.last_mut() {
            Some(before) if first <= before.1.saturating_add(1) => before.1 = before.1.max(last),
            _ => apart.push((first, last)),
        }
    }
    if apart == [(0, u16::MAX)] {
        return format!("meta l4proto {protocol} ");
    }
    let text = |(first, last): &(u16, u16)| if first == last { first.to_string() } else { format!("{first}-{last}") };
    format!("{protocol} dport {{ {} }} ", apart.iter().map(text).collect::<Vec<_>>().join(", "))
}
