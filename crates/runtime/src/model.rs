//! What is said between the kubelet and a runtime: the CRI's vocabulary, without its wire format.

use crate::{IdMapping, Mount, StopSignal};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, net::IpAddr, path::PathBuf};

/// Labels that mark what belongs to a Pod; the same keys that upstream's kubelet uses, so that its tools find them.
pub mod labels {
    /// `metadata.name` of the Pod.
    pub const POD_NAME: &str = "io.kubernetes.pod.name";
    /// `metadata.namespace` of the Pod.
    pub const POD_NAMESPACE: &str = "io.kubernetes.pod.namespace";
    /// `metadata.uid` of the Pod.
    pub const POD_UID: &str = "io.kubernetes.pod.uid";
    /// Whose sandbox it is: the data directory of its cluster.
    pub const OWNER: &str = "podium.data-dir";
    /// The container's name in the Pod's spec.
    pub const CONTAINER_NAME: &str = "io.kubernetes.container.name";
    /// An annotation: the container's image as the Pod's spec names it. Upstream keeps a hash of it.
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
    /// A sandbox, as the runtime names it.
    SandboxId
);
id!(
    /// A container, as the runtime names it (without the `containerd://` prefix of the API).
    ContainerId
);

/// Why a runtime call failed.
#[derive(Debug, Clone, thiserror::Error)]
pub enum RuntimeError {
    /// The thing is gone. Not worth a retry.
    #[error("{0}")]
    NotFound(String),
    /// A name is taken: an earlier attempt got further than its caller knows. The caller lists and adopts.
    #[error("{0}")]
    AlreadyExists(String),
    /// The call outlived its deadline.
    #[error("{0}")]
    Deadline(String),
    /// The runtime does not answer. Worth a retry with a back-off.
    #[error("container runtime is unreachable: {0}")]
    Unavailable(String),
    /// The runtime does not know this call.
    #[error("{0}")]
    Unimplemented(String),
    /// The runtime says no; its own words.
    #[error("{0}")]
    Failed(String),
}

/// Name and version of a runtime.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Version {
    /// For example `containerd`.
    pub name: String,
    /// For example `1.6.20`.
    pub version: String,
}

/// Whether containers can be run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuntimeStatus {
    /// `None` when the runtime is ready, else why it is not.
    pub runtime_not_ready: Option<String>,
    /// `None` when the Pod network is ready, else why it is not.
    pub network_not_ready: Option<String>,
    /// What its handlers can do; a runtime of a CRI before 1.30 names none.
    pub handlers: Vec<Handler>,
}

/// One of the ways in which a runtime runs containers, as RuntimeClasses name it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Handler {
    /// Empty for the default.
    pub name: String,
    /// Whether its containers can have users of their own (KEP-127).
    pub user_namespaces: bool,
}

/// Where a namespace of a sandbox or container comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum NamespaceMode {
    /// One for the whole Pod.
    #[default]
    Pod,
    /// One for the container alone.
    Container,
    /// The node's.
    Node,
}

/// The namespaces of a Pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Namespaces {
    /// Network: `Pod` or `Node` (`hostNetwork`).
    pub network: NamespaceMode,
    /// Processes: `Container`, `Pod` (`shareProcessNamespace`) or `Node` (`hostPID`).
    pub pid: NamespaceMode,
    /// System V IPC: `Pod` or `Node` (`hostIPC`).
    pub ipc: NamespaceMode,
    /// Users and groups of its own (`hostUsers: false`); `None` for those of the node.
    pub users: Option<IdMapping>,
}

