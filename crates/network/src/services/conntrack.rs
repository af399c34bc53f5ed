//! Stale conntrack entries of UDP (upstream's `pkg/proxy/conntrack`): a client that keeps sending from one port would
//! reach a removed endpoint, or none, for as long as its entry is refreshed.

use super::service_ports::ServicePort;
use crate::command::{find, run};
use std::{
    collections::BTreeSet,
    net::{Ipv4Addr, SocketAddrV4},
};

/// Filter of conntrack entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum StaleEntry {
    /// Entries with this endpoint as their DNAT target.
    Endpoint(Ipv4Addr),
    /// Entries with this original destination address.
    DestinationIp(Ipv4Addr),
    /// Entries with this original destination port (NodePort).
    NodePort(u16),
}

/// Returns the entries that are stale after a change of the Service ports.
pub(crate) fn stale_entries(old: &[ServicePort], new: &[ServicePort]) -> BTreeSet<StaleEntry> {
    let removed =
        endpoints(old).difference(&endpoints(new)).map(|(_, endpoint)| StaleEntry::Endpoint(*endpoint.ip())).collect();
    let newly_served = served_destinations(new).difference(&served_destinations(old)).copied().collect();
    BTreeSet::union(&removed, &newly_served).copied().collect()
}

fn udp(ports: &[ServicePort]) -> impl Iterator<Item = &ServicePort> {
    ports.iter().filter(|port| port.protocol == "udp")
}

fn endpoints(ports: &[ServicePort]) -> BTreeSet<(&str, SocketAddrV4)> {
    udp(ports).flat_map(|port| port.endpoints.iter().map(|endpoint| (port.name.as_str(), *endpoint))).collect()
}

/// Returns the destinations that have endpoints.
fn served_destinations(ports: &[ServicePort]) -> BTreeSet<StaleEntry> {
    let with_endpoints = udp(ports).filter(|port| !port.endpoints.is_empty());
    let destinations = |port: &ServicePort| -> Vec<StaleEntry> {
        let ips = [&port.cluster_ip].into_iter().chain(&port.external_ips).chain(&port.load_balancer_ips);
        ips.map(|ip| StaleEntry::DestinationIp(*ip)).chain(port.node_port.map(StaleEntry::NodePort)).collect()
    };
    with_endpoints.flat_map(destinations).collect()
}

/// Deletes the entries; the next packet is routed anew.
pub(crate) async fn delete_entries(stale: BTreeSet<StaleEntry>) {
    if !stale.is_empty() && find("conntrack").is_none() {
        tracing::warn!("conntrack is not installed, keeping stale UDP entries of removed endpoints");
        return;
    }
    for stale in stale {
        let (filter, value) = match stale {
            StaleEntry::Endpoint(ip) => ("--dst-nat", ip.to_string()),
            StaleEntry::DestinationIp(ip) => ("--orig-dst", ip.to_string()),
            StaleEntry::NodePort(port) => ("--orig-port-dst", port.to_string()),
        };
        // conntrack fails if no entry matches.
        let _ = run("conntrack", &["-D", "-p", "udp", filter, &value], "").await;
    }
}
