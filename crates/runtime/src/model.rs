//! Types of the [`Runtime`](crate::Runtime) trait: the messages of the CRI, independent of its wire format.

use crate::{IdMapping, Mount, StopSignal};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, net::IpAddr, path::PathBuf};

/// Labels of sandboxes and containers, with the kubelet's keys (`pkg/kubelet/types/labels.go`).
pub mod labels {
    /// `metadata.name` of the Pod.
    pub const POD_NAME: &str = "io.kubernetes.pod.name";
    /// `metadata.namespace` of the Pod.
    pub const POD_NAMESPACE: &str = "io.kubernetes.pod.namespace";
    /// `metadata.uid` of the Pod.
    pub const POD_UID: &str = "io.kubernetes.pod.uid";
    /// Owner of the sandbox: the data directory of its cluster.
    pub const OWNER: &str = "podium.data-dir";
    /// The container's name in the Pod's spec.
    pub const CONTAINER_NAME: &str = "io.kubernetes.container.name";
    /// Annotation with the container's image in the Pod's spec. Upstream stores a hash of the spec.
    pub const IMAGE: &str = "podium.image";
}

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub String);

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}
id!(
    /// Sandbox ID of the runtime.
    SandboxId
);
id!(
    /// Container ID of the runtime (without the scheme of the API, for example `containerd://`).
    ContainerId
);

/// Error of a runtime call.
#[derive(Debug, Clone, thiserror::Error)]
pub enum RuntimeError {
    /// The object does not exist. Not retryable.
    #[error("{0}")]
    NotFound(String),
    /// The name is already used: an earlier attempt succeeded after its deadline. The caller lists and adopts the object.
    #[error("{0}")]
    AlreadyExists(String),
    /// The call exceeded its deadline.
    #[error("{0}")]
    Deadline(String),
    /// The runtime does not respond. Retryable with backoff.
    #[error("container runtime is unreachable: {0}")]
    Unavailable(String),
    /// The runtime does not implement the call.
    #[error("{0}")]
    Unimplemented(String),
    /// Error text of the runtime.
    #[error("{0}")]
    Failed(String),
}

/// Creator of the cgroups of containers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CgroupDriver {
    /// The runtime writes to the cgroup file system.
    Cgroupfs,
    /// systemd, which the runtime calls.
    Systemd,
}

/// Name and version of a runtime.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Version {
    /// Runtime name, for example `containerd`.
    pub name: String,
    /// Runtime version, for example `1.6.20`.
    pub version: String,
}

/// Conditions and handlers of the runtime (CRI `RuntimeStatus`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuntimeStatus {
    /// Reason why the runtime is not ready; `None` if it is ready.
    pub runtime_not_ready: Option<String>,
    /// Reason why the Pod network is not ready; `None` if it is ready.
    pub network_not_ready: Option<String>,
    /// Runtime handlers; empty before CRI 1.30.
    pub handlers: Vec<Handler>,
    /// Whether [`SupplementalGroupsPolicy::Strict`] is supported (KEP-3619).
    pub supplemental_groups_policy: bool,
}

/// Runtime handler (`handler` of a RuntimeClass).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Handler {
    /// Name; empty for the default handler.
    pub name: String,
    /// Whether recursive read-only mounts are supported (KEP-3857).
    pub recursive_read_only_mounts: bool,
    /// Whether user namespaces are supported (KEP-127).
    pub user_namespaces: bool,
}

/// Namespace mode (CRI `NamespaceMode`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum NamespaceMode {
    /// Shared by the containers of the Pod.
    #[default]
    Pod,
    /// Private to the container.
    Container,
    /// Namespace of the node.
    Node,
}

/// Namespaces of a Pod (CRI `NamespaceOption`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Namespaces {
    /// Network: `Pod` or `Node` (`hostNetwork`).
    pub network: NamespaceMode,
    /// Processes: `Container`, `Pod` (`shareProcessNamespace`) or `Node` (`hostPID`).
    pub pid: NamespaceMode,
    /// System V IPC: `Pod` or `Node` (`hostIPC`).
    pub ipc: NamespaceMode,
    /// ID mapping of the user namespace (`hostUsers: false`); `None` for the node's user namespace.
    pub users: Option<IdMapping>,
}

