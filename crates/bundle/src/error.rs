//! Errors of the translation. Users see their texts in the events and the status of a container
//! (`CreateContainerError`).

use std::path::PathBuf;

/// A container has no valid OCI configuration. Where containerd has a text, it is containerd's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Neither the container nor the image has a command.
    #[error("no command specified")]
    NoCommand,
    /// A string that the kernel gets has a NUL byte.
    #[error("{0} contains a NUL byte")]
    Nul(&'static str),
    /// The working directory is relative.
    #[error("Cwd must be an absolute path: {0:?}")]
    RelativeWorkingDir(String),
    /// A privileged container in a Pod that was not declared as such.
    #[error("no privileged container allowed in sandbox")]
    Privileged,

    /// A capability that Linux does not have.
    #[error("unknown capability to {action}: {name:?}")]
    UnknownCapability {
        /// `add` or `drop`.
        action: &'static str,
        /// The name, with the prefix `CAP_`.
        name: String,
    },
    /// A capability that this process cannot give.
    #[error("capability not supported by your kernel or not available in the current environment: {0:?}")]
    UnavailableCapability(String),

    /// `runAsGroup` without a user.
    #[error("user group \"{0}\" is specified without user")]
    GroupWithoutUser(i64),
    /// A user or group ID that is negative, or larger than 2³¹-1.
    #[error("invalid USER value {user:?}: {id} out of range")]
    UserOutOfRange {
        /// User, with an optional group.
        user: String,
        /// `uid` or `gid`.
        id: &'static str,
    },
    /// A user with more than one colon.
    #[error("invalid USER value {0}")]
    InvalidUser(String),
    /// `/etc/passwd` of the image does not have the user.
    #[error("unable to find user {0}: no users found")]
    NoUser(String),
    /// `/etc/group` of the image does not have the group.
    #[error("unable to find group {0}: no groups found")]
    NoGroup(String),
    /// A file of the image with users or groups is too large.
    #[error("{path} exceeds {limit} bytes")]
    UserFileTooLarge {
        /// Path in the image.
        path: &'static str,
        /// Limit in bytes.
        limit: usize,
    },
    /// A supplemental group that is no group ID.
    #[error("supplemental group {0} out of range")]
    GroupOutOfRange(i64),
    /// More groups than a process can have.
    #[error("the user has {0} groups, the kernel allows 65536")]
    TooManyGroups(usize),

    /// `mountPropagation: Bidirectional` of a path that is not on a shared mount.
    #[error("path {path:?} is mounted on {mount_point:?} but it is not a shared mount")]
    NotShared {
        /// Path on the node.
        path: PathBuf,
        /// Its mount point.
        mount_point: PathBuf,
    },
    /// `mountPropagation: HostToContainer` of a path that is on a private mount.
    #[error("path {path:?} is mounted on {mount_point:?} but it is not a shared or slave mount")]
    NotSharedOrSlave {
        /// Path on the node.
        path: PathBuf,
        /// Its mount point.
        mount_point: PathBuf,
    },
    /// `recursiveReadOnly` is not supported by the kernel or the OCI runtime.
    #[error("RROUnsupported: runtime handler does not support recursive read-only mounts (hostPath={0:?})")]
    RecursiveReadOnly(PathBuf),
    /// `recursiveReadOnly` with propagation.
    #[error("recursive read-only mount needs private propagation, got {propagation:?} (hostPath={path:?})")]
    RecursiveReadOnlyPropagation {
        /// The CRI's name of the propagation.
        propagation: &'static str,
        /// Path on the node.
        path: PathBuf,
    },
    /// `recursiveReadOnly` of a writable mount.
    #[error("recursive read-only mount conflicts with RW mount (hostPath={0:?})")]
    RecursiveReadOnlyWritable(PathBuf),
    /// The caller did not resolve what is mounted.
    #[error("failed to find the source of the mount at {0:?}")]
    NoMountSource(String),
    /// The caller did not resolve a device.
    #[error("failed to find the device {0:?}")]
    NoDevice(PathBuf),

    /// The Pod and its container have different user namespaces.
    #[error("user namespace config for sandbox is different from container")]
    UserNamespaceMismatch,
    /// The mapping of a user namespace is empty, or exceeds the range of IDs.
    #[error("user namespace configuration: invalid mapping of {length} IDs from {host_id}")]
    UserNamespaceMapping {
        /// First ID on the node.
        host_id: u32,
        /// Number of IDs.
        length: u32,
    },

    /// The kernel has no seccomp.
    #[error("seccomp is not supported")]
    SeccompUnsupported,
    /// The caller could not read a `Localhost` profile.
    #[error("cannot load seccomp profile {path:?}: {cause}")]
    LoadSeccomp {
        /// Path on the node.
        path: PathBuf,
        /// Cause.
        cause: String,
    },
    /// A `Localhost` profile is invalid.
    #[error("decoding seccomp profile failed {path:?}: {cause}")]
    DecodeSeccomp {
        /// Path on the node.
        path: PathBuf,
        /// Cause.
        cause: String,
    },
    /// The node has no AppArmor.
    #[error("apparmor is not supported")]
    AppArmorUnsupported,
    /// A container that names `RuntimeDefault`, on a node without a default profile.
    #[error("default apparmor profile is not loaded: {0}")]
    NoDefaultAppArmorProfile(String),
    /// A `Localhost` profile without a name.
    #[error("nil apparmor profile is not supported")]
    NoAppArmorProfile,
    /// A `Localhost` profile that is not loaded.
    #[error("apparmor profile not found {0}")]
    AppArmorProfileNotFound(String),

    /// A resource limit that must not be negative.
    #[error("invalid {name}: {value} is negative")]
    NegativeLimit {
        /// Name of the limit.
        name: &'static str,
        /// Its value.
        value: i64,
    },
    /// A sysctl that is not of the Pod's namespaces.
    #[error("sysctl {0:?} is not in a separate kernel namespace")]
    Sysctl(String),
    /// A sysctl of a namespace that the Pod shares with the node.
    #[error("sysctl {name:?} not allowed in host {namespace} namespace")]
    HostSysctl {
        /// Name of the sysctl.
        name: String,
        /// `network`, `ipc` or `uts`.
        namespace: &'static str,
    },
    /// A sysctl that is a field of the Pod.
    #[error("sysctl {0:?} is not allowed as it conflicts with the OCI \"hostname\" field")]
    HostnameSysctl(String),

    /// The image's configuration is invalid.
    #[error("failed to parse the configuration of the image: {0}")]
    ImageConfig(String),
    /// There is no program for the sandbox container.
    #[error("a sandbox container needs an x86-64 or AArch64 processor")]
    PauseProgram,
    /// The configuration cannot be written as JSON.
    #[error("failed to encode the OCI configuration: {0}")]
    Encode(String),
}
