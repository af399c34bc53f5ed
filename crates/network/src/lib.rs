//! Pod network of one node, for the container runtime that Podium runs itself.
//!
//! This crate allocates the Pod CIDR, creates a bridge per data directory, connects Pods ([`Network::attach`]), and
//! removes all of it again. It also implements the Service proxy ([`services`], as kube-proxy), cluster DNS ([`dns`], as
//! CoreDNS), and NetworkPolicies ([`policies`]).
//!
//! With [`PodConnector::Cni`], the caller runs CNI plugins: of this crate remain Service proxy and DNS, at an address of
//! their own.
//!
//! **Invariant:** several instances of Podium share a machine. Every name and file of this crate is derived from the
//! data directory; the kernel's routes and addresses show which CIDRs are in use; a lock file serializes allocation.
//!
//! The bridge exists from [`Network::prepare`] on, not only from the first Pod on: its route marks the CIDR as used.
//! Masquerading is one rule for the CIDR instead of the bridge plugin's `ipMasq`, which adds a chain per Pod
//! (measured: 12 ms more for each added Pod, 50 ms for each removed one).
#![forbid(unsafe_code)]

mod anti_spoof;
mod attach;
mod bridge;
mod command;
mod destroy;
mod dns;
mod host_ports;
mod informer;
mod links;
mod masquerade;
mod names;
mod netlink_socket;
mod nf_tables;
mod nft;
mod nft_table;
mod node_event;
mod peers;
mod pod_cidr;
mod pod_gate;
mod policies;
mod prepare;
mod services;
mod state;
mod table_sync;

use futures::{FutureExt, future::BoxFuture};
use kube::Client;
use names::Names;
use std::{
    io,
    net::Ipv4Addr,
    path::{Path, PathBuf},
};
use tokio_util::sync::CancellationToken;

pub use attach::{PodAddresses, PodAttachment, PodConnector, has_attachments};
pub use host_ports::{PortMapping, Protocol};
pub use ipnet::Ipv4Net;
pub use names::DEFAULT_DATA_DIR;
pub use peers::NodePeers;
pub use pod_cidr::PodCidrError;
pub use pod_gate::{PodGate, PodGateError};

/// Configuration of a Pod network.
#[derive(Debug, Clone)]
pub struct Options {
    /// Data directory that owns the network.
    pub data_dir: PathBuf,
    /// Pod CIDR. By default, the first free /24 of 10.244.0.0/16 is allocated and saved. With [`PodConnector::Cni`] it is
    /// required: the CIDR from which the plugins allocate.
    pub pod_cidr: Option<Ipv4Net>,
    /// How Pods are connected; by default, by [`Network::attach`].
    pub connector: PodConnector,
}

impl Options {
    /// Returns the options for `data_dir` with an allocated CIDR.
    pub fn new(data_dir: impl Into<PathBuf>) -> Self {
        Self { data_dir: data_dir.into(), pod_cidr: None, connector: PodConnector::default() }
    }
}

/// Pod network that is ready for Pods.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Network {
    /// How Pods are connected.
    pub connector: PodConnector,
    /// Bridge of the Pods' veth interfaces; it has none with [`PodConnector::Cni`].
    pub bridge: String,
    /// Pod CIDR.
    pub cidr: Ipv4Net,
    /// Address of the bridge, at which the node serves its Pods; the Pods' default gateway.
    pub gateway: Ipv4Addr,
    /// Whether the Service proxy can run: it needs nftables.
    pub proxies_services: bool,
    /// Whether connection tracking sees bridged traffic (br_netfilter): then Pods see their clients' own addresses
    /// behind a Service.
    pub filters_bridged_traffic: bool,
    /// Whether anti-spoofing rules are installed.
    pub has_anti_spoofing: bool,
    /// Whether host ports can be mapped by nftables, with [`PodConnector::Netlink`].
    pub(crate) has_host_ports: bool,
    pub(crate) names: Names,
    pub(crate) elements: nf_tables::ElementSocket,
    /// MTU of the Pods' interfaces; `None` for the kernel's default.
    pub(crate) mtu: Option<u32>,
}

