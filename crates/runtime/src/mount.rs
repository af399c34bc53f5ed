//! What is mounted into a container, and as whose.

use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// A mount into a container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount {
    /// Path on the node; empty for an image.
    pub host_path: PathBuf,
    /// An image to mount instead of a path (KEP-4639).
    pub image: Option<ImageMount>,
    /// Path in the container.
    pub container_path: String,
    /// Whether the container may not write.
    pub readonly: bool,
    /// How later mounts travel between node and container.
    pub propagation: Propagation,
}

/// An image that is mounted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageMount {
    /// The runtime's id for it.
    pub image_ref: String,
    /// As the Pod names it.
    pub image: String,
    /// A directory in it; empty for all of it.
    pub sub_path: String,
}

/// How mounts travel (`mountPropagation`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Propagation {
    /// Not at all.
    #[default]
    Private,
    /// From the node into the container.
    HostToContainer,
    /// Both ways.
    Bidirectional,
}

/// Users, and groups of the same numbers, of a container: those from 0 on are others on the node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct IdMapping {
    /// What 0 is on the node.
    pub host_id: u32,
    /// How many there are.
    pub length: u32,
}
