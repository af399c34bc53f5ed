//! Node agent: executes the actions that `lifecycle` plans, and reports observed events to it.
//!
//! **Invariant:** decisions about a Pod's lifecycle are made in `lifecycle` only. This crate observes and executes.
//!
//! **Invariant:** state that must survive a restart is checkpointed before it is acted on; containers outlive the
//! kubelet.
#![forbid(unsafe_code)]

mod actions;
mod blocking;
mod cache_sizes;
mod cgroup;
mod checkpoint;
mod clock;
mod concurrency_limiter;
mod config;
mod container_exits;
mod csi_node;
mod deadline;
mod dns;
mod env_vars;
mod etc_hosts;
mod eviction;
mod host_file;
mod http;
mod images;
mod log_rotation;
mod logs;
mod mirror_pods;
mod network_readiness;
mod node;
mod node_conditions;
mod node_resources;
mod node_shutdown;
mod node_status;
mod object_cache;
mod oom;
mod os_error;
mod paths;
mod pod_stats;
mod pod_worker;
mod pods;
mod probe_handlers;
mod recorder;
mod relist;
mod runtime_events;
mod safe_open;
mod sources;
mod static_pods;
mod status_manager;
mod status_reconciler;
mod system_stats;
mod untrusted_file;
mod user_namespaces;
mod volumes;

// Unit tests share the in-memory runtime of the integration tests.
#[cfg(test)]
extern crate self as kubelet;
#[cfg(test)]
#[allow(dead_code, clippy::expect_used, reason = "each test uses a part of it, and a test may panic")]
#[path = "../tests/fake_runtime/mod.rs"]
mod fake_runtime;

pub use cgroup::{CgroupSetupError, remove_all as remove_cgroups};
pub use clock::Clock;
pub use config::{
    ConfigError, CrashLoopBackOff, EvictionSettings, ImagesConfiguration, KubeletConfiguration, ServingSettings,
    ShutdownSettings,
};
pub use images::provider::{CredentialProviderError, CredentialProviders};
pub use network_readiness::{NetworkReadiness, PodNetwork};
pub use static_pods::PodDefaulter;
pub use volumes::remove_data;

use cgroup::CgroupManager;
use eviction::Evictions;
use futures::{FutureExt, future::BoxFuture};
use jiff::Timestamp;
use kube::Client;
use lifecycle::NodePolicy;
use mirror_pods::MirrorPods;
use node_resources::NodeResources;
use node_shutdown::NodeShutdown;
use paths::Paths;
use pods::Pods;
use runtime::Runtime;
use std::{
    net::IpAddr,
    path::PathBuf,
    sync::{Arc, OnceLock},
};
use system_stats::SystemStats;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// Options of a kubelet.
#[derive(Debug, Clone)]
pub struct Options {
    /// Name of the node.
    pub node_name: String,
    /// Directory for checkpoints, volumes and logs.
    pub root_dir: PathBuf,
    /// The node's address.
    pub node_ip: IpAddr,
    /// Address range of the Pods on this node.
    pub pod_cidr: Option<String>,
    /// Delays and feature switches of the Pod lifecycle.
    pub policy: NodePolicy,
    /// Configuration file of the kubelet.
    pub config: KubeletConfiguration,
    /// Defaults and validation, which apply to static Pods as to Pods of the API.
    pub pod_rules: PodDefaulter,
    /// Clock, replaceable in tests.
    pub clock: Clock,
    /// Random seed that spreads work that is due at start.
    pub random: u64,
    /// HTTPS port of the kubelet's API; 0 if it does not listen.
    pub port: u16,
    /// Home directory whose Docker credentials the node uses.
    pub home: Option<PathBuf>,
    /// Credential provider plugins for image pulls.
    pub credential_providers: Arc<CredentialProviders>,
}

/// State that all components of a kubelet share.
pub(crate) struct Shared {
    pub(crate) options: Options,
    pub(crate) client: Client,
    pub(crate) runtime: Arc<dyn Runtime>,
    pub(crate) pods: Pods,
    pub(crate) mirror_pods: MirrorPods,
    pub(crate) recorder: recorder::Recorder,
    pub(crate) paths: Paths,
    pub(crate) node_resources: NodeResources,
    pub(crate) cgroups: CgroupManager,
    pub(crate) evictions: Evictions,
    pub(crate) shutdown: NodeShutdown,
    pub(crate) rates: http::CpuRates,
    pub(crate) log_readers: http::LogReaders,
    pub(crate) log_watcher: logs::LogWatcher,
    pub(crate) probes: probe_handlers::metrics::ProbeMetrics,
    /// Service account tokens of Pods.
    pub(crate) tokens: volumes::TokenCache,
    /// Limit on concurrent sandbox starts: of many Pods, the first are ready sooner and the last no later.
    pub(crate) sandbox_limiter: concurrency_limiter::ConcurrencyLimiter,
    pub(crate) images: images::ImageManager,
    /// Gate that delays containers until the network of their Pod is ready.
    pub(crate) network_readiness: OnceLock<NetworkReadiness>,
    pub(crate) user_namespaces: user_namespaces::UserNamespaces,
    /// Start time of this kubelet.
    pub(crate) started: Timestamp,
    /// Whether this kubelet has reported its node as Ready to the API.
    pub(crate) ready_reported: watch::Sender<bool>,
    pub(crate) stop: CancellationToken,
}

