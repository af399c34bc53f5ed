//! Mount points of the machine, for the propagation of volumes.

use bundle::{MountSource, SourcePropagation};
use std::{
    io,
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
    Ok(read_propagation(files::mounts::mounts()?))
}

fn read_propagation(mounts: Vec<files::mounts::Mount>) -> Vec<MountPoint> {
    let propagation = |fields: &[String]| {
        fields.iter().fold(SourcePropagation::Private, |found, field| match field.split(':').next() {
            Some("shared") => SourcePropagation::Shared,
            Some("master") if found != SourcePropagation::Shared => SourcePropagation::Slave,
            _ => found,
        })
    };
    // A mount hides earlier ones at its path.
    let mut found: Vec<MountPoint> = Vec::new();
    for mount in mounts {
        found.retain(|earlier| earlier.path != mount.path);
        found.push(MountPoint { propagation: propagation(&mount.optional_fields), path: mount.path });
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nearest_mount_point_has_the_propagation() {
        let mount = |path: &str, fields: &[&str]| files::mounts::Mount {
            path: path.into(),
            optional_fields: fields.iter().map(|&field| field.to_owned()).collect(),
        };
        let table = read_propagation(vec![
            mount("/", &["shared:1"]),
            mount("/tmp", &["shared:2"]),
            mount("/tmp", &[]),
            mount("/proc", &["master:2"]),
            mount("/dev", &["shared:3", "master:1"]),
        ]);
        let propagation = |path: &str| source(Path::new(path), &table).unwrap().propagation;
        assert_eq!(propagation("/"), SourcePropagation::Shared);
        assert_eq!(propagation("/proc/self/status"), SourcePropagation::Slave);
        assert_eq!(propagation("/tmp"), SourcePropagation::Private);
        assert_eq!(propagation("/dev/null"), SourcePropagation::Shared);
        assert!(source(Path::new("/nowhere/at/all"), &table).is_err());
    }
}
