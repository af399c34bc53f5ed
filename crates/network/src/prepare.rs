//! Setup of a data directory's network.

mod cni;

use crate::{
    Error, Names, Network, Options, PodConnector,
    attach::{connector::Connector, tables},
    bridge,
    command::find,
    links::{Link, Machine, Netlink},
    masquerade,
    nf_tables::ElementSocket,
    pod_cidr::{CidrRequest, allocate, gateway},
    state::{self, Lock},
};
use ipnet::Ipv4Net;
use std::{fs, io, path::Path};

/// Lock file of the CIDR allocation, shared by all instances on the machine.
pub(crate) const LOCK: &str = "/run/podium/network.lock";

pub(crate) async fn prepare(options: Options) -> Result<Network, Error> {
    let data_dir = &options.data_dir;
    fs::create_dir_all(data_dir).map_err(Error::file("create", data_dir))?;
    let names = Names::of(data_dir);
    if options.connector == PodConnector::Cni {
        return cni::prepare(names, options.pod_cidr.ok_or(Error::PodCidrMissing)?).await;
    }
    let dir = names.ipam_dir();
    files::create_private_dir_all(&dir).map_err(Error::file("create", &dir))?;

    let lock = Lock::take(Path::new(LOCK)).await?;
    let (cidr, mtu) = take_cidr(&names, options.pod_cidr).await?;
    state::save_cidr(&names, cidr)?;
    drop(lock);

    let has_nftables = find("nft").is_some();
    let mut network = Network {
        connector: PodConnector::Netlink,
        bridge: names.bridge.clone(),
        names,
        elements: ElementSocket::default(),
        cidr,
        gateway: gateway(cidr),
        proxies_services: has_nftables,
        filters_bridged_traffic: false,
        has_anti_spoofing: has_nftables,
        has_host_ports: has_nftables,
        mtu,
    };
    // Each runs a program.
    let forwarding = masquerade::allow_forwarding(&network.names, cidr);
    let (has_all_tables, forwarding) = tokio::join!(install_all_tables(&network), forwarding);
    forwarding?;
    if has_all_tables? {
        enable_pod_traffic(&network);
    } else {
        let has_nftables = masquerade::masquerade_pod_traffic(&network.names, cidr).await?;
        if !has_nftables {
            tracing::warn!("nftables is not available, disabling Services and NetworkPolicies");
        }
        network.proxies_services = has_nftables;
        network.has_anti_spoofing = has_nftables;
        network.has_host_ports = has_nftables;
        install_tables(&mut network).await?;
    }
    network.filters_bridged_traffic = network.proxies_services && bridge::enable_netfilter(&network.bridge).await;
    Ok(network)
}

/// Installs the tables of masquerading, anti-spoofing and host ports by one transaction, and returns whether this succeeded: most
/// of the time of a transaction are grace periods of the kernel.
async fn install_all_tables(network: &Network) -> Result<bool, Error> {
    if !network.proxies_services {
        return Ok(false);
    }
    let masquerade = masquerade::nft_table(&network.bridge, network.cidr);
    tables::install_with(&Connector::of(network), &masquerade).await
}

/// Sets the kernel's settings for Pods, after the tables are installed.
fn enable_pod_traffic(network: &Network) {
    bridge::enable_forwarding();
    // Only with the rule that drops external packets to 127.0.0.0/8.
    if network.has_host_ports {
        bridge::route_loopback(&network.bridge);
    }
}

/// Installs the tables of anti-spoofing and host ports, and sets the kernel's settings for Pods.
pub(crate) async fn install_tables(network: &mut Network) -> Result<(), Error> {
    if network.proxies_services {
        let installed = tables::install(&Connector::of(network)).await?;
        if let Err(error) = &installed.host_ports {
            tracing::warn!(%error, "disabling host ports");
        }
        network.has_anti_spoofing = installed.has_anti_spoofing;
        network.has_host_ports = installed.host_ports.is_ok();
    }
    enable_pod_traffic(network);
    Ok(())
}

