//! Interfaces of a Pod: a veth pair between its network namespace and the bridge.
//!
//! The Pod's end is created in its namespace: moving an interface between namespaces takes 30 ms. Names and MAC address
//! follow from the IPv4 address: neighbour tables stay right when the next Pod gets it.

use crate::{
    Error,
    netlink_socket::{Answer, FLAG_ACK, Message, Socket},
};
use ipnet::Ipv4Net;
use nix::sched::{CloneFlags, setns};
use rtnetlink::{
    AddressMessageBuilder, RouteMessageBuilder,
    packet_core::{NetlinkSerializable, Parseable},
    packet_route::{
        RouteNetlinkMessage,
        link::{
            InfoBridgePort, InfoData, InfoKind, InfoPortData, InfoPortKind, InfoVeth, LinkAttribute, LinkExtentMask,
            LinkFlags, LinkInfo, LinkMessage, State,
        },
    },
    sys::protocols::NETLINK_ROUTE,
};
use std::{
    fs::File,
    io::ErrorKind,
    net::Ipv4Addr,
    os::fd::AsRawFd,
    time::{Duration, Instant},
};

/// Name of the interface in the Pod, as CRI runtimes name it.
pub(crate) const POD_INTERFACE: &str = "eth0";
/// Network namespace of the calling thread.
pub(crate) const OWN_NAMESPACE: &str = "/proc/thread-self/ns/net";
const LOOPBACK: &str = "lo";
/// Timeout of the interfaces' carrier.
const CARRIER_TIMEOUT: Duration = Duration::from_secs(2);
/// Timeout of the deletion of an earlier pair.
const DELETION_TIMEOUT: Duration = Duration::from_secs(10);
const RETRY_INTERVAL: Duration = Duration::from_millis(1);

// Flags of `struct nlmsghdr`.
const FLAG_EXCLUSIVE: u16 = 0x200;
const FLAG_CREATE: u16 = 0x400;
const NEW: u16 = FLAG_ACK | FLAG_CREATE | FLAG_EXCLUSIVE;

/// Returns the name of the host's end. CIDRs of several instances are disjoint, hence also the names.
pub(crate) fn host_interface(ip: Ipv4Addr) -> String {
    format!("veth{:08x}", u32::from(ip))
}

/// Returns the MAC address of the Pod's end: locally administered, with the prefix that CNI plugins have used.
pub(crate) fn mac(ip: Ipv4Addr) -> [u8; 6] {
    let [a, b, c, d] = ip.octets();
    [0x0a, 0x58, a, b, c, d]
}

/// Interface as far as it is needed here.
#[derive(Debug)]
struct LinkState {
    index: u32,
    controller: Option<u32>,
    is_up: bool,
}

/// Routing socket of a network namespace.
#[derive(Debug)]
pub(crate) struct Links(Socket);

/// What the interfaces of a Pod need.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PodInterface<'a> {
    pub(crate) bridge: &'a str,
    pub(crate) gateway: Ipv4Addr,
    /// Address with the prefix length of the network.
    pub(crate) address: Ipv4Net,
    pub(crate) mtu: Option<u32>,
}

impl Links {
    /// Opens a socket in the network namespace of the calling thread.
    pub(crate) fn open() -> Result<Self, Error> {
        Socket::open(NETLINK_ROUTE).map(Self).map_err(Error::OpenNetlink)
    }

    /// Opens a socket in another namespace.
    fn open_in(netns: &File) -> Result<Self, Error> {
        let enter = |netns: &File| {
            setns(netns, CloneFlags::CLONE_NEWNET).map_err(|e| Error::kernel("enter network namespace")(e.into()))
        };
        let own = File::open(OWN_NAMESPACE).map_err(Error::kernel("open network namespace"))?;
        enter(netns)?;
        let opened = Self::open();
        enter(&own)?;
        opened
    }

    /// Returns an interface, if it exists.
    fn find(&mut self, name: &str) -> Result<Option<LinkState>, Error> {
        let attributes =
            vec![LinkAttribute::IfName(name.to_owned()), LinkAttribute::ExtMask(vec![LinkExtentMask::SkipStats])];
        let request = message(FLAG_ACK, &RouteNetlinkMessage::GetLink(link(attributes)));
        let doing = || format!("find interface {name}");
        let answer = self.0.exchange(&[request]).map_err(Error::kernel(doing()))?;
        match answer.into_iter().next() {
            Some(Err(e)) if e.raw_os_error() == Some(nix::libc::ENODEV) => Ok(None),
            Some(answer) => {
                read_link(&answer.map_err(Error::kernel(doing()))?).map(Some).map_err(Error::kernel(doing()))
            }
            None => Ok(None),
        }
    }

