//! `emptyDir` volumes: directory or tmpfs (upstream's `pkg/volume/emptydir/empty_dir.go`).

use crate::{
    os_error::{self, PathError},
    volumes::{
        make_dir, memory_limit,
        mount_error::SetUpError,
        plugin::{MountContext, MountTarget, Mounter, NewMounter, VolumePlugin, VolumeSpec},
        set_group,
    },
};
use api::quantity::{Amount, QuantityError};
use futures::{FutureExt, future::ready};
use k8s_openapi::api::core::v1::EmptyDirVolumeSource;
use nix::{
    errno::Errno,
    mount::{MsFlags, mount},
};
use std::{
    fs, io,
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
};

pub(super) struct EmptyDirPlugin;

impl VolumePlugin for EmptyDirPlugin {
    fn can_support(&self, spec: VolumeSpec<'_>) -> bool {
        spec.volume().is_some_and(|volume| volume.empty_dir.is_some())
    }

    fn new_mounter<'a>(&'a self, spec: VolumeSpec<'a>, context: &'a mut MountContext<'_>) -> NewMounter<'a> {
        let source = spec.volume().and_then(|volume| volume.empty_dir.clone()).unwrap_or_default();
        let mounter = EmptyDir::new(&source, memory_limit(context.shared, context.pod));
        ready(mounter.map(|mounter| Box::new(mounter) as Box<dyn Mounter>).map_err(SetUpError::plugin)).boxed()
    }
}

/// `emptyDir` volume.
pub(in crate::volumes) struct EmptyDir {
    memory: bool,
    /// Size limit in bytes; the kernel enforces it for a tmpfs only.
    limit: Option<i64>,
}