/// A sandbox to create.
#[derive(Debug, Clone, Default)]
pub struct SandboxConfig {
    /// Pod name.
    pub name: String,
    /// Pod namespace.
    pub namespace: String,
    /// Pod UID.
    pub uid: String,
    /// How many sandboxes this Pod had before.
    pub attempt: u32,
    /// Host name inside; empty with the node's network.
    pub hostname: String,
    /// Directory of the containers' log files.
    pub log_directory: PathBuf,
    /// `resolv.conf`; `None` lets the runtime copy the node's.
    pub dns: Option<Dns>,
    /// Ports of the node that lead into the Pod.
    pub port_mappings: Vec<PortMapping>,
    /// Labels of the Pod beside those of [`labels`], which the runtime adds.
    pub labels: BTreeMap<String, String>,
    /// Annotations.
    pub annotations: BTreeMap<String, String>,
    /// The cgroup that holds the Pod, for example `/kubepods/burstable/pod<uid>`; `None` leaves it to the runtime.
    pub cgroup_parent: Option<String>,
    /// Namespaces of the Pod.
    pub namespaces: Namespaces,
    /// Kernel parameters of the Pod.
    pub sysctls: BTreeMap<String, String>,
    /// Numeric user of the sandbox's own process.
    pub run_as_user: Option<i64>,
    /// Its numeric group; needs a user.
    pub run_as_group: Option<i64>,
    /// Its further groups.
    pub supplemental_groups: Vec<i64>,
    /// Whether a container of the Pod may be privileged.
    pub privileged: bool,
    /// The handler of the Pod's RuntimeClass; empty for the runtime's default.
    pub runtime_handler: String,
}

/// Name resolution of a sandbox.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Dns {
    /// Name servers.
    pub servers: Vec<String>,
    /// Search domains.
    pub searches: Vec<String>,
    /// Options.
    pub options: Vec<String>,
}

/// A port of the node that leads into the Pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PortMapping {
    /// `TCP`, `UDP` or `SCTP`.
    pub protocol: String,
    /// Port in the Pod.
    pub container_port: u16,
    /// Port of the node.
    pub host_port: u16,
    /// Address of the node; empty for all.
    pub host_ip: String,
}

/// What a sandbox is doing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SandboxStatus {
    /// The sandbox.
    pub id: SandboxId,
    /// Pod UID.
    pub uid: String,
    /// Pod name.
    pub name: String,
    /// Pod namespace.
    pub namespace: String,
    /// How many sandboxes this Pod had before.
    pub attempt: u32,
    /// Whether its process runs and its network stands.
    pub ready: bool,
    /// When it was created.
    pub created_at: Timestamp,
    /// Addresses of the Pod, the primary one first; empty with the node's network and in lists.
    pub ips: Vec<IpAddr>,
}

/// A container to create.
#[derive(Debug, Clone, Default)]
pub struct ContainerConfig {
    /// The container's name in the Pod.
    pub name: String,
    /// How many containers of this name the Pod had before: its restart count.
    pub attempt: u32,
    /// The image as resolved by [`crate::Runtime::image`] or [`crate::Runtime::pull_image`].
    pub image_ref: String,
    /// The image as the Pod's spec names it.
    pub image: String,
    /// Entry point; empty for the image's own.
    pub command: Vec<String>,
    /// Arguments; empty for the image's own unless `command` is set.
    pub args: Vec<String>,
    /// Working directory; empty for the image's own.
    pub working_dir: String,
    /// Environment, in order.
    pub env: Vec<(String, String)>,
    /// Mounts, in order.
    pub mounts: Vec<Mount>,
    /// Device nodes of the host.
    pub devices: Vec<Device>,
    /// Labels beside those of [`labels`].
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
    /// Who the process is and what it may do.
    pub security: SecurityContext,
    /// How it is to be stopped, if not as its image says; runtimes of a CRI before 1.33 take no note of it.
    pub stop_signal: Option<StopSignal>,
}

/// A device node of the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Device {
    /// Path on the node.
    pub host_path: PathBuf,
    /// Path in the container.
    pub container_path: PathBuf,
    /// Any of `r`, `w`, `m`.
    pub permissions: String,
}

/// cgroup limits of a container or Pod. Zero leaves the kernel's default.
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
    /// Who the OOM killer takes first, -1,000 to 1,000.
    pub oom_score_adj: i64,
    /// `cpuset.cpus`; empty for all.
    pub cpuset_cpus: String,
    /// `cpuset.mems`; empty for all.
    pub cpuset_mems: String,
    /// Huge page limits in bytes by page size (`2MB`).
    pub hugepage_limits: BTreeMap<String, u64>,
    /// Further cgroup v2 files, by name.
    pub unified: BTreeMap<String, String>,
}

