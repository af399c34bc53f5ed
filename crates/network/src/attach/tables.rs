//! nftables tables of connected Pods: anti-spoofing and host ports.

use super::{
    connector::Connector,
    record::connections,
    veth::{host_interface, mac},
};
use crate::{
    Error,
    anti_spoof::{self, Port},
    host_ports,
    nf_tables::{Element, Family, concatenate, interface_name},
    nft,
    state::Lock,
};
use std::{
    fs::{File, OpenOptions},
    net::Ipv4Addr,
    os::unix::fs::OpenOptionsExt,
    path::Path,
};

/// Waits until no table is being replaced.
pub(crate) fn lock_shared(path: &Path) -> Result<File, Error> {
    let file = OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(path);
    let file = file.map_err(Error::file("open", path))?;
    file.lock_shared().map_err(Error::file("lock", path))?;
    Ok(file)
}

/// Returns the bridge port of a Pod.
fn port(ip: Ipv4Addr) -> Port {
    let mac = mac(ip).map(|byte| format!("{byte:02x}")).join(":");
    Port { veth: host_interface(ip), mac, ip }
}

/// Returns the elements of the anti-spoofing table for a Pod.
pub(crate) fn sender_elements(bridge: &str, ip: Ipv4Addr) -> Vec<Element> {
    let (name, mac) = (interface_name(&host_interface(ip)), mac(ip));
    let element =
        |set, key| Element { family: Family::Bridge, table: anti_spoof::table_name(bridge), set, key, data: None };
    vec![
        element("ports", name.to_vec()),
        element("senders", concatenate(&[&name, &mac])),
        element("addresses", concatenate(&[&name, &mac, &ip.octets()])),
    ]
}

/// Result of [`install`].
#[derive(Debug)]
pub(crate) struct Installed {
    pub(crate) has_anti_spoofing: bool,
    pub(crate) host_ports: Result<(), Error>,
}

/// Replaces both tables by those of the recorded Pods. Without the kernel's support for one, the other works nevertheless.
pub(crate) async fn install(connector: &Connector) -> Result<Installed, Error> {
    let _exclusive = Lock::take(&connector.tables_lock).await?;
    let (anti_spoofing, host_ports) = replacements(connector)?;
    Ok(replace(anti_spoofing, host_ports).await)
}

/// Replaces both tables in one transaction with `others`; returns whether this succeeded. Nothing has changed if not: the kernel
/// may lack one of them.
pub(crate) async fn install_with(connector: &Connector, others: &str) -> Result<bool, Error> {
    let _exclusive = Lock::take(&connector.tables_lock).await?;
    let (anti_spoofing, host_ports) = replacements(connector)?;
    let all = [others, &anti_spoofing.unwrap_or_default(), &host_ports.unwrap_or_default()].concat();
    Ok(nft::apply(&all).await.is_ok())
}

/// Returns the transactions that replace the tables of anti-spoofing and host ports.
fn replacements(connector: &Connector) -> Result<(Option<String>, Option<String>), Error> {
    let connections = connections(&connector.records)?;
    let ports: Vec<Port> = connections.iter().map(|c| port(c.ip)).collect();
    // Incomplete connections add their host ports when they are completed.
    let attached = connections.into_iter().filter(|c| c.is_attached);
    let mappings: Vec<_> = attached.flat_map(|c| c.port_mappings.into_iter().map(move |m| (c.ip, m))).collect();
    let anti_spoofing = connector.has_anti_spoofing.then(|| anti_spoof::replacement(&connector.bridge, &ports));
    let cidr = connector.addresses.cidr;
    let host_ports = connector.has_host_ports.then(|| host_ports::replacement(&connector.bridge, cidr, &mappings));
    Ok((anti_spoofing, host_ports))
}

/// Runs the transactions, as one if both are possible: a program and the kernel's grace period are most of their time.
async fn replace(anti_spoofing: Option<String>, host_ports: Option<String>) -> Installed {
    if let (Some(anti_spoofing), Some(host_ports)) = (&anti_spoofing, &host_ports)
        && nft::apply(&format!("{anti_spoofing}{host_ports}")).await.is_ok()
    {
        return Installed { has_anti_spoofing: true, host_ports: Ok(()) };
    }
    let anti_spoofing = async { Some(nft::apply(&anti_spoofing?).await) };
    let host_ports = async { Some(nft::apply(&host_ports?).await) };
    let (anti_spoofing, host_ports) = tokio::join!(anti_spoofing, host_ports);
    if let Some(Err(error)) = &anti_spoofing {
        tracing::warn!(%error, "Pods with CAP_NET_RAW can send with the addresses of other Pods");
    }
    Installed {
        has_anti_spoofing: anti_spoofing.is_some_and(|done| done.is_ok()),
        host_ports: host_ports.unwrap_or(Ok(())),
    }
}
