//! Anti-spoofing rules for Pod interfaces.
//!
//! Frames from a Pod's bridge port must have the Pod's MAC and IPv4 address, in ARP, too. Otherwise a Pod with
//! `CAP_NET_RAW` or `CAP_NET_ADMIN` could intercept traffic of other Pods or of the gateway, or bypass
//! NetworkPolicies. IPv6 router advertisements and redirects, VLAN frames and other protocols are dropped, for
//! NetworkPolicies do not see them.
//!
//! [`crate::attach`] adds the port of a sandbox before its interface can send.

use std::{fmt::Write, net::Ipv4Addr};

/// Bridge port of a Pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Port {
    /// The host's end of the Pod's veth pair.
    pub(crate) veth: String,
    /// MAC address of the Pod's end.
    pub(crate) mac: String,
    pub(crate) ip: Ipv4Addr,
}

/// Returns the name of the bridge's anti-spoofing table.
pub(crate) fn table_name(bridge: &str) -> String {
    format!("{bridge}-anti-spoof")
}

/// Returns the transaction that replaces the bridge's table.
pub(crate) fn replacement(bridge: &str, ports: &[Port]) -> String {
    table(&table_name(bridge), ports.iter())
}

fn table<'a>(name: &str, ports: impl Iterator<Item = &'a Port>) -> String {
    // The hook precedes br_netfilter's: dropped frames never reach connection tracking.
    format!(
        "add table bridge {name}\ndelete table bridge {name}\nadd table bridge {name}\n\
         add set bridge {name} ports {{ type ifname ; }}\n\
         add set bridge {name} senders {{ type ifname . ether_addr ; }}\n\
         add set bridge {name} addresses {{ type ifname . ether_addr . ipv4_addr ; }}\n\
         add chain bridge {name} prerouting {{ type filter hook prerouting priority -300 ; }}\n\
         add rule bridge {name} prerouting iifname != @ports accept\n\
         add rule bridge {name} prerouting iifname . ether saddr != @senders drop\n\
         add rule bridge {name} prerouting ether type ip iifname . ether saddr . ip saddr != @addresses drop\n\
         add rule bridge {name} prerouting ether type arp iifname . arp saddr ether . arp saddr ip != @addresses drop\n\
         add rule bridge {name} prerouting ether type ip6 icmpv6 type {{ nd-router-advert, nd-redirect }} drop\n\
         add rule bridge {name} prerouting ether type != {{ ip, arp, ip6 }} drop\n{}",
        elements(name, ports)
    )
}

/// Returns the commands that add ports. Adding an existing element is not an error.
fn elements<'a>(name: &str, ports: impl Iterator<Item = &'a Port>) -> String {
    let mut script = String::new();
    for Port { veth, mac, ip } in ports {
        let _ = write!(
            script,
            "add element bridge {name} ports {{ \"{veth}\" }}\n\
             add element bridge {name} senders {{ \"{veth}\" . {mac} }}\n\
             add element bridge {name} addresses {{ \"{veth}\" . {mac} . {ip} }}\n"
        );
    }
    script
}

#[cfg(test)]
mod tests;