/// Who a container's process is and what it may do.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SecurityContext {
    /// Numeric user; wins over `username`.
    pub run_as_user: Option<i64>,
    /// Numeric group; needs a user.
    pub run_as_group: Option<i64>,
    /// User by name, from the image.
    pub username: String,
    /// Further groups.
    pub supplemental_groups: Vec<i64>,
    /// All capabilities and all devices.
    pub privileged: bool,
    /// Whether the root file system cannot be written.
    pub readonly_rootfs: bool,
    /// Whether `no_new_privs` is set (`allowPrivilegeEscalation: false`).
    pub no_new_privs: bool,
    /// Capabilities to add, without `CAP_`.
    pub add_capabilities: Vec<String>,
    /// Capabilities to drop, without `CAP_`; `ALL` for all.
    pub drop_capabilities: Vec<String>,
    /// Namespaces of the Pod, as the container sees them.
    pub namespaces: Namespaces,
    /// The container whose process namespace to join (`targetContainerName` of an ephemeral container).
    pub target_container: Option<ContainerId>,
    /// System calls that are allowed.
    pub seccomp: SeccompProfile,
    /// What it may touch; `None` for what the runtime does of itself.
    pub apparmor: Option<AppArmorProfile>,
    /// Paths to hide; `None` for the default list, empty with `procMount: Unmasked`.
    pub masked_paths: Option<Vec<String>>,
    /// Paths to make read-only; `None` for the default list.
    pub readonly_paths: Option<Vec<String>>,
}

/// Which system calls are allowed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum SeccompProfile {
    /// All.
    #[default]
    Unconfined,
    /// The runtime's own list.
    RuntimeDefault,
    /// A file on the node.
    Localhost(PathBuf),
}

/// What a process may touch, on kernels with AppArmor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AppArmorProfile {
    /// Everything.
    Unconfined,
    /// What the runtime's own profile allows.
    RuntimeDefault,
    /// A profile that is loaded on the node.
    Localhost(String),
}

/// What a container is doing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContainerStatus {
    /// The container.
    pub id: ContainerId,
    /// Its sandbox, when the runtime says so (lists do, single answers may not).
    pub sandbox: Option<SandboxId>,
    /// Pod UID.
    pub uid: String,
    /// The container's name in the Pod.
    pub name: String,
    /// How many containers of this name the Pod had before.
    pub attempt: u32,
    /// What it does.
    pub state: ContainerState,
    /// When it was created.
    pub created_at: Timestamp,
    /// When it started, if it did and the runtime was asked for this one container.
    pub started_at: Option<Timestamp>,
    /// How it ended, if it did and the runtime was asked for this one container.
    pub exit: Option<Exit>,
    /// The image as the runtime names it.
    pub image: String,
    /// The image's id or digest, as `imageID` shows it.
    pub image_ref: String,
    /// The image as the Pod's spec named it, if the runtime was asked for this one container.
    pub spec_image: Option<String>,
    /// How the runtime will stop it, if it says so: those of a CRI before 1.33 and lists do not.
    pub stop_signal: Option<StopSignal>,
}

/// A container's state, as the runtime sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ContainerState {
    /// Made, not started.
    Created,
    /// Its process runs.
    Running,
    /// Its process ended.
    Exited,
    /// The runtime lost it.
    Unknown,
}

/// How a container ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exit {
    /// Exit code; 128 + n after signal n.
    pub code: i32,
    /// The runtime's reason: `Completed`, `Error`, `OOMKilled`, `StartError`, `Unknown`.
    pub reason: String,
    /// The runtime's message.
    pub message: String,
    /// When it ended.
    pub finished_at: Timestamp,
}

/// Something happened in the runtime.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RuntimeEvent {
    /// A container's process ended. The runtime may still write its log and clear up after it: it is done when
    /// [`crate::Runtime::container`] shows the end. How it ended is told here where the runtime's answer will say no more
    /// (its code, `Completed` or `Error`, and when); else ask for that answer.
    ContainerExited(ContainerId, Option<Exit>),
    /// A container of this sandbox or the sandbox itself ended.
    SandboxExited(SandboxId),
    /// Events may have been lost: list everything again.
    Resync,
}
