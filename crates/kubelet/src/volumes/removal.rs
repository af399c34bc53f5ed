//! Removes the directories of Pods. Data of the node is mounted in them, and is never reached through a mount.

use crate::beneath;
use nix::{
    errno::Errno,
    fcntl::OFlag,
    mount::{MntFlags, MsFlags, mount, umount2},
    unistd::{UnlinkatFlags, unlinkat},
};
use std::{
    ffi::OsStr,
    fs, io,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
};

/// Removes a directory with everything in it. What is mounted in it is unmounted first; what is mounted there
/// nevertheless is not entered, and the directory stays.
pub(super) fn remove_tree(dir: &Path) -> Result<(), String> {
    unmount_below(dir)?;
    let (Some(parent), Some(name)) = (dir.parent(), dir.file_name()) else {
        return Err(format!("{}: it is the directory of no Pod", dir.display()));
    };
    let removed = match beneath::root(parent) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        parent => parent.and_then(|parent| remove(&parent, name)),
    };
    removed.map_err(|e| format!("{}: {e}", dir.display()))
}

/// Removes what has this name in a directory, and all that is in it: the files of this very mount, and links as links.
fn remove(dir: &OwnedFd, name: &OsStr) -> io::Result<()> {
    match unlinkat(dir, name, UnlinkatFlags::NoRemoveDir) {
        Ok(()) | Err(Errno::ENOENT) => return Ok(()),
        Err(Errno::EISDIR) => {}
        Err(errno) => return Err(errno.into()),
    }
    let inner = match beneath::unmounted(dir, name, OFlag::O_PATH | OFlag::O_DIRECTORY) {
        Err(Errno::ENOENT) => return Ok(()),
        Err(Errno::EXDEV) => return Err(io::Error::other(format!("something is mounted at {}", name.display()))),
        inner => inner?,
    };
    for name in beneath::names(&inner)? {
        remove(&inner, &name)?;
    }
    match unlinkat(dir, name, UnlinkatFlags::RemoveDir) {
        Err(Errno::ENOENT) => Ok(()),
        done => Ok(done?),
    }
}

/// Removes the data of a volume. While something is mounted there, whose data is somebody else's, all of it stays.
///
/// # Errors
/// When something is mounted there, or something cannot be removed.
pub fn remove_data(dir: &Path) -> io::Result<()> {
    let (Some(real), Some(name)) = (real(dir)?, dir.file_name()) else { return Ok(()) };
    let mounts = mount_points().map_err(io::Error::other)?;
    if let Some(mounted) = mounts.iter().find(|mount| mount.starts_with(&real)) {
        return Err(io::Error::other(format!("something is mounted at {}", mounted.display())));
    }
    remove(&beneath::root(real.parent().unwrap_or(&real))?, name)
}

/// A directory as the kernel names mounts: by its real path. It is no link itself. Nothing if its parent is gone.
fn real(dir: &Path) -> io::Result<Option<PathBuf>> {
    match dir.parent().map_or_else(|| Ok(PathBuf::from("/")), fs::canonicalize) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        parent => Ok(Some(parent?.join(dir.file_name().unwrap_or_default()))),
    }
}

/// Unmounts everything at and below a directory.
pub(crate) fn unmount_below(dir: &Path) -> Result<(), String> {
    let failed = |path: &Path, e: io::Error| format!("unmounting {}: {e}", path.display());
    let Some(real) = real(dir).map_err(|e| failed(dir, e))? else { return Ok(()) };
    // Below one that is gone another may come to light.
    loop {
        let mounts: Vec<PathBuf> = mount_points()?.into_iter().filter(|m| m.starts_with(&real)).collect();
        if mounts.is_empty() {
            return Ok(());
        }
        let is_outermost = |m: &&PathBuf| !mounts.iter().any(|other| other != *m && m.starts_with(other));
        for outermost in mounts.iter().filter(is_outermost) {
            unmount(outermost).map_err(|e| failed(outermost, e.into()))?;
        }
    }
}

/// Unmounts all that is mounted at a directory and below it. What a directory of the node had mounted in it when it was
/// bound here is a copy: were it unmounted as long as both hear of each other, the node would lose its own.
fn unmount(dir: &Path) -> nix::Result<()> {
    mount(None::<&str>, dir, None::<&str>, MsFlags::MS_PRIVATE | MsFlags::MS_REC, None::<&str>)?;
    umount2(dir, MntFlags::MNT_DETACH | MntFlags::UMOUNT_NOFOLLOW)
}

/// Whether something is mounted at a directory.
pub(super) fn is_mount_point(dir: &Path) -> bool {
    let (Some(parent), Some(name)) = (dir.parent(), dir.file_name()) else { return true };
    let found = beneath::root(parent).map(|parent| beneath::unmounted(&parent, name, OFlag::O_PATH));
    matches!(found, Ok(Err(Errno::EXDEV)))
}

/// Mount points of this mount namespace, in the order in which they were mounted.
pub(super) fn mount_points() -> Result<Vec<PathBuf>, String> {
    let table =
        crate::node_file::read_text("/proc/self/mountinfo").map_err(|e| format!("/proc/self/mountinfo: {e}"))?;
    Ok(table.lines().filter_map(|line| line.split(' ').nth(4)).map(unescape).collect())
}

