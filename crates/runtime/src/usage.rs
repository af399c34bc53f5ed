//! What containers use, as the runtime counts it.

use crate::ContainerId;

/// What a container has written to its root file system.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContainerDisk {
    /// The container.
    pub id: ContainerId,
    /// Bytes.
    pub bytes: u64,
    /// Inodes.
    pub inodes: u64,
}
