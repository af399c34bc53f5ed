//! Container statistics of the runtime.

/// Usage of a container's writable layer (CRI `FilesystemUsage`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ContainerDisk {
    /// Used bytes.
    pub bytes: u64,
    /// Used inodes.
    pub inodes: u64,
}
