//! Host ports of Pods (`hostPort`), as the CNI plugin portmap: DNAT by nftables maps.
//!
//! A port is one element of a map, and is added without a rule of its own. Clients are other machines, the node itself
//! (at 127.0.0.1, too), and Pods of the bridge. These are masqueraded, for the reply of a Pod to another would not
//! return through the node; so is a Pod that reaches itself.

use crate::{
    command::{find, run},
    nf_tables::{Element, Family, concatenate},
};
use ipnet::Ipv4Net;
use std::{
    collections::BTreeMap,
    fmt,
    net::{IpAddr, Ipv4Addr},
};

/// Maximum number of host ports of a Pod.
pub(crate) const MAX_MAPPINGS: usize = 1024;
/// Packet mark for masquerading, the same as portmap's.
const MASQUERADE: &str = "0x2000";

/// Map of ports at every address of the node.
const PORTS: &str = "ports";
/// Map of ports at one address (`hostIP`).
const ADDRESS_PORTS: &str = "address-ports";

/// Transport protocol of a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
    /// SCTP.
    Sctp,
}

impl Protocol {
    /// Parses a protocol of the Kubernetes API or the CRI (`TCP`, `UDP`, `SCTP`), in any case.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        [Self::Tcp, Self::Udp, Self::Sctp].into_iter().find(|p| p.name().eq_ignore_ascii_case(text))
    }

    fn name(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
            Self::Sctp => "sctp",
        }
    }

    fn number(self) -> u8 {
        match self {
            Self::Tcp => 6,
            Self::Udp => 17,
            Self::Sctp => 132,
        }
    }
}

/// Host port of a Pod.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PortMapping {
    /// Protocol.
    pub protocol: Protocol,
    /// Port of the node. Zero means that the container port is not mapped.
    pub host_port: u16,
    /// Port in the Pod.
    pub container_port: u16,
    /// Address of the node; `None` or an unspecified address for all. Pods have no IPv6 addresses: with one, the
    /// mapping is ignored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_ip: Option<IpAddr>,
}

impl fmt::Display for PortMapping {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host_ip {
            Some(ip) if !ip.is_unspecified() => write!(f, "{ip}:{}/{}", self.host_port, self.protocol.name()),
            _ => write!(f, "{}/{}", self.host_port, self.protocol.name()),
        }
    }
}

impl PortMapping {
    /// Returns whether the mapping has an effect.
    pub(crate) fn is_effective(&self) -> bool {
        self.host_port != 0 && self.container_port != 0 && !matches!(self.host_ip, Some(IpAddr::V6(_)))
    }

    /// Returns the single address of the node.
    fn address(&self) -> Option<Ipv4Addr> {
        match self.host_ip {
            Some(IpAddr::V4(ip)) if !ip.is_unspecified() => Some(ip),
            _ => None,
        }
    }

    fn element(&self, bridge: &str, pod: Ipv4Addr) -> Element {
        let (protocol, port) = ([self.protocol.number()], self.host_port.to_be_bytes());
        let (set, key) = match self.address() {
            Some(ip) => (ADDRESS_PORTS, concatenate(&[&ip.octets(), &protocol, &port])),
            None => (PORTS, concatenate(&[&protocol, &port])),
        };
        let data = concatenate(&[&pod.octets(), &self.container_port.to_be_bytes()]);
        Element { family: Family::Ip, table: table_name(bridge), set, key, data: Some(data) }
    }

    /// Returns the map and the key in the language of nft.
    fn key(&self) -> (&'static str, String) {
        let port = format!("{} . {}", self.protocol.name(), self.host_port);
        self.address().map_or((PORTS, port.clone()), |ip| (ADDRESS_PORTS, format!("{ip} . {port}")))
    }
}

/// Returns the name of the bridge's table.
pub(crate) fn table_name(bridge: &str) -> String {
    format!("{bridge}-host-ports")
}

/// Returns the map elements of a Pod's host ports.
pub(crate) fn elements(bridge: &str, pod: Ipv4Addr, mappings: &[PortMapping]) -> Vec<Element> {
    mappings.iter().map(|mapping| mapping.element(bridge, pod)).collect()
}

