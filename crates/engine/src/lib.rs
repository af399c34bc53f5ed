//! Podium's own container engine: an implementation of [`runtime::Runtime`] without containerd, CNI plugins and pause images.
//!
//! The border to the kernel is the OCI runtime specification: the engine writes bundles (crate `bundle`), and a keeper process
//! per Pod (crate `keeper`) lets an OCI runtime create their processes, writes their logs and records their exits. Images come
//! from the image store of the machine (crate `images`); the Pod network is a [`PodNetwork`] of the caller.
//!
//! **Invariant:** containers outlive this process. The next [`Engine`] of the data directory finds the keepers by their sockets.
//!
//! **Invariant:** what was reported is on disk (`records.rs`); what was not completed is removed by the next start (`adopt.rs`).
#![forbid(unsafe_code)]

mod adopt;
mod apparmor;
mod cgroup;
mod containers;
mod destroy;
mod directories;
mod events;
mod exec;
mod execs;
mod handlers;
mod host;
mod image_service;
mod in_root;
mod keeper_events;
mod keeper_process;
mod masking;
mod mount_table;
mod oci_features;
mod oci_runtime;
mod oci_runtime_version;
mod pod_files;
mod port_forward;
mod prepare;
mod records;
mod rootfs;
mod runtime_service;
mod sandbox_container;
mod sandboxes;
mod session;
mod start;
mod state;
mod steps;
mod stop;
mod streams;
mod tasks;

pub use destroy::{destroy, has_other_cgroup_driver, has_sandbox, has_sandboxes, image_store};
pub use handlers::HandlersError;
pub use image_service::{describe_image, pull_image};

use futures::{FutureExt, future::BoxFuture};
use runtime::SandboxConfig;
use state::Inner;
use std::{net::IpAddr, path::PathBuf, sync::Arc};

/// Options of an [`Engine`].
pub struct EngineOptions {
    /// Data directory of the cluster.
    pub data_dir: PathBuf,
    /// Image store of the machine.
    pub images: images::ImageStore,
    /// Becomes true, or is closed, when the images are imported that the cluster begins with: the kubelet's queries for images and
    /// its pulls wait for that.
    pub images_imported: tokio::sync::watch::Receiver<bool>,
    /// Directories of registry configurations (`HOST/hosts.toml`).
    pub registry_hosts_dirs: Vec<PathBuf>,
    /// Program that runs as keeper when it is executed under the name [`keeper::KEEPER_NAME`].
    pub keeper_program: PathBuf,
    /// Name of the default runtime handler.
    pub default_handler: String,
    /// Name of the node, the host name of Pods with its network.
    pub node_name: String,
    /// Network of the Pods.
    pub network: Arc<dyn PodNetwork>,
}

/// Network of the Pods.
pub trait PodNetwork: Send + Sync + 'static {
    /// Returns why no Pods can be connected now, in the words of the CRI's condition `NetworkReady`.
    fn not_ready(&self) -> BoxFuture<'_, Option<String>> {
        std::future::ready(None).boxed()
    }
    /// Connects the network namespace of a sandbox, and returns its addresses. Idempotent.
    fn attach<'a>(
        &'a self,
        sandbox: &'a str,
        netns: &'a std::path::Path,
        config: &'a SandboxConfig,
    ) -> BoxFuture<'a, Result<Vec<IpAddr>, PodNetworkError>>;
    /// Disconnects a sandbox, whose namespace may be gone. Idempotent.
    fn detach<'a>(&'a self, sandbox: &'a str) -> BoxFuture<'a, Result<(), PodNetworkError>>;
    /// Releases what other sandboxes than these left behind.
    fn retain<'a>(&'a self, sandboxes: &'a [String]) -> BoxFuture<'a, Result<(), PodNetworkError>>;
}

/// Failure of the Pod network.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct PodNetworkError(#[from] pub Box<dyn std::error::Error + Send + Sync>);

/// The engine cannot start.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// The OCI runtimes cannot be found.
    #[error(transparent)]
    Handlers(#[from] HandlersError),
    /// A file of the data directory cannot be read or written.
    #[error("failed to access {path}: {source}")]
    File {
        /// The file.
        path: PathBuf,
        /// Cause.
        source: std::io::Error,
    },
    /// A keeper speaks a version of the protocol that this Podium does not know.
    #[error(
        "failed to take over the sandbox of pod {pod} ({sandbox}): {source}; delete its Pod with the Podium that started it, \
         or remove all Pods with podium down"
    )]
    KeeperVersion {
        /// Namespace and name of the Pod.
        pod: String,
        /// Sandbox ID.
        sandbox: String,
        /// Cause, with both versions.
        source: keeper::Error,
    },
}

/// Container engine of a data directory. Cheap to clone. Dropping it stops no containers.
#[derive(Clone)]
pub struct Engine(Arc<Inner>);
