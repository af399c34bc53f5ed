//! `local`: a directory of the node that is a volume of its own, bound to the Pod's directory
//! (upstream's `pkg/volume/local/local.go`).

use super::{make_dir, ownership::Ownership, removal};
use crate::{
    beneath::{self, through},
    os_error,
};
use nix::mount::{MsFlags, mount};
use std::{
    fs, io,
    os::unix::fs::{FileTypeExt, MetadataExt},
    path::{Path, PathBuf},
};

/// The directory, and whether the Pod may not write to it.
pub(super) struct Local {
    pub(super) path: PathBuf,
    pub(super) readonly: bool,
}

impl Local {
    /// Whether there is something that can be bound, in upstream's words.
    pub(super) fn check(&self) -> Result<(), String> {
        let path = self.path.display().to_string();
        match fs::metadata(&self.path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Err(format!("path {path:?} does not exist")),
            Err(e) => Err(format!("stat {path}: {}", os_error::words(&e))),
            Ok(meta) if meta.is_dir() => Ok(()),
            Ok(meta) if meta.file_type().is_block_device() => {
                Err(format!("path {path:?} is a block device, and local volumes of these are not supported yet"))
            }
            Ok(_) => Err("only directory and block device are supported".to_owned()),
        }
    }

    /// Binds it to the Pod's directory, once it is the group's. `pods` is where all Pods have their directories.
    pub(super) fn set_up(&self, dir: &Path, ownership: Option<Ownership>, pods: &Path) -> Result<(), String> {
        let failed = |e: io::Error| format!("{}: {}", self.path.display(), os_error::words(&e));
        // Whatever happens to its path from here on, what is given to the group is what is bound.
        let root = beneath::root(&self.path).map_err(failed)?;
        let ownership = ownership.filter(|_| !self.readonly);
        if let Some(ownership) = ownership.filter(|_| !is_used(&through(&root), pods)) {
            ownership.give(&root).map_err(failed)?;
        }
        make_dir(dir, 0o750)?;
        mount(Some(&through(&root)), dir, None::<&str>, MsFlags::MS_BIND, None::<&str>)
            .map_err(|e| format!("mounting {} at {}: {}", self.path.display(), dir.display(), e.desc().to_lowercase()))
    }
}

/// Whether a Pod has the directory mounted already: then its files are that Pod's to be used as they are.
fn is_used(path: &Path, pods: &Path) -> bool {
    let file = |path: &Path| fs::metadata(path).map(|meta| (meta.dev(), meta.ino())).ok();
    let (own, pods) = (file(path), fs::canonicalize(pods).unwrap_or_else(|_| pods.to_owned()));
    let mounts = removal::mount_points().unwrap_or_default();
    own.is_some() && mounts.iter().filter(|mount| mount.starts_with(&pods)).any(|mount| file(mount) == own)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_directory_that_is_there_can_be_bound() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("f"), "").unwrap();
        let check = |path: &str| Local { path: dir.path().join(path), readonly: false }.check();
        assert_eq!(check(""), Ok(()));
        assert_eq!(check("f").unwrap_err(), "only directory and block device are supported");
        assert!(check("none").unwrap_err().ends_with("/none\" does not exist"));
    }
}
