//! The data directory: everything that one cluster keeps, and the lock that keeps a second Podium out.

use anyhow::{Context, Result, bail};
use files::trust;
use nix::fcntl::{Flock, FlockArg};
use std::{
    fs::{self, File, OpenOptions},
    io::{self, ErrorKind, Read, Seek, Write},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

/// How long a Podium that was killed may take to be gone.
const PATIENCE: Duration = Duration::from_secs(1);
const STEP: Duration = Duration::from_millis(20);

/// Paths of one cluster.
#[derive(Debug, Clone)]
pub(crate) struct DataDir {
    root: PathBuf,
}

impl DataDir {
    /// Names a data directory, and checks what there is of it. The path becomes absolute, because runtimes and mounts need
    /// that, and leads through no links: whatever way leads there, it is the same cluster.
    ///
    /// # Errors
    /// When a directory on the way cannot be read, or when somebody other than the caller and root could write to the
    /// directory, or replace it or one of its parents.
    pub(crate) fn new(root: &Path) -> Result<Self> {
        let resolved = trust::resolve(root).and_then(|root| {
            let dir = Self { root };
            dir.check()?;
            Ok(dir)
        });
        resolved.with_context(|| format!("failed to use data directory {}", root.display()))
    }

    /// Makes a data directory (mode 0700) that was not there before, in a directory that is made if need be.
    ///
    /// Gives nothing when something of that name exists.
    ///
    /// # Errors
    /// As [`Self::new`], and when a directory cannot be made.
    pub(crate) fn create(parent: &Path, name: &str) -> Result<Option<Self>> {
        let create = || {
            let parent = trust::resolve(parent)?;
            files::private_dir_builder().recursive(true).create(&parent)?;
            // Somebody may have made it since it was looked at.
            let root = trust::resolve(&parent)?.join(name);
            match files::private_dir_builder().create(&root) {
                Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(None),
                made => made.map(|()| Some(root)),
            }
        };
        let made: io::Result<_> = create();
        let made = made.with_context(|| format!("failed to create a data directory in {}", parent.display()))?;
        made.map(|root| Self::new(&root)).transpose()
    }

    /// Whether a directory exists in which nobody but the caller and root may write.
    pub(crate) fn is_private(path: &Path) -> bool {
        let metadata = trust::resolve(path).and_then(|path| Ok((fs::symlink_metadata(&path)?, path)));
        metadata.is_ok_and(|(metadata, path)| trust::check_private(&path, &metadata).is_ok())
    }

    /// Checks the directory and those that Podium makes in it, as far as they exist: nobody else may write there.
    fn check(&self) -> io::Result<()> {
        let made = ["pki", "store", "kubelet", "volumes", "containerd", "network"].map(|name| self.root.join(name));
        for path in std::iter::once(&self.root).chain(&made) {
            match fs::symlink_metadata(path) {
                Ok(metadata) => trust::check_private(path, &metadata)?,
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) if path != &self.root && error.kind() == ErrorKind::PermissionDenied => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// The directory itself.
    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// Certificates and keys.
    pub(crate) fn pki(&self) -> PathBuf {
        self.root.join("pki")
    }

    /// Objects of the API.
    pub(crate) fn store(&self) -> PathBuf {
        self.root.join("store")
    }

    /// What the kubelet keeps: checkpoints, volumes, logs.
    pub(crate) fn kubelet(&self) -> PathBuf {
        self.root.join("kubelet")
    }

    /// Data of the volumes that are made for claims.
    pub(crate) fn volumes(&self) -> PathBuf {
        self.root.join("volumes")
    }

    /// The administrator's kubeconfig, unless another place was named.
    pub(crate) fn kubeconfig(&self) -> PathBuf {
        self.root.join("admin.kubeconfig")
    }

    /// Where it is written down which runtime of somebody else the Pods run in.
    pub(crate) fn runtime_file(&self) -> PathBuf {
        self.root.join("runtime-endpoint")
    }

    /// Writes down which runtime the Pods run in, for `down`; `None` for one of our own.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub(crate) fn note_runtime(&self, endpoint: Option<&str>) -> Result<()> {
        let path = self.runtime_file();
        let write = |endpoint: &str| files::replace_private(&path, endpoint.as_bytes());
        let done = endpoint.map_or_else(|| remove_file(&path), write);
        done.with_context(|| format!("failed to write {}", path.display()))
    }

    /// The runtime of somebody else that the Pods run in, if they do.
    pub(crate) fn foreign_runtime(&self) -> Option<String> {
        std::fs::read_to_string(self.runtime_file()).ok()
    }

    /// The runtime that the Pods run in.
    pub(crate) fn runtime_endpoint(&self) -> String {
        self.foreign_runtime().unwrap_or_else(|| runtime::containerd::endpoint(&self.root))
    }

    fn lock_file(&self) -> PathBuf {
        self.root.join("podium.lock")
    }

    /// Whether a Podium ever used it.
    pub(crate) fn was_used(&self) -> bool {
        fs::symlink_metadata(self.lock_file()).is_ok_and(|metadata| metadata.is_file())
    }

    /// Removes what Podium made in it, and the directory unless something of somebody else is in it. Gives whether it is
    /// gone.
    ///
    /// # Errors
    /// When something cannot be removed.
    pub(crate) fn remove(&self) -> Result<bool> {
        let mut own = vec![self.pki(), self.store(), self.kubelet(), self.volumes()];
        for file in [self.kubeconfig(), self.runtime_file()] {
            own.extend([file.with_extension("new"), file]);
        }
        own.extend(["containerd", "network"].map(|name| self.root.join(name)));
        // The lock comes last: without it the rest would be nobody's.
        own.push(self.lock_file());
        for path in own {
            // A link is removed itself, and neither of the two follows one below.
            let is_dir = fs::symlink_metadata(&path).is_ok_and(|metadata| metadata.is_dir());
            let removed = if is_dir { fs::remove_dir_all(&path) } else { remove_file(&path) };
            removed.with_context(|| format!("failed to remove {}", path.display()))?;
        }
        match fs::remove_dir(&self.root) {
            Ok(()) => Ok(true),
            // A mount is its owner's.
            Err(e) if matches!(e.kind(), ErrorKind::DirectoryNotEmpty | ErrorKind::ResourceBusy) => Ok(false),
            Err(e) => Err(e).with_context(|| format!("cannot remove {}", self.root.display())),
        }
    }

    /// Whether a network or a runtime was begun here, which are more than files.
    pub(crate) fn has_begun(&self) -> bool {
        ["containerd", "network"].iter().any(|name| self.root.join(name).exists())
    }

    /// Creates the directory if need be (mode 0700) and takes its lock.
    ///
    /// # Errors
    /// When another Podium holds it (the error names its process), or the directory cannot be made.
    pub(crate) fn lock(&self) -> Result<Lock> {
        let (made_root, made) = (!self.root.exists(), !self.lock_file().exists());
        files::private_dir_builder()
            .recursive(true)
            .create(&self.root)
            .with_context(|| format!("failed to create data directory {}", self.root.display()))?;
        // Somebody may have made a part of it since it was looked at.
        if Self::new(&self.root)?.root != self.root {
            bail!("data directory {}: somebody replaced a part of the path", self.root.display());
        }
        let path = self.lock_file();
        let file = files::open_private(&path, OpenOptions::new().read(true).write(true).create(true).truncate(false))
            .with_context(|| format!("failed to open {}", path.display()))?;
        match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(mut file) => {
                file.set_len(0)?;
                file.rewind()?;
                writeln!(file, "{}", std::process::id())?;
                Ok(Lock { _file: file, made, made_root })
            }
            Err((_, nix::errno::Errno::EWOULDBLOCK)) => {
                let holder = self.holder().map_or_else(String::new, |pid| format!(" (process {pid})"));
                bail!(
                    "another Podium runs in {}{holder}: stop it, or choose another --data-dir and --bind",
                    self.root.display()
                )
            }
            Err((_, errno)) => bail!("cannot lock {}: {errno}", path.display()),
        }
    }

    /// The lock, from a Podium that was killed a moment ago, too: the kernel lets go of it when it has cleaned up.
    ///
    /// # Errors
    /// As [`Self::lock`].
    pub(crate) async fn lock_soon(&self) -> Result<Lock> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            match self.lock() {
                Err(_) if self.holder().is_some() && Instant::now() < deadline => tokio::time::sleep(STEP).await,
                other => return other,
            }
        }
    }

    /// Whether nothing is here that could be of use to anybody after a start that failed: there was no API yet, and it is
    /// certain that what is here was made by that start.
    pub(crate) fn is_in_vain(&self, lock: &Lock) -> bool {
        let others = [self.pki(), self.store(), self.kubelet(), self.volumes()];
        let has_others = self.has_begun() || others.iter().any(|path| path.exists());
        !self.store().exists() && (lock.made_root || lock.made && !has_others)
    }

    /// Removes what such a start made: files, for what runs was ended before.
    ///
    /// # Errors
    /// When something cannot be removed.
    pub(crate) fn leave(&self, lock: Lock) -> Result<()> {
        if lock.made_root {
            self.remove()?;
        } else {
            fs::remove_file(self.lock_file())?;
        }
        drop(lock);
        Ok(())
    }

    /// The process that holds the lock, if one does.
    pub(crate) fn holder(&self) -> Option<i32> {
        let mut file = files::open_private(&self.lock_file(), OpenOptions::new().read(true)).ok()?;
        let mut text = String::new();
        file.read_to_string(&mut text).ok()?;
        // A file that nobody locks holds the number of a process that is gone, which may be another's by now.
        match Flock::lock(file, FlockArg::LockSharedNonblock) {
            Ok(_) => None,
            Err(_) => text.trim().parse().ok(),
        }
    }
}

