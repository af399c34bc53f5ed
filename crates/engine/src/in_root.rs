//! Paths in the root file system of a container, which its image controls: links never lead out of it.

use rustix::{
    fs::{AtFlags, CWD, Gid, Mode, OFlags, ResolveFlags, Uid, chownat, mkdirat, openat2},
    io::Errno,
};
use std::{
    fs::{self, File},
    io::{self, Read},
    os::fd::{AsFd, AsRawFd, OwnedFd},
    path::{Component, Path, PathBuf},
};

/// Maximum depth of a path in an image.
const MAX_DEPTH: usize = 256;

/// Opens a path below a root as `chroot` would resolve it.
///
/// # Errors
/// When it does not exist, or has a magic link.
pub(crate) fn open(root: impl AsFd, path: &Path, flags: OFlags) -> io::Result<OwnedFd> {
    let relative = path.strip_prefix("/").unwrap_or(path);
    let relative = if relative.as_os_str().is_empty() { Path::new(".") } else { relative };
    let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    Ok(openat2(root, relative, flags | OFlags::CLOEXEC, Mode::empty(), resolve)?)
}

/// Opens the directory that is a root.
///
/// # Errors
/// When it does not exist.
pub(crate) fn open_root(root: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(rustix::fs::openat(CWD, root, flags, Mode::empty())?)
}