/// Returns the transaction that replaces the bridge's table.
pub(crate) fn replacement(bridge: &str, cidr: Ipv4Net, mappings: &[(Ipv4Addr, PortMapping)]) -> String {
    let name = table_name(bridge);
    // Services come first, as their priorities are lower. The first packet of a connection is marked, and the mark is
    // removed again if no map has its port: a verdict of NAT ends the chain.
    let lines = [
        "add table ip TABLE".to_owned(),
        "delete table ip TABLE".to_owned(),
        "add table ip TABLE".to_owned(),
        format!("add map ip TABLE {PORTS} {{ type inet_proto . inet_service : ipv4_addr . inet_service ; }}"),
        format!(
            "add map ip TABLE {ADDRESS_PORTS} \
             {{ type ipv4_addr . inet_proto . inet_service : ipv4_addr . inet_service ; }}"
        ),
        "add chain ip TABLE to-pods".to_owned(),
        format!("add rule ip TABLE to-pods ip saddr {cidr} meta mark set meta mark or {MASQUERADE}"),
        format!(
            "add rule ip TABLE to-pods meta l4proto {{ tcp, udp, sctp }} \
             dnat ip to ip daddr . meta l4proto . th dport map @{ADDRESS_PORTS}"
        ),
        format!(
            "add rule ip TABLE to-pods meta l4proto {{ tcp, udp, sctp }} \
             dnat ip to meta l4proto . th dport map @{PORTS}"
        ),
        format!("add rule ip TABLE to-pods ip saddr {cidr} meta mark set meta mark and {}", !0x2000_u32),
        "add chain ip TABLE prerouting { type nat hook prerouting priority -99 ; }".to_owned(),
        "add rule ip TABLE prerouting fib daddr type local jump to-pods".to_owned(),
        "add chain ip TABLE output { type nat hook output priority -99 ; }".to_owned(),
        "add rule ip TABLE output fib daddr type local jump to-pods".to_owned(),
        "add chain ip TABLE postrouting { type nat hook postrouting priority 89 ; }".to_owned(),
        format!("add rule ip TABLE postrouting ip saddr 127.0.0.0/8 oifname {bridge} masquerade fully-random"),
        format!("add rule ip TABLE postrouting meta mark and {MASQUERADE} == 0 return"),
        format!("add rule ip TABLE postrouting meta mark set meta mark xor {MASQUERADE}"),
        "add rule ip TABLE postrouting masquerade fully-random".to_owned(),
        // `route_localnet` of the bridge is for host ports at 127.0.0.1; only this node may use it.
        "add chain ip TABLE loopback { type filter hook prerouting priority -300 ; }".to_owned(),
        format!("add rule ip TABLE loopback iifname {bridge} ip daddr 127.0.0.0/8 drop"),
    ];
    let mut unique = BTreeMap::new();
    for (pod, mapping) in mappings {
        unique.entry(mapping.key()).or_insert_with(|| format!("{pod} . {}", mapping.container_port));
    }
    let elements = unique.into_iter().map(|((map, key), to)| format!("add element ip TABLE {map} {{ {key} : {to} }}"));
    lines.into_iter().chain(elements).map(|line| line.replace("TABLE", &name) + "\n").collect()
}

