//! Addresses for which no Service gets rules, whatever its `externalIPs` and its status say: who may write a Service must
//! not take over the traffic of others.
//!
//! Addresses of the node itself change at any time. The rules leave them out when a packet comes ([`super::rules`]).

use ipnet::Ipv4Net;
use std::net::Ipv4Addr;

/// What is somebody else's.
#[derive(Debug, Clone)]
pub(crate) struct Reserved {
    /// Pods, their gateway, and Services have addresses of their own here.
    blocks: [Ipv4Net; 2],
    /// The machines through which the node reaches others.
    routers: Vec<Ipv4Addr>,
}

impl Reserved {
    pub(crate) fn new(pods: Ipv4Net, services: Ipv4Net, routers: Vec<Ipv4Addr>) -> Self {
        Self { blocks: [pods, services], routers }
    }

    pub(crate) fn contains(&self, ip: Ipv4Addr) -> bool {
        is_special(ip) || self.blocks.iter().any(|block| block.contains(&ip)) || self.routers.contains(&ip)
    }
}

/// Whether an address is no single machine's beyond this link (upstream's `ValidateNonSpecialIP`, and the blocks 0.0.0.0/8
/// and 240.0.0.0/4).
pub(crate) fn is_special(ip: Ipv4Addr) -> bool {
    let [first, ..] = ip.octets();
    first == 0 || first >= 224 || ip.is_loopback() || ip.is_link_local()
}