    fn existing(&mut self, name: &str) -> Result<LinkState, Error> {
        let missing = || Error::kernel(format!("find interface {name}"))(ErrorKind::NotFound.into());
        self.find(name)?.ok_or_else(missing)
    }

    /// Returns whether the host's end for this address is a port of the bridge.
    pub(crate) fn is_connected(&mut self, bridge: &str, ip: Ipv4Addr) -> Result<bool, Error> {
        let port = self.find(&host_interface(ip))?.and_then(|link| link.controller);
        Ok(port.is_some() && port == self.find(bridge)?.map(|bridge| bridge.index))
    }

    /// Returns the index of the host's end for an address, unless it has another owner.
    fn own(&mut self, bridge: &str, ip: Ipv4Addr) -> Result<Option<u32>, Error> {
        let Some(found) = self.find(&host_interface(ip))? else { return Ok(None) };
        let is_own = found.controller.is_none() || found.controller == self.find(bridge)?.map(|bridge| bridge.index);
        Ok(is_own.then_some(found.index))
    }

    /// Deletes the host's end for an address, and thereby the pair. Returns whether it existed.
    pub(crate) fn delete(&mut self, bridge: &str, ip: Ipv4Addr) -> Result<bool, Error> {
        let Some(index) = self.own(bridge, ip)? else { return Ok(false) };
        self.delete_index(index)?;
        Ok(true)
    }

    /// Deletes an interface. The kernel waits some 20 ms until nothing refers to it.
    pub(crate) fn delete_index(&mut self, index: u32) -> Result<(), Error> {
        let mut delete = LinkMessage::default();
        delete.header.index = index;
        let answers = self.request(&[message(FLAG_ACK, &RouteNetlinkMessage::DelLink(delete))])?;
        unless_vanished(answers).map_err(Error::kernel("delete interface of a sandbox"))
    }

    /// Sets the host's end for an address down and takes it from the bridge. Returns its index if it exists.
    pub(crate) fn disconnect(&mut self, bridge: &str, ip: Ipv4Addr) -> Result<Option<u32>, Error> {
        let Some(index) = self.own(bridge, ip)? else { return Ok(None) };
        let mut down = link(vec![LinkAttribute::Controller(0)]);
        (down.header.index, down.header.change_mask) = (index, LinkFlags::Up);
        let answers = self.request(&[message(FLAG_ACK, &RouteNetlinkMessage::SetLink(down))])?;
        unless_vanished(answers).map_err(Error::kernel("disconnect interface of a sandbox"))?;
        Ok(Some(index))
    }

    /// Connects a network namespace to the bridge, and waits until frames pass. What was created before an error stays.
    pub(crate) fn connect(&mut self, netns: &File, interface: PodInterface<'_>) -> Result<(), Error> {
        let ip = interface.address.addr();
        let host = host_interface(ip);
        self.create(netns, interface, &host)?;
        let mut pod = Self::open_in(netns)?;
        pod.configure(interface)?;
        // The host's end comes last: only then the bridge sees a port with a carrier, and forwards at once.
        let up = message(FLAG_ACK, &RouteNetlinkMessage::SetLink(set_up(&host)));
        all(self.request(&[up])?).map_err(Error::kernel(format!("set interface {host} up")))?;
        pod.wait_for_carrier(POD_INTERFACE)?;
        self.wait_for_carrier(&host)?;
        // The bridge has no carrier before its first Pod.
        self.wait_for_carrier(interface.bridge)
    }

    /// Creates the pair, with the host's end as a port of the bridge.
    pub(crate) fn create(&mut self, netns: &File, interface: PodInterface<'_>, host: &str) -> Result<(), Error> {
        let ip = interface.address.addr();
        let bridge = self.existing(interface.bridge)?.index;
        let mtu = interface.mtu.map(LinkAttribute::Mtu);
        let peer = [
            LinkAttribute::IfName(POD_INTERFACE.to_owned()),
            LinkAttribute::Address(mac(ip).to_vec()),
            LinkAttribute::NetNsFd(netns.as_raw_fd()),
        ];
        let peer = link(peer.into_iter().chain(mtu.clone()).collect());
        let info = vec![LinkInfo::Kind(InfoKind::Veth), LinkInfo::Data(InfoData::Veth(InfoVeth::Peer(peer)))];
        let attributes =
            [LinkAttribute::IfName(host.to_owned()), LinkAttribute::Controller(bridge), LinkAttribute::LinkInfo(info)];
        let pair = link(attributes.into_iter().chain(mtu).collect());
        // A Pod reaches itself through a Service or a host port.
        let port = vec![
            LinkInfo::PortKind(InfoPortKind::Bridge),
            LinkInfo::PortData(InfoPortData::BridgePort(vec![InfoBridgePort::HairpinMode(true)])),
        ];
        let port = link(vec![LinkAttribute::IfName(host.to_owned()), LinkAttribute::LinkInfo(port)]);
        let requests =
            [message(NEW, &RouteNetlinkMessage::NewLink(pair)), message(FLAG_ACK, &RouteNetlinkMessage::NewLink(port))];
        let end = Instant::now() + DELETION_TIMEOUT;
        loop {
            match all(self.request(&requests)?) {
                Err(e) if e.kind() == ErrorKind::AlreadyExists && Instant::now() < end => {
                    // The host's end of an interrupted attempt, or the Pod's end of a pair that is being deleted.
                    if !self.delete(interface.bridge, ip)? {
                        pause();
                    }
                }
                created => return created.map_err(Error::kernel(format!("create interface {host}"))),
            }
        }
    }