impl Network {
    /// Creates the data directory's network, or takes over an existing one without disconnecting its Pods.
    ///
    /// # Errors
    /// When the CIDR is in use or cannot be changed under running Pods, when an interface of another owner has the
    /// bridge's name, when CNI lacks a Pod CIDR, or when the kernel or the file system fails.
    pub fn prepare(options: Options) -> BoxFuture<'static, Result<Self, Error>> {
        prepare::prepare(options).boxed()
    }

    /// Returns the gateways of the node's routes.
    ///
    /// # Errors
    /// When netlink fails.
    pub async fn gateways() -> Result<Vec<Ipv4Addr>, Error> {
        links::Netlink::open()?.gateways().await
    }

    /// Removes the data directory's network: host ports, the bridge with every veth, masquerading, and IPAM data. Does
    /// nothing if there is no network.
    ///
    /// # Errors
    /// When the kernel or the file system fails. Completed removals stay; the call can be repeated.
    pub async fn destroy(data_dir: &Path) -> Result<(), Error> {
        destroy::destroy(data_dir).await
    }

    /// Returns the peers that are served at the gateway's address.
    #[must_use]
    pub fn peers(&self) -> NodePeers {
        NodePeers::new(self.cidr)
    }

    /// Binds the cluster DNS server to the gateway's address; [`Network::serve`] serves it.
    ///
    /// # Errors
    /// When no port can be bound.
    pub async fn bind_dns(&self) -> Result<DnsListener, Error> {
        let listener = dns::Listener::bind(self.gateway).await.map_err(Error::NameServer)?;
        Ok(DnsListener(listener))
    }

    /// Runs the Service proxy, cluster DNS and NetworkPolicies until `stop` is cancelled; the rules stay. `gate` opens
    /// for Pods whose rules are installed.
    pub fn serve(
        self,
        clients: &ApiClients,
        options: NetworkServeOptions,
        gate: PodGate,
        stop: CancellationToken,
    ) -> BoxFuture<'_, ()> {
        // Boxed, so that the future is compiled in this crate and not again in each caller.
        self.serve_all(clients, options, gate, stop).boxed()
    }

    async fn serve_all(
        self,
        clients: &ApiClients,
        options: NetworkServeOptions,
        gate: PodGate,
        stop: CancellationToken,
    ) {
        let informer = informer::ServiceInformer::start(&clients.services, &stop);
        let policy_config = policies::PolicyConfig {
            node: options.node_name.clone(),
            bridge: self.bridge.clone(),
            pods: self.cidr,
            sees_bridge: self.filters_bridged_traffic,
        };
        let proxy_config = services::ProxyConfig {
            bridge: self.bridge.clone(),
            pods: self.cidr,
            services: options.service_cidr,
            load_balancers: options.load_balancer_cidr,
            sees_bridge: self.filters_bridged_traffic,
        };
        let forward = dns::Forward::new(options.resolv_conf, vec![options.dns_ip.into(), self.gateway.into()]);
        let names = dns::serve(options.name_server.0, self.peers(), informer.clone(), options.cluster_domain, forward);
        let policies = async {
            // Otherwise they are the CNI provider's.
            if self.connector == PodConnector::Netlink {
                policies::sync_policies(&clients.policies, policy_config, gate.policies(), &stop).await;
            }
        };
        let work = async { tokio::join!(services::run(informer, &options.node_name, proxy_config), names, policies) };
        Box::pin(stop.run_until_cancelled(work)).await;
    }
}

/// Listener of the cluster DNS server.
#[derive(Debug)]
pub struct DnsListener(dns::Listener);

impl DnsListener {
    /// Returns the port, which is the same for UDP and TCP.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.0.port()
    }
}

/// API clients of [`Network::serve`], by identity.
#[derive(Clone)]
pub struct ApiClients {
    /// Lists and watches Services and EndpointSlices (`system:node-proxier`).
    pub services: Client,
    /// Lists and watches NetworkPolicies, Pods and Namespaces.
    pub policies: Client,
}

/// Cluster configuration of [`Network::serve`].
#[derive(Debug)]
pub struct NetworkServeOptions {
    /// Name of the node, whose endpoints are local.
    pub node_name: String,
    /// Service CIDR.
    pub service_cidr: Ipv4Net,
    /// CIDR of load balancer addresses, if the node allocates some.
    pub load_balancer_cidr: Option<Ipv4Net>,
    /// ClusterIP of the DNS Service.
    pub dns_ip: Ipv4Addr,
    /// Cluster domain (`clusterDomain`).
    pub cluster_domain: String,
    /// The node's `resolv.conf`, whose servers resolve other names.
    pub resolv_conf: PathBuf,
    /// Listener of the DNS server.
    pub name_server: DnsListener,
}

