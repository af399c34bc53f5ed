//! Addresses for which no Service gets rules, whatever its `externalIPs` and its status contain: permission to write a
//! Service must not allow to intercept the traffic of others (CVE-2020-8554).
//!
//! The node's own addresses change at any time; the rules exclude them per packet ([`super::rules`]).

use ipnet::Ipv4Net;
use std::net::Ipv4Addr;

/// Reserved addresses.
#[derive(Debug, Clone)]
pub(crate) struct ReservedIps {
    /// Pod CIDR and Service CIDR.
    blocks: [Ipv4Net; 2],
    /// Gateways of the node's routes.
    routers: Vec<Ipv4Addr>,
}

impl ReservedIps {
    pub(crate) fn new(pods: Ipv4Net, services: Ipv4Net, routers: Vec<Ipv4Addr>) -> Self {
        Self { blocks: [pods, services], routers }
    }

    pub(crate) fn contains(&self, ip: Ipv4Addr) -> bool {
        is_special(ip) || self.blocks.iter().any(|block| block.contains(&ip)) || self.routers.contains(&ip)
    }
}

/// Returns whether the address is not a unicast address beyond this link (upstream's `ValidateNonSpecialIP`, and the
/// blocks 0.0.0.0/8 and 240.0.0.0/4).
pub(crate) fn is_special(ip: Ipv4Addr) -> bool {
    let [first, ..] = ip.octets();
    first == 0 || first >= 224 || ip.is_loopback() || ip.is_link_local()
}
