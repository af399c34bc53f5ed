//! Setup of the network of a node whose Pods are connected by CNI plugins.
//!
//! Service proxy, cluster DNS and the API server for Pods need an address that all Pods can reach, and that other machines
//! do not use. The plugins' gateway exists only after the first Pod, if at all. So the bridge, which has no ports then, has
//! an address of its own.

use super::{LOCK, forget_addresses, own_bridge};
use crate::{
    Error, Names, Network, PodConnector, anti_spoof, bridge, host_ports,
    links::{Machine, Netlink},
    nf_tables::{self, ElementSocket, Family},
    nft,
    pod_cidr::{PodCidrError, find_overlap},
    policies,
    state::Lock,
};
use ipnet::Ipv4Net;
use std::{net::Ipv4Addr, path::Path};

/// Range of the node's address. One of link-local addresses would do, but EndpointSlices must not have them.
const POOL: Ipv4Net = Ipv4Net::new_assert(Ipv4Addr::new(10, 99, 255, 0), 24);

pub(super) async fn prepare(names: Names, pod_cidr: Ipv4Net) -> Result<Network, Error> {
    let pod_cidr = pod_cidr.trunc();
    if pod_cidr.contains(&POOL) || POOL.contains(&pod_cidr) {
        let device = "the node, for Services".to_owned();
        return Err(PodCidrError::Overlap { requested: pod_cidr, taken: POOL, device }.into());
    }
    // Before the bridge: `podium up` removes the network of a failed first start only if the directory exists.
    let dir = names.dir();
    files::create_private_dir_all(&dir).map_err(Error::file("create", &dir))?;
    let lock = Lock::take(Path::new(LOCK)).await?;
    let address = take_address(&names, pod_cidr).await?;
    drop(lock);
    let has_nftables = remove_pod_tables(&names).await && nft_works(&names).await;
    if !has_nftables {
        tracing::warn!("nftables is not available, disabling Services");
    }
    bridge::enable_forwarding();
    Ok(Network {
        connector: PodConnector::Cni,
        bridge: names.bridge.clone(),
        names,
        elements: ElementSocket::default(),
        cidr: pod_cidr,
        gateway: address,
        proxies_services: has_nftables,
        filters_bridged_traffic: bridge::is_netfilter_enabled().await,
        has_anti_spoofing: false,
        has_host_ports: false,
        mtu: None,
    })
}

/// Creates the bridge with an address of the pool, unless it exists. The bridge of an earlier run with another connector is
/// replaced.
async fn take_address(names: &Names, pods: Ipv4Net) -> Result<Ipv4Addr, Error> {
    let netlink = Netlink::open()?;
    let machine = netlink.machine().await?;
    let mut existing = own_bridge(&machine, names)?;
    let own = existing.map(|link| link.index);
    let current = existing.and_then(|link| machine.network_of(link.index));
    let kept = current.map(|net| net.addr()).filter(|address| POOL.contains(address));
    if let (Some(link), Some(current), None) = (existing, current, kept) {
        if machine.ports(link.index).next().is_some() {
            let bridge = names.bridge.clone();
            return Err(Error::CidrInUse { bridge, current: current.trunc(), requested: pods });
        }
        netlink.delete(link).await?;
        forget_addresses(&names.ipam_dir())?;
        forget_addresses(&names.attachments_dir())?;
        existing = None;
    }
    let address = match kept {
        Some(address) => address,
        None => free_address(&machine, own, &netlink.gateways().await?).ok_or(Error::ServiceAddressesExhausted)?,
    };
    let net = Ipv4Net::new_assert(address, 32);
    netlink.ensure_bridge(names, existing.map(|link| link.index), net, kept.is_some()).await?;
    Ok(address)
}

/// Whether a network is that of a bridge that an earlier run prepared for CNI.
pub(super) fn is_of_pool(net: Ipv4Net) -> bool {
    POOL.contains(&net)
}

/// Returns the first address of the pool that neither the machine nor one of its networks uses, without the bridge `own`. A
/// gateway may be outside of them.
fn free_address(machine: &Machine, own: Option<u32>, gateways: &[Ipv4Addr]) -> Option<Ipv4Addr> {
    let in_use = machine.occupied(own);
    POOL.hosts().find(|address| {
        !gateways.contains(address) && find_overlap(Ipv4Net::new_assert(*address, 32), &in_use).is_none()
    })
}

/// Removes the tables that belong to Podium's own Pod network, and returns whether this succeeded. Those of Services stay: Pods use
/// them while Podium starts.
async fn remove_pod_tables(names: &Names) -> bool {
    let bridge = &names.bridge;
    let (policies, host_ports) = (policies::table_name(bridge), host_ports::table_name(bridge));
    let ports = anti_spoof::table_name(bridge);
    let ip = [bridge, &policies, &host_ports].map(|table| (Family::Ip, table.as_str()));
    let tables: Vec<_> = ip.into_iter().chain([(Family::Ip6, policies.as_str()), (Family::Bridge, &ports)]).collect();
    nf_tables::remove_tables(&tables).await.is_ok()
}

/// Returns whether the program nft can create tables for Services.
async fn nft_works(names: &Names) -> bool {
    nft::apply(&format!("add table ip {0}\ndelete table ip {0}\n", names.bridge)).await.is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Interface of the existing bridge.
    const OWN: u32 = 7;

    /// Addresses are those of interface 1, routes have an interface after `@`.
    #[track_caller]
    fn check(addresses: &[&str], routes: &[&str], gateways: &[&str], expected: Option<&str>) {
        let route = |route: &&str| {
            let (net, interface) = route.split_once('@').unwrap();
            (Some(interface.parse().unwrap()), net.parse().unwrap())
        };
        let machine = Machine {
            addresses: addresses.iter().map(|address| (1, address.parse().unwrap())).collect(),
            routes: routes.iter().map(route).collect(),
            ..Machine::default()
        };
        let gateways: Vec<Ipv4Addr> = gateways.iter().map(|gateway| gateway.parse().unwrap()).collect();
        let free = free_address(&machine, Some(OWN), &gateways).map(|address| address.to_string());
        assert_eq!(free.as_deref(), expected, "{addresses:?} {routes:?} {gateways:?}");
    }

    #[test]
    fn first_free_address_of_the_pool_is_taken() {
        check(&[], &["0.0.0.0/0@1"], &["192.0.2.1"], Some("10.99.255.1"));
        // As for the Pod CIDR: the more specific route takes precedence.
        check(&["10.0.0.5/8"], &["10.0.0.0/8@1"], &[], Some("10.99.255.1"));
        check(&["10.99.255.1/32", "10.99.255.2/32"], &["10.99.255.3/32@7"], &[], Some("10.99.255.3"));
    }

    #[test]
    fn gateways_and_networks_of_the_machine_are_not_taken() {
        check(&[], &[], &["10.99.255.1"], Some("10.99.255.2"));
        check(&[], &["10.99.255.0/30@1"], &[], Some("10.99.255.4"));
        check(&["10.99.255.129/25"], &[], &["10.99.255.1"], Some("10.99.255.2"));
        // The node's own network is that of the pool.
        check(&["10.99.255.7/24"], &["0.0.0.0/0@1"], &["10.99.255.1"], None);
        check(&[], &["10.99.0.0/16@1"], &[], None);
        let all: Vec<String> = (1..=254).map(|last| format!("10.99.255.{last}/32")).collect();
        check(&all.iter().map(String::as_str).collect::<Vec<_>>(), &[], &[], None);
    }
}
