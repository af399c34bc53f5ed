//! Rules of the Service proxy: pure (after upstream's nftables proxy, KEP-3866).
//!
//! This file computes the desired table ([`Table`]). `crates/network/src/table_sync.rs` writes it, as a transaction
//! that `crates/network/src/nft_table.rs` formats; [`super::run`] calls both whenever Services change.
//!
//! A verdict map sends a packet by its destination to the chain of a Service port; that chain picks an endpoint at
//! random, or by session affinity; the endpoint's chain does the DNAT. Only the first packet of a connection is
//! evaluated: connection tracking handles the others and the replies.

use super::service_ports::ServicePort;
use crate::nft_table::{Chain, Map, Table, digest};
use ipnet::Ipv4Net;
use std::net::{Ipv4Addr, SocketAddrV4};

/// Configuration of the proxy.
#[derive(Debug, Clone)]
pub(crate) struct ProxyConfig {
    /// Bridge of the Pods' veth interfaces.
    pub(crate) bridge: String,
    pub(crate) pods: Ipv4Net,
    /// Service CIDR.
    pub(crate) services: Ipv4Net,
    /// CIDR of load balancer addresses, if this node allocates some.
    pub(crate) load_balancers: Option<Ipv4Net>,
    /// Whether connection tracking sees bridged traffic (br_netfilter). If not, the reply of a Pod on the bridge would
    /// bypass un-DNAT: then such traffic is masqueraded.
    pub(crate) sees_bridge: bool,
}

/// Packet mark for masquerading, the same as upstream's.
const MASQUERADE: &str = "0x4000";
const MASQUERADE_CHAIN: &str = "mark-for-masquerade";

const CLUSTER_IPS: &str = "cluster-ips";
/// All ClusterIPs (upstream's set `cluster-ips`).
const SERVICE_IPS: &str = "known-ips";
const EXTERNAL_IPS: &str = "external-ips";
const NODE_PORTS: &str = "node-ports";
const NO_ENDPOINT_IPS: &str = "no-endpoint-ips";
const NO_ENDPOINT_NODE_PORTS: &str = "no-endpoint-node-ports";
/// Bytes of the digest in names that also contain a readable part.
const DIGEST_LENGTH: usize = 4;
const REJECT: &str = "reject-chain";
const DROP: &str = "drop-chain";

const DESTINATION: &str = "ip daddr . meta l4proto . th dport";
const PORT: &str = "meta l4proto . th dport";

/// Returns the table for the Service ports: the rules that upstream's `syncProxyRules` would write.
pub(crate) fn table(ports: &[ServicePort], config: &ProxyConfig) -> Table {
    let mut rules = Rules { table: base(config), config };
    ports.iter().for_each(|port| rules.add(port));
    rules.table
}

