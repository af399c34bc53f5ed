//! The data directory: everything that one cluster keeps, and the lock that keeps a second Podium out.

use anyhow::{Context, Result, bail};
use nix::fcntl::{Flock, FlockArg};
use std::{
    fs::{File, OpenOptions},
    io::{ErrorKind, Read, Seek, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
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
    /// Names a data directory; nothing is touched. The path becomes absolute, because runtimes and mounts need that, and
    /// leads through no links: whatever way leads there, it is the same cluster.
    ///
    /// # Errors
    /// When the working directory is gone, or a directory on the way cannot be read.
    pub(crate) fn new(root: &Path) -> Result<Self> {
        let resolved = std::path::absolute(root).and_then(|root| resolved(&root));
        Ok(Self { root: resolved.with_context(|| format!("data directory {}", root.display()))? })
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
        let done = match endpoint {
            Some(endpoint) => std::fs::write(&path, endpoint),
            None if path.exists() => std::fs::remove_file(&path),
            None => Ok(()),
        };
        done.with_context(|| format!("cannot write {}", path.display()))
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
        self.lock_file().is_file()
    }

    /// Removes what Podium made in it, and the directory unless something of somebody else is in it. Gives whether it is
    /// gone.
    ///
    /// # Errors
    /// When something cannot be removed.
    pub(crate) fn remove(&self) -> Result<bool> {
        let mut own = vec![self.pki(), self.store(), self.kubelet(), self.volumes()];
        own.extend([self.kubeconfig(), self.runtime_file()]);
        own.extend(["containerd", "network"].map(|name| self.root.join(name)));
        // The lock comes last: without it the rest would be nobody's.
        own.push(self.lock_file());
        for path in own {
            let removed = if path.is_dir() { std::fs::remove_dir_all(&path) } else { std::fs::remove_file(&path) };
            match removed {
                Err(e) if e.kind() != ErrorKind::NotFound => {
                    return Err(e).with_context(|| format!("cannot remove {}", path.display()));
                }
                _ => {}
            }
        }
        match std::fs::remove_dir(&self.root) {
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
        std::fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&self.root)
            .with_context(|| format!("cannot create the data directory {}", self.root.display()))?;
        let path = self.lock_file();
        let file = OpenOptions::new()
            .create(true)
            .read(true)
            .write(true)
            .truncate(false)
            .mode(0o600)
            .open(&path)
            .with_context(|| format!("cannot open {}", path.display()))?;
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
            std::fs::remove_file(self.lock_file())?;
        }
        drop(lock);
        Ok(())
    }

    /// The process that holds the lock, if one does.
    pub(crate) fn holder(&self) -> Option<i32> {
        let mut file = File::open(self.lock_file()).ok()?;
        let mut text = String::new();
        file.read_to_string(&mut text).ok()?;
        // A file that nobody locks holds the number of a process that is gone, which may be another's by now.
        match Flock::lock(file, FlockArg::LockSharedNonblock) {
            Ok(_) => None,
            Err(_) => text.trim().parse().ok(),
        }
    }
}

/// An absolute path without links, as far as it leads to something.
fn resolved(path: &Path) -> std::io::Result<PathBuf> {
    match (path.canonicalize(), path.parent(), path.file_name()) {
        (Err(error), Some(parent), Some(name)) if error.kind() == ErrorKind::NotFound => {
            Ok(resolved(parent)?.join(name))
        }
        (other, ..) => other,
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
