//! The data directory: the files of one cluster, and the lock that prevents concurrent use.

use anyhow::{Context, Result, bail};
use files::trust;
use nix::fcntl::{Flock, FlockArg};
use std::{
    fmt,
    fs::{self, File, OpenOptions},
    io::{self, ErrorKind, Read, Seek, Write},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

/// Time that a killed Podium process may take to exit.
const LOCK_TIMEOUT: Duration = Duration::from_secs(1);
/// Interval of lock attempts.
const LOCK_RETRY_INTERVAL: Duration = Duration::from_millis(20);

/// Another process holds the lock of the data directory.
#[derive(Debug, thiserror::Error)]
#[error(
    "{}: another Podium uses this data directory{holder}: stop it, or choose another --data-dir and --bind",
    path.display()
)]
struct DataDirInUse {
    path: PathBuf,
    /// ID of the process, in parentheses; empty if it is unknown.
    holder: String,
}

/// Content of the file of the runtime for Podium's engine. An endpoint is a URL or an absolute path.
const ENGINE: &str = "engine";

/// Configuration of the containerd that Podium ran before it had an engine. `podium down` of that version removes it.
const OLD_CONTAINERD: &str = "containerd/config.toml";

/// Container runtime of a data directory's Pods.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RecordedRuntime {
    /// Podium's engine.
    Engine,
    /// CRI endpoint of another runtime.
    External(String),
}

impl fmt::Display for RecordedRuntime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Engine => f.write_str("Podium's engine"),
            Self::External(endpoint) => write!(f, "the runtime at {endpoint}"),
        }
    }
}

/// Paths of one cluster.
#[derive(Debug, Clone)]
pub(crate) struct DataDir {
    root: PathBuf,
}

impl DataDir {
    /// Resolves a data directory and checks the permissions of its existing parts. The path becomes absolute, as runtimes and
    /// mounts require, and free of symbolic links, so that a cluster has exactly one path.
    ///
    /// # Errors
    /// When a parent directory cannot be read, or a user other than the caller and root can write to the directory or replace
    /// it or one of its parents. Also when an older Podium has run its own containerd in it.
    pub(crate) fn new(root: &Path) -> Result<Self> {
        let resolved = trust::resolve(root).and_then(|root| {
            let dir = Self { root };
            dir.check()?;
            Ok(dir)
        });
        let dir = resolved.with_context(|| format!("failed to use data directory {}", root.display()))?;
        dir.refuse_containerd()?;
        Ok(dir)
    }

    /// Creates a new data directory (mode 0700), and its parent if it is missing.
    ///
    /// Returns `None` if a file of that name exists.
    ///
    /// # Errors
    /// As [`Self::new`], and when a directory cannot be created.
    pub(crate) fn create(parent: &Path, name: &str) -> Result<Option<Self>> {
        let create = || {
            let parent = trust::resolve(parent)?;
            files::private_dir_builder().recursive(true).create(&parent)?;
            // Another process may have created it since the check.
            let root = trust::resolve(&parent)?.join(name);
            match files::private_dir_builder().create(&root) {
                Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(None),
                created => created.map(|()| Some(root)),
            }
        };
        let created: io::Result<_> = create();
        let created = created.with_context(|| format!("failed to create a data directory in {}", parent.display()))?;
        created.map(|root| Self::new(&root)).transpose()
    }

    /// Whether the directory exists and only the caller and root may write to it.
    pub(crate) fn is_private(path: &Path) -> bool {
        let metadata = trust::resolve(path).and_then(|path| Ok((fs::symlink_metadata(&path)?, path)));
        metadata.is_ok_and(|(metadata, path)| trust::check_private(&path, &metadata).is_ok())
    }