    /// Configures the Pod's interfaces; the socket is in its namespace.
    fn configure(&mut self, PodInterface { gateway, address, .. }: PodInterface<'_>) -> Result<(), Error> {
        let index = self.existing(POD_INTERFACE)?.index;
        let add = AddressMessageBuilder::<Ipv4Addr>::new().index(index).address(address.addr(), address.prefix_len());
        let route = RouteMessageBuilder::<Ipv4Addr>::new().gateway(gateway).output_interface(index).build();
        let requests = [
            message(FLAG_ACK, &RouteNetlinkMessage::SetLink(set_up(LOOPBACK))),
            message(FLAG_ACK, &RouteNetlinkMessage::SetLink(set_up(POD_INTERFACE))),
            message(NEW, &RouteNetlinkMessage::NewAddress(add.build())),
            message(NEW, &RouteNetlinkMessage::NewRoute(route)),
        ];
        all(self.request(&requests)?).map_err(Error::kernel(format!("configure interface {POD_INTERFACE}")))
    }

    /// Waits until the kernel has noticed the carrier: until then, it drops all packets, and a lost ARP request is
    /// repeated after a second.
    fn wait_for_carrier(&mut self, name: &str) -> Result<(), Error> {
        let end = Instant::now() + CARRIER_TIMEOUT;
        // Since Linux 6.8, the request itself makes the kernel notice.
        while !self.existing(name)?.is_up {
            if Instant::now() > end {
                tracing::warn!(interface = name, "interface has no carrier yet");
                break;
            }
            pause();
        }
        Ok(())
    }

    fn request(&mut self, messages: &[Message]) -> Result<Vec<Answer>, Error> {
        self.0.exchange(messages).map_err(Error::kernel("exchange netlink messages"))
    }
}

#[expect(clippy::disallowed_methods, reason = "this thread is no worker of the async runtime")]
fn pause() {
    std::thread::sleep(RETRY_INTERVAL);
}

/// Returns the first error, unless the interface has vanished with the Pod's namespace.
fn unless_vanished(answers: Vec<Answer>) -> std::io::Result<()> {
    all(answers).or_else(|e| if e.raw_os_error() == Some(nix::libc::ENODEV) { Ok(()) } else { Err(e) })
}

/// Returns the first error.
fn all(answers: Vec<Answer>) -> std::io::Result<()> {
    answers.into_iter().try_for_each(|answer| answer.map(drop))
}

fn link(attributes: Vec<LinkAttribute>) -> LinkMessage {
    let mut link = LinkMessage::default();
    link.attributes = attributes;
    link
}

fn set_up(name: &str) -> LinkMessage {
    let mut up = link(vec![LinkAttribute::IfName(name.to_owned())]);
    (up.header.flags, up.header.change_mask) = (LinkFlags::Up, LinkFlags::Up);
    up
}

fn message(flags: u16, content: &RouteNetlinkMessage) -> Message {
    let mut body = vec![0; content.buffer_len()];
    content.serialize(&mut body);
    Message { kind: content.message_type(), flags, body }
}

fn read_link(body: &[u8]) -> std::io::Result<LinkState> {
    let link = LinkMessage::parse(body).map_err(|e| std::io::Error::other(e.to_string()))?;
    let controller = link.attributes.iter().find_map(|attribute| match attribute {
        LinkAttribute::Controller(index) => Some(*index),
        _ => None,
    });
    let is_up = link.attributes.iter().any(|a| matches!(a, LinkAttribute::OperState(State::Up)));
    Ok(LinkState { index: link.header.index, controller, is_up })
}