/// Returns the table without Service ports.
fn base(config: &ProxyConfig) -> Table {
    let mut table = Table::default();
    for name in [CLUSTER_IPS, EXTERNAL_IPS, NO_ENDPOINT_IPS] {
        table.maps.insert(name, Map { key_type: "ipv4_addr . inet_proto . inet_service", ..Map::default() });
    }
    table.maps.insert(SERVICE_IPS, Map { key_type: "ipv4_addr", ..Map::default() });
    for name in [NODE_PORTS, NO_ENDPOINT_NODE_PORTS] {
        table.maps.insert(name, Map { key_type: "inet_proto . inet_service", ..Map::default() });
    }
    let mut chain = |name: &str, hook, rules: &[String]| {
        table.chains.insert(name.to_owned(), Chain { hook, rules: rules.to_vec() });
    };
    let ProxyConfig { bridge, pods, services, .. } = config;
    let to_cluster_ips = format!("{DESTINATION} vmap @{CLUSTER_IPS}");
    // The node's own addresses are never external IPs of a Service.
    let to_external_ips = format!("fib daddr type != local {DESTINATION} vmap @{EXTERNAL_IPS}");
    let to_node_ports = format!("fib daddr type local {PORT} vmap @{NODE_PORTS}");
    let no_endpoints = format!("ct state new fib daddr type != local {DESTINATION} vmap @{NO_ENDPOINT_IPS}");
    let no_endpoints_node_port = format!("ct state new fib daddr type local {PORT} vmap @{NO_ENDPOINT_NODE_PORTS}");
    // Other instances of Podium on this machine use the same Service CIDR for their own Pods.
    let from_pods = format!("ip saddr {pods} ");
    let prerouting = [
        format!("{from_pods}{to_cluster_ips}"),
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
    // After DNAT: a packet that still has a Service address has no endpoint. For packets of the node, only known
    // Services are rejected: the rest of the CIDR may be used by another network.
    let unserved_port = format!("ct state new ip daddr vmap @{SERVICE_IPS}");
    let unknown_cluster_ip = format!("{from_pods}ip daddr {services} reject");
    // Load balancer addresses belong to this node alone.
    let unknown_load_balancer = config.load_balancers.map(|pool| format!("ct state new ip daddr {pool} reject"));
    let forward =
        [format!("{from_pods}{no_endpoints}"), unknown_cluster_ip].into_iter().chain(unknown_load_balancer.clone());
    chain("forward", Some("type filter hook forward priority -110"), &forward.collect::<Vec<_>>());
    let output = [no_endpoints, no_endpoints_node_port.clone(), unserved_port].into_iter().chain(unknown_load_balancer);
    chain("filter-output", Some("type filter hook output priority -90"), &output.collect::<Vec<_>>());
    chain("filter-input", Some("type filter hook input priority -110"), &[no_endpoints_node_port]);
    // `route_localnet` of the bridge is for NodePorts at 127.0.0.1; only this node may use it.
    let drop_martian_loopback = [format!("iifname {bridge} ip daddr 127.0.0.0/8 drop")];
    chain("loopback", Some("type filter hook prerouting priority -300"), &drop_martian_loopback);
    chain(MASQUERADE_CHAIN, None, &[format!("meta mark set meta mark or {MASQUERADE}")]);
    chain(REJECT, None, &["reject".to_owned()]);
    chain(DROP, None, &["drop".to_owned()]);
    table
}

struct Rules<'a> {
    table: Table,
    config: &'a ProxyConfig,
}