/// Reads a regular file of an image; empty if there is none. Larger files are cut one byte after the limit.
///
/// # Errors
/// When it cannot be read, or is something else.
pub(crate) fn read(root: &Path, path: &str, limit: usize) -> io::Result<Vec<u8>> {
    // Not for reading: a FIFO blocks, and the mere opening of a device has effects, for example of a watchdog.
    let found = match open(open_root(root)?, Path::new(path), OFlags::PATH) {
        Ok(found) => File::from(found),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    if !found.metadata()?.is_file() {
        // The OCI runtime reads it, too, and would wait for a FIFO.
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file"));
    }
    let mut content = Vec::new();
    // The same file: a descriptor has no path that could change.
    File::open(format!("/proc/self/fd/{}", found.as_raw_fd()))?
        .take(limit.saturating_add(1) as u64)
        .read_to_end(&mut content)?;
    Ok(content)
}

/// Returns the path on the machine of a path below a root.
///
/// # Errors
/// When it does not exist.
pub(crate) fn resolve(root: &Path, path: &Path) -> io::Result<PathBuf> {
    host_path(&open(open_root(root)?, path, OFlags::PATH)?)
}

/// Returns where a mount at a path below a root will be, relative to the root and absolute; parts that are missing will be
/// created. `None` if that is not certain.
pub(crate) fn target(root: &Path, path: &Path) -> Option<PathBuf> {
    let descriptor = open_root(root).ok()?;
    let base = host_path(&descriptor).ok()?;
    for existing in path.ancestors() {
        let missing = path.strip_prefix(existing).ok()?;
        if !missing.components().all(|part| matches!(part, Component::Normal(_))) {
            return None;
        }
        match open(&descriptor, existing, OFlags::PATH) {
            Ok(found) => {
                return Some(Path::new("/").join(host_path(&found).ok()?.strip_prefix(&base).ok()?).join(missing));
            }
            // A link to something that will exist.
            Err(_) if open(&descriptor, existing, OFlags::PATH | OFlags::NOFOLLOW).is_ok() => return None,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(_) => return None,
        }
    }
    None
}

/// As [`resolve`], and creates missing directories, mode 0755, which belong to a user and its group.
///
/// # Errors
/// When a part of the path is no directory, or the file system fails.
pub(crate) fn resolve_or_create(root: &Path, path: &Path, owner: u32) -> io::Result<PathBuf> {
    let names: Vec<_> = path.components().filter(|part| matches!(part, Component::Normal(_))).collect();
    if names.len() > MAX_DEPTH {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "the path is too deep"));
    }
    let root = open_root(root)?;
    let mut below = PathBuf::new();
    for name in names {
        let parent = open(&root, &below, OFlags::PATH | OFlags::DIRECTORY)?;
        match mkdirat(&parent, Path::new(name.as_os_str()), Mode::from_raw_mode(0o755)) {
            Ok(()) => {
                let (user, group) = (Uid::from_raw(owner), Gid::from_raw(owner));
                chownat(&parent, Path::new(name.as_os_str()), Some(user), Some(group), AtFlags::SYMLINK_NOFOLLOW)?;
            }
            Err(Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
        below.push(name);
    }
    host_path(&open(&root, &below, OFlags::PATH | OFlags::DIRECTORY)?)
}

/// Checks that the mount points of the kernel's file systems are directories or missing. An OCI runtime could follow a link
/// out of the root file system (CVE-2026-41579).
///
/// # Errors
/// When one is something else.
pub(crate) fn check_mount_points(root: &Path) -> io::Result<()> {
    for name in ["dev", "proc", "sys"] {
        match fs::symlink_metadata(root.join(name)) {
            Ok(metadata) if metadata.is_dir() => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Ok(_) => return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("/{name} is not a directory"))),
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn host_path(descriptor: &OwnedFd) -> io::Result<PathBuf> {
    fs::read_link(format!("/proc/self/fd/{}", descriptor.as_raw_fd()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::FileType;
    use std::os::unix::fs::symlink;

    #[test]
    fn mount_point_that_is_a_link_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        check_mount_points(dir.path()).unwrap();
        fs::create_dir(dir.path().join("proc")).unwrap();
        check_mount_points(dir.path()).unwrap();
        symlink("/tmp", dir.path().join("dev")).unwrap();
        assert_eq!(check_mount_points(dir.path()).unwrap_err().to_string(), "/dev is not a directory");
    }

    #[test]
    fn links_of_an_image_stay_in_its_root() {
        let dir = tempfile::tempdir().unwrap();
        let base = dir.path().canonicalize().unwrap();
        let root = base.join("root");
        fs::create_dir_all(root.join("etc")).unwrap();
        fs::write(root.join("etc/inside"), "inside").unwrap();
        fs::write(base.join("outside"), "outside").unwrap();
        for (link, target) in
            [("etc/a", "/etc/inside"), ("etc/b", "../../outside"), ("etc/c", "/proc/self/root/outside")]
        {
            symlink(target, root.join(link)).unwrap();
        }
        assert_eq!(read(&root, "/etc/a", 100).unwrap(), b"inside");
        assert_eq!(read(&root, "/etc/a", 2).unwrap(), b"ins");
        assert_eq!(read(&root, "/etc/b", 100).unwrap(), b"");
        assert_eq!(read(&root, "/etc/c", 100).unwrap(), b"");
        assert_eq!(read(&root, "/etc", 100).unwrap_err().to_string(), "it is not a regular file");
        for kind in [FileType::Fifo, FileType::Socket, FileType::CharacterDevice] {
            // Opened for reading, a device without a driver fails with another error, and a FIFO blocks.
            let special = root.join("etc/special");
            if rustix::fs::mknodat(CWD, &special, kind, Mode::RUSR, rustix::fs::makedev(250, 9)).is_ok() {
                let error = read(&root, "/etc/special", 100).unwrap_err().to_string();
                assert_eq!(error, "it is not a regular file", "{kind:?}");
                fs::remove_file(special).unwrap();
            }
        }
        symlink("/../../etc", root.join("volume")).unwrap();
        assert_eq!(resolve_or_create(&root, Path::new("/volume/../d/e"), 7).unwrap(), root.join("etc/d/e"));
        symlink("/../../x", root.join("dangling")).unwrap();
        assert!(resolve_or_create(&root, Path::new("/dangling/d"), 0).is_err());
        assert!(!base.join("x").exists() && !root.join("x").exists());
        assert_eq!(resolve(&root, Path::new("/etc/inside")).unwrap(), root.join("etc/inside"));
    }
}
