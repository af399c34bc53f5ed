//! Opening of paths below an untrusted directory: the kernel resolves them with `openat2`, including symbolic links,
//! so that
//! no component can be swapped between check and use.

use nix::{
    errno::Errno,
    fcntl::{OFlag, OpenHow, ResolveFlag, open, openat2},
    sys::stat::Mode,
};
use std::{
    ffi::{OsStr, OsString},
    fs, io,
    os::fd::{AsRawFd, OwnedFd},
    path::{Path, PathBuf},
};

/// Opens a directory with `O_PATH`.
pub(crate) fn open_path(dir: &Path) -> io::Result<OwnedFd> {
    Ok(open(dir, OFlag::O_PATH | OFlag::O_CLOEXEC, Mode::empty())?)
}

/// Opens a path below `root`.
/// Upstream: `doSafeOpen`.
///
/// # Errors
/// Fails if it does not exist, or if the path or a symbolic link in it escapes `root`.
pub(crate) fn open_beneath(root: &OwnedFd, path: &Path, flags: OFlag) -> io::Result<OwnedFd> {
    let how = OpenHow::new()
        .flags(flags | OFlag::O_CLOEXEC)
        .resolve(ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_MAGICLINKS);
    openat2(root, path, how).map_err(|errno| if errno == Errno::EXDEV { escape_error() } else { errno.into() })
}

/// Opens a directory entry without following symbolic links or crossing mount points.
///
/// # Errors
/// Fails with `EXDEV` if it is a mount point.
pub(crate) fn open_entry(dir: &OwnedFd, name: &OsStr, flags: OFlag) -> nix::Result<OwnedFd> {
    let how = OpenHow::new()
        .flags(flags | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC)
        .resolve(ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_SYMLINKS | ResolveFlag::RESOLVE_NO_XDEV);
    openat2(dir, name, how)
}

/// Returns the names of a directory's entries. The directory is closed before the caller uses them.
pub(crate) fn entry_names(dir: &OwnedFd) -> io::Result<Vec<OsString>> {
    fs::read_dir(proc_fd_path(dir))?.map(|entry| Ok(entry?.file_name())).collect()
}

/// Returns the path of an open file in `/proc/self/fd`.
pub(crate) fn proc_fd_path(file: &OwnedFd) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

pub(crate) fn escape_error() -> io::Error {
    io::Error::other("it leads out of its volume")
}