/// Deletes conntrack entries of UDP host ports of a new Pod (`None`), or of a removed one: a client that keeps sending
/// from one port would not reach the Pod, or would reach the next one at its address.
pub(crate) async fn delete_conntrack_entries(mappings: &[PortMapping], removed: Option<Ipv4Addr>) {
    let udp: Vec<_> = mappings.iter().filter(|m| m.protocol == Protocol::Udp && m.is_effective()).collect();
    if !udp.is_empty() && find("conntrack").is_none() {
        tracing::warn!("conntrack is not installed, keeping stale UDP entries of host ports");
        return;
    }
    for mapping in udp {
        let (port, ip) = (mapping.host_port.to_string(), mapping.address().map(|ip| ip.to_string()));
        let pod = removed.map(|pod| pod.to_string());
        let mut args = vec!["-D", "-p", "udp", "--orig-port-dst", &port];
        args.extend(ip.iter().flat_map(|ip| ["--orig-dst", ip]));
        args.extend(pod.iter().flat_map(|pod| ["--reply-src", pod]));
        // conntrack fails if no entry matches.
        let _ = run("conntrack", &args, "").await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;

    fn mapping(host_ip: Option<&str>, host_port: u16) -> PortMapping {
        let host_ip = host_ip.map(|ip| ip.parse().unwrap());
        PortMapping { protocol: Protocol::Tcp, host_port, container_port: 80, host_ip }
    }

    #[test]
    fn table_maps_ports_of_all_and_of_single_addresses() {
        let (wildcard, single) = (mapping(Some("0.0.0.0"), 8080), mapping(Some("192.0.2.1"), 8081));
        let pod = |last| Ipv4Addr::new(10, 244, 0, last);
        // A port that two Pods have belongs to the first.
        let mappings = [(pod(2), wildcard.clone()), (pod(3), single), (pod(4), wildcard)];
        expect![[r#"
            add table ip pd-1-host-ports
            delete table ip pd-1-host-ports
            add table ip pd-1-host-ports
            add map ip pd-1-host-ports ports { type inet_proto . inet_service : ipv4_addr . inet_service ; }
            add map ip pd-1-host-ports address-ports { type ipv4_addr . inet_proto . inet_service : ipv4_addr . inet_service ; }
            add chain ip pd-1-host-ports to-pods
            add rule ip pd-1-host-ports to-pods ip saddr 10.244.0.0/24 meta mark set meta mark or 0x2000
            add rule ip pd-1-host-ports to-pods meta l4proto { tcp, udp, sctp } dnat ip to ip daddr . meta l4proto . th dport map @address-ports
            add rule ip pd-1-host-ports to-pods meta l4proto { tcp, udp, sctp } dnat ip to meta l4proto . th dport map @ports
            add rule ip pd-1-host-ports to-pods ip saddr 10.244.0.0/24 meta mark set meta mark and 4294959103
            add chain ip pd-1-host-ports prerouting { type nat hook prerouting priority -99 ; }
            add rule ip pd-1-host-ports prerouting fib daddr type local jump to-pods
            add chain ip pd-1-host-ports output { type nat hook output priority -99 ; }
            add rule ip pd-1-host-ports output fib daddr type local jump to-pods
            add chain ip pd-1-host-ports postrouting { type nat hook postrouting priority 89 ; }
            add rule ip pd-1-host-ports postrouting ip saddr 127.0.0.0/8 oifname pd-1 masquerade fully-random
            add rule ip pd-1-host-ports postrouting meta mark and 0x2000 == 0 return
            add rule ip pd-1-host-ports postrouting meta mark set meta mark xor 0x2000
            add rule ip pd-1-host-ports postrouting masquerade fully-random
            add chain ip pd-1-host-ports loopback { type filter hook prerouting priority -300 ; }
            add rule ip pd-1-host-ports loopback iifname pd-1 ip daddr 127.0.0.0/8 drop
            add element ip pd-1-host-ports address-ports { 192.0.2.1 . tcp . 8081 : 10.244.0.3 . 80 }
            add element ip pd-1-host-ports ports { tcp . 8080 : 10.244.0.2 . 80 }
        "#]].assert_eq(&replacement("pd-1", "10.244.0.0/24".parse().unwrap(), &mappings));
    }

    #[test]
    fn element_has_padded_key_and_data() {
        let [element] = &elements("pd-1", Ipv4Addr::new(10, 244, 0, 2), &[mapping(None, 8080)])[..] else {
            panic!("one element");
        };
        assert_eq!((element.set, element.table.as_str()), ("ports", "pd-1-host-ports"));
        assert_eq!(element.key, [6, 0, 0, 0, 0x1f, 0x90, 0, 0]);
        assert_eq!(element.data.as_deref(), Some(&[10, 244, 0, 2, 0, 80, 0, 0][..]));
    }

    #[test]
    fn ipv6_addresses_and_unmapped_ports_are_ignored() {
        assert!(mapping(None, 80).is_effective() && mapping(Some("127.0.0.1"), 80).is_effective());
        assert!(!mapping(Some("::"), 80).is_effective() && !mapping(Some("::1"), 80).is_effective());
        assert!(!mapping(None, 0).is_effective());
        assert_eq!(mapping(Some("127.0.0.1"), 80).to_string(), "127.0.0.1:80/tcp");
        assert_eq!((Protocol::parse("SCTP"), Protocol::parse("icmp")), (Some(Protocol::Sctp), None));
    }
}