/// Allocates the CIDR and creates the bridge with its address. Returns the MTU of the default route's interface, too.
async fn take_cidr(names: &Names, given: Option<Ipv4Net>) -> Result<(Ipv4Net, Option<u32>), Error> {
    let netlink = Netlink::open()?;
    let machine = netlink.machine().await?;
    let mut existing = own_bridge(&machine, names)?;
    let current = existing.and_then(|l| machine.network_of(l.index)).map(|n| n.trunc());

    let cidr = match (given.map(|n| n.trunc()), current) {
        // The bridge exists with the requested CIDR: overlapping CIDRs appeared later.
        (None, Some(current)) if !cni::is_of_pool(current) => current,
        (Some(given), Some(current)) if given == current => current,
        (given, _) => {
            let wish = match (given, state::load_cidr(names)?) {
                (Some(given), _) => CidrRequest::Explicit(given),
                (None, Some(load_cidr)) => CidrRequest::Previous(load_cidr),
                (None, None) => CidrRequest::Any,
            };
            allocate(wish, &machine.occupied(existing.map(|l| l.index)))?
        }
    };
    if let (Some(link), Some(current)) = (existing, current)
        && current != cidr
    {
        if machine.ports(link.index).next().is_some() {
            let bridge = names.bridge.clone();
            return Err(Error::CidrInUse { bridge, current, requested: cidr });
        }
        netlink.delete(link).await?;
        forget_addresses(&names.ipam_dir())?;
        forget_addresses(&names.attachments_dir())?;
        existing = None;
    }
    let address = Ipv4Net::new(gateway(cidr), cidr.prefix_len()).unwrap_or(cidr);
    let has_address = existing.is_some() && current == Some(cidr);
    netlink.ensure_bridge(names, existing.map(|l| l.index), address, has_address).await?;
    Ok((cidr, machine.uplink_mtu()))
}

/// Returns the bridge of an earlier run. One without alias and ports is taken over, too: an earlier run crashed before
/// it set the alias.
fn own_bridge<'a>(machine: &'a Machine, names: &Names) -> Result<Option<&'a Link>, Error> {
    let Some(link) = machine.link(&names.bridge) else {
        return Ok(None);
    };
    let unmarked = link.alias.is_none() && machine.ports(link.index).next().is_none();
    if link.is_bridge && (unmarked || link.alias.as_deref() == Some(&names.alias)) {
        return Ok(Some(link));
    }
    let kind = if link.is_bridge { "a bridge" } else { "not a bridge" };
    let owner = link.alias.clone().unwrap_or_else(|| format!("{kind}, without an alias"));
    Err(Error::BridgeTaken { bridge: names.bridge.clone(), owner })
}

/// Removes a directory of IPAM data of another CIDR.
pub(crate) fn forget_addresses(dir: &Path) -> Result<(), Error> {
    match fs::remove_dir_all(dir) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(Error::file("remove", dir)(e)),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(alias: Option<&str>, is_bridge: bool, has_port: bool, is_own: bool) {
        let names = Names::of(Path::new("/a"));
        let link = |index, name: &str, controller| Link {
            index,
            name: name.into(),
            alias: None,
            is_bridge: false,
            controller,
            mtu: 1500,
        };
        let mut bridge = link(7, &names.bridge, None);
        bridge.alias = alias.map(Into::into);
        bridge.is_bridge = is_bridge;
        let mut machine = Machine { links: vec![bridge], ..Default::default() };
        if has_port {
            machine.links.push(link(8, "veth0", Some(7)));
        }
        assert_eq!(own_bridge(&machine, &names).is_ok(), is_own);
    }

    #[test]
    fn only_own_or_unused_bridge_is_taken_over() {
        check(Some("podium /a"), true, true, true);
        check(Some("podium /b"), true, false, false);
        check(None, true, false, true);
        check(None, true, true, false);
        check(None, false, false, false);
    }
}
