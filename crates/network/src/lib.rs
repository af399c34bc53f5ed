//! The Pod network of one node, for the container runtime that Podium runs itself.
//!
//! Pods are connected through CNI: a bridge per data directory, addresses from `host-local`, and host ports from
//! `portmap`. This crate chooses the CIDR, makes the bridge, writes the configuration that the runtime reads, and
//! takes all of it away again. On that network it leads the traffic of Services ([`services`]) and answers for their
//! names ([`dns`]), and lets NetworkPolicies act ([`policies`]).
//!
//! **Invariant:** several Podiums share a machine. Every name and every file here is derived from the data
//! directory, the kernel's own tables say which CIDRs are taken, and a lock holds between looking and taking.
//!
//! The bridge exists from [`Network::prepare`] on, and not from the first Pod on: its route is what another Podium
//! (or anybody else) sees as taken. Masquerading is one rule for the CIDR and not the bridge plugin's `ipMasq`,
//! which adds a chain per Pod: measured, 12 ms more for each Pod added and 50 ms for each one removed.
#![forbid(unsafe_code)]

mod anti_spoof;
mod bridge;
mod choose;
mod conflist;
mod destroy;
mod dns;
mod firewall;
mod follow;
mod kept;
mod leftovers;
mod links;
mod names;
mod node_event;
mod peers;
mod pod_gate;
mod policies;
mod prepare;
mod program;
mod services;
mod state;
mod table;

use futures::{FutureExt, future::BoxFuture};
use kube::Client;
use names::Names;
use tokio_util::sync::CancellationToken;

pub use choose::ChooseError;
pub use ipnet::Ipv4Net;
pub use names::DEFAULT_DATA_DIR;
pub use peers::NodePeers;
pub use pod_gate::PodGate;

use std::io;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

/// What a Pod network is made from.
#[derive(Debug, Clone)]
pub struct Options {
    /// The data directory whose network this is.
    pub data_dir: PathBuf,
    /// The block of Pod addresses; without one, the first free /24 of 10.244.0.0/16 is taken and remembered.
    pub pod_cidr: Option<Ipv4Net>,
    /// Where CNI plugins lie.
    pub plugin_dirs: Vec<PathBuf>,
}

impl Options {
    /// The network of `data_dir` with a CIDR of its own choice, and plugins where distributions put them.
    pub fn new(data_dir: impl Into<PathBuf>) -> Self {
        Self {
            data_dir: data_dir.into(),
            pod_cidr: None,
            plugin_dirs: ["/opt/cni/bin", "/usr/lib/cni", "/usr/libexec/cni"].into_iter().map(PathBuf::from).collect(),
        }
    }
}

/// A Pod network that is ready for Pods.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Network {
    /// The directory that holds the one CNI configuration list (`plugins."io.containerd.grpc.v1.cri".cni.conf_dir`).
    pub conf_dir: PathBuf,
    /// The directory of the plugins (`cni.bin_dir`).
    pub bin_dir: PathBuf,
    /// The bridge that Pods are plugged into; also the name of the CNI network.
    pub bridge: String,
    /// The block of Pod addresses.
    pub cidr: Ipv4Net,
    /// The bridge's address in it, which is the Pods' default gateway.
    pub gateway: Ipv4Addr,
    /// Whether traffic of Services can be led here: it takes nftables.
    pub leads_services: bool,
    /// Whether Pods of the bridge see their clients' own addresses when they are asked as a Service's endpoints.
    pub sees_bridge: bool,
    /// Whether Pods can send with their own addresses only.
    pub checks_senders: bool,
}