/// Error of setup or removal of a network.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The Pod CIDR cannot be allocated.
    #[error(transparent)]
    Choose(#[from] PodCidrError),
    /// I/O error of a file or directory.
    #[error("failed to {doing} {path}: {source}")]
    File {
        /// The operation.
        doing: &'static str,
        /// On which file.
        path: PathBuf,
        /// Why it failed.
        source: io::Error,
    },
    /// The lock of CIDR allocation was not released in time.
    #[error("failed to lock {0}: timed out waiting for another process")]
    LockTimeout(PathBuf),
    /// A netlink socket could not be opened.
    #[error("failed to open netlink socket: {0}")]
    OpenNetlink(#[source] io::Error),
    /// A netlink request failed.
    #[error("failed to {doing}: {source}")]
    Netlink {
        /// The request.
        doing: String,
        /// The kernel's answer.
        source: rtnetlink::Error,
    },
    /// An interface of another owner has the bridge's name.
    #[error(
        "failed to create bridge {bridge}: the interface exists with another owner ({owner}); remove it or use another data directory"
    )]
    BridgeTaken {
        /// The interface's name.
        bridge: String,
        /// Its alias, or a description.
        owner: String,
    },
    /// The Pod CIDR was changed while Pods use the old one.
    #[error(
        "failed to change Pod CIDR to {requested}: running Pods on {bridge} use {current}; stop them first (`podium down`)"
    )]
    CidrInUse {
        /// The bridge.
        bridge: String,
        /// The CIDR that Pods use.
        current: Ipv4Net,
        /// The requested CIDR.
        requested: Ipv4Net,
    },
    /// Every address for the node's Services is in use.
    #[error("every address of 10.99.255.0/24 is in use on this machine")]
    ServiceAddressesExhausted,
    /// CNI plugins allocate the addresses, and their CIDR is not given.
    #[error("failed to prepare the network for CNI: the Pod CIDR is missing")]
    PodCidrMissing,
    /// A request to the kernel failed.
    #[error("failed to {doing}: {source}")]
    Kernel {
        /// The request.
        doing: String,
        /// The kernel's answer.
        source: io::Error,
    },
    /// All addresses of the Pod CIDR are in use; the text is that of the CNI plugin host-local.
    #[error("failed to allocate for range 0: no IP addresses available in range set: {first}-{last}")]
    AddressesExhausted {
        /// First address.
        first: Ipv4Addr,
        /// Last address.
        last: Ipv4Addr,
    },
    /// Another Pod has the host port.
    #[error("failed to map host port {0}: it is in use by another Pod")]
    HostPortTaken(String),
    /// A Pod has more than 1024 host ports.
    #[error("failed to map host ports: a Pod can have at most 1024")]
    TooManyHostPorts,
    /// Host ports need nftables.
    #[error("failed to map host ports: nftables is not available")]
    NoHostPorts,
    /// The sandbox ID cannot be the name of a file.
    #[error("failed to connect sandbox: the ID must consist of 1 to 128 letters, digits, '.', '-' and '_'")]
    InvalidSandbox,
    /// The given network namespace is the node's.
    #[error("failed to connect sandbox: its network namespace is the node's")]
    NodeNamespace,
    /// The DNS server could not bind a port.
    #[error("failed to bind cluster DNS server: {0}")]
    NameServer(#[source] io::Error),
    /// A program failed.
    #[error("failed to run {program}: {reason}")]
    Program {
        /// Its name.
        program: &'static str,
        /// Why it failed, in its own words where it has some.
        reason: String,
    },
}

impl Error {
    pub(crate) fn file<'a>(doing: &'static str, path: &'a Path) -> impl FnOnce(io::Error) -> Self + use<'a> {
        move |source| Self::File { doing, path: path.to_path_buf(), source }
    }

    pub(crate) fn kernel(doing: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let doing = doing.into();
        move |source| Self::Kernel { doing, source }
    }

    pub(crate) fn netlink(doing: impl Into<String>) -> impl FnOnce(rtnetlink::Error) -> Self {
        let doing = doing.into();
        move |source| Self::Netlink { doing, source }
    }
}
