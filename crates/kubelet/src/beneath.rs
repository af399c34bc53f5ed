//! Paths that must not lead out of a directory: the kernel itself resolves them below it, links and all, so that nobody
//! can exchange a part of them at the right moment.

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

/// A directory as a place, neither to be read nor written.
pub(crate) fn root(dir: &Path) -> io::Result<OwnedFd> {
    Ok(open(dir, OFlag::O_PATH | OFlag::O_CLOEXEC, Mode::empty())?)
}

/// Opens what is at a path below `root`.
///
/// # Errors
/// When there is nothing, or when the path or a link in it leads out of `root`.
pub(crate) fn find(root: &OwnedFd, path: &Path, flags: OFlag) -> io::Result<OwnedFd> {
    let how = OpenHow::new()
        .flags(flags | OFlag::O_CLOEXEC)
        .resolve(ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_MAGICLINKS);
    openat2(root, path, how).map_err(|errno| if errno == Errno::EXDEV { leads_out() } else { errno.into() })
}

/// Opens what has this name in a directory: a link as itself, and nothing that is mounted there.
///
/// # Errors
/// `EXDEV` when something is mounted there.
pub(crate) fn unmounted(dir: &OwnedFd, name: &OsStr, flags: OFlag) -> nix::Result<OwnedFd> {
    let how = OpenHow::new()
        .flags(flags | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC)
        .resolve(ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_SYMLINKS | ResolveFlag::RESOLVE_NO_XDEV);
    openat2(dir, name, how)
}

/// The names in a directory; it is not kept open while somebody goes through them.
pub(crate) fn names(dir: &OwnedFd) -> io::Result<Vec<OsString>> {
    fs::read_dir(through(dir))?.map(|entry| Ok(entry?.file_name())).collect()
}

/// What an open file is, as a path.
pub(crate) fn through(file: &OwnedFd) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

pub(crate) fn leads_out() -> io::Error {
    io::Error::other("it leads out of its volume")
}
