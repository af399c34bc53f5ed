//! Inputs of the translation.

use crate::{AppArmor, DeviceNode, ImageConfig, PodNamespaces, UserDatabase};
use runtime::{ContainerConfig, SandboxConfig};
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

/// All that determines the OCI configuration of a container, apart from the machine.
#[derive(Debug, Clone, Copy)]
pub struct ContainerContext<'a> {
    /// Container ID.
    pub id: &'a str,
    /// Sandbox ID.
    pub sandbox_id: &'a str,
    /// The container.
    pub config: &'a ContainerConfig,
    /// Its Pod.
    pub sandbox: &'a SandboxConfig,
    /// Configuration of the image.
    pub image: &'a ImageConfig,
    /// Users and groups of the image.
    pub users: UserDatabase<'a>,
    /// Namespaces that the container joins.
    pub namespaces: &'a PodNamespaces,
    /// Files of the Pod that each container gets.
    pub files: &'a PodFiles,
    /// What `config.mounts` mount, in the same order.
    pub mounts: &'a [MountSource],
    /// A fresh directory for each of [`crate::image_volumes`], by the path in the container. It has the files and the
    /// owner of the image's directory.
    pub volumes: &'a BTreeMap<String, PathBuf>,
    /// What `config.devices` are, in the same order.
    pub devices: &'a [DeviceSource],
    /// Whether kernel and OCI runtime have recursive read-only mounts (`rro` in `mountOptions` of `runc features`).
    pub recursive_read_only: bool,
    /// Content of the seccomp profile, or the error of reading it, if the profile is `Localhost`.
    pub seccomp_profile: Result<&'a [u8], &'a str>,
    /// AppArmor, whose profiles change while the engine runs; `None` if the kernel has none, or it is disabled.
    pub apparmor: Option<&'a AppArmor>,
}

/// Files of a Pod. `None` of a file: the image's own is used.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PodFiles {
    /// `/etc/hostname`.
    pub hostname: Option<PathBuf>,
    /// `/etc/hosts`, for a container without one among its mounts.
    pub hosts: Option<PathBuf>,
    /// `/etc/resolv.conf`.
    pub resolv_conf: Option<PathBuf>,
    /// The tmpfs of `/dev/shm`, shared by the containers. `None`: each container has its own.
    pub shm: Option<PathBuf>,
}

/// What a mount of a container mounts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MountSource {
    /// Existing path on the node without symbolic links; the directory of an image volume.
    pub path: PathBuf,
    /// Mount point that `path` is on.
    pub mount_point: PathBuf,
    /// Propagation of that mount.
    pub propagation: SourcePropagation,
}

impl MountSource {
    /// Returns a source on a private mount.
    #[must_use]
    pub fn new(path: impl AsRef<Path>) -> Self {
        let path = path.as_ref().to_path_buf();
        let (propagation, mount_point) = (SourcePropagation::Private, PathBuf::from("/"));
        Self { path, mount_point, propagation }
    }
}

/// Propagation of a mount of the node (optional fields of `/proc/self/mountinfo`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SourcePropagation {
    /// Neither.
    #[default]
    Private,
    /// `shared:`, also if it has a master.
    Shared,
    /// `master:`.
    Slave,
}

/// A device of a container, or a directory with devices.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeviceSource {
    /// Path on the node, without symbolic links.
    pub path: PathBuf,
    /// The device at `path`, or all devices below it. Without `pts`, `shm`, `fd`, `mqueue` and `console`.
    pub nodes: Vec<DeviceNode>,
}
