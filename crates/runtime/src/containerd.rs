//! Managed containerd: configuration, root and state directories below the data directory.
//!
//! **Invariant:** containerd keeps running when Podium exits. It records exit codes and writes logs until the next Podium
//! process adopts it. `podium down` stops it. If containerd crashes, its shims and all containers keep running.

mod config;
mod destroy;
mod orphans;
mod process;
mod programs;
mod shims;
mod supervise;

pub use destroy::{destroy, remove_pods};
pub use programs::{OciRuntime, UnknownOciRuntime};

use crate::{CriRuntime, Runtime, RuntimeError, pause};
use config::Paths;
use process::Process;
use programs::Programs;
use std::{io, path::PathBuf, time::Duration};
use tokio::{sync::OnceCell, task::JoinHandle};
use tokio_util::sync::CancellationToken;

/// Error of starting or removing the managed containerd.
#[derive(Debug, thiserror::Error)]
pub enum ContainerdError {
    /// Required programs are not installed.
    #[error("these programs are missing: {}; on Debian: apt-get install {}", .programs.join(", "), .packages.join(" "))]
    MissingPrograms {
        /// Names of the programs.
        programs: Vec<String>,
        /// Debian packages that contain the programs.
        packages: Vec<&'static str>,
    },
    /// `crun` cannot start containers with hybrid cgroups.
    #[error(
        "crun starts no containers on a machine that has both versions of cgroups, with controllers in each: boot with \
         systemd.unified_cgroup_hierarchy=1, or let runc be the default runtime"
    )]
    MixedCgroups,
    /// A file or directory of containerd could not be written.
    #[error("failed to prepare {path}: {source}")]
    Prepare {
        /// The file or directory.
        path: PathBuf,
        /// Cause.
        source: io::Error,
    },
    /// containerd could not be started.
    #[error("failed to start containerd: {0}")]
    Start(#[source] io::Error),
    /// containerd started, but its CRI did not become ready.
    #[error("containerd did not become ready within {limit:?}: {reason}; its log: {log}")]
    NotReady {
        /// Timeout.
        limit: Duration,
        /// Last error.
        reason: String,
        /// Path of the log file.
        log: PathBuf,
    },
    /// A part of the data directory could not be removed.
    #[error("failed to remove the containers of {path}: {reason}")]
    Destroy {
        /// The data directory.
        path: PathBuf,
        /// Cause.
        reason: String,
    },
}

impl ContainerdError {
    /// Returns an error with the missing programs and the packages that contain them.
    fn missing(all: Vec<(String, &'static str)>) -> Self {
        let (programs, mut packages): (Vec<_>, Vec<_>) = all.into_iter().unzip();
        packages.dedup();
        Self::MissingPrograms { programs, packages }
    }
}

/// Running containerd of a data directory. Dropping it leaves containerd running, but stops the supervision: the cleanup
/// after a failed start must not race with a restart.
#[derive(Debug)]
pub struct ManagedContainerd {
    paths: Paths,
    stop: CancellationToken,
    supervisor: JoinHandle<()>,
    ready: OnceCell<()>,
}

impl ManagedContainerd {
    /// Starts containerd, or adopts the one left running by an earlier Podium process. Restarts a containerd with another
    /// configuration. Returns before the CRI is ready.
    ///
    /// # Errors
    /// If programs are missing (one error lists all) or unusable on this machine, a file cannot be written, or containerd
    /// cannot be started.
    pub async fn start(
        data_dir: PathBuf,
        cni_conf_dir: PathBuf,
        default_runtime: OciRuntime,
    ) -> Result<Self, ContainerdError> {
        let programs = Programs::find(default_runtime)?;
        let paths = Paths::new(&data_dir);
        let changed = config::write(&paths, &programs, &cni_conf_dir)?;
        let first = match Process::adopt(&paths) {
            Some(previous) if !changed => previous,
            previous => {
                if let Some(mut previous) = previous {
                    previous.end().await;
                }
                Process::spawn(&paths, &programs).map_err(ContainerdError::Start)?
            }
        };
        let stop = CancellationToken::new();
        let supervisor = tokio::spawn(supervise::supervise(first, paths.clone(), programs, stop.clone()));
        Ok(Self { paths, stop, supervisor, ready: OnceCell::new() })
    }

    /// Returns the CRI endpoint.
    #[must_use]
    pub fn endpoint(&self) -> String {
        self.paths.endpoint()
    }

    /// Waits until containerd can run sandboxes: the CRI responds and the sandbox image is imported.
    ///
    /// # Errors
    /// If it is not ready within `limit`.
    pub async fn wait_ready(&self, limit: Duration) -> Result<(), ContainerdError> {
        // Concurrent callers share one initialization.
        self.ready.get_or_try_init(|| self.until_ready(limit)).await.copied()
    }

    async fn until_ready(&self, limit: Duration) -> Result<(), ContainerdError> {
        let deadline = tokio::time::Instant::now() + limit;
        let not_ready = |reason: String| ContainerdError::NotReady { limit, reason, log: self.paths.log.clone() };
        loop {
            match self.prepare_image().await {
                Ok(()) => return Ok(()),
                Err(e) if tokio::time::Instant::now() > deadline => return Err(not_ready(e.to_string())),
                // containerd does not signal readiness, so the CRI is polled.
                Err(_) => tokio::time::sleep(Duration::from_millis(5)).await,
            }
        }
    }

    async fn prepare_image(&self) -> Result<(), RuntimeError> {
        let runtime = CriRuntime::new(&self.endpoint(), &self.paths.data_dir)?;
        if runtime.image(pause::IMAGE.into()).await?.is_some() {
            return Ok(());
        }
        let archive = pause::archive().map_err(|e| RuntimeError::Failed(e.to_string()))?;
        crate::import(&self.endpoint(), &mut archive.as_slice(), |_| {})
            .await
            .map(drop)
            .map_err(|e| RuntimeError::Failed(e.to_string()))
    }

    /// Stops the supervision and leaves containerd running for the next Podium process.
    pub fn detach(&self) {
        self.supervisor.abort();
    }

    /// Stops containerd. Containers keep running, but their output is not read.
    pub async fn shutdown(mut self) {
        self.stop.cancel();
        let _ = (&mut self.supervisor).await;
    }
}

impl Drop for ManagedContainerd {
    fn drop(&mut self) {
        self.detach();
    }
}

/// Returns the CRI endpoint of a data directory's containerd, which need not be running.
#[must_use]
pub fn endpoint(data_dir: &std::path::Path) -> String {
    Paths::new(data_dir).endpoint()
}

/// Whether containers of a data directory's containerd are running. containerd itself need not be running.
#[must_use]
pub fn has_containers(data_dir: &std::path::Path) -> bool {
    !shims::shims(&Paths::new(data_dir)).is_empty()
}

/// Returns the path of `ctr`.
pub(crate) fn find_ctr() -> Option<PathBuf> {
    programs::find_program("ctr")
}
