//! Steps of connecting and disconnecting Pods: blocking, on a thread of their own, which enters the Pod's namespace.
//!
//! An address is allocated first and released last, and the record names everything else. Whatever is interrupted is
//! repeated, or removed by [`Connector::retain`].

use super::{
    addresses::Addresses,
    record::{self, Connection, Record},
    tables,
    veth::{Links, OWN_NAMESPACE, PodInterface},
};
use crate::{
    Error, Network,
    host_ports::{self, PortMapping},
    nf_tables::{Element, ElementError, ElementSocket},
};
use std::{
    collections::BTreeSet,
    fs::{self, File},
    net::Ipv4Addr,
    os::unix::fs::MetadataExt,
    path::PathBuf,
};

/// Network as the steps need it.
#[derive(Debug, Clone)]
pub(crate) struct Connector {
    /// Directory of the records.
    pub(crate) records: PathBuf,
    pub(crate) addresses: Addresses,
    /// Lock of the tables: shared by changes of elements, exclusive for replacing the tables.
    pub(crate) tables_lock: PathBuf,
    pub(crate) bridge: String,
    pub(crate) mtu: Option<u32>,
    pub(crate) has_host_ports: bool,
    pub(crate) has_anti_spoofing: bool,
    pub(crate) elements: ElementSocket,
}

/// Sandbox to connect.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) sandbox: String,
    pub(crate) netns: File,
    pub(crate) port_mappings: Vec<PortMapping>,
}

/// Result of [`Connector::attach`].
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Attached {
    /// The sandbox is connected; `is_new` if it was not before.
    Connected { ip: Ipv4Addr, is_new: bool },
    /// The nftables tables do not exist: they must be installed, and the call repeated.
    TablesMissing,
}

/// Result of [`Connector::detach`] and [`Connector::retain`].
#[derive(Debug, Default)]
pub(crate) struct Detached {
    pub(crate) connections: Vec<Connection>,
    /// Indexes of interfaces that are not connected any more, and are to be deleted.
    pub(crate) links: Vec<u32>,
}

impl Detached {
    /// Returns the result, and the interfaces that are deleted afterwards.
    pub(crate) fn split(mut self) -> (Self, Vec<u32>) {
        let links = std::mem::take(&mut self.links);
        (self, links)
    }

    /// Returns whether host ports may be left: an interrupted connection may or may not have them, and another Pod may
    /// have the same.
    pub(crate) fn has_unknown_host_ports(&self) -> bool {
        self.connections.iter().any(|c| !c.is_attached && !c.port_mappings.is_empty())
    }
}

impl Connector {
    pub(crate) fn of(network: &Network) -> Self {
        let ipam = network.names.ipam_dir().join(&network.bridge);
        Self {
            records: network.names.attachments_dir(),
            addresses: Addresses { dir: ipam, cidr: network.cidr, gateway: network.gateway },
            tables_lock: network.names.tables_lock(),
            bridge: network.bridge.clone(),
            mtu: network.mtu,
            has_host_ports: network.has_host_ports,
            has_anti_spoofing: network.has_anti_spoofing,
            elements: network.elements.clone(),
        }
    }

    /// Connects a sandbox, unless it is connected. After an error, nothing is left.
    pub(crate) fn attach(&self, request: &Request, is_last_attempt: bool) -> Result<Attached, Error> {
        check_namespace(&request.netns)?;
        if !self.has_host_ports && !request.port_mappings.is_empty() {
            return Err(Error::NoHostPorts);
        }
        let _shared = tables::lock_shared(&self.tables_lock)?;
        let mut record = Record::lock(&self.records, &request.sandbox)?;
        let mut links = Links::open()?;
        if let Some(Connection { ip, is_attached: true, .. }) = record.connection
            && links.is_connected(&self.bridge, ip)?
        {
            return Ok(Attached::Connected { ip, is_new: false });
        }
        let ip = match self.reserve(&mut record, request) {
            Ok(ip) => ip,
            Err(error) => {
                // The record has no address.
                record.remove()?;
                return Err(error);
            }
        };
        let elements = self.pod_elements(ip, &request.port_mappings);
        if !elements.is_empty()
            && let Err(error) = self.elements.add(&elements)
        {
            if error.is_missing() && !is_last_attempt {
                return Ok(Attached::TablesMissing);
            }
            let error = self.element_error(error, &request.port_mappings);
            self.undo(record, &mut links, false);
            return Err(error);
        }
        let interface = PodInterface {
            bridge: &self.bridge,
            gateway: self.addresses.gateway,
            address: self.addresses.with_prefix(ip),
            mtu: self.mtu,
        };
        let connected = links.connect(&request.netns, interface);
        let completed = connected.and_then(|()| record.write(self.connection(request, ip, true)));
        if let Err(error) = completed {
            self.undo(record, &mut links, true);
            return Err(error);
        }
        Ok(Attached::Connected { ip, is_new: true })
    }

    /// Allocates an address, unless the record has one, and writes the record.
    pub(crate) fn reserve(&self, record: &mut Record, request: &Request) -> Result<Ipv4Addr, Error> {
        // The network may have another CIDR since a reboot, and another sandbox the address after a killed detach.
        if let Some(Connection { ip, .. }) = record.connection
            && self.addresses.cidr.contains(&ip)
            && record.has_name(&self.addresses.file(ip))?
        {
            record.write(self.connection(request, ip, false))?;
            return Ok(ip);
        }
        let ip = self.addresses.allocate(record.path())?;
        record.write(self.connection(request, ip, false)).inspect_err(|_| {
            // The first error is reported.
            let _ = self.addresses.release(ip);
        })?;
        Ok(ip)
    }

