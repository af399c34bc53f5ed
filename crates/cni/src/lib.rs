//! Runs CNI plugins for the Pods of a node, as libcni and containerd's CRI plugin do (CNI specification 0.3.1 to 1.1.0).
//!
//! The network is the first configuration of a directory, which is read again for each Pod: a provider may install it at any
//! time, as a DaemonSet of the host network. A record of each connection (`record.rs`) is on the disk before the first plugin
//! runs, with the configuration that was used. So DEL gets the same configuration after a restart, after a crash of Podium
//! during ADD, and after a change of the directory.
//!
//! **Invariant:** a record exists as long as plugins may hold something for its sandbox.
#![forbid(unsafe_code)]

mod capabilities;
mod config;
mod destroy;
mod error;
mod leftovers;
mod netns;
mod operations;
mod plugin;
mod record;
mod result;
mod stale;
#[cfg(test)]
mod tests;

pub use destroy::{attached, destroy};
pub use error::{Error, PluginError};

use runtime::SandboxConfig;
use std::{
    io,
    net::IpAddr,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

/// Name of the Pod's interface.
pub(crate) const INTERFACE: &str = "eth0";
/// Time limit of one plugin. The kubelet of upstream waits 2 minutes for a request to the runtime.
const PLUGIN_TIMEOUT: Duration = Duration::from_secs(60);
/// Time limit of STATUS, which is requested with every status of the node.
const STATUS_TIMEOUT: Duration = Duration::from_secs(5);

/// Options of [`Cni`].
#[derive(Debug, Clone)]
pub struct CniOptions {
    /// Directory of the configurations: the first `.conflist`, `.conf` or `.json` by name is used.
    pub conf_dir: PathBuf,
    /// Directories that are searched for plugins, in this order.
    pub bin_dirs: Vec<PathBuf>,
    /// Data directory of the cluster; records are in its directory `cni`.
    pub data_dir: PathBuf,
    /// Directory of the Pods' network namespaces, a shared mount that providers may mount in their own Pods.
    pub netns_dir: PathBuf,
}

impl CniOptions {
    /// Returns the options for configurations in `conf_dir`, with the plugin directories of distributions.
    pub fn new(data_dir: impl Into<PathBuf>, conf_dir: impl Into<PathBuf>) -> Self {
        Self {
            conf_dir: conf_dir.into(),
            bin_dirs: ["/opt/cni/bin", "/usr/lib/cni", "/usr/libexec/cni"].map(PathBuf::from).into(),
            data_dir: data_dir.into(),
            netns_dir: "/var/run/netns".into(),
        }
    }
}

/// Pod network of CNI plugins. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Cni(pub(crate) Arc<Inner>);

#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) options: CniOptions,
    pub(crate) timeout: Duration,
    pub(crate) stale: stale::Stale,
}

impl Cni {
    /// Creates the network; no configuration needs to exist yet.
    ///
    /// # Errors
    /// When the directory of the records cannot be created.
    pub fn open(options: CniOptions) -> io::Result<Self> {
        Self::with_timeout(options, PLUGIN_TIMEOUT)
    }

    pub(crate) fn with_timeout(options: CniOptions, timeout: Duration) -> io::Result<Self> {
        files::create_private_dir_all(&record::dir(&options.data_dir))?;
        Ok(Self(Arc::new(Inner { options, timeout, stale: stale::Stale::default() })))
    }

    /// Connects the network namespace of a sandbox: sets `lo` up and runs ADD of all plugins. Returns the addresses of
    /// `eth0`, the first IPv4 address first; those of a sandbox that is connected already are returned at once.
    ///
    /// After an error DEL has been run; if that failed, too, it is repeated in the background.
    ///
    /// # Errors
    /// When there is no valid configuration, or a plugin fails or reports no address.
    pub async fn attach(&self, sandbox: &str, netns: &Path, config: &SandboxConfig) -> Result<Vec<IpAddr>, Error> {
        operations::attach(&self.0, sandbox, netns, config).await
    }

    /// Runs DEL of all plugins, in reverse order. Does nothing if the sandbox is not connected. An incomplete ADD is undone in
    /// the background: the plugins may need this node's API server, which is not started yet.
    ///
    /// # Errors
    /// When a plugin fails; the call can be repeated.
    pub async fn detach(&self, sandbox: &str) -> Result<(), Error> {
        operations::detach(&self.0, sandbox).await
    }

    /// Disconnects all sandboxes but these, in the background, until it succeeds.
    ///
    /// # Errors
    /// When the records cannot be listed.
    pub fn retain(&self, sandboxes: &[String]) -> Result<(), Error> {
        let recorded = record::sandboxes(&self.0.options.data_dir)?;
        stale::collect(&self.0, recorded.into_iter().filter(|id| !sandboxes.contains(id)));
        Ok(())
    }

    /// Checks that there is a valid configuration, and from version 1.1.0 on that all plugins report to be ready (STATUS).
    ///
    /// # Errors
    /// When there is no configuration ("cni plugin not initialized"), when it is invalid, or a plugin is not ready.
    pub async fn status(&self) -> Result<(), Error> {
        operations::status(&self.0, STATUS_TIMEOUT).await
    }
}
