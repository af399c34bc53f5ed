//! Removal of Pod directories. Data of the node may be mounted in them and must never be removed through a mount.

use crate::{blocking::BlockingTaskError, safe_open};
use files::mounts::{self, UnmountError, unmount_tree};
use nix::{errno::Errno, fcntl::OFlag};
use std::{
    ffi::OsStr,
    io,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
};

/// Failure to unmount or remove a directory of a Pod.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RemovalError {
    #[error("{}: not the directory of a Pod", .0.display())]
    NotPodDirectory(PathBuf),
    #[error(transparent)]
    Unmount(#[from] UnmountError),
    #[error("{}: {source}", .path.display())]
    Remove { path: PathBuf, source: io::Error },
    #[error(transparent)]
    Task(#[from] BlockingTaskError),
}

/// Removes a directory tree after unmounting everything in it. If something is mounted meanwhile, it is not entered, and the
/// directory is kept.
pub(super) fn remove_tree(dir: &Path) -> Result<(), RemovalError> {
    unmount_tree(dir)?;
    let (Some(parent), Some(name)) = (dir.parent(), dir.file_name()) else {
        return Err(RemovalError::NotPodDirectory(dir.to_owned()));
    };
    let removed = match safe_open::open_path(parent) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        parent => parent.and_then(|parent| remove_entry(&parent, name)),
    };
    removed.map_err(|source| RemovalError::Remove { path: dir.to_owned(), source })
}

/// Removes a directory entry recursively, within its mount and without following symbolic links.
fn remove_entry(dir: &OwnedFd, name: &OsStr) -> io::Result<()> {
    match files::remove_entry(dir, name) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done,
    }
}

/// Removes the data of a volume. Nothing is removed while another file system is mounted in it.
///
/// # Errors
/// Fails if something is mounted in it, or cannot be removed.
pub fn remove_data(dir: &Path) -> io::Result<()> {
    let (Some(real), Some(name)) = (mounts::real_path(dir)?, dir.file_name()) else { return Ok(()) };
    if let Some(mounted) = mounts::mounts()?.iter().find(|mount| mount.path.starts_with(&real)) {
        return Err(io::Error::other(format!("something is mounted at {}", mounted.path.display())));
    }
    remove_entry(&safe_open::open_path(real.parent().unwrap_or(&real))?, name)
}

