//! Owners, modes, times and extended attributes.

use crate::tar_reader::Entry;
use rustix::{
    fd::AsFd,
    fs::{self, AtFlags, Gid, Mode, Stat, Timespec, Timestamps, UTIME_OMIT, Uid, XattrFlags},
    io::Errno,
};
use std::io;

/// Maximum size of all names of extended attributes of a file in bytes (`XATTR_LIST_MAX`).
const MAX_XATTR_NAMES: usize = 64 << 10;

/// Maximum size of the value of an extended attribute in bytes (`XATTR_SIZE_MAX`).
const MAX_XATTR_VALUE: usize = 64 << 10;

/// Attributes of a file.
#[derive(Debug, Clone)]
pub(super) struct Attributes {
    uid: u32,
    gid: u32,
    mode: u32,
    times: Timestamps,
    xattrs: Vec<(Vec<u8>, Vec<u8>)>,
}

impl Attributes {
    pub(super) fn new(entry: &Entry) -> Self {
        let (seconds, nanoseconds) = entry.mtime;
        Self {
            uid: entry.uid,
            gid: entry.gid,
            mode: entry.mode,
            times: times(seconds, nanoseconds),
            xattrs: entry.xattrs.clone(),
        }
    }

    /// Attributes of a directory that neither the archive nor a lower layer has, as containerd's.
    pub(super) fn default_directory() -> Self {
        let mut times = times(0, 0);
        times.last_modification.tv_nsec = UTIME_OMIT;
        Self { uid: 0, gid: 0, mode: 0o755, times, xattrs: Vec::new() }
    }

    /// Reads the attributes of an open file or directory, or of another file without extended attributes.
    pub(super) fn read(stat: &Stat, file: Option<&impl AsFd>) -> io::Result<Self> {
        let nanoseconds = u32::try_from(stat.st_mtime_nsec).unwrap_or(0);
        Ok(Self {
            uid: stat.st_uid,
            gid: stat.st_gid,
            mode: stat.st_mode & 0o7777,
            times: times(stat.st_mtime, nanoseconds),
            xattrs: file.map_or_else(|| Ok(Vec::new()), read_xattrs)?,
        })
    }

    pub(super) fn times(&self) -> &Timestamps {
        &self.times
    }

    pub(super) fn mode(&self) -> Mode {
        Mode::from_bits_truncate(self.mode)
    }

    /// Sets all attributes of an open file or directory. A change of the owner removes set-user-ID and capabilities, so it is
    /// first.
    pub(super) fn apply(&self, file: &impl AsFd) -> io::Result<()> {
        fs::fchown(file, Some(Uid::from_raw(self.uid)), Some(Gid::from_raw(self.gid)))?;
        fs::fchmod(file, self.mode())?;
        for (name, value) in self.xattrs.iter().filter(|(name, _)| is_allowed(name)) {
            match fs::fsetxattr(file, name.as_slice(), value, XattrFlags::empty()) {
                // The file system has no extended attributes of this kind, or the value is not one.
                Ok(()) | Err(Errno::OPNOTSUPP | Errno::PERM | Errno::INVAL) => {}
                Err(error) => return Err(error.into()),
            }
        }
        fs::futimens(file, &self.times)?;
        Ok(())
    }

    /// Sets the attributes of a link, a device or a pipe that has just been created.
    pub(super) fn apply_at(&self, dir: impl AsFd, name: &[u8], is_link: bool) -> io::Result<()> {
        let (uid, gid) = (Uid::from_raw(self.uid), Gid::from_raw(self.gid));
        fs::chownat(&dir, name, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)?;
        if !is_link {
            fs::chmodat(&dir, name, self.mode(), AtFlags::empty())?;
        }
        Ok(fs::utimensat(&dir, name, &self.times, AtFlags::SYMLINK_NOFOLLOW)?)
    }
}

/// Returns whether an archive may set this extended attribute. Those of overlayfs would let a layer name directories of the
/// machine (`trusted.overlay.redirect`); others are labels of the machine that built the image.
fn is_allowed(name: &[u8]) -> bool {
    name.starts_with(b"user.") && !name.starts_with(b"user.overlay.")
        || matches!(name, b"security.capability" | b"system.posix_acl_access" | b"system.posix_acl_default")
}

fn read_xattrs(file: &impl AsFd) -> io::Result<Vec<(Vec<u8>, Vec<u8>)>> {
    let mut names = vec![0_u8; MAX_XATTR_NAMES];
    let length = match fs::flistxattr(file, &mut names[..]) {
        Err(Errno::OPNOTSUPP) => 0,
        result => result?,
    };
    names.truncate(length);
    let mut xattrs = Vec::new();
    for name in names.split(|b| *b == 0).filter(|name| is_allowed(name)) {
        let mut value = vec![0_u8; MAX_XATTR_VALUE];
        let length = fs::fgetxattr(file, name, &mut value[..])?;
        value.truncate(length);
        xattrs.push((name.to_vec(), value));
    }
    Ok(xattrs)
}

fn times(seconds: i64, nanoseconds: u32) -> Timestamps {
    Timestamps {
        last_access: Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
        last_modification: Timespec { tv_sec: seconds, tv_nsec: nanoseconds.into() },
    }
}
