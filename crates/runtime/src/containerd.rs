//! Podium's own containerd: configuration, root and state below the data directory.
//!
//! **Invariant:** Podium's end is not containerd's: while Podium is away, containerd takes exit codes and writes logs,
//! and the next Podium adopts it. It ends with the data directory (`podium down`). Should it die, its shims, and so all
//! containers, live on.

mod config;
mod destroy;
mod orphans;
mod process;
mod programs;
mod shims;
mod supervise;

pub use destroy::{destroy, remove_pods};
pub use programs::OciRuntime;

use crate::{CriRuntime, Runtime, RuntimeError, pause};
use config::Paths;
use process::Process;
use programs::Programs;
use std::{io, path::PathBuf, time::Duration};
use tokio::{sync::OnceCell, task::JoinHandle};
use tokio_util::sync::CancellationToken;

/// Why containerd cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum ContainerdError {
    /// Programs are not installed.
    #[error("these programs are missing: {}; on Debian: apt-get install {}", .programs.join(", "), .packages.join(" "))]
    MissingPrograms {
        /// Their names.
        programs: Vec<String>,
        /// Debian's packages that have them.
        packages: Vec<&'static str>,
    },
    /// `crun` would start no container here.
    #[error(
        "crun starts no containers on a machine that has both versions of cgroups, with controllers in each: boot with \
         systemd.unified_cgroup_hierarchy=1, or let runc be the default runtime"
    )]
    MixedCgroups,
    /// Its files could not be written.
    #[error("cannot prepare {path}: {source}")]
    Prepare {
        /// The file or directory.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It does not start.
    #[error("cannot start containerd: {0}")]
    Start(#[source] io::Error),
    /// It started and does not answer.
    #[error("containerd did not become ready within {limit:?}: {reason}; its log: {log}")]
    NotReady {
        /// How long was waited.
        limit: Duration,
        /// What it said last.
        reason: String,
        /// Where its log is.
        log: PathBuf,
    },
    /// Something of it could not be removed.
    #[error("cannot remove what ran in {path}: {reason}")]
    Destroy {
        /// The data directory.
        path: PathBuf,
        /// What failed.
        reason: String,
    },
}

impl ContainerdError {
    /// Programs that are not there, with the packages that have them.
    fn missing(all: Vec<(String, &'static str)>) -> Self {
        let (programs, mut packages): (Vec<_>, Vec<_>) = all.into_iter().unzip();
        packages.dedup();
        Self::MissingPrograms { programs, packages }
    }
}

/// A running containerd that belongs to a data directory. Dropping it leaves it running, and nobody starts it again: a start
/// that failed is cleared up by who must find one containerd, and no second one.
#[derive(Debug)]
pub struct OwnContainerd {
    paths: Paths,
    stop: CancellationToken,
    supervisor: JoinHandle<()>,
    ready: OnceCell<()>,
}

impl OwnContainerd {
    /// Starts containerd, or adopts the one that an earlier Podium left running; one with another configuration is
    /// replaced. Returns before it answers.
    ///
    /// # Errors
    /// When programs are missing (one error names them all) or would not work here, its files cannot be written, or it cannot be started.
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

    /// Its CRI endpoint.
    #[must_use]
    pub fn endpoint(&self) -> String {
        self.paths.endpoint()
    }

    /// Waits until it can run sandboxes: the CRI answers and the sandbox image is there.
    ///
    /// # Errors
    /// When it cannot within `limit`.
    pub async fn wait_ready(&self, limit: Duration) -> Result<(), ContainerdError> {
        // However many wait, one does what there is to do.
        self.ready.get_or_try_init(|| self.until_ready(limit)).await.copied()
    }

    async fn until_ready(&self, limit: Duration) -> Result<(), ContainerdError> {
        let deadline = tokio::time::Instant::now() + limit;
        let not_ready = |reason: String| ContainerdError::NotReady { limit, reason, log: self.paths.log.clone() };
        loop {
            match self.prepare_image().await {
                Ok(()) => return Ok(()),
                Err(e) if tokio::time::Instant::now() > deadline => return Err(not_ready(e.to_string())),
                // It says nowhere when it is ready: its socket answers or does not.
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

    /// Leaves it running, for the next Podium.
    pub fn leave(&self) {
        self.supervisor.abort();
    }

    /// Ends it. Containers run on, and write into pipes that nobody reads.
    pub async fn shutdown(mut self) {
        self.stop.cancel();
        let _ = (&mut self.supervisor).await;
    }
}

impl Drop for OwnContainerd {
    fn drop(&mut self) {
        self.leave();
    }
}

/// The endpoint of a data directory's own containerd, whether it runs or not.
#[must_use]
pub fn endpoint(data_dir: &std::path::Path) -> String {
    Paths::new(data_dir).endpoint()
}

/// Whether containers of a data directory's own containerd run, whether it runs itself or not.
#[must_use]
pub fn has_containers(data_dir: &std::path::Path) -> bool {
    !shims::shims(&Paths::new(data_dir)).is_empty()
}

/// Where `ctr` is.
pub(crate) fn find_ctr() -> Option<PathBuf> {
    programs::find_program("ctr")
}
