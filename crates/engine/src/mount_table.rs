//! Mount points of the machine, for the propagation of volumes.

use bundle::{MountSource, SourcePropagation};
use std::{
    fs, io,
    path::{Path, PathBuf},
};

/// Resolves what a mount mounts: the path without symbolic links, and the mount that it is on.
///
/// # Errors
/// When the path does not exist.
pub(crate) fn source(path: &Path, table: &[MountPoint]) -> io::Result<MountSource> {
    let path = path.canonicalize()?;
    let mut source = MountSource::new(&path);
    let on =
        table.iter().filter(|mount| path.starts_with(&mount.path)).max_by_key(|mount| mount.path.components().count());
    if let Some(mount) = on {
        source.mount_point.clone_from(&mount.path);
        source.propagation = mount.propagation;
    }
    Ok(source)
}

/// A mount point.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MountPoint {
    pub(crate) path: PathBuf,
    propagation: SourcePropagation,
}

/// Reads the mount table; later mounts at the same path come last.
///
/// # Errors
/// When /proc is not mounted.
pub(crate) fn read() -> io::Result<Vec<MountPoint>> {
    Ok(parse(&fs::read_to_string("/proc/self/mountinfo")?))
}

fn parse(table: &str) -> Vec<MountPoint> {
    let parse = |line: &str| {
        let path = unescape(line.split(' ').nth(4)?);
        // The optional fields end with `-`.
        let optional = line.split(' ').skip(6).take_while(|field| *field != "-");
        let propagation = optional.fold(SourcePropagation::Private, |found, field| match field.split(':').next() {
            Some("shared") => SourcePropagation::Shared,
            Some("master") if found != SourcePropagation::Shared => SourcePropagation::Slave,
            _ => found,
        });
        Some(MountPoint { path: path.into(), propagation })
    };
    // A mount hides earlier ones at its path.
    let mut found: Vec<MountPoint> = Vec::new();
    for mount in table.lines().filter_map(parse) {
        found.retain(|earlier| earlier.path != mount.path);
        found.push(mount);
    }
    found
}

/// Decodes the octal escapes of a path (`\040` is a space), once from left to right.
fn unescape(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
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
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nearest_mount_point_has_the_propagation() {
        let table = "22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n\
                     23 22 0:5 / /tmp rw - tmpfs tmpfs rw\n\
                     24 22 0:6 / /proc rw master:2 - proc proc rw\n\
                     25 22 0:7 / /a\\134040b rw shared:3 master:1 - tmpfs x rw\n";
        let table = parse(table);
        let propagation = |path: &str| source(Path::new(path), &table).unwrap().propagation;
        assert_eq!(propagation("/"), SourcePropagation::Shared);
        assert_eq!(propagation("/proc/self/status"), SourcePropagation::Slave);
        assert_eq!(propagation("/tmp"), SourcePropagation::Private);
        assert_eq!(table[3], MountPoint { path: "/a\\040b".into(), propagation: SourcePropagation::Shared });
        assert!(source(Path::new("/nowhere/at/all"), &table).is_err());
    }
}