/// Failure to create an `emptyDir` volume.
#[derive(Debug, thiserror::Error)]
enum EmptyDirError {
    #[error(transparent)]
    SizeLimit(#[from] QuantityError),
    #[error("emptyDir with medium {0:?} is not supported yet")]
    UnsupportedMedium(String),
    #[error("mounting a tmpfs at {}: {}", .path.display(), os_error::message(.source))]
    Mount { path: PathBuf, source: io::Error },
    #[error(transparent)]
    Path(#[from] PathError),
}

impl EmptyDir {
    /// Parses the source. `memory_limit` is the memory limit of the Pod or the node, which also limits a tmpfs.
    fn new(source: &EmptyDirVolumeSource, memory_limit: Option<Amount>) -> Result<Self, EmptyDirError> {
        let limit = source.size_limit.as_ref().map(Amount::try_from).transpose()?;
        let memory = match source.medium.as_deref().unwrap_or_default() {
            "" => false,
            "Memory" => true,
            other => return Err(EmptyDirError::UnsupportedMedium(other.to_owned())),
        };
        let limit = limit.filter(|l| *l > Amount::ZERO).into_iter().chain(memory_limit.filter(|_| memory)).min();
        Ok(Self { memory, limit: limit.map(Amount::value).filter(|bytes| *bytes > 0) })
    }

    /// Returns a tmpfs, for secret data.
    pub(in crate::volumes) fn in_memory(memory_limit: Option<Amount>) -> Self {
        Self { memory: true, limit: memory_limit.map(Amount::value).filter(|bytes| *bytes > 0) }
    }

    /// Returns a directory, for data that is not secret.
    pub(in crate::volumes) fn on_disk() -> Self {
        Self { memory: false, limit: None }
    }

    fn set_up_at(&self, dir: &Path, group: Option<u32>) -> Result<(), EmptyDirError> {
        make_dir(dir, 0o777)?;
        let is_mount_point = is_mount_point(dir).map_err(|error| PathError::new("stat", dir, error))?;
        if self.memory && !is_mount_point {
            let mounted = self.mount(dir);
            mounted.map_err(|errno| EmptyDirError::Mount { path: dir.to_owned(), source: errno.into() })?;
        }
        // New files inherit the directory's group.
        set_group(dir, group)
            .and_then(|()| fs::set_permissions(dir, fs::Permissions::from_mode(self.mode(group))))
            .map_err(|error| PathError::new("chmod", dir, error).into())
    }

    /// Returns the mode. A tmpfs has the sticky bit, which upstream keeps as the kernel sets it.
    fn mode(&self, group: Option<u32>) -> u32 {
        let sticky = if self.memory { 0o1000 } else { 0 };
        let set_group = if group.is_some() { 0o2000 } else { 0 };
        sticky | set_group | 0o777
    }

    /// Mounts a tmpfs without swap, if the kernel supports that (6.3).
    fn mount(&self, dir: &Path) -> nix::Result<()> {
        let size = self.limit.map(|bytes| format!("size={bytes}"));
        let tmpfs = |options: Vec<&str>| {
            mount(Some("tmpfs"), dir, Some("tmpfs"), MsFlags::empty(), Some(options.join(",").as_str()))
        };
        match tmpfs(size.as_deref().into_iter().chain(["noswap"]).collect()) {
            Err(Errno::EINVAL) => tmpfs(size.as_deref().into_iter().collect()),
            done => done,
        }
    }
}

impl Mounter for EmptyDir {
    fn set_up(&self, target: &MountTarget<'_>) -> Result<(), SetUpError> {
        self.set_up_at(target.dir, target.group()).map_err(SetUpError::plugin)
    }
}

/// Returns whether a directory of the Pod is a mount point: its device differs from its parent's.
fn is_mount_point(dir: &Path) -> io::Result<bool> {
    let parent = dir.parent().map_or_else(|| fs::metadata(dir), fs::metadata)?;
    Ok(fs::metadata(dir)?.dev() != parent.dev())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn empty_dir(source: serde_json::Value) -> Result<EmptyDir, EmptyDirError> {
        EmptyDir::new(&serde_json::from_value(source).unwrap(), Some(Amount::units(2 << 20)))
    }

    #[test]
    fn empty_dir_is_world_writable_and_keeps_its_files() {
        let dir = tempfile::tempdir().unwrap();
        let volume = dir.path().join("v");
        let task = empty_dir(json!({})).unwrap();
        task.set_up_at(&volume, None).unwrap();
        fs::write(volume.join("f"), "kept").unwrap();
        task.set_up_at(&volume, None).unwrap();
        assert_eq!(crate::host_file::read_text(volume.join("f")).unwrap(), "kept");
        assert_eq!(fs::metadata(&volume).unwrap().permissions().mode() & 0o7777, 0o777);
    }

    #[test]
    fn memory_volume_has_the_mode_of_a_tmpfs() {
        let mode = |source, group| empty_dir(source).unwrap().mode(group);
        assert_eq!((mode(json!({}), None), mode(json!({}), Some(4711))), (0o777, 0o2777));
        let memory = || json!({"medium": "Memory"});
        assert_eq!((mode(memory(), None), mode(memory(), Some(4711))), (0o1777, 0o3777));
        let (secret, config_map) = (EmptyDir::in_memory(None), EmptyDir::on_disk());
        assert_eq!((secret.mode(None), secret.mode(Some(4711))), (0o1777, 0o3777));
        assert_eq!((config_map.mode(None), config_map.mode(Some(4711))), (0o777, 0o2777));
    }

    #[test]
    fn unsupported_medium_is_named() {
        let error = empty_dir(json!({"medium": "HugePages"})).err().unwrap();
        assert!(matches!(error, EmptyDirError::UnsupportedMedium(medium) if medium == "HugePages"));
    }

    #[track_caller]
    fn check_limit(source: serde_json::Value, expected: Option<i64>) {
        assert_eq!(empty_dir(source).unwrap().limit, expected);
    }

    #[test]
    fn memory_volume_is_limited_by_size_and_pod_memory() {
        check_limit(json!({"medium": "Memory", "sizeLimit": "1Mi"}), Some(1 << 20));
        check_limit(json!({"medium": "Memory", "sizeLimit": "1Gi"}), Some(2 << 20));
        check_limit(json!({"medium": "Memory"}), Some(2 << 20));
        check_limit(json!({}), None);
    }
}