/// Configuration of a sandbox (CRI `PodSandboxConfig`).
#[derive(Debug, Clone, Default)]
pub struct SandboxConfig {
    /// Pod name.
    pub name: String,
    /// Pod namespace.
    pub namespace: String,
    /// Pod UID.
    pub uid: String,
    /// Attempt: number of earlier sandboxes of the Pod.
    pub attempt: u32,
    /// Host name; empty with the node's network.
    pub hostname: String,
    /// Directory of the containers' log files.
    pub log_directory: PathBuf,
    /// `resolv.conf`; with `None` the runtime copies the node's.
    pub dns: Option<Dns>,
    /// Host ports of the Pod.
    pub port_mappings: Vec<PortMapping>,
    /// Labels in addition to [`labels`], which the implementation adds.
    pub labels: BTreeMap<String, String>,
    /// Annotations.
    pub annotations: BTreeMap<String, String>,
    /// Parent cgroup of the Pod, for example `/kubepods/burstable/pod<uid>`; `None` for the runtime's default.
    pub cgroup_parent: Option<String>,
    /// Namespaces of the Pod.
    pub namespaces: Namespaces,
    /// Sysctls of the Pod.
    pub sysctls: BTreeMap<String, String>,
    /// Numeric user of the pause process.
    pub run_as_user: Option<i64>,
    /// Numeric group of the pause process; requires a user.
    pub run_as_group: Option<i64>,
    /// Supplemental groups of the pause process.
    pub supplemental_groups: Vec<i64>,
    /// Whether the Pod has a privileged container.
    pub privileged: bool,
    /// Handler of the Pod's RuntimeClass; empty for the runtime's default.
    pub runtime_handler: String,
}

/// DNS configuration of a sandbox.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Dns {
    /// Name servers.
    pub servers: Vec<String>,
    /// Search domains.
    pub searches: Vec<String>,
    /// Options.
    pub options: Vec<String>,
}

/// Host port of a Pod (CRI `PortMapping`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PortMapping {
    /// `TCP`, `UDP` or `SCTP`.
    pub protocol: String,
    /// Container port.
    pub container_port: u16,
    /// Host port.
    pub host_port: u16,
    /// Host IP; empty for all addresses.
    pub host_ip: String,
}

/// Status of a sandbox (CRI `PodSandboxStatus`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SandboxStatus {
    /// Sandbox ID.
    pub id: SandboxId,
    /// Pod UID.
    pub uid: String,
    /// Pod name.
    pub name: String,
    /// Pod namespace.
    pub namespace: String,
    /// Attempt: number of earlier sandboxes of the Pod.
    pub attempt: u32,
    /// Whether the sandbox is ready (`SANDBOX_READY`).
    pub ready: bool,
    /// Creation time.
    pub created_at: Timestamp,
    /// Addresses of the Pod, the primary one first; empty with the node's network and in lists.
    pub ips: Vec<IpAddr>,
}

/// Configuration of a container (CRI `ContainerConfig`).
#[derive(Debug, Clone, Default)]
pub struct ContainerConfig {
    /// The container's name in the Pod.
    pub name: String,
    /// Attempt: the restart count.
    pub attempt: u32,
    /// Image reference resolved by [`crate::Runtime::image`] or [`crate::Runtime::pull_image`].
    pub image_ref: String,
    /// Image in the Pod's spec.
    pub image: String,
    /// Entry point; empty for the image's.
    pub command: Vec<String>,
    /// Arguments; empty for the image's, unless `command` is set.
    pub args: Vec<String>,
    /// Working directory; empty for the image's.
    pub working_dir: String,
    /// Environment, in order.
    pub env: Vec<(String, String)>,
    /// Mounts, in order.
    pub mounts: Vec<Mount>,
    /// Device nodes of the host.
    pub devices: Vec<Device>,
    /// Labels in addition to [`labels`].
    pub labels: BTreeMap<String, String>,
    /// Annotations.
    pub annotations: BTreeMap<String, String>,
    /// Log file, relative to the sandbox's log directory.
    pub log_path: PathBuf,
    /// Whether stdin stays open.
    pub stdin: bool,
    /// Whether stdin closes after the first attach ends.
    pub stdin_once: bool,
    /// Whether the process has a terminal.
    pub tty: bool,
    /// cgroup limits.
    pub resources: LinuxResources,
    /// Security context of the process.
    pub security: SecurityContext,
    /// Stop signal that overrides the image's. Ignored by runtimes before CRI 1.33.
    pub stop_signal: Option<StopSignal>,
}

/// A device node of the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Device {
    /// Path on the node.
    pub host_path: PathBuf,
    /// Path in the container.
    pub container_path: PathBuf,
    /// cgroup permissions: any of `r`, `w`, `m`.
    pub permissions: String,
}

/// cgroup limits of a container or Pod (CRI `LinuxContainerResources`). Zero keeps the kernel's default.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct LinuxResources {
    /// CFS period in µs.
    pub cpu_period: i64,
    /// CFS quota in µs per period; -1 for none.
    pub cpu_quota: i64,
    /// Relative CPU weight (cgroup v1 scale, 2 to 262,144).
    pub cpu_shares: i64,
    /// Memory limit in bytes.
    pub memory_limit: i64,
    /// OOM score adjustment, -1,000 to 1,000.
    pub oom_score_adj: i64,
    /// `cpuset.cpus`; empty for all.
    pub cpuset_cpus: String,
    /// `cpuset.mems`; empty for all.
    pub cpuset_mems: String,
    /// Huge page limits in bytes by page size (`2MB`).
    pub hugepage_limits: BTreeMap<String, u64>,
    /// Additional cgroup v2 files, by name (`unified`).
    pub unified: BTreeMap<String, String>,
}