impl Rules<'_> {
    fn add(&mut self, port: &ServicePort) {
        let key = |ip: &Ipv4Addr| format!("{ip} . {} . {}", port.protocol, port.port);
        let cluster_ip = key(&port.cluster_ip);
        self.verdict(SERVICE_IPS, port.cluster_ip.to_string(), format!("goto {REJECT}"));
        match self.add_service_chain(port, port.internal_local) {
            Some(chain) => self.add_endpoint_verdict(CLUSTER_IPS, cluster_ip, &chain),
            None => self.add_no_endpoint_verdict(NO_ENDPOINT_IPS, cluster_ip, port),
        }
        let (external, balancer) = (chain_name("external", port), chain_name("balancer", port));
        let by_ip = |ips: &[Ipv4Addr], chain: &str| -> Vec<_> {
            ips.iter().map(|ip| (EXTERNAL_IPS, NO_ENDPOINT_IPS, key(ip), chain.to_owned())).collect()
        };
        let mut external_keys = by_ip(&port.external_ips, &external);
        external_keys.extend(by_ip(&port.load_balancer_ips, &balancer));
        let node_port = port.node_port.map(|number| format!("{} . {number}", port.protocol));
        external_keys.extend(node_port.map(|key| (NODE_PORTS, NO_ENDPOINT_NODE_PORTS, key, external)));
        let has_endpoints = !port.endpoints.is_empty();
        if has_endpoints && !external_keys.is_empty() {
            self.add_external_chains(port);
        }
        for (map, no_endpoints, key, chain) in external_keys {
            if has_endpoints {
                self.add_endpoint_verdict(map, key, &chain);
            } else {
                self.add_no_endpoint_verdict(no_endpoints, key, port);
            }
        }
    }

    /// Adds the chain for external traffic: masqueraded, unless `externalTrafficPolicy: Local` restricts it to local
    /// endpoints.
    fn add_external_chains(&mut self, port: &ServicePort) {
        let cluster_chain = self.add_service_chain(port, false);
        let mut rules = Vec::new();
        if port.external_local {
            let local_chain = self.add_service_chain(port, true);
            // Traffic of Pods and of the node is internal, whatever address it uses.
            rules.extend(cluster_chain.iter().map(|chain| format!("ip saddr {} goto {chain}", self.config.pods)));
            rules.push(format!("fib saddr type local jump {MASQUERADE_CHAIN}"));
            rules.extend(cluster_chain.iter().map(|chain| format!("fib saddr type local goto {chain}")));
            rules.push(local_chain.map_or("drop".to_owned(), |chain| format!("goto {chain}")));
        } else {
            rules.push(format!("jump {MASQUERADE_CHAIN}"));
            rules.extend(cluster_chain.map(|chain| format!("goto {chain}")));
        }
        let external = chain_name("external", port);
        self.chain(&external, rules);
        if !port.load_balancer_ips.is_empty() {
            let goto = format!("goto {external}");
            // One rule for each range: ranges may overlap, which a set without `auto-merge` rejects.
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

    /// Adds the chain that picks an endpoint, or a local one; `None` without endpoints.
    fn add_service_chain(&mut self, port: &ServicePort, local: bool) -> Option<String> {
        let (kind, endpoints) = if local { ("local", &port.local_endpoints) } else { ("service", &port.endpoints) };
        let name = chain_name(kind, port);
        let count = endpoints.len();
        if count == 0 || self.table.chains.contains_key(&name) {
            return (count > 0).then_some(name);
        }
        let mut rules = Vec::new();
        if !local {
            // Masquerades traffic that is not from Pods: an endpoint on another node would reply past this one.
            let (ip, pods) = (port.cluster_ip, self.config.pods);
            rules.push(format!("ip daddr {ip} ip saddr != {pods} jump {MASQUERADE_CHAIN}"));
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

    /// Adds the chain of an endpoint; returns it with the set of its session affinity clients.
    fn endpoint(&mut self, port: &ServicePort, endpoint: SocketAddrV4) -> (String, Option<String>) {
        let chain = format!("{}__{}/{}", chain_name("endpoint", port), endpoint.ip(), endpoint.port());
        // The timeout of an existing set cannot be changed: another timeout is another set.
        let clients = port
            .affinity
            .map(|seconds| (format!("clients-{}", digest(&format!("{chain} {seconds}"), DIGEST_LENGTH)), seconds));
        if !self.table.chains.contains_key(&chain) {
            // Hairpin traffic is masqueraded; see `ProxyConfig::sees_bridge` for the other Pods.
            let masqueraded_sources =
                if self.config.sees_bridge { endpoint.ip().to_string() } else { self.config.pods.to_string() };
            let mut rules = vec![format!("ip saddr {masqueraded_sources} jump {MASQUERADE_CHAIN}")];
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

    fn add_endpoint_verdict(&mut self, map: &'static str, key: String, chain: &str) {
        self.verdict(map, key, format!("goto {chain}"));
    }

    /// Without endpoints, packets are rejected; with `Local` policy and endpoints elsewhere only, they are dropped.
    fn add_no_endpoint_verdict(&mut self, map: &'static str, key: String, port: &ServicePort) {
        let chain = if port.endpoints.is_empty() { REJECT } else { DROP };
        self.verdict(map, key, format!("goto {chain}"));
    }

    fn verdict(&mut self, map: &'static str, key: String, verdict: String) {
        if let Some(map) = self.table.maps.get_mut(map) {
            // The first of several Services with one external address wins.
            map.elements.entry(key).or_insert(verdict);
        }
    }
}

/// Returns a unique, readable name. The kernel's limit is 127 bytes, of which an endpoint takes 24.
fn chain_name(kind: &str, port: &ServicePort) -> String {
    let named: String = port.name.trim_end_matches('/').chars().take(70).collect();
    format!("{kind}-{}-{named}", digest(&port.name, DIGEST_LENGTH))
}
