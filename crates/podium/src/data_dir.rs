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

/// Container runtime of a data directory's Pods.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RecordedRuntime {
    /// Podium's own containerd.
    Containerd,
    /// Podium's engine.
    Engine,
    /// CRI endpoint of another runtime.
    External(String),
}

impl fmt::Display for RecordedRuntime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Containerd => f.write_str("Podium's own containerd"),
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
    /// it or one of its parents.
    pub(crate) fn new(root: &Path) -> Result<Self> {
        let resolved = trust::resolve(root).and_then(|root| {
            let dir = Self { root };
            dir.check()?;
            Ok(dir)
        });
        resolved.with_context(|| format!("failed to use data directory {}", root.display()))
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
            ["pki", "store", "kubelet", "volumes", "containerd", "engine", "network"].map(|name| self.root.join(name));
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
            RecordedRuntime::Containerd => remove_file(&path),
            RecordedRuntime::Engine => write(ENGINE),
            RecordedRuntime::External(endpoint) => write(endpoint),
        };
        written.with_context(|| format!("failed to write {}", path.display()))
    }

    /// Returns the recorded runtime of the Pods.
    pub(crate) fn recorded_runtime(&self) -> RecordedRuntime {
        match std::fs::read_to_string(self.runtime_file()).ok() {
            None => RecordedRuntime::Containerd,
            Some(text) if text == ENGINE => RecordedRuntime::Engine,
            Some(endpoint) => RecordedRuntime::External(endpoint),
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
        directories.extend(["containerd", "engine", "network"].map(|name| self.root.join(name)));
        // The lock file is removed last: it marks the directory as one of Podium.
        directories.push(self.lock_file());
        for path in directories {
            // Both calls remove a symbolic link itself and never follow one.
            let is_dir = fs::symlink_metadata(&path).is_ok_and(|metadata| metadata.is_dir());
            let removed = if is_dir { fs::remove_dir_all(&path) } else { remove_file(&path) };
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
        ["containerd", "engine", "network"].iter().any(|name| self.root.join(name).exists())
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
mod tests {
    use super::*;

    #[tokio::test]
    async fn lock_waits_briefly_for_an_exiting_process() {
        let dir = tempfile::tempdir().unwrap();
        let data_dir = DataDir::new(dir.path()).unwrap();
        let lock = data_dir.lock().unwrap();
        let (locked, ()) = tokio::join!(data_dir.lock_with_retry(), async {
            tokio::time::sleep(LOCK_RETRY_INTERVAL * 3).await;
            drop(lock);
        });
        let _held = locked.unwrap();
        data_dir.lock_with_retry().await.unwrap_err();
    }

    #[tokio::test]
    async fn lock_without_a_process_id_is_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let data_dir = DataDir::new(dir.path()).unwrap();
        let lock = data_dir.lock().unwrap();
        // A process that was killed between locking the file and writing its ID, or that exits meanwhile.
        fs::write(data_dir.lock_file(), "").unwrap();
        let (locked, ()) = tokio::join!(data_dir.lock_with_retry(), async {
            tokio::time::sleep(LOCK_RETRY_INTERVAL * 3).await;
            drop(lock);
        });
        locked.unwrap();
    }

    #[test]
    fn lock_file_that_is_a_link_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let victim = dir.path().join("victim");
        for is_symbolic in [true, false] {
            let root = dir.path().join("data");
            fs::create_dir(&root).unwrap();
            fs::write(&victim, "precious").unwrap();
            let lock = root.join("podium.lock");
            let linked =
                if is_symbolic { std::os::unix::fs::symlink(&victim, &lock) } else { fs::hard_link(&victim, &lock) };
            linked.unwrap();
            let data_dir = DataDir::new(&root).unwrap();
            data_dir.lock().unwrap_err();
            assert_eq!(data_dir.holder(), None);
            assert_eq!(fs::read_to_string(&victim).unwrap(), "precious");
            fs::remove_dir_all(&root).unwrap();
        }
    }

    #[test]
    fn data_directory_of_another_user_is_refused_unchanged() {
        if !nix::unistd::geteuid().is_root() {
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        for foreign in ["data", "data/pki"] {
            let root = dir.path().join("data");
            fs::create_dir_all(root.join("pki")).unwrap();
            fs::write(root.join("pki/ca.crt"), "a foreign CA").unwrap();
            std::os::unix::fs::chown(dir.path().join(foreign), Some(65534), None).unwrap();
            let error = format!("{:#}", DataDir::new(&root).unwrap_err());
            assert!(error.contains(&format!("{foreign} (owner ")) && error.contains("must be root"), "{error}");
            assert!(!root.join("podium.lock").exists() && root.join("pki/ca.crt").exists());
            fs::remove_dir_all(&root).unwrap();
        }
    }

    #[test]
    fn data_directory_removal_does_not_follow_links() {
        let dir = tempfile::tempdir().unwrap();
        let (root, victim) = (dir.path().join("data"), dir.path().join("victim"));
        fs::create_dir(&victim).unwrap();
        fs::write(victim.join("f"), "precious").unwrap();
        let data_dir = DataDir::new(&root).unwrap();
        let lock = data_dir.lock().unwrap();
        std::os::unix::fs::symlink(&victim, data_dir.kubelet()).unwrap();
        assert!(data_dir.remove().unwrap());
        drop(lock);
        assert_eq!(fs::read_to_string(victim.join("f")).unwrap(), "precious");
    }

    #[test]
    fn data_directory_path_is_resolved_through_links() {
        let dir = tempfile::tempdir().unwrap();
        let (real, link) = (dir.path().join("real"), dir.path().join("link"));
        std::fs::create_dir(&real).unwrap();
        std::os::unix::fs::symlink(&real, &link).unwrap();
        for name in ["", "sub", "sub/more"] {
            let root = |above: &Path| DataDir::new(&above.join(name)).unwrap().root;
            assert_eq!(root(&link), root(&real), "{name}");
        }
    }

    #[test]
    fn failed_start_removes_only_the_files_it_created() {
        let dir = tempfile::tempdir().unwrap();
        let check = |before: &[&str], since: &[&str], expected: Option<&[&str]>| {
            let root = dir.path().join("data");
            let _ = std::fs::remove_dir_all(&root);
            let write = |names: &[&str]| {
                for name in names {
                    std::fs::create_dir_all(root.join(name).parent().unwrap()).unwrap();
                    std::fs::write(root.join(name), "").unwrap();
                }
            };
            let data_dir = DataDir::new(&root).unwrap();
            write(before);
            let lock = data_dir.lock().unwrap();
            write(since);
            if data_dir.is_failed_first_start(&lock) {
                data_dir.remove_created(lock).unwrap();
            }
            let left = std::fs::read_dir(&root).ok().map(|entries| {
                let mut names: Vec<String> = entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
                names.sort();
                names
            });
            let expected = expected.map(|names| names.iter().map(ToString::to_string).collect::<Vec<_>>());
            assert_eq!(left, expected, "{before:?} {since:?}");
        };
        check(&[], &[], None);
        check(&[], &["runtime-endpoint", "pki/ca.crt", "network/conf"], None);
        check(&[], &["store/1", "pki/ca.crt"], Some(&["pki", "podium.lock", "store"]));
        check(&["podium.lock"], &[], Some(&["podium.lock"]));
        check(&["mine"], &[], Some(&["mine"]));
        // The directory may belong to another program.
        check(&["volumes/mine"], &[], Some(&["podium.lock", "volumes"]));
    }

    #[test]
    fn locked_data_directory_error_names_the_holder() {
        let dir = tempfile::tempdir().unwrap();
        let data_dir = DataDir::new(dir.path()).unwrap();
        let lock = data_dir.lock().unwrap();
        let error = data_dir.lock().unwrap_err().to_string();
        assert!(error.contains(&format!("process {}", std::process::id())), "{error}");
        assert_eq!(data_dir.holder(), i32::try_from(std::process::id()).ok());
        drop(lock);
        assert_eq!(data_dir.holder(), None);
        data_dir.lock().unwrap();
    }
}
