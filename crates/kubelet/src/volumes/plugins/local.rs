//! `local` volumes: a directory of the node that is bind-mounted to the Pod's directory (upstream's
//! `pkg/volume/local/local.go`).

use crate::{
    os_error::{self, PathError},
    safe_open::{self, proc_fd_path},
    volumes::{
        make_dir,
        mount_error::SetUpError,
        plugin::{MountContext, MountTarget, Mounter, NewMounter, VolumePlugin, VolumeSpec},
    },
};
use futures::{FutureExt, future::ready};
use k8s_openapi::api::core::v1::LocalVolumeSource;
use nix::mount::{MsFlags, mount};
use std::{
    fs, io,
    os::unix::fs::{FileTypeExt, MetadataExt},
    path::{Path, PathBuf},
};

pub(super) struct LocalPlugin;

impl VolumePlugin for LocalPlugin {
    fn can_support(&self, spec: VolumeSpec<'_>) -> bool {
        local_source(spec).is_some()
    }

    fn new_mounter<'a>(&'a self, spec: VolumeSpec<'a>, _: &'a mut MountContext<'_>) -> NewMounter<'a> {
        ready(LocalVolume::new(spec).map(|volume| Box::new(volume) as Box<dyn Mounter>)).boxed()
    }

    fn supports_mount_options(&self) -> bool {
        true
    }
}

/// Returns the source of a `local` volume, and whether it is read-only.
fn local_source(spec: VolumeSpec<'_>) -> Option<(&LocalVolumeSource, bool)> {
    let VolumeSpec::PersistentVolume { volume, read_only } = spec else { return None };
    Some((volume.spec.as_ref()?.local.as_ref()?, read_only))
}

/// `local` volume.
struct LocalVolume {
    path: PathBuf,
    read_only: bool,
}

/// Failure to mount a `local` volume, with upstream's message where it has one.
#[derive(Debug, thiserror::Error)]
enum LocalVolumeError {
    #[error("mountOptions of local volumes are not supported yet")]
    MountOptions,
    #[error("path {0:?} does not exist")]
    Missing(String),
    #[error("path {0:?} is a block device, and local volumes of these are not supported yet")]
    BlockDevice(String),
    #[error("only directory and block device are supported")]
    NotDirectory,
    /// The directory cannot be opened, or its group cannot be set.
    #[error("{}: {}", .path.display(), os_error::message(.source))]
    Open { path: PathBuf, source: io::Error },
    #[error("mounting {} at {}: {}", .path.display(), .target.display(), os_error::message(.source))]
    Mount { path: PathBuf, target: PathBuf, source: io::Error },
    #[error(transparent)]
    Path(#[from] PathError),
}

impl LocalVolume {
    fn new(spec: VolumeSpec<'_>) -> Result<Self, SetUpError> {
        let (source, read_only) = local_source(spec).ok_or(SetUpError::UnsupportedType(spec.source_name()))?;
        if !spec.mount_options().is_empty() {
            return Err(SetUpError::plugin(LocalVolumeError::MountOptions));
        }
        Ok(Self { path: PathBuf::from(&source.path), read_only })
    }

    /// Checks that the path is a directory, with upstream's messages.
    fn check_path(&self) -> Result<(), LocalVolumeError> {
        let path = || self.path.display().to_string();
        match fs::metadata(&self.path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Err(LocalVolumeError::Missing(path())),
            Err(e) => Err(PathError::new("stat", &self.path, e).into()),
            Ok(meta) if meta.is_dir() => Ok(()),
            Ok(meta) if meta.file_type().is_block_device() => Err(LocalVolumeError::BlockDevice(path())),
            Ok(_) => Err(LocalVolumeError::NotDirectory),
        }
    }

    /// Sets the group and bind-mounts the directory to the Pod's directory.
    fn bind(&self, target: &MountTarget<'_>) -> Result<(), LocalVolumeError> {
        let io_error = |source| LocalVolumeError::Open { path: self.path.clone(), source };
        // The opened directory is mounted: its path may be replaced meanwhile.
        let root = safe_open::open_path(&self.path).map_err(io_error)?;
        let ownership = target.ownership.filter(|_| !self.read_only);
        if let Some(ownership) = ownership.filter(|_| !is_mounted_by_pod(&proc_fd_path(&root), target.pods)) {
            ownership.change_permissions(&root).map_err(io_error)?;
        }
        make_dir(target.dir, 0o750)?;
        mount(Some(&proc_fd_path(&root)), target.dir, None::<&str>, MsFlags::MS_BIND, None::<&str>).map_err(|errno| {
            LocalVolumeError::Mount { path: self.path.clone(), target: target.dir.to_owned(), source: errno.into() }
        })
    }
}

impl Mounter for LocalVolume {
    fn check(&self) -> Result<(), SetUpError> {
        self.check_path().map_err(SetUpError::plugin)
    }

    fn set_up(&self, target: &MountTarget<'_>) -> Result<(), SetUpError> {
        self.bind(target).map_err(SetUpError::plugin)
    }
}

/// Returns whether a Pod has the directory mounted already; its ownership is then left alone.
fn is_mounted_by_pod(path: &Path, pods: &Path) -> bool {
    let file = |path: &Path| fs::metadata(path).map(|meta| (meta.dev(), meta.ino())).ok();
    let (file_id, pods) = (file(path), fs::canonicalize(pods).unwrap_or_else(|_| pods.to_owned()));
    let mounts = files::mounts::mounts().unwrap_or_default();
    let of_pods = mounts.iter().map(|mount| mount.path.as_path()).filter(|path| path.starts_with(&pods));
    file_id.is_some() && of_pods.into_iter().any(|path| file(path) == file_id)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::volumes::mount_error::MountError;
    use serde_json::{Value, json};

    #[test]
    fn mount_options_of_local_volumes_are_reported() {
        let volume = |options: Value| {
            let spec = json!({"local": {"path": "/d"}, "mountOptions": options, "accessModes": ["ReadWriteOnce"]});
            let volume = serde_json::from_value(json!({"metadata": {"name": "pv"}, "spec": spec})).unwrap();
            let created = LocalVolume::new(VolumeSpec::PersistentVolume { volume: &volume, read_only: false });
            created.map(|volume| volume.path).map_err(|error| MountError::set_up("pv", error).to_string())
        };
        assert_eq!(volume(json!([])), Ok(PathBuf::from("/d")));
        let expected =
            "MountVolume.SetUp failed for volume \"pv\" : mountOptions of local volumes are not supported yet";
        assert_eq!(volume(json!(["noatime"])), Err(expected.to_owned()));
    }

    #[test]
    fn local_volume_must_be_an_existing_directory() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("f"), "").unwrap();
        let check = |path: &str| {
            let volume = LocalVolume { path: dir.path().join(path), read_only: false };
            volume.check_path().map_err(|e| e.to_string())
        };
        assert_eq!(check(""), Ok(()));
        assert_eq!(check("f").unwrap_err(), "only directory and block device are supported");
        assert!(check("none").unwrap_err().ends_with("/none\" does not exist"));
    }
}
