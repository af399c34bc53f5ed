//! What connection tracking must forget. UDP has no end of a connection: a client that goes on sending from one port
//! would be led to where it was led first for as long as it does, be that an endpoint that is gone, or nowhere
//! (upstream's `pkg/proxy/conntrack`).

use super::traffic::ServicePort;
use crate::program::{find, run};
use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddrV4};

/// Which connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Stale {
    /// Those that were led to an endpoint.
    LedTo(Ipv4Addr),
    /// Those that asked at an address.
    AskedAt(Ipv4Addr),
    /// Those that asked at a port of the node.
    AskedNode(u16),
}

/// What differs between what was led and what is.
pub(crate) fn stale(before: &[ServicePort], now: &[ServicePort]) -> BTreeSet<Stale> {
    let gone =
        endpoints(before).difference(&endpoints(now)).map(|(_, endpoint)| Stale::LedTo(*endpoint.ip())).collect();
    let found = asked(now).difference(&asked(before)).copied().collect();
    BTreeSet::union(&gone, &found).copied().collect()
}

fn udp(ports: &[ServicePort]) -> impl Iterator<Item = &ServicePort> {
    ports.iter().filter(|port| port.protocol == "udp")
}

fn endpoints(ports: &[ServicePort]) -> BTreeSet<(&str, SocketAddrV4)> {
    udp(ports).flat_map(|port| port.endpoints.iter().map(|endpoint| (port.name.as_str(), *endpoint))).collect()
}

/// Where somebody answers.
fn asked(ports: &[ServicePort]) -> BTreeSet<Stale> {
    let answered = udp(ports).filter(|port| !port.endpoints.is_empty());
    let of = |port: &ServicePort| -> Vec<Stale> {
        let ips = [&port.cluster_ip].into_iter().chain(&port.external_ips).chain(&port.balancer_ips);
        ips.map(|ip| Stale::AskedAt(*ip)).chain(port.node_port.map(Stale::AskedNode)).collect()
    };
    answered.flat_map(of).collect()
}

/// Forgets them; what is led there still is led anew with the next packet.
pub(crate) async fn forget(stale: BTreeSet<Stale>) {
    if !stale.is_empty() && find("conntrack").is_none() {
        tracing::warn!("without the program conntrack, who has sent UDP to an endpoint that is gone goes on doing so");
        return;
    }
    for stale in stale {
        let (filter, value) = match stale {
            Stale::LedTo(ip) => ("--dst-nat", ip.to_string()),
            Stale::AskedAt(ip) => ("--orig-dst", ip.to_string()),
            Stale::AskedNode(port) => ("--orig-port-dst", port.to_string()),
        };
        // It fails where there is nothing to forget.
        let _ = run("conntrack", &["-D", "-p", "udp", filter, &value], "").await;
    }
}
