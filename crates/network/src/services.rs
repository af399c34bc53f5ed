//! Service proxy, as upstream's kube-proxy in nftables mode.
//!
//! The desired table is a pure function of the API objects ([`rules`]); the difference to the applied one is one nft
//! transaction ([`crate::nft_table`]), which [`crate::table_sync`] writes. The rules stay when Podium exits, as the
//! Pods do.

mod conntrack;
mod reserved_ips;
mod rules;
pub(crate) mod service_ports;
#[cfg(test)]
mod tests;

use crate::{bridge, informer::ServiceInformer, links::Netlink, table_sync::TableSync};
use reserved_ips::ReservedIps;
pub(crate) use rules::ProxyConfig;
use std::net::Ipv4Addr;

/// Returns the name of the bridge's proxy table.
pub(crate) fn table_name(bridge: &str) -> String {
    format!("{bridge}-services")
}

/// Syncs the proxy rules until it is cancelled: at each change, computes the table ([`rules::table`]) and writes it
/// ([`TableSync::sync`]), as upstream's `syncProxyRules`.
pub(crate) async fn run(mut informer: ServiceInformer, node: &str, config: ProxyConfig) {
    informer.wait_until_synced().await;
    let mut table_sync = TableSync::new(table_name(&config.bridge), "Services", "prerouting");
    let mut previous: Option<Vec<service_ports::ServicePort>> = None;
    loop {
        let reserved = ReservedIps::new(config.pods, config.services, routers().await);
        let service_ports = service_ports::service_ports(&informer.services(), &informer.slices(), node, &reserved);
        if table_sync.sync(rules::table(&service_ports, &config)).await {
            // Only after the rules that drop external packets to 127.0.0.0/8.
            bridge::route_loopback(&config.bridge);
            // After a restart, the previous endpoints are unknown and assumed to be the same.
            conntrack::delete_entries(conntrack::stale_entries(
                previous.as_deref().unwrap_or(&service_ports),
                &service_ports,
            ))
            .await;
            previous = Some(service_ports);
        }
        table_sync.wait(informer.changed()).await;
    }
}

/// Returns the gateways of the node's routes.
async fn routers() -> Vec<Ipv4Addr> {
    let found = async { Netlink::open()?.gateways().await };
    found.await.unwrap_or_else(|error| {
        tracing::warn!(%error, "failed to list routes: external addresses may be those of routers");
        Vec::new()
    })
}
