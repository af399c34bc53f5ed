//! The rules that lead traffic to Services' endpoints: pure (after upstream's nftables proxy, KEP-3866).
//!
//! A packet's destination is looked up in a map, which names a chain; that chain takes one of its endpoints at random, or
//! the one that the client had before; the endpoint's chain writes the new destination. Only the first packet of a
//! connection comes here: the kernel's connection tracking knows what to do with the others, and with the answers.

use super::traffic::ServicePort;
use crate::table::{Chain, Map, Table, digest};
use ipnet::Ipv4Net;
use std::net::{Ipv4Addr, SocketAddrV4};

/// What rules depend on beside the Services.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    /// The bridge that Pods are plugged into.
    pub(crate) bridge: String,
    pub(crate) pods: Ipv4Net,
    /// Where Services have their addresses.
    pub(crate) services: Ipv4Net,
    /// Where load balancers have theirs, if this node gives them some.
    pub(crate) load_balancers: Option<Ipv4Net>,
    /// Whether connection tracking sees what Pods of the bridge say to each other. Where it does not, an answer would
    /// come from an address that the client never asked: then Pods see the gateway's address as the client's.
    pub(crate) sees_bridge: bool,
}

/// A bit of a packet's mark, the same as upstream's: its source becomes the node's.
const MASQUERADE: &str = "0x4000";
const MARK: &str = "mark-for-masquerade";

const CLUSTER_IPS: &str = "cluster-ips";
/// The addresses alone (upstream's set `cluster-ips`).
const KNOWN_IPS: &str = "known-ips";
const EXTERNAL_IPS: &str = "external-ips";
const NODE_PORTS: &str = "node-ports";
const REFUSED_IPS: &str = "refused-ips";
const REFUSED_NODE_PORTS: &str = "refused-node-ports";
/// Bytes of a digest that stands beside a name.
const SHORT: usize = 4;
const REFUSE: &str = "refuse";
const DROP: &str = "drop-it";

const DESTINATION: &str = "ip daddr . meta l4proto . th dport";
const PORT: &str = "meta l4proto . th dport";

/// The whole table.
pub(crate) fn table(ports: &[ServicePort], place: &Place) -> Table {
    let mut rules = Rules { table: base(place), place };
    ports.iter().for_each(|port| rules.add(port));
    rules.table
}

/// What is there without any Service, too.
fn base(place: &Place) -> Table {
    let mut table = Table::default();
    for name in [CLUSTER_IPS, EXTERNAL_IPS, REFUSED_IPS] {
        table.maps.insert(name, Map { of: "ipv4_addr . inet_proto . inet_service", ..Map::default() });
    }
    table.maps.insert(KNOWN_IPS, Map { of: "ipv4_addr", ..Map::default() });
    for name in [NODE_PORTS, REFUSED_NODE_PORTS] {
        table.maps.insert(name, Map { of: "inet_proto . inet_service", ..Map::default() });
    }
    let mut chain = |name: &str, hook, rules: &[String]| {
        table.chains.insert(name.to_owned(), Chain { hook, rules: rules.to_vec() });
    };
    let Place { bridge, pods, services, .. } = place;
    let to_cluster_ips = format!("{DESTINATION} vmap @{CLUSTER_IPS}");
    // The node's own addresses are nobody else's, whatever a Service says.
    let to_external_ips = format!("fib daddr type != local {DESTINATION} vmap @{EXTERNAL_IPS}");
    let to_node_ports = format!("fib daddr type local {PORT} vmap @{NODE_PORTS}");
    let refused = format!("ct state new fib daddr type != local {DESTINATION} vmap @{REFUSED_IPS}");
    let refused_here = format!("ct state new fib daddr type local {PORT} vmap @{REFUSED_NODE_PORTS}");
    // Other Podiums of this machine have Services at the same addresses: their Pods are theirs.
    let of_pods = format!("ip saddr {pods} ");
    let prerouting = [
        format!("{of_pods}{to_cluster_ips}"),
        to_external_ips.clone(),
        format!("ip daddr != 127.0.0.0/8 {to_node_ports}"),
    ];
    chain("prerouting", Some("type nat hook prerouting priority -100"), &prerouting);
    chain("output", Some("type nat hook output priority -100"), &[to_cluster_ips, to_external_ips, to_node_ports]);
    let masquerade = [
        format!("meta mark and {MASQUERADE} == 0 return"),
        format!("meta mark set meta mark xor {MASQUERADE}"),
        "masquerade fully-random".to_owned(),
    ];
    chain("postrouting", Some("type nat hook postrouting priority 90"), &masquerade);
    // After the destination was written: what still goes to a Service's address goes to nobody. Of the node only what goes
    // to a Service that there is: beyond that the network may be somebody else's.
    let unserved = format!("ct state new ip daddr vmap @{KNOWN_IPS}");
    let unknown = format!("{of_pods}ip daddr {services} reject");
    // Those of load balancers are this node's alone.
    let unbalanced = place.load_balancers.map(|pool| format!("ct state new ip daddr {pool} reject"));
    let forward = [format!("{of_pods}{refused}"), unknown].into_iter().chain(unbalanced.clone());
    chain("forward", Some("type filter hook forward priority -110"), &forward.collect::<Vec<_>>());
    let output = [refused, refused_here.clone(), unserved].into_iter().chain(unbalanced);
    chain("filter-output", Some("type filter hook output priority -90"), &output.collect::<Vec<_>>());
    chain("filter-input", Some("type filter hook input priority -110"), &[refused_here]);
    // The bridge lets 127.0.0.1 through so that node ports answer there: for nobody but this node.
    let guard = [format!("iifname {bridge} ip daddr 127.0.0.0/8 drop")];
    chain("loopback", Some("type filter hook prerouting priority -300"), &guard);
    chain(MARK, None, &[format!("meta mark set meta mark or {MASQUERADE}")]);
    chain(REFUSE, None, &["reject".to_owned()]);
    chain(DROP, None, &["drop".to_owned()]);
    table
}

