//! What containers use, as the runtime counts it.

/// What a container has written to its root file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ContainerDisk {
    /// Bytes.
    pub bytes: u64,
    /// Inodes.
    pub inodes: u64,
}
