//! cgroup drivers: `cgroupfs` writes to the file system, and `systemd` creates slices.

use super::{
    hierarchy::{CgroupId, Hierarchy},
    name::{self, CgroupName, CgroupNameError},
    resource_config::ResourceConfig,
    systemd::{Systemd, SystemdError},
};
use data_encoding::HEXLOWER;
use parking_lot::Mutex;
use sha2::{Digest, Sha256};
use std::{
    collections::HashMap,
    io,
    path::Path,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};
use tokio::time::{Instant, sleep};

/// Maximum wait until the last processes of a cgroup have exited.
const REMOVE_TIMEOUT: Duration = Duration::from_secs(10);
const RETRY_INTERVAL: Duration = Duration::from_millis(20);
/// Prefixes of the containers' scopes: those of Podium's engine, containerd and CRI-O.
const SCOPE_PREFIXES: [&str; 3] = ["cri-podium", "cri-containerd", "crio"];

/// The cgroups of Pods cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum CgroupSetupError {
    /// The machine has no cgroups for Pods.
    #[error("cgroupDriver systemd: no cgroup file system can be used: {0}")]
    NoHierarchy(String),
    /// systemd does not create the slices.
    #[error("cgroupDriver systemd: {0}")]
    Systemd(io::Error),
    /// Pods run in the cgroups of the other driver.
    #[error(
        "processes of Pods run in the cgroup {path} of cgroupDriver {other}: delete the Pods first, with Podium running \
         with that driver, or remove them with podium down"
    )]
    OtherDriver {
        /// The cgroup.
        path: String,
        /// The driver that created it.
        other: &'static str,
    },
}

/// A cgroup driver.
pub(super) enum Driver {
    Cgroupfs,
    Systemd {
        systemd: Systemd,
        /// Whether systemd was found: no Pod starts before.
        started: AtomicBool,
        /// Slices whose limits were set, by path. A slice that was stopped, and that systemd created again for a container, has
        /// no limits, but another identity.
        limited: Mutex<HashMap<String, CgroupId>>,
    },
}

impl Driver {
    pub(super) fn new(is_systemd: bool) -> Self {
        if is_systemd { Self::systemd(Systemd::new()) } else { Self::Cgroupfs }
    }

    pub(super) fn systemd(systemd: Systemd) -> Self {
        Self::Systemd { systemd, started: AtomicBool::new(false), limited: Mutex::default() }
    }

    pub(super) fn is_systemd(&self) -> bool {
        matches!(self, Self::Systemd { .. })
    }

