//! `local` volumes: a directory of the node that is bind-mounted to the Pod's directory (upstream's
//! `pkg/volume/local/local.go`).

use super::{make_dir, ownership::VolumeOwnership, removal};
use crate::{
    os_error,
    safe_open::{self, proc_fd_path},
};
use nix::mount::{MsFlags, mount};
use std::{
    fs, io,
    os::unix::fs::{FileTypeExt, MetadataExt},
    path::{Path, PathBuf},
};

/// `local` volume.
pub(super) struct LocalVolume {
    pub(super) path: PathBuf,
    pub(super) readonly: bool,
}

impl LocalVolume {
    /// Checks that the path is a directory, with upstream's messages.
    pub(super) fn check(&self) -> Result<(), String> {
        let path = self.path.display().to_string();
        match fs::metadata(&self.path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Err(format!("path {path:?} does not exist")),
            Err(e) => Err(format!("stat {path}: {}", os_error::message(&e))),
            Ok(meta) if meta.is_dir() => Ok(()),
            Ok(meta) if meta.file_type().is_block_device() => {
                Err(format!("path {path:?} is a block device, and local volumes of these are not supported yet"))
            }
            Ok(_) => Err("only directory and block device are supported".to_owned()),
        }
    }

    /// Sets the group and bind-mounts the directory to the Pod's directory. `pods` is the directory of all Pods.
    pub(super) fn set_up(&self, dir: &Path, ownership: Option<VolumeOwnership>, pods: &Path) -> Result<(), String> {
        let io_error = |e: io::Error| format!("{}: {}", self.path.display(), os_error::message(&e));
        // The opened directory is mounted: its path may be replaced meanwhile.
        let root = safe_open::open_path(&self.path).map_err(io_error)?;
        let ownership = ownership.filter(|_| !self.readonly);
        if let Some(ownership) = ownership.filter(|_| !is_mounted_by_pod(&proc_fd_path(&root), pods)) {
            ownership.change_permissions(&root).map_err(io_error)?;
        }
        make_dir(dir, 0o750)?;
        mount(Some(&proc_fd_path(&root)), dir, None::<&str>, MsFlags::MS_BIND, None::<&str>)
            .map_err(|e| format!("mounting {} at {}: {}", self.path.display(), dir.display(), e.desc().to_lowercase()))
    }
}

/// Returns whether a Pod has the directory mounted already; its ownership is then left alone.
fn is_mounted_by_pod(path: &Path, pods: &Path) -> bool {
    let file = |path: &Path| fs::metadata(path).map(|meta| (meta.dev(), meta.ino())).ok();
    let (own, pods) = (file(path), fs::canonicalize(pods).unwrap_or_else(|_| pods.to_owned()));
    let mounts = removal::mount_points().unwrap_or_default();
    own.is_some() && mounts.iter().filter(|mount| mount.starts_with(&pods)).any(|mount| file(mount) == own)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn local_volume_must_be_an_existing_directory() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("f"), "").unwrap();
        let check = |path: &str| LocalVolume { path: dir.path().join(path), readonly: false }.check();
        assert_eq!(check(""), Ok(()));
        assert_eq!(check("f").unwrap_err(), "only directory and block device are supported");
        assert!(check("none").unwrap_err().ends_with("/none\" does not exist"));
    }
}
