//! The rules that let through what policies allow: pure.
//!
//! Only the first packet of a connection is looked at: connection tracking knows the others, and the answers. The Pod's
//! address is looked up in a map, once as the source and once as the destination; for an isolated Pod the map names a
//! chain. There every rule returns what is allowed, and the last one drops. What the node itself sends or gets is not
//! forwarded and never comes here.
//!
//! Where policies isolate a direction, an address of Pods that no Pod is known to have passes nothing in it. The Pods of
//! this node are known before they begin ([`super::gate`]; the concept page's section "Pod lifecycle").

use super::allowed::{Allowed, Direction, World, allowed};
use super::gate::Holders;
use super::members::{Labels, Member, members};
use crate::table::{Chain, Map, Table, digest};
use ipnet::Ipv4Net;
use k8s_openapi::api::core::v1::{Namespace, Pod};
use k8s_openapi::api::networking::v1::{NetworkPolicy, NetworkPolicySpec};
use std::collections::BTreeMap;
use std::sync::Arc;

pub(crate) const FORWARD: &str = "forward";
/// Pairs of a Pod's address with itself: it reaches itself through a Service, whatever policies say.
const ITSELF: &str = "itself";
/// Bytes of a digest that is all that tells two chains apart.
const LONG: usize = 8;

/// The map of a direction's Pods, and the chain that looks there.
fn names(direction: Direction) -> (&'static str, &'static str, &'static str) {
    match direction {
        Direction::Ingress => ("destinations", "to-pods", "ip daddr"),
        Direction::Egress => ("sources", "from-pods", "ip saddr"),
    }
}

/// The whole table; `block` is where Pods of this node have their addresses, of which the kubelet has reported `holders`.
pub(crate) fn table(
    policies: &[Arc<NetworkPolicy>],
    pods: &[Arc<Pod>],
    holders: &Holders,
    namespaces: &[Arc<Namespace>],
    block: Ipv4Net,
) -> Table {
    let members = members(pods, holders);
    let namespaces: BTreeMap<&str, Option<&Labels>> = namespaces
        .iter()
        .filter_map(|namespace| Some((namespace.metadata.name.as_deref()?, namespace.metadata.labels.as_ref())))
        .collect();
    let world = World { members: &members, namespaces: &namespaces };
    let mut rules = Rules { table: Table::default(), forward: vec!["ct state established,related accept".to_owned()] };
    // Maps stay, whoever is in them: only chains come and go.
    rules.map(ITSELF, "ipv4_addr . ipv4_addr");
    for direction in [Direction::Egress, Direction::Ingress] {
        rules.map(names(direction).0, "ipv4_addr");
    }
    rules.forward.push(format!("ip saddr . ip daddr vmap @{ITSELF}"));
    // The source first: what may not leave is not asked for at the other end.
    for direction in [Direction::Egress, Direction::Ingress] {
        rules.add(policies, direction, world, block);
    }
    let forward = Chain { hook: Some("type filter hook forward priority -100"), rules: rules.forward };
    rules.table.chains.insert(FORWARD.to_owned(), forward);
    rules.table
}

/// A policy, and what it allows in a direction.
struct Isolation<'a> {
    namespace: &'a str,
    spec: &'a NetworkPolicySpec,
    allowed: Vec<Allowed<'a>>,
}

impl<'a> Isolation<'a> {
    fn of(policy: &'a NetworkPolicy, direction: Direction, world: World<'_>) -> Option<Self> {
        let spec = policy.spec.as_ref().filter(|spec| direction.is_isolated_by(spec))?;
        let namespace = policy.metadata.namespace.as_deref()?;
        Some(Self { namespace, spec, allowed: allowed(spec, namespace, direction, world) })
    }

    fn selects(&self, pod: &Member<'_>) -> bool {
        pod.namespace == self.namespace && pod.is_selected(self.spec.pod_selector.as_ref())
    }
}

struct Rules {
    table: Table,
    forward: Vec<String>,
}

impl Rules {
    fn map(&mut self, name: &'static str, of: &'static str) {
        self.table.maps.insert(name, Map { of, ..Map::default() });
    }

    fn element(&mut self, map: &'static str, key: String, verdict: String) {
        if let Some(map) = self.table.maps.get_mut(map) {
            map.elements.insert(key, verdict);
        }
    }

    fn chain(&mut self, name: &str, rules: Vec<String>) {
        self.table.chains.insert(name.to_owned(), Chain { hook: None, rules });
    }

    fn add(&mut self, policies: &[Arc<NetworkPolicy>], direction: Direction, world: World<'_>, block: Ipv4Net) {
        let mut policies: Vec<&NetworkPolicy> = policies.iter().map(AsRef::as_ref).collect();
        policies.sort_by_key(|policy| (&policy.metadata.namespace, &policy.metadata.name));
        let isolations: Vec<Isolation<'_>> =
            policies.into_iter().filter_map(|policy| Isolation::of(policy, direction, world)).collect();
        if isolations.is_empty() {
            return;
        }
        let (map, chain, near) = names(direction);
        self.forward.push(format!("{near} {block} jump {chain}"));
        self.chain(chain, vec![format!("{near} vmap @{map}"), "drop".to_owned()]);
        for pod in world.members.values().filter(|pod| block.contains(&pod.ip)) {
            let selecting: Vec<&Isolation<'_>> = isolations.iter().filter(|i| i.selects(pod)).collect();
            let verdict = if selecting.is_empty() {
                "return".to_owned()
            } else {
                self.element(ITSELF, format!("{0} . {0}", pod.ip), "accept".to_owned());
                let rules = selecting.iter().flat_map(|i| &i.allowed).flat_map(|a| a.rules(pod, world));
                format!("goto {}", self.isolated(direction, pod.namespace, rules.collect()))
            };
            self.element(map, pod.ip.to_string(), verdict);
        }
    }

    /// The chain with these rules, which Pods of a namespace share.
    fn isolated(&mut self, direction: Direction, namespace: &str, mut rules: Vec<String>) -> String {
        rules.push("drop".to_owned());
        let name = format!("{}-{}-{namespace}", direction.name().to_lowercase(), digest(&rules.join("\n"), LONG));
        self.table.chains.entry(name.clone()).or_insert(Chain { hook: None, rules });
        name
    }
}