    /// Checks that only the caller and root may write to the directory and its existing subdirectories.
    fn check(&self) -> io::Result<()> {
        let subdirectories =
            ["pki", "store", "kubelet", "volumes", "engine", "network", "cni"].map(|name| self.root.join(name));
        for path in std::iter::once(&self.root).chain(&subdirectories) {
            match fs::symlink_metadata(path) {
                Ok(metadata) => trust::check_private(path, &metadata)?,
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) if path != &self.root && error.kind() == ErrorKind::PermissionDenied => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Refuses the data directory of an older Podium, whose Pods run in a containerd that this one does not know.
    fn refuse_containerd(&self) -> Result<()> {
        if self.root.join(OLD_CONTAINERD).exists() {
            bail!(
                "the Pods of data directory {0} run in the containerd of an older Podium: delete the cluster with that version \
                 (`podium down --data-dir {0}`), or choose another --data-dir",
                self.root.display()
            );
        }
        Ok(())
    }

    /// Returns the path of the directory itself.
    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// Returns the directory of certificates and keys.
    pub(crate) fn pki(&self) -> PathBuf {
        self.root.join("pki")
    }

    /// Returns the directory of the store.
    pub(crate) fn store(&self) -> PathBuf {
        self.root.join("store")
    }

    /// Returns the root directory of the kubelet: checkpoints, volumes, logs.
    pub(crate) fn kubelet(&self) -> PathBuf {
        self.root.join("kubelet")
    }

    /// Returns the directory of provisioned volumes.
    pub(crate) fn volumes(&self) -> PathBuf {
        self.root.join("volumes")
    }

    /// Returns the default path of the administrator's kubeconfig.
    pub(crate) fn kubeconfig(&self) -> PathBuf {
        self.root.join("admin.kubeconfig")
    }

    /// Returns the file with the container runtime of the Pods.
    pub(crate) fn runtime_file(&self) -> PathBuf {
        self.root.join("runtime-endpoint")
    }

    /// Records the runtime of the Pods for `down` and `image`.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub(crate) fn record_runtime(&self, runtime: &RecordedRuntime) -> Result<()> {
        let path = self.runtime_file();
        let write = |text: &str| files::replace_private(&path, text.as_bytes());
        let written = match runtime {
            RecordedRuntime::Engine => write(ENGINE),
            RecordedRuntime::External(endpoint) => write(endpoint),
        };
        written.with_context(|| format!("failed to write {}", path.display()))
    }

    /// Returns the recorded runtime of the Pods.
    pub(crate) fn recorded_runtime(&self) -> RecordedRuntime {
        match std::fs::read_to_string(self.runtime_file()).ok() {
            Some(endpoint) if endpoint != ENGINE => RecordedRuntime::External(endpoint),
            _ => RecordedRuntime::Engine,
        }
    }

    fn lock_file(&self) -> PathBuf {
        self.root.join("podium.lock")
    }

    /// Whether Podium has used the directory before.
    pub(crate) fn was_used(&self) -> bool {
        fs::symlink_metadata(self.lock_file()).is_ok_and(|metadata| metadata.is_file())
    }

    /// Removes the files of Podium, and the directory unless it has other files. Returns whether the directory was removed.
    ///
    /// # Errors
    /// When a file cannot be removed.
    pub(crate) fn remove(&self) -> Result<bool> {
        let mut directories = vec![self.pki(), self.store(), self.kubelet(), self.volumes()];
        for file in [self.kubeconfig(), self.runtime_file()] {
            directories.extend([file.with_extension("new"), file]);
        }
        directories.extend(["engine", "network", "cni"].map(|name| self.root.join(name)));
        // The lock file is removed last: it marks the directory as one of Podium.
        directories.push(self.lock_file());
        for path in directories {
            // Both calls remove a symbolic link itself and never follow one.
            let is_dir = fs::symlink_metadata(&path).is_ok_and(|metadata| metadata.is_dir());
            let removed = if is_dir { files::remove_dir_all(&path) } else { remove_file(&path) };
            removed.with_context(|| format!("failed to remove {}", path.display()))?;
        }
        match fs::remove_dir(&self.root) {
            Ok(()) => Ok(true),
            // The directory may be a mount point.
            Err(e) if matches!(e.kind(), ErrorKind::DirectoryNotEmpty | ErrorKind::ResourceBusy) => Ok(false),
            Err(e) => Err(e).with_context(|| format!("failed to remove {}", self.root.display())),
        }
    }

    /// Whether a network or a runtime may have been started, which have state outside the directory.
    pub(crate) fn has_runtime_or_network(&self) -> bool {
        ["engine", "network", "cni"].iter().any(|name| self.root.join(name).exists())
    }

    /// Creates the directory if it is missing (mode 0700) and locks it.
    ///
    /// # Errors
    /// When another Podium holds the lock (the error has its process ID), or the directory cannot be created.
    pub(crate) fn lock(&self) -> Result<Lock> {
        let (created_root, created_file) = (!self.root.exists(), !self.lock_file().exists());
        files::private_dir_builder()
            .recursive(true)
            .create(&self.root)
            .with_context(|| format!("failed to create data directory {}", self.root.display()))?;
        // Another process may have created a part of the path since the check.
        if Self::new(&self.root)?.root != self.root {
            bail!("data directory {}: a part of the path was replaced", self.root.display());
        }
        let path = self.lock_file();
        let file = files::open_private(&path, OpenOptions::new().read(true).write(true).create(true).truncate(false))
            .with_context(|| format!("failed to open {}", path.display()))?;
        match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(mut file) => {
                file.set_len(0)?;
                file.rewind()?;
                writeln!(file, "{}", std::process::id())?;
                Ok(Lock { _file: file, created_file, created_root })
            }
            Err((_, nix::errno::Errno::EWOULDBLOCK)) => {
                let holder = self.holder().map_or_else(String::new, |pid| format!(" (process {pid})"));
                Err(DataDirInUse { path: self.root.clone(), holder }.into())
            }
            Err((_, errno)) => bail!("failed to lock {}: {errno}", path.display()),
        }
    }