impl Shared {
    /// Returns the current time.
    pub(crate) fn now(&self) -> Timestamp {
        self.options.clock.now()
    }

    /// Returns the node's addresses, the primary one first.
    pub(crate) fn host_ips(&self) -> Vec<IpAddr> {
        let all = &self.options.policy.host_ips;
        if all.is_empty() { vec![self.options.node_ip] } else { all.clone() }
    }
}

/// Kubelet. Cheap to clone.
#[derive(Clone)]
pub struct Kubelet {
    shared: Arc<Shared>,
}

impl Kubelet {
    /// Returns a kubelet for this API server and this runtime. Nothing runs before [`Kubelet::run`].
    #[must_use]
    pub fn new(options: Options, client: Client, runtime: Arc<dyn Runtime>, stop: CancellationToken) -> Self {
        let recorder = recorder::Recorder::start(client.clone(), &options, stop.clone());
        let paths = Paths::new(options.root_dir.clone());
        let node_resources = NodeResources::measure(&options.root_dir, &options.config);
        let cgroups = CgroupManager::new(&options, &node_resources);
        // The configuration was validated when it was parsed.
        let policy = options.config.evictions().unwrap_or_default();
        let evictions = Evictions::new(policy, SystemStats::new(&options.root_dir));
        let shutdown = NodeShutdown::new(&paths.shutdown_state());
        let images = images::ImageManager::new(&options, &paths.image_manager());
        let started = options.clock.now();
        let shared = Shared {
            started,
            ready_reported: watch::Sender::new(false),
            options,
            client,
            runtime,
            pods: Pods::default(),
            mirror_pods: MirrorPods::default(),
            recorder,
            paths,
            node_resources,
            cgroups,
            evictions,
            shutdown,
            rates: http::CpuRates::default(),
            log_readers: http::LogReaders::default(),
            log_watcher: logs::LogWatcher::default(),
            probes: probe_handlers::metrics::ProbeMetrics::default(),
            tokens: volumes::TokenCache::default(),
            images,
            network_readiness: OnceLock::new(),
            user_namespaces: user_namespaces::UserNamespaces::default(),
            sandbox_limiter: concurrency_limiter::ConcurrencyLimiter::new(
                2 * std::thread::available_parallelism().map_or(1, usize::from),
            ),
            stop,
        };
        Self { shared: Arc::new(shared) }
    }

    /// Sets up the cgroups of Pods with the driver `systemd`. Without it no Pod starts with that driver.
    ///
    /// # Errors
    /// When systemd does not create them, or Pods run in the cgroups of the other driver.
    pub async fn prepare_cgroups(&self) -> Result<(), CgroupSetupError> {
        self.shared.cgroups.prepare().await
    }

    /// Delays containers until the network of their Pod is ready. Only the first call has an effect.
    #[must_use]
    pub fn with_network_readiness(self, readiness: NetworkReadiness) -> Self {
        let _ = self.shared.network_readiness.set(readiness);
        self
    }

    /// Registers the node and runs its Pods until cancelled. Containers keep running afterwards.
    pub fn run(&self) -> BoxFuture<'_, ()> {
        // Boxed, so that the future is compiled in this crate and not again in each caller's.
        self.run_all().boxed()
    }

    async fn run_all(&self) {
        let shared = &self.shared;
        Box::pin(shared.images.resolve_pull_intents(shared.runtime.as_ref())).await;
        tokio::join!(
            node::run(shared),
            Box::pin(pods::run(shared)),
            Box::pin(mirror_pods::run(shared)),
            log_rotation::run(shared),
            eviction::run(shared),
            Box::pin(node_shutdown::run(shared)),
            volumes::refresh::run(shared),
            Box::pin(images::gc::run(shared))
        );
    }

    /// Waits until this kubelet has reported its node as Ready. The condition in the API may be an earlier kubelet's.
    pub async fn wait_ready(&self) {
        let mut ready = self.shared.ready_reported.subscribe();
        // The sender lives as long as the kubelet.
        let _ = ready.wait_for(|ready| *ready).await;
    }

    /// Serves the kubelet's HTTP API (`crate::http`) over HTTPS until cancelled. `tls` requests client certificates and
    /// verifies them; a request without a certificate gets 401.
    pub fn serve_https(
        self,
        listener: tokio::net::TcpListener,
        tls: Arc<rustls::ServerConfig>,
    ) -> BoxFuture<'static, ()> {
        http::https::serve(self.shared, listener, tls).boxed()
    }

    /// Serves the kubelet's HTTP API (`crate::http`) over HTTP/1.1 on a byte stream.
    pub fn serve_stream(&self, stream: tokio::io::DuplexStream) -> BoxFuture<'static, ()> {
        http::serve(Arc::clone(&self.shared), stream).boxed()
    }
}