    /// Checks that systemd answers. `no_hierarchy` is why there are no cgroups.
    pub(super) async fn start(&self, no_hierarchy: Option<&str>) -> Result<(), CgroupSetupError> {
        let Self::Systemd { systemd, started, .. } = self else { return Ok(()) };
        systemd.check().await.map_err(|error| CgroupSetupError::Systemd(error.into()))?;
        if let Some(error) = no_hierarchy {
            return Err(CgroupSetupError::NoHierarchy(error.to_owned()));
        }
        started.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Fails before [`Driver::start`] has found systemd.
    pub(super) fn check_started(&self) -> io::Result<()> {
        match self {
            Self::Systemd { started, .. } if !started.load(Ordering::Relaxed) => {
                Err(io::Error::other("the cgroup driver systemd has not started"))
            }
            _ => Ok(()),
        }
    }

    /// Returns the path of a cgroup, absolute within the hierarchies.
    pub(super) fn path(&self, name: &CgroupName) -> Result<String, CgroupNameError> {
        match self {
            Self::Cgroupfs => name.cgroupfs(),
            Self::Systemd { .. } => name.slice().map(|slice| slice.path),
        }
    }

    /// Returns the last component of a name, from the name of a directory; `None` if it is another driver's.
    pub(super) fn component(&self, directory: &str) -> Option<String> {
        match self {
            Self::Cgroupfs => Some(directory.to_owned()),
            Self::Systemd { .. } => name::last_component(directory),
        }
    }

    /// Returns the cgroup of a container: a scope in the Pod's slice, whose name has a prefix of the runtime.
    pub(super) fn container_path(&self, hierarchy: &Hierarchy, parent: &str, container: &str) -> String {
        if !self.is_systemd() {
            return format!("{parent}/{container}");
        }
        let path = |prefix| format!("{parent}/{prefix}-{container}.scope");
        if let Some(found) = SCOPE_PREFIXES.map(path).into_iter().find(|path| hierarchy.exists(path)) {
            return found;
        }
        let suffix = format!("-{container}.scope");
        // CRI-O has a scope for the monitor of the container, too.
        let is_container = |name: &String| name.ends_with(&suffix) && !name.contains("conmon");
        let found = hierarchy.children(parent).into_iter().find(is_container);
        found.map_or_else(|| path(SCOPE_PREFIXES[0]), |name| format!("{parent}/{name}"))
    }

    /// Creates a cgroup, or sets the limits of an existing one.
    pub(super) async fn set(
        &self,
        hierarchy: &Hierarchy,
        name: &CgroupName,
        description: &str,
        limits: &ResourceConfig,
    ) -> io::Result<()> {
        let Self::Systemd { systemd, limited, .. } = self else {
            return hierarchy.set(&name.cgroupfs().map_err(io::Error::other)?, limits);
        };
        self.check_started()?;
        let slice = name.slice().map_err(io::Error::other)?;
        limited.lock().remove(&slice.path);
        let limits =
            systemd.set(&slice, description, limits, hierarchy.is_v2(), || hierarchy.exists(&slice.path)).await?;
        // As upstream: also what systemd has not set, because its version does not know the property.
        hierarchy.set(&slice.path, &limits)?;
        if let Some(identity) = hierarchy.identity(&slice.path) {
            limited.lock().insert(slice.path, identity);
        }
        Ok(())
    }

    /// Returns whether a cgroup has the limits that were set last. With the driver `cgroupfs` nothing else creates cgroups.
    pub(super) fn is_limited(&self, hierarchy: &Hierarchy, name: &CgroupName) -> bool {
        let Self::Systemd { limited, .. } = self else { return true };
        let Ok(path) = self.path(name) else { return false };
        let identity = hierarchy.identity(&path);
        identity.is_some() && limited.lock().get(&path).copied() == identity
    }

    /// Removes a cgroup and those below it, when its last process has exited. `on_busy` is called while there is one.
    pub(super) async fn remove(
        &self,
        hierarchy: &Hierarchy,
        name: &CgroupName,
        mut on_busy: impl FnMut(),
    ) -> io::Result<()> {
        let path = self.path(name).map_err(io::Error::other)?;
        if let Self::Systemd { systemd, limited, .. } = self {
            limited.lock().remove(&path);
            wait_until_unused(hierarchy, &path, &mut on_busy).await?;
            stop_slice(systemd, hierarchy, name).await?;
        }
        remove_when_empty(hierarchy, &path, on_busy).await
    }

    /// Removes a cgroup and those below it.
    ///
    /// # Errors
    /// When it has processes.
    pub(super) async fn remove_if_unused(&self, hierarchy: &Hierarchy, name: &CgroupName) -> io::Result<()> {
        let path = self.path(name).map_err(io::Error::other)?;
        if let Self::Systemd { systemd, limited, .. } = self {
            limited.lock().remove(&path);
            stop_slice(systemd, hierarchy, name).await?;
        }
        hierarchy.remove(&path)
    }

    /// Fails if Pods run in the cgroups of the other driver: their limits and their removal are lost with this one.
    pub(super) fn check_other(&self, hierarchy: &Hierarchy, root: &CgroupName) -> Result<(), CgroupSetupError> {
        let (path, other) = match self {
            Self::Systemd { .. } => (root.cgroupfs(), "cgroupfs"),
            Self::Cgroupfs => (root.slice().map(|slice| slice.path), "systemd"),
        };
        match path {
            Ok(path) if hierarchy.has_processes(&path) => Err(CgroupSetupError::OtherDriver { path, other }),
            _ => Ok(()),
        }
    }
}

/// Stops a slice without processes.
async fn stop_slice(systemd: &Systemd, hierarchy: &Hierarchy, name: &CgroupName) -> io::Result<()> {
    let slice = name.slice().map_err(io::Error::other)?;
    let is_busy = || hierarchy.has_processes(&slice.path);
    // Before the connection is opened, and again directly before each call.
    if is_busy() {
        return Err(io::ErrorKind::ResourceBusy.into());
    }
    Ok(systemd.stop(&slice, || hierarchy.exists(&slice.path), is_busy).await?)
}

/// Removes all cgroups of a data directory's Pods, of both drivers. Processes that were just killed are waited for.
///
/// # Errors
/// Fails if a cgroup cannot be removed, for example because it has a process.
pub async fn remove_all(root_dir: &Path) -> io::Result<()> {
    let Ok(hierarchy) = Hierarchy::detect() else { return Ok(()) };
    let root = CgroupName::parse(&default_root(root_dir));
    let removed = Driver::Cgroupfs.remove(&hierarchy, &root, || {}).await;
    remove_slice(&Driver::new(true), &hierarchy, &root).await?;
    removed
}

/// Removes the slice of all Pods. Without systemd its cgroups are removed, if they have no processes.
pub(super) async fn remove_slice(driver: &Driver, hierarchy: &Hierarchy, root: &CgroupName) -> io::Result<()> {
    let Ok(path) = driver.path(root) else { return Ok(()) };
    if !hierarchy.exists(&path) {
        return Ok(());
    }
    match driver.remove(hierarchy, root, || {}).await {
        Err(error) if !hierarchy.has_processes(&path) => {
            tracing::warn!(%error, path, "systemd did not remove the slice of the Pods, removing its cgroups");
            remove_when_empty(hierarchy, &path, || {}).await
        }
        removed => removed,
    }
}

/// Waits until a cgroup has no processes.
async fn wait_until_unused(hierarchy: &Hierarchy, path: &str, on_busy: &mut impl FnMut()) -> io::Result<()> {
    let deadline = Instant::now() + REMOVE_TIMEOUT;
    while hierarchy.has_processes(path) {
        if Instant::now() >= deadline {
            return Err(io::ErrorKind::ResourceBusy.into());
        }
        on_busy();
        sleep(RETRY_INTERVAL).await;
    }
    Ok(())
}

/// Removes a cgroup when its last process has exited: the kernel keeps it for a moment after the exit.
async fn remove_when_empty(hierarchy: &Hierarchy, path: &str, mut on_busy: impl FnMut()) -> io::Result<()> {
    let deadline = Instant::now() + REMOVE_TIMEOUT;
    loop {
        match hierarchy.remove(path) {
            Err(e) if e.kind() == io::ErrorKind::ResourceBusy && Instant::now() < deadline => {
                on_busy();
                sleep(RETRY_INTERVAL).await;
            }
            done => return done,
        }
    }
}

/// Returns the root cgroup of a data directory.
pub(super) fn default_root(root_dir: &Path) -> String {
    let hash = Sha256::digest(root_dir.as_os_str().as_encoded_bytes());
    format!("/podium-{}", HEXLOWER.encode(&hash[..6]))
}

impl From<SystemdError> for CgroupSetupError {
    fn from(error: SystemdError) -> Self {
        Self::Systemd(error.into())
    }
}
