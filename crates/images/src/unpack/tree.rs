//! Opens and removes what is beneath the root of a layer, and nothing else.

use crate::error::invalid;
use rustix::{
    fd::{AsFd, BorrowedFd, OwnedFd},
    fs::{self, AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags, Stat, XattrFlags},
    io::Errno,
};
use std::{io, path::Path};

/// Maximum depth of a directory beneath the root. Real images have less than 40; deletion keeps an open directory for each.
pub(super) const MAX_DEPTH: usize = 255;

/// Maximum length of a name in bytes, as of all file systems of Linux (`NAME_MAX`).
const MAX_NAME: usize = 255;

/// Maximum length of a path in bytes, without the zero byte (`PATH_MAX`).
const MAX_PATH: usize = 4095;

/// Marks a directory that hides those of lower layers.
const OPAQUE: &str = "trusted.overlay.opaque";

/// Root directory of a layer.
#[derive(Debug)]
pub(crate) struct Tree {
    root: OwnedFd,
}

impl Tree {
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(Self { root: fs::open(path, flags, Mode::empty())? })
    }

    pub(super) fn root(&self) -> BorrowedFd<'_> {
        self.root.as_fd()
    }

    /// Opens a directory. The path has no symbolic links; an empty one is the root.
    pub(super) fn open_dir(&self, path: &[u8]) -> rustix::io::Result<OwnedFd> {
        open_dir(self.root(), if path.is_empty() { b"." } else { path })
    }
}

/// Opens a directory beneath another one, without following symbolic links or crossing mounts.
pub(super) fn open_dir(dir: impl AsFd, path: &[u8]) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let resolve =
        ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS | ResolveFlags::NO_XDEV;
    loop {
        match fs::openat2(&dir, path, flags, Mode::empty(), resolve) {
            // The kernel could not exclude a rename elsewhere.
            Err(Errno::AGAIN) => {}
            result => return result,
        }
    }
}

/// Returns the attributes of a name, or `None` if it is missing.
pub(super) fn stat(dir: impl AsFd, name: &[u8]) -> rustix::io::Result<Option<Stat>> {
    match fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => Ok(Some(stat)),
        Err(Errno::NOENT) => Ok(None),
        Err(error) => Err(error),
    }
}

pub(super) fn file_type(stat: &Stat) -> FileType {
    FileType::from_raw_mode(stat.st_mode)
}

/// Returns whether this is a whiteout: it hides a name of lower layers.
pub(super) fn is_whiteout(stat: &Stat) -> bool {
    file_type(stat) == FileType::CharacterDevice && stat.st_rdev == 0
}

/// Creates a whiteout.
pub(super) fn make_whiteout(dir: impl AsFd, name: &[u8]) -> rustix::io::Result<()> {
    fs::mknodat(dir, name, FileType::CharacterDevice, Mode::empty(), 0)
}

/// Returns whether a directory hides those of lower layers.
pub(crate) fn is_opaque(dir: impl AsFd) -> rustix::io::Result<bool> {
    let mut value = [0; 1];
    match fs::fgetxattr(dir, OPAQUE, &mut value[..]) {
        Ok(n) => Ok(n == 1 && value == *b"y"),
        Err(Errno::NODATA | Errno::OPNOTSUPP | Errno::RANGE) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Hides the directories of lower layers.
pub(super) fn make_opaque(dir: impl AsFd) -> rustix::io::Result<()> {
    fs::fsetxattr(dir, OPAQUE, b"y", XattrFlags::empty())
}

/// Removes a name, and what is below it.
pub(super) fn remove(dir: BorrowedFd<'_>, name: &[u8]) -> rustix::io::Result<()> {
    match fs::unlinkat(dir, name, AtFlags::empty()) {
        Err(Errno::ISDIR) => {}
        result => return result,
    }
    let child = open_dir(dir, name)?;
    let mut entries = Dir::read_from(&child)?;
    while let Some(entry) = entries.read() {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if name != b"." && name != b".." {
            // The depth is limited when directories are created.
            remove(child.as_fd(), name)?;
        }
    }
    fs::unlinkat(dir, name, AtFlags::REMOVEDIR)
}

/// Splits the path of an archive into names. `..` is resolved, but must not lead above the root.
pub(super) fn components(path: &[u8]) -> io::Result<Vec<&[u8]>> {
    let mut names: Vec<&[u8]> = Vec::new();
    if path.len() > MAX_PATH || path.contains(&0) {
        return Err(invalid("the path of an entry is too long or contains a zero byte"));
    }
    for name in path.split(|b| *b == b'/') {
        match name {
            b"" | b"." => {}
            b".." => {
                let above = || invalid(format!("{:?} is outside of the layer", String::from_utf8_lossy(path)));
                names.pop().ok_or_else(above)?;
            }
            _ if name.len() > MAX_NAME || names.len() >= MAX_DEPTH => {
                return Err(invalid(format!(
                    "a name has more than {MAX_NAME} bytes, or {MAX_DEPTH} directories above it"
                )));
            }
            _ => names.push(name),
        }
    }
    Ok(names)
}

/// Joins names to a path.
pub(super) fn join<T: AsRef<[u8]>>(names: &[T]) -> Vec<u8> {
    names.iter().map(AsRef::as_ref).collect::<Vec<&[u8]>>().join(&b'/')
}