impl Network {
    /// Makes the data directory's network, or takes over the one that is there: Pods that are plugged in stay so.
    ///
    /// # Errors
    /// When the CIDR is taken or cannot be changed under running Pods, when the bridge's name belongs to somebody
    /// else, when the CNI plugins are missing, or when the kernel or the file system refuses.
    pub fn prepare(options: Options) -> BoxFuture<'static, Result<Self, Error>> {
        prepare::prepare(options).boxed()
    }

    /// The machines through which this one reaches others, as its routes say.
    ///
    /// # Errors
    /// When the kernel does not tell.
    pub async fn gateways() -> Result<Vec<Ipv4Addr>, Error> {
        links::Netlink::open()?.gateways().await
    }

    /// Removes what is left of the data directory's network: the network namespaces of its Pods, host ports, the
    /// bridge with every veth in it, masquerading, and the record of addresses. Does nothing where nothing is.
    ///
    /// # Errors
    /// When the kernel or the file system refuses. What was removed until then stays removed; it can be called again.
    pub async fn destroy(data_dir: &Path) -> Result<(), Error> {
        destroy::destroy(data_dir, &destroy::Places::default()).await
    }

    /// The peers that are served at the gateway's address.
    #[must_use]
    pub fn peers(&self) -> NodePeers {
        NodePeers::new(self.cidr)
    }

    /// Takes the cluster's name server a place at the gateway's address; [`Network::serve`] answers there.
    ///
    /// # Errors
    /// When no port can be had.
    pub async fn name_server(&self) -> Result<NameServer, Error> {
        let listener = dns::Listener::bind(self.gateway).await.map_err(Error::NameServer)?;
        Ok(NameServer(listener))
    }

    /// Leads the traffic of Services, answers for their names, and lets NetworkPolicies act, until it is told to stop;
    /// the rules stay then. `gate` opens for Pods whose rules are there.
    pub fn serve(
        self,
        clients: &Clients,
        options: ServiceOptions,
        gate: PodGate,
        stop: CancellationToken,
    ) -> BoxFuture<'_, ()> {
        // A box, so that it is compiled here and not once more in each crate that runs it.
        self.serve_all(clients, options, gate, stop).boxed()
    }

    async fn serve_all(self, clients: &Clients, options: ServiceOptions, gate: PodGate, stop: CancellationToken) {
        let followed = follow::Followed::start(&clients.services, &stop);
        let guarded = policies::Place {
            node: options.node_name.clone(),
            bridge: self.bridge.clone(),
            pods: self.cidr,
            sees_bridge: self.sees_bridge,
        };
        let place = services::Place {
            bridge: self.bridge.clone(),
            pods: self.cidr,
            services: options.service_cidr,
            load_balancers: options.load_balancer_cidr,
            sees_bridge: self.sees_bridge,
        };
        let forward = dns::Forward::new(options.resolv_conf, vec![options.dns_ip.into(), self.gateway.into()]);
        let names = dns::serve(options.name_server.0, self.peers(), followed.clone(), options.cluster_domain, forward);
        let policies = policies::lead(&clients.policies, guarded, gate.policies(), &stop);
        let work = async { tokio::join!(services::lead(followed, &options.node_name, place), names, policies) };
        Box::pin(stop.run_until_cancelled(work)).await;
    }
}

/// Where the cluster's name server hears.
#[derive(Debug)]
pub struct NameServer(dns::Listener);

impl NameServer {
    /// The port, the same of UDP and TCP.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.0.port()
    }
}

/// As whom [`Network::serve`] asks the API.
#[derive(Clone)]
pub struct Clients {
    /// Lists and watches Services and EndpointSlices (`system:node-proxier`).
    pub services: Client,
    /// Lists and watches NetworkPolicies, Pods and Namespaces.
    pub policies: Client,
}

/// What [`Network::serve`] has to know of the cluster.
#[derive(Debug)]
pub struct ServiceOptions {
    /// The node, whose endpoints are local ones.
    pub node_name: String,
    /// Where Services have their addresses.
    pub service_cidr: Ipv4Net,
    /// Where Services of type LoadBalancer have theirs, if this node gives them some.
    pub load_balancer_cidr: Option<Ipv4Net>,
    /// The address of the Service of the name server.
    pub dns_ip: Ipv4Addr,
    /// The domain of the cluster (`clusterDomain`).
    pub cluster_domain: String,
    /// The node's own resolvers, which are asked for other names.
    pub resolv_conf: PathBuf,
    /// Where names are asked for.
    pub name_server: NameServer,
}

/// Why a network could not be made or removed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No CIDR could be taken.
    #[error(transparent)]
    Choose(#[from] ChooseError),
    /// A directory or file could not be read or written.
    #[error("{doing} {path}: {source}")]
    File {
        /// What was tried.
        doing: &'static str,
        /// On which file.
        path: PathBuf,
        /// Why it failed.
        source: io::Error,
    },
    /// The lock that orders all Podiums of this machine was not released in time.
    #[error("another process has held {0} for too long while it sets up its network")]
    LockTimeout(PathBuf),
    /// No netlink socket could be opened.
    #[error("open a netlink socket: {0}")]
    OpenNetlink(#[source] io::Error),
    /// The kernel refused a request.
    #[error("{doing}: {source}")]
    Netlink {
        /// What was asked for.
        doing: String,
        /// The kernel's answer.
        source: rtnetlink::Error,
    },
    /// An interface of the bridge's name exists and is not this data directory's.
    #[error(
        "the interface {bridge} exists and belongs to somebody else ({owner}); remove it or use another data directory"
    )]
    BridgeTaken {
        /// The interface's name.
        bridge: String,
        /// Its alias, or what is known of it.
        owner: String,
    },
    /// The Pod CIDR was changed while Pods are plugged into the old one.
    #[error(
        "the Pods that run on {bridge} have addresses of {current}: stop them (`podium down`) before the Pod CIDR becomes {wanted}"
    )]
    CidrInUse {
        /// The bridge.
        bridge: String,
        /// The CIDR that Pods use.
        current: Ipv4Net,
        /// The CIDR that was asked for.
        wanted: Ipv4Net,
    },
    /// No directory has the CNI plugins `bridge`, `host-local` and `loopback`.
    #[error(
        "the CNI plugins bridge, host-local and loopback were not found in {0}: install the package containernetworking-plugins"
    )]
    PluginsMissing(String),
    /// The name server has no port.
    #[error("the cluster's name server has no place to hear: {0}")]
    NameServer(#[source] io::Error),
    /// A program could not be run.
    #[error("run {program}: {reason}")]
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

    pub(crate) fn netlink(doing: impl Into<String>) -> impl FnOnce(rtnetlink::Error) -> Self {
        let doing = doing.into();
        move |source| Self::Netlink { doing, source }
    }
}
