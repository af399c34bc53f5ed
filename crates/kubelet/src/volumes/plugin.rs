//! Interface of a type of volume (upstream's `pkg/volume/plugins.go` and `pkg/volume/volume.go`).

use super::{files_plugin::FilesPlugin, mount_error::SetUpError, ownership::VolumeOwnership};
use crate::{Shared, object_cache::ObjectCache};
use api::volume_source::{PERSISTENT_VOLUME_SOURCES, POD_SOURCES};
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::{HostPathVolumeSource, PersistentVolume, Volume};
use lifecycle::Pod;
use serde_json::json;
use std::path::{Path, PathBuf};

/// Volume to mount (upstream's `volume.Spec`): a volume of a Pod, or the PersistentVolume of its claim.
#[derive(Debug, Clone, Copy)]
pub(super) enum VolumeSpec<'a> {
    Volume(&'a Volume),
    PersistentVolume { volume: &'a PersistentVolume, read_only: bool },
}

impl<'a> VolumeSpec<'a> {
    /// Returns the volume, if it is not that of a claim.
    pub(super) fn volume(self) -> Option<&'a Volume> {
        match self {
            Self::Volume(volume) => Some(volume),
            Self::PersistentVolume { .. } => None,
        }
    }

    /// Returns the `hostPath` source, which both kinds of volumes can have.
    pub(super) fn host_path(self) -> Option<&'a HostPathVolumeSource> {
        match self {
            Self::Volume(volume) => volume.host_path.as_ref(),
            Self::PersistentVolume { volume, .. } => volume.spec.as_ref()?.host_path.as_ref(),
        }
    }

    /// Returns the `mountOptions` of a PersistentVolume.
    pub(super) fn mount_options(self) -> &'a [String] {
        match self {
            Self::Volume(_) => &[],
            Self::PersistentVolume { volume, .. } => {
                volume.spec.as_ref().and_then(|spec| spec.mount_options.as_deref()).unwrap_or_default()
            }
        }
    }

    /// Returns the API field of the volume's source.
    pub(super) fn source_name(self) -> &'static str {
        let (object, sources) = match self {
            Self::Volume(volume) => (json!(volume), &POD_SOURCES[..]),
            Self::PersistentVolume { volume, .. } => (json!(volume.spec), &PERSISTENT_VOLUME_SOURCES[..]),
        };
        sources.iter().find(|source| !object[**source].is_null()).copied().unwrap_or("unknown")
    }
}

/// Pod whose volumes are mounted, and the API objects that they refer to.
pub(super) struct MountContext<'a> {
    pub(super) shared: &'a Shared,
    pub(super) pod: &'a Pod,
    pub(super) objects: ObjectCache<'a>,
}

impl<'a> MountContext<'a> {
    pub(super) fn new(shared: &'a Shared, pod: &'a Pod) -> Self {
        Self { shared, pod, objects: ObjectCache::new(shared, pod.namespace()) }
    }
}

/// Result of [`VolumePlugin::new_mounter`].
pub(super) type NewMounter<'a> = BoxFuture<'a, Result<Box<dyn Mounter>, SetUpError>>;

/// A type of volume. The only list of implementations is `PLUGINS` (`plugins.rs`).
///
/// A plugin mounts at the volume's directory of the Pod, or puts a symbolic link there, and nowhere else. There is no
/// tear-down of a plugin's own: whatever is mounted at or below the directory is unmounted, and the rest is removed without
/// following mounts and links (`removal.rs`).
pub(super) trait VolumePlugin: Sync {
    /// Returns whether the volume has this type (`CanSupport`).
    fn can_support(&self, spec: VolumeSpec<'_>) -> bool;

    /// Prepares the mount, with everything that it needs from the API (`NewMounter`).
    fn new_mounter<'a>(&'a self, spec: VolumeSpec<'a>, context: &'a mut MountContext<'_>) -> NewMounter<'a>;

    /// Returns the path that containers mount (`GetPath`); `dir` is the volume's directory of the Pod. Volumes of claims are
    /// always there.
    fn path(&self, _volume: &Volume, dir: PathBuf) -> PathBuf {
        dir
    }

    /// Returns whether the disk usage of the volume is measured (`MetricsProvider`): not that of data of the node.
    fn has_metrics(&self) -> bool {
        true
    }

    /// Returns whether `mountOptions` of PersistentVolumes are accepted (`SupportsMountOption`).
    fn supports_mount_options(&self) -> bool {
        false
    }

    /// Returns the plugin as one whose files come from the API: its volumes are read-only, and refreshed when an object
    /// changes (`RequiresRemount`).
    fn files(&self) -> Option<&dyn FilesPlugin> {
        None
    }
}

/// Mount of one volume. It may block.
pub(super) trait Mounter: Send {
    /// Checks the source before it is mounted. An error is upstream's of `NewMounter`, another one that of `SetUp`.
    fn check(&self) -> Result<(), SetUpError> {
        Ok(())
    }

    /// Mounts the volume. Repeated after a restart of the kubelet and after the failure of another volume, so that existing
    /// data and mounts must be kept. That of a PersistentVolume is not repeated once something is at its directory.
    fn set_up(&self, target: &MountTarget<'_>) -> Result<(), SetUpError>;
}

/// Where a volume is mounted.
pub(super) struct MountTarget<'a> {
    /// The volume's directory of the Pod.
    pub(super) dir: &'a Path,
    /// The Pod's `fsGroup`.
    pub(super) ownership: Option<VolumeOwnership>,
    /// Directory of all Pods.
    pub(super) pods: &'a Path,
}

impl MountTarget<'_> {
    pub(super) fn group(&self) -> Option<u32> {
        self.ownership.map(VolumeOwnership::group)
    }
}
