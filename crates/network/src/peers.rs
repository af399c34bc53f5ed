//! Peers that are served at the gateway's address, to which other machines can route packets through the node.

use ipnet::Ipv4Net;
use parking_lot::Mutex;
use std::{
    collections::HashSet,
    net::{IpAddr, Ipv4Addr},
    sync::Arc,
    time::{Duration, Instant},
};

/// Time that the node's own addresses are cached: not every unknown peer may cause a netlink dump.
const ADDRESS_CACHE_TTL: Duration = Duration::from_secs(1);

/// Peers that are served at the gateway's address: the node's Pods and the node itself.
#[derive(Debug, Clone)]
pub struct NodePeers {
    pods: Ipv4Net,
    node_addresses: Arc<Mutex<OwnAddresses>>,
}

#[derive(Debug, Default)]
struct OwnAddresses {
    read: Option<Instant>,
    all: HashSet<Ipv4Addr>,
}

impl NodePeers {
    pub(crate) fn new(pods: Ipv4Net) -> Self {
        Self { pods, node_addresses: Arc::default() }
    }

    /// Returns whether the peer is served.
    #[must_use]
    pub fn contains(&self, peer: IpAddr) -> bool {
        let IpAddr::V4(peer) = peer.to_canonical() else { return peer.is_loopback() };
        peer.is_loopback() || self.pods.contains(&peer) || self.is_own(peer)
    }

    fn is_own(&self, peer: Ipv4Addr) -> bool {
        let mut node_addresses = self.node_addresses.lock();
        if node_addresses.read.is_none_or(|read| read.elapsed() >= ADDRESS_CACHE_TTL) {
            let all = nix::ifaddrs::getifaddrs().into_iter().flatten();
            node_addresses.all = all.filter_map(|a| Some(a.address?.as_sockaddr_in()?.ip())).collect();
            node_addresses.read = Some(Instant::now());
        }
        node_addresses.all.contains(&peer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peers_outside_the_node_are_not_served() {
        // Addresses for documentation: another Podium on this machine has some of 10.244.0.0/16.
        let peers = NodePeers::new("203.0.113.0/25".parse().expect("a CIDR"));
        let contains = |peer: &str| peers.contains(peer.parse().expect("an address"));
        for peer in ["203.0.113.1", "203.0.113.77", "127.0.0.1", "::ffff:203.0.113.5", "::1"] {
            assert!(contains(peer), "{peer}");
        }
        for peer in ["203.0.113.129", "198.51.100.7", "2001:db8::1"] {
            assert!(!contains(peer), "{peer}");
        }
        let all =
            nix::ifaddrs::getifaddrs().expect("addresses").filter_map(|a| Some(a.address?.as_sockaddr_in()?.ip()));
        assert!(all.into_iter().all(|address| peers.contains(address.into())));
    }
}