/// Returns whether a directory is a mount point.
pub(super) fn is_mount_point(dir: &Path) -> bool {
    let (Some(parent), Some(name)) = (dir.parent(), dir.file_name()) else { return true };
    let found = safe_open::open_path(parent).map(|parent| safe_open::open_entry(&parent, name, OFlag::O_PATH));
    matches!(found, Ok(Err(Errno::EXDEV)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::mount::{MsFlags, mount};
    use std::{fs, os::unix::fs::symlink};

    /// Temporary directory that unmounts everything in it when it is dropped.
    struct TestDir(tempfile::TempDir);

    impl TestDir {
        fn new() -> Self {
            Self(tempfile::tempdir().unwrap())
        }

        fn dir(&self, path: &str) -> PathBuf {
            let dir = self.0.path().join(path);
            fs::create_dir_all(&dir).unwrap();
            dir
        }
    }

    impl Drop for TestDir {
        fn drop(&mut self) {
            let _ = unmount_tree(self.0.path());
        }
    }

    fn bind(from: &Path, to: &Path) {
        mount(Some(from), to, None::<&str>, MsFlags::MS_BIND | MsFlags::MS_REC, None::<&str>).unwrap();
    }

    fn read(path: &Path) -> String {
        crate::host_file::read_text(path).unwrap_or_default()
    }

    #[test]
    fn removal_of_a_tree_is_idempotent() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("a/b")).unwrap();
        remove_tree(&dir.path().join("a")).unwrap();
        remove_tree(&dir.path().join("a")).unwrap();
        remove_tree(&dir.path().join("none/a")).unwrap();
        assert!(!dir.path().join("a").exists());
    }

    #[test]
    fn removal_does_not_follow_symlinks() {
        let test_dir = TestDir::new();
        let (data, pod) = (test_dir.dir("data"), test_dir.dir("pod"));
        fs::write(data.join("f"), "kept").unwrap();
        symlink(&data, test_dir.dir("pod/volumes").join("v")).unwrap();
        remove_tree(&pod).unwrap();
        assert_eq!((pod.exists(), read(&data.join("f")).as_str()), (false, "kept"));
    }

    #[test]
    fn removal_unmounts_and_keeps_mounted_data() {
        let test_dir = TestDir::new();
        let (data, other, pod, volume) =
            (test_dir.dir("data"), test_dir.dir("other"), test_dir.dir("pod"), test_dir.dir("pod/a b"));
        fs::write(data.join("f"), "kept").unwrap();
        fs::write(other.join("g"), "kept").unwrap();
        bind(&data, &volume);
        bind(&other, &volume);
        assert!(is_mount_point(&volume) && !is_mount_point(&pod) && !is_mount_point(&pod.join("none")));
        // The path may contain symbolic links.
        let link = test_dir.0.path().join("link");
        symlink(test_dir.0.path(), &link).unwrap();
        remove_tree(&link.join("pod")).unwrap();
        assert_eq!(
            (pod.exists(), read(&data.join("f")), read(&other.join("g"))),
            (false, "kept".into(), "kept".into())
        );
    }

    #[test]
    fn removal_does_not_enter_new_mounts() {
        let test_dir = TestDir::new();
        let (data, volume) = (test_dir.dir("data"), test_dir.dir("pod/v"));
        fs::write(data.join("f"), "kept").unwrap();
        bind(&data, &volume);
        let error = remove_entry(&safe_open::open_path(test_dir.0.path()).unwrap(), OsStr::new("pod")).unwrap_err();
        assert_eq!(error.to_string(), "something is mounted at v");
        assert_eq!((is_mount_point(&volume), read(&data.join("f")).as_str()), (true, "kept"));
    }

    #[test]
    fn volume_data_is_kept_while_something_is_mounted_in_it() {
        let test_dir = TestDir::new();
        let (others, volume, inner) = (test_dir.dir("others"), test_dir.dir("volume"), test_dir.dir("volume/in"));
        fs::write(others.join("f"), "kept").unwrap();
        fs::write(volume.join("g"), "kept").unwrap();
        for at in [&inner, &volume] {
            bind(&others, at);
            let error = remove_data(&volume).unwrap_err();
            assert_eq!(error.to_string(), format!("something is mounted at {}", at.display()));
            unmount_tree(at).unwrap();
        }
        assert_eq!((read(&others.join("f")), read(&volume.join("g"))), ("kept".into(), "kept".into()));
        for _ in 0..2 {
            remove_data(&volume).unwrap();
        }
        assert!(!volume.exists());
    }

    #[test]
    fn mounts_of_the_node_stay_mounted() {
        let test_dir = TestDir::new();
        let (data, pod, volume) = (test_dir.dir("data"), test_dir.dir("pod"), test_dir.dir("pod/v"));
        let tmpfs = |at: &Path| mount(Some("tmpfs"), at, Some("tmpfs"), MsFlags::empty(), None::<&str>).unwrap();
        tmpfs(&data);
        mount(None::<&str>, &data, None::<&str>, MsFlags::MS_SHARED, None::<&str>).unwrap();
        let disk = test_dir.dir("data/disk");
        tmpfs(&disk);
        fs::write(disk.join("f"), "kept").unwrap();
        bind(&data, &volume);
        assert_eq!(read(&volume.join("disk/f")), "kept");
        remove_tree(&pod).unwrap();
        assert_eq!((pod.exists(), read(&disk.join("f")).as_str()), (false, "kept"));
    }
}
