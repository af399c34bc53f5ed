//! `local` volumes: a directory of the node that is bind-mounted to the Pod's directory (upstream's
//! `pkg/volume/local/local.go`).

use crate::{
    os_error::{self, PathError},
    safe_open::{self, proc_fd_path},
    volumes::{make_dir, ownership::VolumeOwnership, removal},
};
use nix::mount::{MsFlags, mount};
use std::{
    fs, io,
    os::unix::fs::{FileTypeExt, MetadataExt},
    path::{Path, PathBuf},
};

/// `local` volume.
pub(in crate::volumes) struct LocalVolume {
    pub(in crate::volumes) path: PathBuf,
    pub(in crate::volumes) readonly: bool,
}

/// Failure to mount a `local` volume, with upstream's message where it has one.
#[derive(Debug, thiserror::Error)]
pub(in crate::volumes) enum LocalVolumeError {
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
    /// Checks that the path is a directory, with upstream's messages.
    pub(in crate::volumes) fn check(&self) -> Result<(), LocalVolumeError> {
        let path = || self.path.display().to_string();
        match fs::metadata(&self.path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Err(LocalVolumeError::Missing(path())),
            Err(e) => Err(PathError::new("stat", &self.path, e).into()),
            Ok(meta) if meta.is_dir() => Ok(()),
            Ok(meta) if meta.file_type().is_block_device() => Err(LocalVolumeError::BlockDevice(path())),
            Ok(_) => Err(LocalVolumeError::NotDirectory),
        }
    }

    /// Sets the group and bind-mounts the directory to the Pod's directory. `pods` is the directory of all Pods.
    pub(in crate::volumes) fn set_up(
        &self,
        dir: &Path,
        ownership: Option<VolumeOwnership>,
        pods: &Path,
    ) -> Result<(), LocalVolumeError> {
        let io_error = |source| LocalVolumeError::Open { path: self.path.clone(), source };
        // The opened directory is mounted: its path may be replaced meanwhile.
        let root = safe_open::open_path(&self.path).map_err(io_error)?;
        let ownership = ownership.filter(|_| !self.readonly);
        if let Some(ownership) = ownership.filter(|_| !is_mounted_by_pod(&proc_fd_path(&root), pods)) {
            ownership.change_permissions(&root).map_err(io_error)?;
        }
        make_dir(dir, 0o750)?;
        mount(Some(&proc_fd_path(&root)), dir, None::<&str>, MsFlags::MS_BIND, None::<&str>).map_err(|errno| {
            LocalVolumeError::Mount { path: self.path.clone(), target: dir.to_owned(), source: errno.into() }
        })
    }
}

/// Returns whether a Pod has the directory mounted already; its ownership is then left alone.
fn is_mounted_by_pod(path: &Path, pods: &Path) -> bool {
    let file = |path: &Path| fs::metadata(path).map(|meta| (meta.dev(), meta.ino())).ok();
    let (file_id, pods) = (file(path), fs::canonicalize(pods).unwrap_or_else(|_| pods.to_owned()));
    let mounts = removal::mount_points().unwrap_or_default();
    file_id.is_some() && mounts.iter().filter(|mount| mount.starts_with(&pods)).any(|mount| file(mount) == file_id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn local_volume_must_be_an_existing_directory() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("f"), "").unwrap();
        let check = |path: &str| {
            let volume = LocalVolume { path: dir.path().join(path), readonly: false };
            volume.check().map_err(|e| e.to_string())
        };
        assert_eq!(check(""), Ok(()));
        assert_eq!(check("f").unwrap_err(), "only directory and block device are supported");
        assert!(check("none").unwrap_err().ends_with("/none\" does not exist"));
    }
}