/// The kernel writes space, tab, newline and backslash as three octal digits.
fn unescape(field: &str) -> PathBuf {
    [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")]
        .iter()
        .fold(field.to_owned(), |text, (code, plain)| text.replace(code, plain))
        .into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    /// A directory that keeps nothing mounted when its test ends, however it does.
    struct Place(tempfile::TempDir);

    impl Place {
        fn new() -> Self {
            Self(tempfile::tempdir().unwrap())
        }

        fn dir(&self, path: &str) -> PathBuf {
            let dir = self.0.path().join(path);
            fs::create_dir_all(&dir).unwrap();
            dir
        }
    }

    impl Drop for Place {
        fn drop(&mut self) {
            let _ = unmount_below(self.0.path());
        }
    }

    fn bind(from: &Path, to: &Path) {
        mount(Some(from), to, None::<&str>, MsFlags::MS_BIND | MsFlags::MS_REC, None::<&str>).unwrap();
    }

    fn read(path: &Path) -> String {
        crate::node_file::read_text(path).unwrap_or_default()
    }

    #[test]
    fn a_tree_that_is_gone_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("a/b")).unwrap();
        remove_tree(&dir.path().join("a")).unwrap();
        remove_tree(&dir.path().join("a")).unwrap();
        remove_tree(&dir.path().join("none/a")).unwrap();
        assert!(!dir.path().join("a").exists());
    }

    #[test]
    fn what_a_link_leads_to_stays() {
        let place = Place::new();
        let (data, pod) = (place.dir("data"), place.dir("pod"));
        fs::write(data.join("f"), "kept").unwrap();
        symlink(&data, place.dir("pod/volumes").join("v")).unwrap();
        remove_tree(&pod).unwrap();
        assert_eq!((pod.exists(), read(&data.join("f")).as_str()), (false, "kept"));
    }

    #[test]
    fn what_is_mounted_is_unmounted_and_stays() {
        let place = Place::new();
        let (data, other, pod, volume) =
            (place.dir("data"), place.dir("other"), place.dir("pod"), place.dir("pod/a b"));
        fs::write(data.join("f"), "kept").unwrap();
        fs::write(other.join("g"), "kept").unwrap();
        bind(&data, &volume);
        bind(&other, &volume);
        assert!(is_mount_point(&volume) && !is_mount_point(&pod) && !is_mount_point(&pod.join("none")));
        // However the directory is called.
        let link = place.0.path().join("link");
        symlink(place.0.path(), &link).unwrap();
        remove_tree(&link.join("pod")).unwrap();
        assert_eq!(
            (pod.exists(), read(&data.join("f")), read(&other.join("g"))),
            (false, "kept".into(), "kept".into())
        );
    }

    #[test]
    fn what_is_mounted_while_a_tree_is_removed_is_not_entered() {
        let place = Place::new();
        let (data, volume) = (place.dir("data"), place.dir("pod/v"));
        fs::write(data.join("f"), "kept").unwrap();
        bind(&data, &volume);
        let error = remove(&beneath::root(place.0.path()).unwrap(), OsStr::new("pod")).unwrap_err();
        assert_eq!(error.to_string(), "something is mounted at v");
        assert_eq!((is_mount_point(&volume), read(&data.join("f")).as_str()), (true, "kept"));
    }

    #[test]
    fn data_stays_whole_while_something_of_others_is_mounted_in_it() {
        let place = Place::new();
        let (others, volume, inner) = (place.dir("others"), place.dir("volume"), place.dir("volume/in"));
        fs::write(others.join("f"), "kept").unwrap();
        fs::write(volume.join("g"), "kept").unwrap();
        for at in [&inner, &volume] {
            bind(&others, at);
            let error = remove_data(&volume).unwrap_err();
            assert_eq!(error.to_string(), format!("something is mounted at {}", at.display()));
            unmount_below(at).unwrap();
        }
        assert_eq!((read(&others.join("f")), read(&volume.join("g"))), ("kept".into(), "kept".into()));
        for _ in 0..2 {
            remove_data(&volume).unwrap();
        }
        assert!(!volume.exists());
    }

    #[test]
    fn what_the_node_has_mounted_in_a_directory_stays_mounted() {
        let place = Place::new();
        let (data, pod, volume) = (place.dir("data"), place.dir("pod"), place.dir("pod/v"));
        let tmpfs = |at: &Path| mount(Some("tmpfs"), at, Some("tmpfs"), MsFlags::empty(), None::<&str>).unwrap();
        tmpfs(&data);
        mount(None::<&str>, &data, None::<&str>, MsFlags::MS_SHARED, None::<&str>).unwrap();
        let disk = place.dir("data/disk");
        tmpfs(&disk);
        fs::write(disk.join("f"), "kept").unwrap();
        bind(&data, &volume);
        assert_eq!(read(&volume.join("disk/f")), "kept");
        remove_tree(&pod).unwrap();
        assert_eq!((pod.exists(), read(&disk.join("f")).as_str()), (false, "kept"));
    }
}
