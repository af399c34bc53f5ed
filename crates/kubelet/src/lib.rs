//! The node agent: carries out what `lifecycle` decides, and reports what happened.
//!
//! **Invariant:** it decides nothing about a Pod's life. It turns what it sees into facts and carries actions out.
//!
//! **Invariant:** what must not be forgotten is on disk before it is acted upon; containers outlive the kubelet.
#![forbid(unsafe_code)]

mod actions;
mod actor;
mod beneath;
mod blocking;
mod cgroup;
mod checkpoint;
mod clock;
mod config;
mod csi_node;
mod deadline;
mod dns;
mod environment;
mod eviction;
mod exits;
mod figures;
mod hosts;
mod http;
mod images;
mod log_rotation;
mod logs;
mod machine;
mod mirrors;
mod network_readiness;
mod node;
mod node_conditions;
mod node_file;
mod node_shutdown;
mod node_status;
mod objects;
mod oom;
mod os_error;
mod paths;
mod pods;
mod probe;
mod reconcile;
mod recorder;
mod relist;
mod remembered;
mod runtime_events;
mod static_pods;
mod stats;
mod status;
mod turns;
mod untrusted_file;
mod user_namespaces;
mod volumes;

// The runtime in memory that the tests of the whole kubelet use serves those of its parts, too.
#[cfg(test)]
extern crate self as kubelet;
#[cfg(test)]
#[allow(dead_code, clippy::expect_used, reason = "each test uses a part of it, and a test may panic")]
#[path = "../tests/fake_runtime/mod.rs"]
mod fake_runtime;

pub use cgroup::remove_all as remove_cgroups;
pub use clock::Clock;
pub use config::{
    ConfigError, CrashLoopBackOff, EvictionSettings, ImagesConfiguration, KubeletConfiguration, ServingSettings,
    ShutdownSettings,
};
pub use images::provider::{CredentialProviderError, CredentialProviders};
pub use network_readiness::{NetworkReadiness, PodNetwork};
pub use static_pods::PodRules;
pub use volumes::remove_data;

use cgroup::Cgroups;
use eviction::Evictions;
use figures::Figures;
use futures::{FutureExt, future::BoxFuture};
use jiff::Timestamp;
use kube::Client;
use lifecycle::NodePolicy;
use machine::Machine;
use mirrors::Mirrors;
use node_shutdown::NodeShutdown;
use paths::Paths;
use pods::Pods;
use runtime::Runtime;
use std::{
    net::IpAddr,
    path::PathBuf,
    sync::{Arc, OnceLock},
};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// What a kubelet needs to know.
#[derive(Debug, Clone)]
pub struct Options {
    /// Name of the node.
    pub node_name: String,
    /// Directory for checkpoints, volumes and logs.
    pub root_dir: PathBuf,
    /// The node's address.
    pub node_ip: IpAddr,
    /// Addresses of Pods on this node.
    pub pod_cidr: Option<String>,
    /// Delays and features.
    pub policy: NodePolicy,
    /// What the administrator has set.
    pub config: KubeletConfiguration,
    /// What holds for Pods of manifests as for those of the API.
    pub pod_rules: PodRules,
    /// The time.
    pub clock: Clock,
    /// A random number: what is due at once after a start is spread by it.
    pub random: u64,
    /// Where the node itself answers HTTPS; 0 when it does not.
    pub port: u16,
    /// The home of who runs the node, whose Docker credentials are the node's.
    pub home: Option<PathBuf>,
    /// Programs that know credentials for images.
    pub credential_providers: Arc<CredentialProviders>,
}

/// What all parts of a kubelet share.
pub(crate) struct Shared {
    pub(crate) options: Options,
    pub(crate) client: Client,
    pub(crate) runtime: Arc<dyn Runtime>,
    pub(crate) pods: Pods,
    pub(crate) mirrors: Mirrors,
    pub(crate) recorder: recorder::Recorder,
    pub(crate) paths: Paths,
    pub(crate) machine: Machine,
    pub(crate) cgroups: Cgroups,
    pub(crate) evictions: Evictions,
    pub(crate) shutdown: NodeShutdown,
    pub(crate) rates: http::Rates,
    pub(crate) log_readers: http::LogReaders,
    pub(crate) probes: probe::counts::Counts,
    /// Service account tokens of Pods.
    pub(crate) tokens: volumes::Tokens,
    /// New sandboxes take turns: the first Pods of many are ready sooner, and the last one no later.
    pub(crate) sandboxes: turns::Turns,
    pub(crate) images: images::Images,
    /// What holds containers back until the network of their Pod is ready.
    pub(crate) network_readiness: OnceLock<NetworkReadiness>,
    pub(crate) user_namespaces: user_namespaces::UserNamespaces,
    /// When this kubelet was started.
    pub(crate) started: Timestamp,
    /// Whether it has told the API that its node is Ready.
    pub(crate) told_ready: watch::Sender<bool>,
    pub(crate) stop: CancellationToken,
}