struct Rules<'a> {
    table: Table,
    place: &'a Place,
}

impl Rules<'_> {
    fn add(&mut self, port: &ServicePort) {
        let key = |ip: &Ipv4Addr| format!("{ip} . {} . {}", port.protocol, port.port);
        let cluster_ip = key(&port.cluster_ip);
        self.verdict(KNOWN_IPS, port.cluster_ip.to_string(), format!("goto {REFUSE}"));
        match self.balance(port, port.internal_local) {
            Some(chain) => self.lead(CLUSTER_IPS, cluster_ip, &chain),
            None => self.refuse(REFUSED_IPS, cluster_ip, port),
        }
        let (external, balancer) = (chain_name("external", port), chain_name("balancer", port));
        let by_ip = |ips: &[Ipv4Addr], chain: &str| -> Vec<_> {
            ips.iter().map(|ip| (EXTERNAL_IPS, REFUSED_IPS, key(ip), chain.to_owned())).collect()
        };
        let mut outside = by_ip(&port.external_ips, &external);
        outside.extend(by_ip(&port.balancer_ips, &balancer));
        let node_port = port.node_port.map(|number| format!("{} . {number}", port.protocol));
        outside.extend(node_port.map(|key| (NODE_PORTS, REFUSED_NODE_PORTS, key, external)));
        let is_led = !port.endpoints.is_empty();
        if is_led && !outside.is_empty() {
            self.add_outside(port);
        }
        for (led, refused, key, chain) in outside {
            if is_led {
                self.lead(led, key, &chain);
            } else {
                self.refuse(refused, key, port);
            }
        }
    }

    /// The chain for who comes from outside: with the node's address, unless only this node's endpoints are asked, which
    /// answer through this node anyway.
    fn add_outside(&mut self, port: &ServicePort) {
        let wherever = self.balance(port, false);
        let mut rules = Vec::new();
        if port.external_local {
            let here = self.balance(port, true);
            // Pods and the node itself are not outside, whatever address they use.
            rules.extend(wherever.iter().map(|chain| format!("ip saddr {} goto {chain}", self.place.pods)));
            rules.push(format!("fib saddr type local jump {MARK}"));
            rules.extend(wherever.iter().map(|chain| format!("fib saddr type local goto {chain}")));
            rules.push(here.map_or("drop".to_owned(), |chain| format!("goto {chain}")));
        } else {
            rules.push(format!("jump {MARK}"));
            rules.extend(wherever.map(|chain| format!("goto {chain}")));
        }
        let external = chain_name("external", port);
        self.chain(&external, rules);
        if !port.balancer_ips.is_empty() {
            let goto = format!("goto {external}");
            // One rule for each: blocks may overlap, and a set of such blocks is refused.
            let rules = match &port.sources {
                None => vec![goto],
                Some(ranges) => {
                    let allowed = ranges.iter().map(|from| format!("ip saddr {from} {goto}"));
                    allowed.chain(["drop".to_owned()]).collect()
                }
            };
            self.chain(&chain_name("balancer", port), rules);
        }
    }

    /// A chain that chooses one of the endpoints, or of this node's only; none where there is nobody.
    fn balance(&mut self, port: &ServicePort, local: bool) -> Option<String> {
        let (kind, endpoints) = if local { ("local", &port.local_endpoints) } else { ("service", &port.endpoints) };
        let name = chain_name(kind, port);
        let count = endpoints.len();
        if count == 0 || self.table.chains.contains_key(&name) {
            return (count > 0).then_some(name);
        }
        let mut rules = Vec::new();
        if !local {
            // The node's own, and others from elsewhere: an endpoint on another node would answer past this one.
            let (ip, pods) = (port.cluster_ip, self.place.pods);
            rules.push(format!("ip daddr {ip} ip saddr != {pods} jump {MARK}"));
        }
        let mut verdicts = Vec::new();
        for (n, endpoint) in endpoints.iter().enumerate() {
            let (chain, clients) = self.endpoint(port, *endpoint);
            rules.extend(clients.map(|clients| format!("ip saddr @{clients} goto {chain}")));
            verdicts.push(format!("{n} : goto {chain}"));
        }
        rules.push(format!("numgen random mod {count} vmap {{ {} }}", verdicts.join(", ")));
        self.chain(&name, rules);
        Some(name)
    }

    /// The chain of an endpoint, and the set of the clients that it has.
    fn endpoint(&mut self, port: &ServicePort, endpoint: SocketAddrV4) -> (String, Option<String>) {
        let chain = format!("{}__{}/{}", chain_name("endpoint", port), endpoint.ip(), endpoint.port());
        // Another time is another set: that of one that is there cannot be changed.
        let clients =
            port.affinity.map(|seconds| (format!("clients-{}", digest(&format!("{chain} {seconds}"), SHORT)), seconds));
        if !self.table.chains.contains_key(&chain) {
            // A Pod that reaches itself must see somebody else; see `Place::sees_bridge` for the others.
            let own = if self.place.sees_bridge { endpoint.ip().to_string() } else { self.place.pods.to_string() };
            let mut rules = vec![format!("ip saddr {own} jump {MARK}")];
            if let Some((set, seconds)) = &clients {
                let declaration = format!("type ipv4_addr ; flags dynamic,timeout ; timeout {seconds}s ;");
                self.table.sets.insert(set.clone(), declaration);
                rules.push(format!("update @{set} {{ ip saddr }}"));
            }
            rules.push(format!("meta l4proto {} dnat to {endpoint}", port.protocol));
            self.chain(&chain, rules);
        }
        (chain, clients.map(|(set, _)| set))
    }

    fn chain(&mut self, name: &str, rules: Vec<String>) {
        self.table.chains.insert(name.to_owned(), Chain { hook: None, rules });
    }

    fn lead(&mut self, map: &'static str, key: String, chain: &str) {
        self.verdict(map, key, format!("goto {chain}"));
    }

    /// Nobody answers: who asks is told so, unless there are endpoints elsewhere, which others may reach.
    fn refuse(&mut self, map: &'static str, key: String, port: &ServicePort) {
        let chain = if port.endpoints.is_empty() { REFUSE } else { DROP };
        self.verdict(map, key, format!("goto {chain}"));
    }

    fn verdict(&mut self, map: &'static str, key: String, verdict: String) {
        if let Some(map) = self.table.maps.get_mut(map) {
            // The first of several Services with one external address has it.
            map.elements.entry(key).or_insert(verdict);
        }
    }
}

/// Unique, and told apart by people. The kernel's limit is 127 bytes, of which an endpoint takes 24.
fn chain_name(kind: &str, port: &ServicePort) -> String {
    let named: String = port.name.trim_end_matches('/').chars().take(70).collect();
    format!("{kind}-{}-{named}", digest(&port.name, SHORT))
}
