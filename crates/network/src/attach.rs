//! Pods are connected by Podium itself: over netlink, without CNI plugins.
//!
//! A Pod gets what the CNI plugins bridge, host-local, portmap and loopback would give it, in a tenth of their time. State
//! is in the data directory (`network/attachments`, `network/ipam`) and in the kernel, and survives Podium.

pub(crate) mod addresses;
pub(crate) mod connector;
pub(crate) mod record;
pub(crate) mod tables;
#[cfg(test)]
mod tests;
pub(crate) mod veth;

use crate::{
    Error, Names, Network,
    host_ports::{self, MAX_MAPPINGS, PortMapping},
};
use connector::{Attached, Connector, Detached, Request};
use std::{
    collections::BTreeSet,
    fs::File,
    net::{IpAddr, Ipv4Addr},
    path::Path,
};
use tokio::sync::oneshot;
use veth::Links;

/// How Pods are connected to the network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PodConnector {
    /// The caller connects Pods by [`Network::attach`].
    #[default]
    Netlink,
    /// The caller runs CNI plugins, to which the Pods' interfaces, addresses, host ports, masquerading and NetworkPolicies
    /// belong.
    Cni,
}

/// Sandbox to connect to the network.
#[derive(Debug, Clone, Copy)]
pub struct PodAttachment<'a> {
    /// Sandbox ID: 1 to 128 letters, digits, `.`, `-` and `_`, not beginning with `.`.
    pub sandbox: &'a str,
    /// Network namespace, for example `/proc/<pid>/fd/<n>`. Its user namespace is the node's.
    pub netns: &'a Path,
    /// Host ports.
    pub port_mappings: &'a [PortMapping],
}

/// Addresses of a connected sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PodAddresses {
    /// IPv4 address.
    pub ipv4: Ipv4Addr,
}

impl PodAddresses {
    /// Returns the addresses, the primary one first.
    #[must_use]
    pub fn ips(&self) -> Vec<IpAddr> {
        vec![self.ipv4.into()]
    }
}

impl Network {
    /// Connects a sandbox: interfaces `eth0` and `lo`, an address, the default route, anti-spoofing rules and host
    /// ports. Returns the addresses of a sandbox that is connected already.
    ///
    /// The network must have been prepared with [`PodConnector::Netlink`]. The work is completed even if the future is
    /// dropped.
    ///
    /// # Errors
    /// When all addresses or a host port are in use, or the kernel or the file system fails. Nothing is left then.
    pub async fn attach(&self, attachment: PodAttachment<'_>) -> Result<PodAddresses, Error> {
        let PodAttachment { sandbox, netns, port_mappings } = attachment;
        check_sandbox(sandbox)?;
        let mappings: Vec<_> = port_mappings.iter().filter(|mapping| mapping.is_effective()).cloned().collect();
        if mappings.len() > MAX_MAPPINGS {
            return Err(Error::TooManyHostPorts);
        }
        let connector = Connector::of(self);
        for is_last_attempt in [false, true] {
            let netns = File::open(netns).map_err(Error::file("open", netns))?;
            let request = Request { sandbox: sandbox.to_owned(), netns, port_mappings: mappings.clone() };
            let steps = connector.clone();
            let attach = move || Ok((steps.attach(&request, is_last_attempt)?, Vec::new()));
            match on_thread(attach).await? {
                Attached::Connected { ip, is_new } => {
                    if is_new {
                        host_ports::delete_conntrack_entries(&mappings, None).await;
                    }
                    return Ok(PodAddresses { ipv4: ip });
                }
                Attached::TablesMissing => {
                    tracing::warn!("nftables table of host ports or anti-spoofing was removed, restoring rules");
                    tables::install(&connector).await?.host_ports?;
                }
            }
        }
        Err(Error::NoHostPorts)
    }

    /// Disconnects a sandbox: removes its host ports, takes its interface from the bridge, and releases its address. Does
    /// nothing if the sandbox is not connected; its namespace may be gone. The interface is deleted in the background.
    ///
    /// # Errors
    /// When the kernel or the file system fails. Completed removals stay; the call can be repeated.
    pub async fn detach(&self, sandbox: &str) -> Result<(), Error> {
        check_sandbox(sandbox)?;
        let (connector, sandbox) = (Connector::of(self), sandbox.to_owned());
        let detached = on_thread(move || connector.detach(&sandbox).map(Detached::split)).await?;
        self.complete_removal(detached).await
    }

    /// Returns the IDs of the connected sandboxes, incomplete connections included.
    ///
    /// # Errors
    /// When the file system fails.
    pub fn attached(&self) -> Result<Vec<String>, Error> {
        record::sandboxes(&Connector::of(self).records)
    }

    /// Disconnects all sandboxes but these, and releases what an interrupted call left. To be called after a restart,
    /// before sandboxes are created.
    ///
    /// # Errors
    /// When the kernel or the file system fails. Completed removals stay; the call can be repeated.
    pub async fn retain(&self, sandboxes: &[String]) -> Result<(), Error> {
        let (connector, keep) = (Connector::of(self), BTreeSet::from_iter(sandboxes.iter().cloned()));
        let detached = on_thread(move || connector.retain(&keep).map(Detached::split)).await?;
        self.complete_removal(detached).await
    }

    async fn complete_removal(&self, detached: Detached) -> Result<(), Error> {
        if self.has_host_ports && detached.has_unknown_host_ports() {
            tables::install(&Connector::of(self)).await?.host_ports?;
        }
        for connection in &detached.connections {
            host_ports::delete_conntrack_entries(&connection.port_mappings, Some(connection.ip)).await;
        }
        Ok(())
    }
}

/// Returns whether a data directory has Pods that [`Network::attach`] connected.
///
/// # Errors
/// When the file system fails.
pub fn has_attachments(data_dir: &Path) -> Result<bool, Error> {
    Ok(!record::sandboxes(&Names::of(data_dir).attachments_dir())?.is_empty())
}

/// Sandbox IDs are names of files.
fn check_sandbox(sandbox: &str) -> Result<(), Error> {
    let is_valid = |b: u8| b.is_ascii_alphanumeric() || b"._-".contains(&b);
    if sandbox.is_empty() || sandbox.len() > 128 || sandbox.starts_with('.') || !sandbox.bytes().all(is_valid) {
        return Err(Error::InvalidSandbox);
    }
    Ok(())
}

/// Deletes interfaces that were disconnected.
fn delete_links(links: Vec<u32>) {
    let delete = |index| Links::open()?.delete_index(index);
    if let Some(error) = links.into_iter().find_map(|index| delete(index).err()) {
        // The interface vanishes with the Pod's namespace.
        tracing::debug!(%error, "failed to delete interface");
    }
}

/// Runs blocking work on a thread of its own: it enters another namespace, and must not be used again. The work returns
/// a result, and interfaces that are deleted afterwards.
async fn on_thread<T: Send + 'static>(
    work: impl FnOnce() -> Result<(T, Vec<u32>), Error> + Send + 'static,
) -> Result<T, Error> {
    let (sender, receiver) = oneshot::channel();
    let run = move || {
        let (result, links) = match work() {
            Ok((result, links)) => (Ok(result), links),
            Err(error) => (Err(error), Vec::new()),
        };
        // The receiver may have been dropped.
        let _ = sender.send(result);
        delete_links(links);
    };
    let thread = std::thread::Builder::new().name("pod-network".into()).spawn(run);
    thread.map_err(Error::kernel("create thread"))?;
    receiver.await.map_err(|e| Error::kernel("connect sandbox")(std::io::Error::other(e)))?
}
