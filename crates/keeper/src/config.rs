//! Files in the sandbox's directory: the configuration of keeper and containers, and exits.

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use std::{
    collections::BTreeMap,
    io::{self, ErrorKind},
    path::{Path, PathBuf},
};

/// Configuration of a keeper, in the sandbox's directory.
pub(crate) const KEEPER_CONFIG: &str = "keeper.json";
/// Socket of a keeper, in the sandbox's directory.
pub(crate) const KEEPER_SOCKET: &str = "keeper.sock";
/// Process ID and start time of a keeper, in the sandbox's directory.
pub(crate) const KEEPER_PID: &str = "keeper.pid";
/// Log of a keeper, in the sandbox's directory.
pub(crate) const KEEPER_LOG: &str = "keeper.log";
/// Directory of the containers, in the sandbox's directory.
pub(crate) const CONTAINERS: &str = "containers";
/// Options of a container, in the container's directory.
pub(crate) const CONTAINER_OPTIONS: &str = "container.json";
/// Exit of a container, in the container's directory.
pub(crate) const EXIT: &str = "exit.json";

/// Maximum size of a configuration file.
const MAX_FILE: u64 = 1 << 20;

/// Configuration of a keeper: `keeper.json` in the sandbox's directory.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct KeeperConfig {
    /// Version of the protocol that the writer of the file speaks: [`crate::PROTOCOL_VERSION`].
    pub version: u32,
    /// Sandbox ID.
    pub sandbox_id: String,
    /// Host name; only with a UTS namespace of the Pod.
    #[serde(default)]
    pub hostname: Option<String>,
    /// Namespaces.
    #[serde(default)]
    pub namespaces: NamespaceModes,
    /// Mapping of the IDs of a user namespace of the Pod, which owns its other namespaces. `None` for that of the node.
    #[serde(default)]
    pub user_mapping: Option<UserMapping>,
    /// Sysctls of the Pod's namespaces. Those of the node are refused.
    #[serde(default)]
    pub sysctls: BTreeMap<String, String>,
    /// OCI runtime.
    pub runtime: OciRuntime,
}

/// Owner of a namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum NamespaceMode {
    /// The keeper creates a namespace, which the containers of the Pod share.
    Pod,
    /// The keeper creates none: containers have that of the node, or their own.
    #[default]
    Node,
}

/// Namespaces of a Pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NamespaceModes {
    /// Network.
    pub network: NamespaceMode,
    /// System V IPC.
    pub ipc: NamespaceMode,
    /// Host name.
    pub uts: NamespaceMode,
    /// Processes. `Pod` starts a process 1 (`shareProcessNamespace`).
    pub pid: NamespaceMode,
}

/// Mapping of user and group IDs: those of the namespace begin with 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct UserMapping {
    /// First ID on the node.
    pub host_id: u32,
    /// Number of IDs.
    pub length: u32,
}

/// OCI runtime: a program with the command line of `runc`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OciRuntime {
    /// Program.
    pub program: PathBuf,
    /// Directory of its state (`--root`).
    pub root: PathBuf,
    /// Further global arguments, for example `--systemd-cgroup`.
    #[serde(default)]
    pub args: Vec<String>,
    /// Whether a signal to the process that the runtime reports reaches the container. Otherwise (a virtual machine, or
    /// a kernel in user space) the runtime delivers signals.
    #[serde(default)]
    pub direct_kill: bool,
    /// Whether the runtime refuses hybrid cgroups with controllers in v2, as `crun` does. There it creates containers in
    /// a mount namespace without v2, and uses v1 alone.
    #[serde(default)]
    pub refuses_hybrid_cgroups: bool,
    /// Whether the runtime runs the Pod in one sandbox, as gVisor's `runsc` does. The container with the ID of the sandbox is
    /// the process of the sandbox. The others run inside it, and are no processes of this machine: their process ID is that
    /// of the sandbox, and the runtime reports their exits (`wait`).
    #[serde(default)]
    pub sandbox_container: bool,
    /// Seconds until a run is killed, from 1 to 120 (the default of the kubelet's `runtimeRequestTimeout`).
    #[serde(default = "default_timeout_seconds")]
    pub timeout_seconds: u64,
}

/// Default and maximum of [`OciRuntime::timeout_seconds`].
pub(crate) const fn default_timeout_seconds() -> u64 {
    120
}

/// Options of a container: `container.json` in the container's directory.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ContainerOptions {
    /// OCI bundle; empty for the container's directory.
    pub bundle: PathBuf,
    /// Whether the process has a terminal, as in the bundle's `config.json`.
    pub terminal: bool,
    /// Whether stdin is a pipe. Otherwise it is `/dev/null`. A terminal always has stdin.
    pub stdin: bool,
    /// Whether stdin closes after the first attachment to it ends.
    pub stdin_once: bool,
    /// Log file, absolute, in an existing directory; `None` to discard the output.
    pub log_path: Option<PathBuf>,
    /// Whether the container shares the process namespace of the Pod or the node. Then the end of its first process
    /// does not end the others, and the keeper kills them with the OCI runtime.
    pub shares_pid_namespace: bool,
    /// File with the line `oom_kill N`: `memory.events` (cgroup v2) or `memory.oom_control` (v1) of the container's
    /// cgroup.
    pub oom_events: Option<PathBuf>,
}

/// Exit of a container: `exit.json` in the container's directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Exit {
    /// Exit code; 128 + n after signal n.
    pub exit_code: i32,
    /// Finish time, in nanoseconds since 1970.
    pub finished_at: i64,
    /// Whether the kernel killed a process of the container because of its memory limit.
    pub oom_killed: bool,
    /// Why the exit is not in `exit.json`: only the keeper knows it then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub store_error: Option<String>,
}

/// Reads a file of this module.
pub(crate) fn read_json<T: DeserializeOwned>(path: &Path) -> io::Result<T> {
    let text = files::read_bounded(path, MAX_FILE)?;
    serde_json::from_slice(&text)
        .map_err(|error| io::Error::new(ErrorKind::InvalidData, format!("{}: {error}", path.display())))
}

/// Returns whether a container ID or exec ID is valid. IDs are parts of paths and arguments of programs.
pub(crate) fn is_valid_id(id: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.');
    (1..=96).contains(&id.len()) && id.bytes().all(is_allowed) && id.starts_with(|c: char| c.is_ascii_alphanumeric())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_names_of_one_directory() {
        for id in ["a", "0f3b", "c-1_x.y", &"a".repeat(96)] {
            assert!(is_valid_id(id), "{id}");
        }
        for id in ["", ".", "..", "-a", "a/b", "a b", "é", "a\0", &"a".repeat(97)] {
            assert!(!is_valid_id(id), "{id}");
        }
    }

    #[test]
    fn absent_fields_have_defaults() {
        let text = r#"{"version":1,"sandboxId":"s","namespaces":{"network":"pod"},
            "runtime":{"program":"r","root":"/"},"x":1}"#;
        let config: KeeperConfig = serde_json::from_str(text).unwrap();
        assert_eq!((config.namespaces.network, config.namespaces.pid), (NamespaceMode::Pod, NamespaceMode::Node));
        assert!(!config.runtime.direct_kill && config.hostname.is_none());
    }
}