/// Security context of a container (CRI `LinuxContainerSecurityContext`).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SecurityContext {
    /// Numeric user; takes precedence over `username`.
    pub run_as_user: Option<i64>,
    /// Numeric group; requires a user.
    pub run_as_group: Option<i64>,
    /// User name of the image.
    pub username: String,
    /// Supplemental groups.
    pub supplemental_groups: Vec<i64>,
    /// Whether groups of the image are supplemental groups of the process.
    pub supplemental_groups_policy: SupplementalGroupsPolicy,
    /// Privileged: all capabilities and devices.
    pub privileged: bool,
    /// Whether the root file system is read-only.
    pub readonly_rootfs: bool,
    /// Whether `no_new_privs` is set (`allowPrivilegeEscalation: false`).
    pub no_new_privs: bool,
    /// Capabilities to add, without `CAP_`.
    pub add_capabilities: Vec<String>,
    /// Capabilities to drop, without `CAP_`; `ALL` for all.
    pub drop_capabilities: Vec<String>,
    /// Namespaces of the container.
    pub namespaces: Namespaces,
    /// Container whose PID namespace is joined (`targetContainerName` of an ephemeral container).
    pub target_container: Option<ContainerId>,
    /// Seccomp profile.
    pub seccomp: SeccompProfile,
    /// AppArmor profile; `None` for the runtime's behaviour without a profile.
    pub apparmor: Option<AppArmorProfile>,
    /// Masked paths; `None` for the default list, empty with `procMount: Unmasked`.
    pub masked_paths: Option<Vec<String>>,
    /// Read-only paths; `None` for the default list.
    pub readonly_paths: Option<Vec<String>>,
}

/// Supplemental groups (`supplementalGroupsPolicy`, KEP-3619).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SupplementalGroupsPolicy {
    /// Those of the Pod, and those of `/etc/group` of the image.
    #[default]
    Merge,
    /// Those of the Pod only.
    Strict,
}

/// Seccomp profile.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum SeccompProfile {
    /// `Unconfined`.
    #[default]
    Unconfined,
    /// `RuntimeDefault`.
    RuntimeDefault,
    /// `Localhost`: a profile file on the node.
    Localhost(PathBuf),
}

/// AppArmor profile.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AppArmorProfile {
    /// `Unconfined`.
    Unconfined,
    /// `RuntimeDefault`.
    RuntimeDefault,
    /// `Localhost`: a profile loaded on the node.
    Localhost(String),
}

/// Status of a container (CRI `ContainerStatus`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContainerStatus {
    /// Container ID.
    pub id: ContainerId,
    /// Sandbox ID. Lists contain it; the status of a single container may not.
    pub sandbox: Option<SandboxId>,
    /// Pod UID.
    pub uid: String,
    /// The container's name in the Pod.
    pub name: String,
    /// Attempt: the restart count.
    pub attempt: u32,
    /// State.
    pub state: ContainerState,
    /// Creation time.
    pub created_at: Timestamp,
    /// Start time of a started container. Not in lists.
    pub started_at: Option<Timestamp>,
    /// Exit of a terminated container. Not in lists.
    pub exit: Option<Exit>,
    /// Image name of the runtime.
    pub image: String,
    /// Image ID or digest, for `imageID`.
    pub image_ref: String,
    /// Image in the Pod's spec. Not in lists.
    pub spec_image: Option<String>,
    /// Stop signal. Not in lists, and not reported before CRI 1.33.
    pub stop_signal: Option<StopSignal>,
}

/// State of a container (CRI `ContainerState`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ContainerState {
    /// Created, but not started.
    Created,
    /// Running.
    Running,
    /// Exited.
    Exited,
    /// Unknown to the runtime.
    Unknown,
}

/// Exit of a container.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exit {
    /// Exit code; 128 + n after signal n.
    pub code: i32,
    /// Reason of the runtime: `Completed`, `Error`, `OOMKilled`, `StartError`, `Unknown`.
    pub reason: String,
    /// Message of the runtime.
    pub message: String,
    /// Finish time.
    pub finished_at: Timestamp,
}

/// Event of the runtime.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RuntimeEvent {
    /// The process of a container exited. The runtime has written all logs once [`crate::Runtime::container`] reports the
    /// exit. The exit (code, time, and reason `Completed` or `Error`) is set if the runtime's status will not contain more;
    /// otherwise query the status.
    ContainerExited(ContainerId, Option<Exit>),
    /// A container of the sandbox, or the sandbox itself, exited.
    SandboxExited(SandboxId),
    /// Events may have been lost: relist.
    Resync,
}
