//! What connection tracking must forget. UDP has no end of a connection: a client that goes on sending from one port
//! would be led to an endpoint that is gone for as long as it does (upstream's `pkg/proxy/conntrack`).

use super::traffic::ServicePort;
use crate::program::{find, run};
use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddrV4};

/// Addresses of endpoints that UDP was led to, and is no more.
pub(crate) fn gone(before: &[ServicePort], now: &[ServicePort]) -> BTreeSet<Ipv4Addr> {
    let of = |ports: &[ServicePort]| -> BTreeSet<(String, SocketAddrV4)> {
        let udp = ports.iter().filter(|port| port.protocol == "udp");
        udp.flat_map(|port| port.endpoints.iter().map(|endpoint| (port.name.clone(), *endpoint))).collect()
    };
    of(before).difference(&of(now)).map(|(_, endpoint)| *endpoint.ip()).collect()
}

/// Forgets what was led there; what still goes there by another Service is led anew with the next packet.
pub(crate) async fn forget(gone: BTreeSet<Ipv4Addr>) {
    if !gone.is_empty() && find("conntrack").is_none() {
        tracing::warn!("without the program conntrack, who has sent UDP to an endpoint that is gone goes on doing so");
        return;
    }
    for ip in gone {
        // It fails where there is nothing to forget.
        let _ = run("conntrack", &["-D", "-p", "udp", "--dst-nat", &ip.to_string()], "").await;
    }
}