    /// Locks the directory, and retries for a short time: the kernel releases the lock of a killed process only when the
    /// process has exited.
    ///
    /// # Errors
    /// As [`Self::lock`].
    pub(crate) async fn lock_with_retry(&self) -> Result<Lock> {
        let deadline = Instant::now() + LOCK_TIMEOUT;
        loop {
            match self.lock() {
                // Not by `holder`: the process may have exited, or not yet written its ID.
                Err(error) if error.is::<DataDirInUse>() && Instant::now() < deadline => {
                    tokio::time::sleep(LOCK_RETRY_INTERVAL).await;
                }
                other => return other,
            }
        }
    }

    /// Whether the directory can be removed after a failed start: it has no store yet, and that start created all of its
    /// files.
    pub(crate) fn is_failed_first_start(&self, lock: &Lock) -> bool {
        let directories = [self.pki(), self.store(), self.kubelet(), self.volumes()];
        let has_data = self.has_runtime_or_network() || directories.iter().any(|path| path.exists());
        !self.store().exists() && (lock.created_root || lock.created_file && !has_data)
    }

    /// Removes the files that such a start created. Its runtime and network must have been removed before.
    ///
    /// # Errors
    /// When a file cannot be removed.
    pub(crate) fn remove_created(&self, lock: Lock) -> Result<()> {
        if lock.created_root {
            self.remove()?;
        } else {
            fs::remove_file(self.lock_file())?;
        }
        drop(lock);
        Ok(())
    }

    /// Returns the ID of the process that holds the lock.
    pub(crate) fn holder(&self) -> Option<i32> {
        let mut file = files::open_private(&self.lock_file(), OpenOptions::new().read(true)).ok()?;
        let mut text = String::new();
        file.read_to_string(&mut text).ok()?;
        // An unlocked file has the ID of a process that has exited; the ID may have been reused.
        match Flock::lock(file, FlockArg::LockSharedNonblock) {
            Ok(_) => None,
            Err(_) => text.trim().parse().ok(),
        }
    }
}

/// Removes a file or a symbolic link, if it exists.
fn remove_file(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

/// Lock of a data directory. The kernel releases it when the process exits.
#[derive(Debug)]
pub(crate) struct Lock {
    _file: Flock<File>,
    /// Whether this process created the lock file.
    created_file: bool,
    /// Whether this process created the directory.
    created_root: bool,
}

#[cfg(test)]
mod tests;