/// Removes a file or a link that may be missing.
fn remove_file(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

/// Held for as long as a Podium uses a data directory; the kernel lets go of it when the process ends.
#[derive(Debug)]
pub(crate) struct Lock {
    _file: Flock<File>,
    /// Whether its file was not there before, and neither the directory.
    made: bool,
    made_root: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn who_is_on_its_way_out_is_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let data_dir = DataDir::new(dir.path()).unwrap();
        let lock = data_dir.lock().unwrap();
        let (taken, ()) = tokio::join!(data_dir.lock_soon(), async {
            tokio::time::sleep(STEP * 3).await;
            drop(lock);
        });
        let _held = taken.unwrap();
        data_dir.lock_soon().await.unwrap_err();
    }

    #[test]
    fn lock_neither_follows_nor_truncates_a_link() {
        let dir = tempfile::tempdir().unwrap();
        let victim = dir.path().join("victim");
        for is_symbolic in [true, false] {
            let root = dir.path().join("data");
            fs::create_dir(&root).unwrap();
            fs::write(&victim, "precious").unwrap();
            let lock = root.join("podium.lock");
            let made =
                if is_symbolic { std::os::unix::fs::symlink(&victim, &lock) } else { fs::hard_link(&victim, &lock) };
            made.unwrap();
            let data_dir = DataDir::new(&root).unwrap();
            data_dir.lock().unwrap_err();
            assert_eq!(data_dir.holder(), None);
            assert_eq!(fs::read_to_string(&victim).unwrap(), "precious");
            fs::remove_dir_all(&root).unwrap();
        }
    }

    #[test]
    fn directory_of_another_user_is_refused_and_left_alone() {
        if !nix::unistd::geteuid().is_root() {
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        for foreign in ["data", "data/pki"] {
            let root = dir.path().join("data");
            fs::create_dir_all(root.join("pki")).unwrap();
            fs::write(root.join("pki/ca.crt"), "an authority of somebody else").unwrap();
            std::os::unix::fs::chown(dir.path().join(foreign), Some(65534), None).unwrap();
            let error = format!("{:#}", DataDir::new(&root).unwrap_err());
            assert!(error.contains(&format!("{foreign} (owner ")) && error.contains("must be root"), "{error}");
            assert!(!root.join("podium.lock").exists() && root.join("pki/ca.crt").exists());
            fs::remove_dir_all(&root).unwrap();
        }
    }

    #[test]
    fn removal_does_not_follow_links() {
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
    fn all_ways_lead_to_one_data_directory() {
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
    fn a_start_that_failed_leaves_what_was_there_before() {
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
            if data_dir.is_in_vain(&lock) {
                data_dir.leave(lock).unwrap();
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
        // Nobody knows whose that is.
        check(&["volumes/mine"], &[], Some(&["podium.lock", "volumes"]));
    }

    #[test]
    fn a_second_podium_is_kept_out_and_told_who_is_inside() {
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
