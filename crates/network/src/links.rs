//! Links, addresses and routes of the kernel, over netlink.

use crate::{Error, Names, pod_cidr::UsedCidr};
use futures::TryStreamExt;
use ipnet::Ipv4Net;
use rtnetlink::{
    Handle, LinkBridge, LinkUnspec, RouteMessageBuilder,
    packet_route::{
        address::AddressAttribute,
        link::{InfoKind, LinkAttribute, LinkInfo, LinkMessage},
        route::{RouteAddress, RouteAttribute},
    },
};
use std::net::{IpAddr, Ipv4Addr};

/// Netlink socket of the calling thread's network namespace.
pub(crate) struct Netlink {
    handle: Handle,
    connection: tokio::task::JoinHandle<()>,
}

impl Drop for Netlink {
    fn drop(&mut self) {
        self.connection.abort();
    }
}

/// Network interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Link {
    pub(crate) index: u32,
    pub(crate) name: String,
    pub(crate) alias: Option<String>,
    pub(crate) is_bridge: bool,
    /// Index of the bridge that it is a port of.
    pub(crate) controller: Option<u32>,
    pub(crate) mtu: u32,
}

/// Snapshot of the machine's interfaces, addresses and routes.
#[derive(Debug, Default)]
pub(crate) struct Machine {
    pub(crate) links: Vec<Link>,
    /// IPv4 addresses with their prefix, by interface index.
    pub(crate) addresses: Vec<(u32, Ipv4Net)>,
    /// IPv4 destinations by interface index, the default route included.
    pub(crate) routes: Vec<(Option<u32>, Ipv4Net)>,
}

impl Machine {
    pub(crate) fn link(&self, name: &str) -> Option<&Link> {
        self.links.iter().find(|l| l.name == name)
    }

    /// Returns the ports of a bridge.
    pub(crate) fn ports(&self, bridge: u32) -> impl Iterator<Item = &Link> {
        self.links.iter().filter(move |l| l.controller == Some(bridge))
    }

    /// Returns the first IPv4 network of an interface.
    pub(crate) fn network_of(&self, index: u32) -> Option<Ipv4Net> {
        self.addresses.iter().find(|(i, _)| *i == index).map(|(_, n)| *n)
    }

    /// Returns the CIDRs in use, without those of `except`.
    pub(crate) fn occupied(&self, except: Option<u32>) -> Vec<UsedCidr> {
        let device = |index: Option<u32>| {
            let link = self.links.iter().find(|l| Some(l.index) == index);
            link.map_or_else(|| "a route without an interface".into(), |l| l.name.clone())
        };
        let addresses = self.addresses.iter().map(|(i, n)| (Some(*i), n.trunc()));
        addresses
            .chain(self.routes.iter().copied())
            .filter(|(index, net)| (index.is_none() || *index != except) && net.prefix_len() > 0)
            .map(|(index, net)| UsedCidr { net, device: device(index) })
            .collect()
    }

    /// Returns the MTU of the default route's interface.
    pub(crate) fn uplink_mtu(&self) -> Option<u32> {
        let (index, _) = self.routes.iter().find(|(_, n)| n.prefix_len() == 0)?;
        self.links.iter().find(|l| Some(l.index) == *index).map(|l| l.mtu)
    }
}

impl Netlink {
    pub(crate) fn open() -> Result<Self, Error> {
        let (connection, handle, _) = rtnetlink::new_connection().map_err(Error::OpenNetlink)?;
        let connection = tokio::spawn(connection);
        Ok(Self { handle, connection })
    }

