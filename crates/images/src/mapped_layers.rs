//! Layers whose files belong to the IDs of a user namespace: ID-mapped mounts of the layers.
//!
//! Nothing is copied or changed: the kernel maps the owners (mount_setattr(2), `MOUNT_ATTR_IDMAP`). Overlayfs accepts such mounts as
//! lower directories since Linux 5.19. It does not take detached mounts before 6.15, so that they are attached until it has them.

use nix::mount::{MntFlags, umount2};
use rustix::{
    fs::CWD,
    mount::{MoveMountFlags, OpenTreeFlags, move_mount, open_tree},
};
use std::{
    io,
    os::fd::{AsFd, AsRawFd, OwnedFd},
    path::{Path, PathBuf},
};

/// ID-mapped mounts of layers, until an overlay is mounted over them. Dropping it unmounts them, and changes no overlay.
#[derive(Debug)]
pub struct MappedLayers {
    attach: PathBuf,
    mounts: Vec<OwnedFd>,
}

impl MappedLayers {
    /// Mounts layers, as [`crate::ImageStore::acquire`] returns them, with the mapping of a user namespace. `attach` is an empty
    /// directory, on which the mounts are stacked.
    ///
    /// # Errors
    /// If the kernel or the file system of a layer has no ID-mapped mounts.
    pub fn mount(layers: &[PathBuf], attach: &Path, user_namespace: impl AsFd) -> io::Result<Self> {
        let mut mapped = Self { attach: attach.to_owned(), mounts: Vec::new() };
        for layer in layers {
            let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
            let mount = open_tree(CWD, layer, flags)?;
            composefs_ioctls::mount::mount_setattr_idmap(&mount, &user_namespace).map_err(|error| {
                io::Error::new(error.kind(), format!("failed to map the IDs of {}: {error}", layer.display()))
            })?;
            move_mount(&mount, "", CWD, attach, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)?;
            mapped.mounts.push(mount);
        }
        Ok(mapped)
    }

    /// Returns paths of the mounts for an overlay, which are valid while this value lives.
    #[must_use]
    pub fn paths(&self) -> Vec<PathBuf> {
        self.mounts.iter().map(|mount| format!("/proc/self/fd/{}/.", mount.as_raw_fd()).into()).collect()
    }
}

impl Drop for MappedLayers {
    fn drop(&mut self) {
        for _ in &self.mounts {
            // The removal of the container unmounts what remains.
            let _ = umount2(&self.attach, MntFlags::MNT_DETACH | MntFlags::UMOUNT_NOFOLLOW);
        }
    }
}
