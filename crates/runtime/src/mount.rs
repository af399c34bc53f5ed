//! Mounts of a container, and ID mappings.

use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// Mount of a container (CRI `Mount`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount {
    /// Path on the node; empty for an image.
    pub host_path: PathBuf,
    /// Image to mount instead of a path (image volume, KEP-4639).
    pub image: Option<ImageMount>,
    /// Path in the container.
    pub container_path: String,
    /// Whether the mount is read-only.
    pub readonly: bool,
    /// Whether submounts are read-only, too (`recursiveReadOnly`). Requires a read-only mount without propagation.
    pub recursive_read_only: bool,
    /// Mount propagation.
    pub propagation: Propagation,
}

/// Image volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageMount {
    /// Image ID of the runtime.
    pub image_ref: String,
    /// Image reference in the Pod's spec.
    pub image: String,
    /// Directory in the image (`subPath`); empty for the whole image.
    pub sub_path: String,
}

/// Mount propagation (`mountPropagation`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Propagation {
    /// `None`: no propagation.
    #[default]
    Private,
    /// From the node into the container.
    HostToContainer,
    /// In both directions.
    Bidirectional,
}

/// ID mapping of a user namespace (CRI `IDMapping`), for users and groups: container IDs start at 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct IdMapping {
    /// ID on the node of the container's ID 0.
    pub host_id: u32,
    /// Number of IDs.
    pub length: u32,
}