    pub(crate) async fn machine(&self) -> Result<Machine, Error> {
        let links = self.handle.link().get().execute();
        let links = links.map_ok(read_link).try_collect().await;
        let addresses = self.handle.address().get().execute();
        let addresses = addresses.try_filter_map(async |m| {
            let local = m.attributes.iter().find_map(|a| match a {
                AddressAttribute::Local(IpAddr::V4(ip)) => Some(*ip),
                _ => None,
            });
            let net = local.and_then(|ip| Ipv4Net::new(ip, m.header.prefix_len).ok());
            Ok(net.map(|net| (m.header.index, net)))
        });
        let addresses = addresses.try_collect().await;
        let every_route = RouteMessageBuilder::<Ipv4Addr>::new().build();
        let routes = self.handle.route().get(every_route).execute();
        let routes = routes.try_filter_map(async |m| {
            let oif = m.attributes.iter().find_map(|a| match a {
                RouteAttribute::Oif(index) => Some(*index),
                _ => None,
            });
            let to = m.attributes.iter().find_map(|a| match a {
                RouteAttribute::Destination(RouteAddress::Inet(ip)) => Some(*ip),
                _ => None,
            });
            let to = to.unwrap_or(Ipv4Addr::UNSPECIFIED);
            let net = Ipv4Net::new(to, m.header.destination_prefix_length).ok();
            Ok(net.map(|net| (oif, net)))
        });
        Ok(Machine {
            links: links.map_err(Error::netlink("list interfaces"))?,
            addresses: addresses.map_err(Error::netlink("list addresses"))?,
            routes: routes.try_collect().await.map_err(Error::netlink("list routes"))?,
        })
    }

    /// Returns the gateways of the routes.
    pub(crate) async fn gateways(&self) -> Result<Vec<Ipv4Addr>, Error> {
        let every_route = RouteMessageBuilder::<Ipv4Addr>::new().build();
        let routes = self.handle.route().get(every_route).execute();
        let gateways = routes.try_filter_map(async |m| {
            Ok(m.attributes.iter().find_map(|a| match a {
                RouteAttribute::Gateway(RouteAddress::Inet(ip)) => Some(*ip),
                _ => None,
            }))
        });
        gateways.try_collect().await.map_err(Error::netlink("list routes"))
    }

    /// Creates the bridge if it is missing, sets its alias and address, and sets it up.
    pub(crate) async fn ensure_bridge(
        &self,
        names: &Names,
        existing: Option<u32>,
        address: Ipv4Net,
        has_address: bool,
    ) -> Result<u32, Error> {
        let bridge = &names.bridge;
        let index = match existing {
            Some(index) => index,
            None => {
                let message = LinkBridge::new(bridge).address(names.mac.to_vec()).build();
                let added = self.handle.link().add(message).execute().await;
                added.map_err(Error::netlink(format!("create bridge {bridge}")))?;
                self.index_of(bridge).await?
            }
        };
        // The alias cannot be set when a link is created.
        let message = LinkUnspec::new_with_index(index).alias(&names.alias).up().build();
        let changed = self.handle.link().change(message).execute().await;
        changed.map_err(Error::netlink(format!("set bridge {bridge} up")))?;
        if !has_address {
            let ip = IpAddr::V4(address.addr());
            let added = self.handle.address().add(index, ip, address.prefix_len()).execute().await;
            added.map_err(Error::netlink(format!("add address {address} to {bridge}")))?;
        }
        Ok(index)
    }

    async fn index_of(&self, name: &str) -> Result<u32, Error> {
        let doing = || Error::netlink(format!("find interface {name}"));
        let mut found = self.handle.link().get().match_name(name).execute();
        let link = found.try_next().await.map_err(doing())?;
        Ok(link.ok_or(rtnetlink::Error::RequestFailed).map_err(doing())?.header.index)
    }

    /// Removes an interface; a missing one is not an error.
    pub(crate) async fn delete(&self, link: &Link) -> Result<(), Error> {
        const ENODEV: i32 = -19;
        match self.handle.link().del(link.index).execute().await {
            Err(rtnetlink::Error::NetlinkError(e)) if e.code.is_some_and(|c| c.get() == ENODEV) => Ok(()),
            other => other.map_err(Error::netlink(format!("delete interface {}", link.name))),
        }
    }
}

fn read_link(message: LinkMessage) -> Link {
    let mut link = Link {
        index: message.header.index,
        name: String::new(),
        alias: None,
        is_bridge: false,
        controller: None,
        mtu: 0,
    };
    for attribute in message.attributes {
        match attribute {
            LinkAttribute::IfName(name) => link.name = name,
            LinkAttribute::IfAlias(alias) => link.alias = Some(alias),
            LinkAttribute::Controller(index) => link.controller = Some(index),
            LinkAttribute::Mtu(mtu) => link.mtu = mtu,
            LinkAttribute::LinkInfo(infos) => {
                link.is_bridge = infos.contains(&LinkInfo::Kind(InfoKind::Bridge));
            }
            _ => {}
        }
    }
    link
}
