//! Mount points for volumes that are mounted inside another volume (upstream's `MakeNestedMountpoints`).
//!
//! Volumes with files from the API are read-only for the runtime, which cannot create mount points in them.

use super::{fs_group, plugins::find_files_plugin, set_group};
use crate::{Shared, os_error::PathError, pods::spec};
use api::pod::containers;
use k8s_openapi::api::core::v1::Container;
use lifecycle::Pod;
use runtime::Mount;
use std::{
    collections::BTreeSet,
    fs,
    io::{self, ErrorKind},
    os::unix::fs::{DirBuilderExt, PermissionsExt},
    path::{Component, Path, PathBuf},
};

/// Failure to create a mount point, with upstream's message.
#[derive(Debug, thiserror::Error)]
#[error("unable to create nested volume mountpoints: {0}")]
pub(crate) struct NestedMountPointError(#[source] PathError);

impl NestedMountPointError {
    fn new(call: &'static str, path: &Path, error: io::Error) -> Self {
        Self(PathError::new(call, path, error))
    }
}

/// Returns the mount points that other volumes of the Pod's containers need in a volume, relative to it.
///
/// Those of `subPath` mounts are not included, because they may be files ([`create_nested_sub_paths`]).
pub(super) fn nested_mount_points(pod: &Pod, volume: &str) -> BTreeSet<PathBuf> {
    let ephemeral = spec(pod).ephemeral_containers.iter().flatten();
    let ephemeral = ephemeral.filter_map(|c| pod.spec_of(&c.name));
    let all = containers(spec(pod)).map(|(_, container)| container).chain(ephemeral);
    all.flat_map(|container| container_mount_points(container, volume)).collect()
}

fn container_mount_points(container: &Container, volume: &str) -> Vec<PathBuf> {
    let mounts = container.volume_mounts.as_deref().unwrap_or_default();
    let all: BTreeSet<PathBuf> = mounts.iter().map(|mount| clean(&mount.mount_path)).collect();
    let has_sub_path = |path: &Path| {
        let at = mounts.iter().filter(|mount| clean(&mount.mount_path) == path);
        at.into_iter().any(|m| m.sub_path.is_some() || m.sub_path_expr.is_some())
    };
    let outer = mounts.iter().filter(|m| m.name == volume).map(|m| clean(&m.mount_path));
    let below = |outer: PathBuf| {
        let inner =
            all.iter().filter(|path| **path != outer && !has_sub_path(path) && is_innermost(&all, &outer, path));
        inner.filter_map(|path| path.strip_prefix(&outer).ok().map(Path::to_owned)).collect::<Vec<_>>()
    };
    outer.flat_map(below).collect()
}

/// Returns whether `outer` is the innermost mount around `path`.
fn is_innermost(all: &BTreeSet<PathBuf>, outer: &Path, path: &Path) -> bool {
    let innermost = path.ancestors().skip(1).find(|ancestor| all.contains(*ancestor));
    innermost == Some(outer)
}

/// Removes `.` and `..` from a path, as Go's `filepath.Clean`.
fn clean(path: &str) -> PathBuf {
    let mut cleaned = PathBuf::new();
    for part in Path::new(path).components() {
        match part {
            Component::ParentDir => {
                cleaned.pop();
            }
            Component::CurDir => {}
            part => cleaned.push(part),
        }
    }
    cleaned
}

/// Creates these directories in a volume, with the Pod's `fsGroup`.
pub(super) fn create_mount_points(
    volume: &Path,
    directories: &BTreeSet<PathBuf>,
    group: Option<u32>,
) -> Result<(), NestedMountPointError> {
    let make = |directory: &PathBuf| create_directory(volume, directory, group);
    directories.iter().try_for_each(|directory| {
        make(directory).map_err(|error| NestedMountPointError::new("mkdir", directory, error))
    })
}

fn create_directory(volume: &Path, directory: &Path, group: Option<u32>) -> io::Result<()> {
    let mut reached = volume.to_owned();
    for part in directory {
        reached.push(part);
        match fs::DirBuilder::new().mode(0o755).create(&reached) {
            // A file of the volume, or a link to one, may have the same name.
            Err(error) if error.kind() == ErrorKind::AlreadyExists && reached.is_dir() => continue,
            Err(error) if error.kind() == ErrorKind::AlreadyExists => return Err(ErrorKind::NotADirectory.into()),
            made => made?,
        }
        set_group(&reached, group)?;
        fs::set_permissions(&reached, fs::Permissions::from_mode(if group.is_some() { 0o2755 } else { 0o755 }))?;
    }
    Ok(())
}

/// Creates the mount points of a container's `subPath` mounts, which may be files, in surrounding volumes with API files.
///
/// # Errors
/// Fails if a mount point cannot be created.
pub(crate) fn create_nested_sub_paths(
    shared: &Shared,
    pod: &Pod,
    container: &Container,
    made: &[Mount],
) -> Result<(), NestedMountPointError> {
    let mounts = container.volume_mounts.as_deref().unwrap_or_default();
    for inner in mounts.iter().filter(|mount| mount.sub_path.is_some() || mount.sub_path_expr.is_some()) {
        let path = clean(&inner.mount_path);
        let around = |path: &Path| mounts.iter().find(|mount| clean(&mount.mount_path) == path);
        let Some(outer) = path.ancestors().skip(1).find_map(around) else { continue };
        let source = made.iter().find(|mount| mount.container_path == inner.mount_path).map(|m| &m.host_path);
        let is_of_api =
            spec(pod).volumes.iter().flatten().any(|v| v.name == outer.name && find_files_plugin(v).is_some());
        if let Some(source) = source.filter(|_| is_of_api && outer.sub_path.is_none()) {
            let volume = shared.paths.volume(pod.uid(), &outer.name);
            create_mount_point(
                &volume,
                path.strip_prefix(clean(&outer.mount_path)).unwrap_or(&path),
                source,
                fs_group(pod),
            )?;
        }
    }
    Ok(())
}

/// Creates the mount point for a file or directory, unless the path exists.
fn create_mount_point(
    volume: &Path,
    inner: &Path,
    source: &Path,
    group: Option<u32>,
) -> Result<(), NestedMountPointError> {
    let point = volume.join(inner);
    if fs::symlink_metadata(&point).is_ok() {
        return Ok(());
    }
    if source.is_dir() {
        return create_mount_points(volume, &BTreeSet::from([inner.to_owned()]), group);
    }
    let parent = inner.parent().filter(|parent| !parent.as_os_str().is_empty());
    create_mount_points(volume, &parent.into_iter().map(Path::to_owned).collect(), group)?;
    fs::write(&point, "").map_err(|error| NestedMountPointError::new("open", inner, error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    /// Upstream's `TestGetNestedMountpoints`, and a case with a `subPath`.
    #[track_caller]
    fn check(mounts: &[(&str, &str)], expected: &[&str]) {
        let mounts: Vec<Value> = mounts
            .iter()
            .map(|(name, path)| match path.strip_suffix('!') {
                Some(path) => json!({"name": name, "mountPath": path, "subPath": "f"}),
                None => json!({"name": name, "mountPath": path}),
            })
            .collect();
        let container = serde_json::from_value(json!({"name": "c", "volumeMounts": mounts})).unwrap();
        let mut found = container_mount_points(&container, "v");
        found.sort();
        assert_eq!(found, expected.iter().map(PathBuf::from).collect::<Vec<_>>());
    }

    #[test]
    fn nested_mount_points_are_those_of_the_outermost_mounts() {
        check(&[("v", "/dir")], &[]);
        check(&[("v", "/dir"), ("w", "/dir/nested")], &["nested"]);
        check(&[("w", "/dir/nested/"), ("v", "/dir/")], &["nested"]);
        check(&[("v", "/dir"), ("w", "/dir2/x"), ("w", "/dir-x")], &[]);
        check(&[("v", "/dir"), ("w", "/dir/a/b/c"), ("x", "/dir/nested")], &["a/b/c", "nested"]);
        check(&[("v", "/dir"), ("w", "/dir/nested"), ("x", "/dir/nested/double")], &["nested"]);
        check(&[("w", "/dir"), ("v", "/dir/nested"), ("x", "/dir/nested/double")], &["double"]);
        check(
            &[
                ("v", "/dir"),
                ("w", "/dir/nested-vol"),
                ("x", "/dir/nested.vol"),
                ("y", "/dir/nested2"),
                ("z", "/dir/nested/double"),
                ("z", "/dir/nested"),
            ],
            &["nested", "nested-vol", "nested.vol", "nested2"],
        );
        check(&[("v", "/dir"), ("w", "/dir/../other")], &[]);
        check(&[("v", "/dir"), ("w", "/dir/file!"), ("x", "/dir/data")], &["data"]);
    }

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o7777
    }

    #[test]
    fn nested_mount_points_are_accessible_to_the_group() {
        let dir = tempfile::tempdir().unwrap();
        let points = BTreeSet::from([PathBuf::from("a/b"), PathBuf::from("c")]);
        for (group, expected) in [(None, 0o755), (Some(4711), 0o2755)] {
            let volume = dir.path().join(expected.to_string());
            fs::create_dir(&volume).unwrap();
            for _ in 0..2 {
                create_mount_points(&volume, &points, group).unwrap();
            }
            assert_eq!((mode(&volume.join("a/b")), mode(&volume.join("c"))), (expected, expected));
        }
        fs::write(dir.path().join("f"), "").unwrap();
        let error = create_mount_points(dir.path(), &BTreeSet::from([PathBuf::from("f")]), None).unwrap_err();
        assert_eq!(error.to_string(), "unable to create nested volume mountpoints: mkdir f: not a directory");
    }

    #[test]
    fn nested_sub_path_mount_point_has_the_sub_paths_type() {
        let dir = tempfile::tempdir().unwrap();
        let (volume, file) = (dir.path().join("v"), dir.path().join("f"));
        fs::create_dir(&volume).unwrap();
        fs::write(&file, "text").unwrap();
        let point = |inner: &str, source: &Path| create_mount_point(&volume, Path::new(inner), source, None);
        point("x/one.txt", &file).unwrap();
        point("two", dir.path()).unwrap();
        assert!(volume.join("x/one.txt").is_file() && volume.join("two").is_dir());
        // An existing file of the volume is kept as the mount point.
        std::os::unix::fs::symlink("..data/key", volume.join("key")).unwrap();
        point("key", &file).unwrap();
        assert!(fs::symlink_metadata(volume.join("key")).unwrap().is_symlink());
    }
}