impl Shared {
    /// The time.
    pub(crate) fn now(&self) -> Timestamp {
        self.options.clock.now()
    }

    /// The node's addresses, the primary one first.
    pub(crate) fn host_ips(&self) -> Vec<IpAddr> {
        let all = &self.options.policy.host_ips;
        if all.is_empty() { vec![self.options.node_ip] } else { all.clone() }
    }
}

/// A node agent. Cheap to clone.
#[derive(Clone)]
pub struct Kubelet {
    shared: Arc<Shared>,
}

impl Kubelet {
    /// A kubelet that talks to this API server and this runtime. Nothing runs before [`Kubelet::run`].
    #[must_use]
    pub fn new(options: Options, client: Client, runtime: Arc<dyn Runtime>, stop: CancellationToken) -> Self {
        let recorder = recorder::Recorder::start(client.clone(), &options, stop.clone());
        let paths = Paths::new(options.root_dir.clone());
        let machine = Machine::measure(&options.root_dir, &options.config);
        let cgroups = Cgroups::prepare(&options, &machine);
        // The configuration was checked when it was read.
        let policy = options.config.evictions().unwrap_or_default();
        let evictions = Evictions::new(policy, Figures::of_this_machine(&options.root_dir));
        let shutdown = NodeShutdown::new(&paths.shutdown_state());
        let images = images::Images::new(&options, &paths.image_manager());
        let started = options.clock.now();
        let shared = Shared {
            started,
            told_ready: watch::Sender::new(false),
            options,
            client,
            runtime,
            pods: Pods::default(),
            mirrors: Mirrors::default(),
            recorder,
            paths,
            machine,
            cgroups,
            evictions,
            shutdown,
            rates: http::Rates::default(),
            log_readers: http::LogReaders::default(),
            probes: probe::counts::Counts::default(),
            tokens: volumes::Tokens::default(),
            images,
            network_readiness: OnceLock::new(),
            user_namespaces: user_namespaces::UserNamespaces::default(),
            sandboxes: turns::Turns::new(2 * std::thread::available_parallelism().map_or(1, usize::from)),
            stop,
        };
        Self { shared: Arc::new(shared) }
    }

    /// Holds containers back until the network of their Pod is ready. Only the first one counts.
    #[must_use]
    pub fn with_network_readiness(self, readiness: NetworkReadiness) -> Self {
        let _ = self.shared.network_readiness.set(readiness);
        self
    }

    /// Registers the node and runs its Pods until told to stop; no container is stopped then.
    pub fn run(&self) -> BoxFuture<'_, ()> {
        // A box, so that it is compiled here and not once more in each crate that runs it.
        self.run_all().boxed()
    }

    async fn run_all(&self) {
        let shared = &self.shared;
        Box::pin(shared.images.take_over(shared.runtime.as_ref())).await;
        tokio::join!(
            node::run(shared),
            Box::pin(pods::run(shared)),
            Box::pin(mirrors::run(shared)),
            log_rotation::run(shared),
            eviction::run(shared),
            Box::pin(node_shutdown::run(shared)),
            volumes::refresh::run(shared),
            Box::pin(images::collect::run(shared))
        );
    }

    /// Waits until it has told the API that its node is Ready: what the API says may be the word of the one before it.
    pub async fn wait_ready(&self) {
        let mut told = self.shared.told_ready.subscribe();
        // The sender lives as long as the kubelet.
        let _ = told.wait_for(|told| *told).await;
    }

    /// Answers the node's HTTP API (`crate::http`) over HTTPS until told to stop. `tls` asks clients for a certificate, and
    /// checks those that come; who shows none is told 401.
    pub fn serve_https(
        self,
        listener: tokio::net::TcpListener,
        tls: Arc<rustls::ServerConfig>,
    ) -> BoxFuture<'static, ()> {
        http::secure::serve(self.shared, listener, tls).boxed()
    }

    /// Answers the node's HTTP API (`crate::http`) on a byte stream, HTTP/1.1.
    pub fn serve_stream(&self, stream: tokio::io::DuplexStream) -> BoxFuture<'static, ()> {
        http::serve(Arc::clone(&self.shared), stream).boxed()
    }
}
