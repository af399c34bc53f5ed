//! The mount table of this mount namespace, and unmounting without an effect on the mounts of the node.

use nix::{
    errno::Errno,
    mount::{MntFlags, MsFlags, mount, umount2},
};
use std::{
    ffi::OsString,
    fs, io,
    os::unix::ffi::OsStringExt,
    path::{Path, PathBuf},
};

const TABLE: &str = "/proc/self/mountinfo";

/// A mount (proc(5), `/proc/PID/mountinfo`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount {
    /// Mount point.
    pub path: PathBuf,
    /// Optional fields: propagation, for example `shared:1`.
    pub optional_fields: Vec<String>,
}

/// The mount table cannot be read, or the kernel refuses to unmount.
#[derive(Debug, thiserror::Error)]
pub enum UnmountError {
    /// The mount table cannot be read.
    #[error("{TABLE}: {0}")]
    Table(#[source] io::Error),
    /// The kernel refuses.
    #[error("unmounting {}: {source}", .path.display())]
    Unmount {
        /// Mount point.
        path: PathBuf,
        /// Cause.
        source: io::Error,
    },
}

/// Returns all mounts, in the order in which they were mounted.
///
/// # Errors
/// When /proc is not mounted.
pub fn mounts() -> io::Result<Vec<Mount>> {
    Ok(parse(&fs::read(TABLE)?))
}

/// Returns all mounts of the mount namespace of a process. Their paths are those below its root.
///
/// # Errors
/// When the process has ended.
pub fn mounts_of_process(pid: i32) -> io::Result<Vec<Mount>> {
    Ok(parse(&fs::read(format!("/proc/{pid}/mountinfo"))?))
}

/// Unmounts everything at and below a directory, which may be missing.
///
/// # Errors
/// When the mount table cannot be read, or the kernel refuses.
pub fn unmount_tree(dir: &Path) -> Result<(), UnmountError> {
    unmount_matching(dir, |mount, dir| mount.starts_with(dir))
}

/// Unmounts everything below a directory, which may be missing or a mount point itself.
///
/// # Errors
/// When the mount table cannot be read, or the kernel refuses.
pub fn unmount_below(dir: &Path) -> Result<(), UnmountError> {
    unmount_matching(dir, |mount, dir| mount != dir && mount.starts_with(dir))
}

fn unmount_matching(dir: &Path, matches: impl Fn(&Path, &Path) -> bool) -> Result<(), UnmountError> {
    let failed = |path: &Path, source| UnmountError::Unmount { path: path.to_owned(), source };
    let Some(dir) = real_path(dir).map_err(|error| failed(dir, error))? else { return Ok(()) };
    // Unmounting may reveal another mount.
    loop {
        let all = mounts().map_err(UnmountError::Table)?;
        let found: Vec<PathBuf> = all.into_iter().map(|mount| mount.path).filter(|path| matches(path, &dir)).collect();
        if found.is_empty() {
            return Ok(());
        }
        let is_outermost = |path: &&PathBuf| !found.iter().any(|other| other != *path && path.starts_with(other));
        for path in found.iter().filter(is_outermost) {
            match unmount(path) {
                // Unmounted meanwhile: the table is read again.
                Err(Errno::EINVAL | Errno::ENOENT) if !is_mounted(path).map_err(UnmountError::Table)? => {}
                unmounted => unmounted.map_err(|errno| failed(path, errno.into()))?,
            }
        }
    }
}

fn is_mounted(path: &Path) -> io::Result<bool> {
    Ok(mounts()?.iter().any(|mount| mount.path == path))
}

/// Returns the real path of a directory, as in the mount table; `None` if its parent is missing. The directory itself must not be
/// a symbolic link.
///
/// # Errors
/// When a parent cannot be read.
pub fn real_path(dir: &Path) -> io::Result<Option<PathBuf>> {
    match dir.parent().map_or_else(|| Ok(PathBuf::from("/")), fs::canonicalize) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        parent => Ok(Some(parent?.join(dir.file_name().unwrap_or_default()))),
    }
}

/// Unmounts a mount and all mounts below it. Mounts that were copied from a directory of the node are made private first:
/// otherwise the unmount would propagate to the node.
fn unmount(path: &Path) -> nix::Result<()> {
    mount(None::<&str>, path, None::<&str>, MsFlags::MS_PRIVATE | MsFlags::MS_REC, None::<&str>)?;
    umount2(path, MntFlags::MNT_DETACH | MntFlags::UMOUNT_NOFOLLOW)
}

fn parse(table: &[u8]) -> Vec<Mount> {
    table.split(|byte| *byte == b'\n').filter_map(parse_line).collect()
}

fn parse_line(line: &[u8]) -> Option<Mount> {
    let mut fields = line.split(|byte| *byte == b' ').skip(4);
    let path = unescape(fields.next()?);
    // The options are skipped; the optional fields end with `-`.
    let optional = fields.skip(1).take_while(|field| *field != b"-");
    Some(Mount { path, optional_fields: optional.map(|field| String::from_utf8_lossy(field).into_owned()).collect() })
}

/// Decodes the octal escapes of a path (`\040` is a space), once from left to right.
fn unescape(text: &[u8]) -> PathBuf {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&first, tail)) = rest.split_first() {
        let digits = tail.get(..3).and_then(|digits| std::str::from_utf8(digits).ok());
        match digits.and_then(|digits| u8::from_str_radix(digits, 8).ok()).filter(|_| first == b'\\') {
            Some(byte) => {
                bytes.push(byte);
                rest = tail.get(3..).unwrap_or_default();
            }
            None => {
                bytes.push(first);
                rest = tail;
            }
        }
    }
    OsString::from_vec(bytes).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{ffi::OsStr, os::unix::ffi::OsStrExt};

    #[test]
    fn table_has_paths_and_optional_fields() {
        let table = b"22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n\
                      24 22 0:6 / /proc rw - proc proc rw\n\
                      25 22 0:7 / /a\\134040b\\040\xff rw shared:3 master:1 - tmpfs x rw\nshort\n";
        let mount = |path: &[u8], fields: &[&str]| Mount {
            path: OsStr::from_bytes(path).into(),
            optional_fields: fields.iter().map(|&field| field.to_owned()).collect(),
        };
        let expected =
            [mount(b"/", &["shared:1"]), mount(b"/proc", &[]), mount(b"/a\\040b \xff", &["shared:3", "master:1"])];
        assert_eq!(parse(table), expected);
    }

    #[test]
    fn mounts_below_a_mount_point_are_unmounted() {
        let dir = tempfile::tempdir().unwrap();
        let tmpfs = |at: &Path| mount(Some("tmpfs"), at, Some("tmpfs"), MsFlags::empty(), None::<&str>).unwrap();
        let at = |path: &str| mounts().unwrap().iter().filter(|m| m.path == dir.path().join(path)).count();
        let (outer, inner) = (dir.path().join("a"), dir.path().join("a/b c"));
        fs::create_dir(&outer).unwrap();
        tmpfs(&outer);
        fs::create_dir(&inner).unwrap();
        tmpfs(&inner);
        tmpfs(&inner);
        unmount_below(&outer).unwrap();
        assert_eq!((at("a"), at("a/b c")), (1, 0));
        unmount_tree(&outer).unwrap();
        unmount_tree(&dir.path().join("none/a")).unwrap();
        assert_eq!(at("a"), 0);
    }
}
