//! Provisioner of node-local volumes: a directory for each claim.
//!
//! The controller decides; [`VolumeDirectories`] creates and deletes the directories.

use api::persistent_volume_claim::{
    BOUND_BY_CONTROLLER, PROVISIONED_BY, SELECTED_NODE, annotation, bind_volume_to_claim, requested_storage,
};
use k8s_openapi::api::{
    core::v1::{PersistentVolume, PersistentVolumeClaim},
    storage::v1::StorageClass,
};
use serde_json::json;
use std::{
    fmt, io,
    path::{Path, PathBuf},
    sync::Arc,
};

/// Finalizer that keeps the volume until its directory is deleted (KEP-2644).
pub(super) const FINALIZER: &str = "kubernetes.io/pv-controller";

/// Why no volume is provisioned, for the claim's Event.
#[derive(Debug, thiserror::Error)]
pub(super) enum VolumeError {
    #[error("volumes of {provisioner:?} are on node {node:?} only, not on {selected:?}")]
    OtherNode { provisioner: String, node: String, selected: String },
    #[error("invalid option {option:?} for {provisioner:?}")]
    Parameter { provisioner: String, option: String },
    #[error(
        "Mount options are not supported by the provisioner but StorageClass {class:?} has mount options {options:?}"
    )]
    MountOptions { class: String, options: Vec<String> },
    #[error("{0:?} does not support block volume provisioning")]
    BlockVolume(String),
    #[error("claim.Spec.Selector is not supported")]
    Selector,
    #[error("{0:?} does not support data sources")]
    DataSource(String),
    #[error("failed to create volume {volume:?}: {source}")]
    Create { volume: String, source: io::Error },
    #[error("the claim of {0:?} has no spec")]
    MissingSpec(String),
}

/// Storage of the volumes' directories. Methods may block.
pub trait VolumeDirectories: Send + Sync {
    /// Creates the directory of a volume, writable for everyone, unless it exists.
    ///
    /// # Errors
    ///
    /// If the directory cannot be created.
    fn create(&self, volume: &str) -> io::Result<PathBuf>;

    /// Deletes the directory of a volume, which is at `path` according to the API, unless it is gone.
    ///
    /// # Errors
    ///
    /// If the directory is elsewhere, or cannot be deleted completely.
    fn remove(&self, volume: &str, path: &Path) -> io::Result<()>;
}

/// Provisions volumes for claims of its classes. Clones share the directories.
#[derive(Clone)]
pub struct Provisioner {
    name: Arc<str>,
    node: Arc<str>,
    directories: Arc<dyn VolumeDirectories>,
}

impl Provisioner {
    /// Creates a provisioner by the name that classes use, for directories on a node.
    pub fn new(name: &str, node: &str, directories: impl VolumeDirectories + 'static) -> Self {
        Self { name: name.into(), node: node.into(), directories: Arc::new(directories) }
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Returns whether this provisioner created the volume.
    pub(super) fn provisioned(&self, volume: &PersistentVolume) -> bool {
        annotation(&volume.metadata, PROVISIONED_BY) == Some(&self.name)
    }

    /// Checks that the provisioner supports the claim.
    fn check_supported(&self, claim: &PersistentVolumeClaim, class: &StorageClass) -> Result<(), VolumeError> {
        let Some(spec) = claim.spec.as_ref() else { return Ok(()) };
        let provisioner = self.name.to_string();
        if let Some(other) = annotation(&claim.metadata, SELECTED_NODE).filter(|node| *node != &*self.node) {
            let (node, selected) = (self.node.to_string(), other.to_owned());
            return Err(VolumeError::OtherNode { provisioner, node, selected });
        }
        if let Some(unknown) = class.parameters.iter().flatten().map(|(key, _)| key).next() {
            return Err(VolumeError::Parameter { provisioner, option: unknown.clone() });
        }
        if let Some(options) = class.mount_options.as_ref().filter(|options| !options.is_empty()) {
            let class = class.metadata.name.clone().unwrap_or_default();
            return Err(VolumeError::MountOptions { class, options: options.clone() });
        }
        if spec.volume_mode.as_deref() == Some("Block") {
            return Err(VolumeError::BlockVolume(provisioner));
        }
        if spec.selector.is_some() {
            return Err(VolumeError::Selector);
        }
        if spec.data_source.is_some() || spec.data_source_ref.is_some() {
            return Err(VolumeError::DataSource(provisioner));
        }
        Ok(())
    }

    /// Creates the directory of a claim's volume, and returns the volume object.
    ///
    /// # Errors
    ///
    /// If the claim is not supported, or the directory cannot be created.
    pub(super) async fn make(
        &self,
        claim: &PersistentVolumeClaim,
        class: &StorageClass,
    ) -> Result<PersistentVolume, VolumeError> {
        self.check_supported(claim, class)?;
        // The name is derived from the claim, so that an interrupted provisioning is resumed.
        let name = format!("pvc-{}", claim.metadata.uid.as_deref().unwrap_or_default());
        let directories = Arc::clone(&self.directories);
        let made = blocking(&name, move |name| directories.create(name)).await;
        let path = made.map_err(|source| VolumeError::Create { volume: name.clone(), source })?;
        self.object(&name, &path, claim, class).ok_or(VolumeError::MissingSpec(name))
    }

    fn object(
        &self,
        name: &str,
        path: &Path,
        claim: &PersistentVolumeClaim,
        class: &StorageClass,
    ) -> Option<PersistentVolume> {
        let policy = class.reclaim_policy.as_deref().unwrap_or("Delete");
        let here = json!({"key": "kubernetes.io/hostname", "operator": "In", "values": [&*self.node]});
        let volume = json!({
            "metadata": {
                "name": name,
                "annotations": {PROVISIONED_BY: &*self.name, BOUND_BY_CONTROLLER: "yes"},
                "finalizers": if policy == "Delete" { vec![FINALIZER] } else { vec![] },
            },
            "spec": {
                "capacity": {"storage": requested_storage(claim).to_binary_quantity()},
                "accessModes": claim.spec.as_ref()?.access_modes,
                "persistentVolumeReclaimPolicy": policy,
                "storageClassName": class.metadata.name,
                "volumeMode": "Filesystem",
                "local": {"path": path},
                "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [here]}]}},
            },
        });
        let volume = decode::from_value(&volume).ok()?;
        bind_volume_to_claim(&volume, claim)
    }

    /// Deletes the data of a volume.
    ///
    /// # Errors
    ///
    /// If the data cannot be deleted completely.
    pub(super) async fn remove(&self, volume: &PersistentVolume) -> io::Result<()> {
        let local = volume.spec.as_ref().and_then(|spec| spec.local.as_ref());
        let path = PathBuf::from(local.map(|local| local.path.as_str()).unwrap_or_default());
        let directories = Arc::clone(&self.directories);
        let name = volume.metadata.name.as_deref().unwrap_or_default();
        blocking(name, move |name| directories.remove(name, &path)).await
    }
}

async fn blocking<T: Send + 'static>(
    name: &str,
    work: impl FnOnce(&str) -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    let name = name.to_owned();
    tokio::task::spawn_blocking(move || work(&name)).await.map_err(io::Error::other)?
}

impl fmt::Debug for Provisioner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Provisioner").field("name", &self.name).field("node", &self.node).finish_non_exhaustive()
    }
}