    #[expect(clippy::unused_self, reason = "reads like the other steps")]
    fn connection(&self, request: &Request, ip: Ipv4Addr, is_attached: bool) -> Connection {
        let (sandbox, port_mappings) = (request.sandbox.clone(), request.port_mappings.clone());
        Connection { sandbox, ip, port_mappings, is_attached }
    }

    /// Returns the elements of a Pod: those of anti-spoofing first.
    fn pod_elements(&self, ip: Ipv4Addr, mappings: &[PortMapping]) -> Vec<Element> {
        let senders = if self.has_anti_spoofing { tables::sender_elements(&self.bridge, ip) } else { Vec::new() };
        senders.into_iter().chain(host_ports::elements(&self.bridge, ip, mappings)).collect()
    }

    /// Names the host port whose element was refused.
    fn element_error(&self, error: ElementError, mappings: &[PortMapping]) -> Error {
        let senders = self.pod_elements(Ipv4Addr::UNSPECIFIED, &[]).len();
        let mapping = error.index.and_then(|index| mappings.get(index.checked_sub(senders)?));
        match mapping {
            Some(mapping) if error.is_taken() => Error::HostPortTaken(mapping.to_string()),
            _ => Error::kernel("add nftables elements")(error.source),
        }
    }

    /// Removes what an attempt created; `has_ports` is whether its host ports were added. What cannot be removed keeps
    /// its record and its address.
    fn undo(&self, record: Record, links: &mut Links, has_ports: bool) {
        let sandbox = record.path().display().to_string();
        // The interface is deleted at once: the attempt may be repeated.
        let deleted = record.connection.as_ref().map_or(Ok(false), |c| links.delete(&self.bridge, c.ip));
        if let Err(error) = deleted.and_then(|_| self.disconnect(record, links, has_ports)) {
            tracing::warn!(sandbox, %error, "failed to undo the connection of a sandbox");
        }
    }

    /// Disconnects a sandbox; one that is not connected is not an error.
    pub(crate) fn detach(&self, sandbox: &str) -> Result<Detached, Error> {
        let _shared = tables::lock_shared(&self.tables_lock)?;
        let Some(record) = Record::lock_existing(&self.records.join(sandbox))? else {
            return Ok(Detached::default());
        };
        let connection = record.connection.clone();
        let owns_ports = connection.as_ref().is_some_and(|c| c.is_attached);
        let link = self.disconnect(record, &mut Links::open()?, owns_ports)?;
        Ok(Detached { connections: connection.into_iter().collect(), links: link.into_iter().collect() })
    }

    /// Removes host ports, the bridge's port and the address; returns the interface, which is to be deleted. The
    /// anti-spoofing elements stay: they say the same of the next Pod with this address.
    ///
    /// Can be repeated after an interruption, when another Pod may have the host ports and the address.
    fn disconnect(&self, mut record: Record, links: &mut Links, has_ports: bool) -> Result<Option<u32>, Error> {
        let mut link = None;
        if let Some(connection) = record.connection.clone() {
            let (ip, elements) =
                (connection.ip, host_ports::elements(&self.bridge, connection.ip, &connection.port_mappings));
            if connection.is_attached {
                record.write(Connection { is_attached: false, ..connection })?;
            }
            if has_ports && !elements.is_empty() {
                let deleted = self.elements.delete(&elements);
                deleted.map_err(|e| Error::kernel("delete nftables elements")(e.source))?;
            }
            if record.has_name(&self.addresses.file(ip))? {
                link = links.disconnect(&self.bridge, ip)?;
                self.addresses.release(ip)?;
            }
        }
        record.remove()?;
        Ok(link)
    }

    /// Disconnects all sandboxes but these, and releases addresses without a sandbox.
    pub(crate) fn retain(&self, keep: &BTreeSet<String>) -> Result<Detached, Error> {
        let mut all = Detached::default();
        for sandbox in record::sandboxes(&self.records)?.iter().filter(|sandbox| !keep.contains(*sandbox)) {
            let detached = self.detach(sandbox)?;
            all.connections.extend(detached.connections);
            all.links.extend(detached.links);
        }
        for ip in self.addresses.allocated()? {
            self.release_orphan(ip)?;
        }
        Ok(all)
    }

    /// Releases an address whose record does not name it: its allocation was interrupted.
    fn release_orphan(&self, ip: Ipv4Addr) -> Result<(), Error> {
        let path = self.addresses.file(ip);
        // The file is the record of its sandbox, and has the same lock.
        let Some(record) = Record::lock_existing(&path)? else { return Ok(()) };
        let is_named = record.connection.as_ref().is_some_and(|connection| connection.ip == ip);
        if is_named && record.links()? > 1 {
            return Ok(());
        }
        tracing::info!(%ip, "releasing address without a sandbox");
        Links::open()?.delete(&self.bridge, ip)?;
        self.addresses.release(ip)
    }
}

/// Refuses the namespace of the node: its interfaces would be changed.
fn check_namespace(netns: &File) -> Result<(), Error> {
    let own = fs::metadata(OWN_NAMESPACE).map_err(Error::kernel("read network namespace"))?;
    let given = netns.metadata().map_err(Error::kernel("read network namespace"))?;
    if (own.dev(), own.ino()) == (given.dev(), given.ino()) {
        return Err(Error::NodeNamespace);
    }
    Ok(())
}
