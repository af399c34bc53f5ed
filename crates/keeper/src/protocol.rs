//! Protocol of the keeper's socket.
//!
//! The socket is of the type `SOCK_SEQPACKET`. A message is one JSON document of at most [`MAX_MESSAGE`] bytes, and up
//! to [`MAX_DESCRIPTORS`] descriptors (`SCM_RIGHTS`). The first request is `hello`. A request has an ID, which its
//! reply has, too. Replies can be in another order than requests. A message that is malformed or too large ends the
//! connection.
//!
//! Versions: fields and calls may be added in the same version, and unknown fields are ignored. Anything else raises
//! [`PROTOCOL_VERSION`]; a keeper serves clients down to [`OLDEST_VERSION`], a client uses keepers down to it.

use crate::config::Exit;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::path::PathBuf;

/// Version of the protocol.
pub const PROTOCOL_VERSION: u32 = 1;
/// Oldest version of the other side that is understood.
pub const OLDEST_VERSION: u32 = 1;
/// Maximum size of a message in bytes.
pub const MAX_MESSAGE: usize = 64 << 10;
/// Maximum number of descriptors of a message.
pub(crate) const MAX_DESCRIPTORS: usize = 3;

/// A request of a client.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Request {
    /// ID, which the reply has, too.
    pub(crate) id: u64,
    /// Call.
    pub(crate) call: Call,
}

/// Call of a request.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub(crate) enum Call {
    /// States the client's version.
    Hello { version: u32 },
    /// Creates the container whose directory exists, and starts it if requested. A keeper that does not know `start`
    /// only creates it, and answers with [`Answer::Process`].
    CreateContainer {
        id: String,
        #[serde(default)]
        start: bool,
    },
    /// Starts a created container.
    StartContainer { id: String },
    /// Sends a signal to the first process of a container, or to all.
    KillContainer { id: String, signal: i32, all: bool },
    /// Deletes a container that does not run, or any with `force`.
    DeleteContainer { id: String, force: bool },
    /// Runs a process in a container.
    Exec(ExecCall),
    /// Sends a signal to a process of `exec`.
    KillExec { id: String, exec_id: String, signal: i32 },
    /// Attaches descriptors, in this order, to a container.
    Attach { id: String, stdin: bool, stdout: bool, stderr: bool },
    /// Sets the size of a container's terminal. That of `exec` is set by its client, which has the terminal.
    ResizeTerminal { id: String, width: u16, height: u16 },
    /// Closes stdin of a container.
    CloseStdin { id: String },
    /// Reopens a container's log.
    ReopenLog { id: String },
    /// Sets the resources of a container: OCI's `linux.resources`.
    UpdateResources { id: String, resources: Box<RawValue> },
    /// Sends events to this connection from now on.
    Subscribe,
    /// Lists all containers.
    ListContainers,
    /// Ends the keeper, which must have no containers.
    Shutdown,
}

/// Arguments of `exec`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ExecCall {
    /// Container ID.
    pub(crate) id: String,
    /// ID of the process, unique among the running ones of the container.
    pub(crate) exec_id: String,
    /// File with OCI's `process`.
    pub(crate) process: PathBuf,
    /// Whether the process has a terminal. The reply has its descriptor.
    pub(crate) terminal: bool,
    /// Whether the descriptors begin with stdin.
    pub(crate) stdin: bool,
    /// Whether the descriptors contain stdout.
    pub(crate) stdout: bool,
    /// Whether the descriptors contain stderr.
    pub(crate) stderr: bool,
}

/// A message of the keeper.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Message {
    /// Reply to a request.
    Reply { id: u64, result: Result<Answer, CallError> },
    /// Event.
    Event(Event),
}

/// Result of a call.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Answer {
    /// The call has no result.
    Done,
    /// The keeper's version and namespaces.
    Hello(Hello),
    /// Process ID, in the namespace of the keeper.
    Process(i32),
    /// First process of a container that was created and started.
    Started(i32),
    /// All containers.
    Containers(Vec<ContainerState>),
}

/// Version, process and namespaces of a keeper.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Hello {
    /// Version of the protocol that the keeper speaks with this client.
    pub version: u32,
    /// Sandbox ID.
    pub sandbox_id: String,
    /// Process ID of the keeper.
    pub pid: i32,
    /// Start time of the keeper, in clock ticks after boot (field 22 of `/proc/PID/stat`).
    pub start_time: u64,
    /// Process 1 of the Pod, if the Pod shares its process namespace; with a user namespace its parent, which ends with it.
    pub pod_init: Option<i32>,
    /// Namespaces.
    pub namespaces: NamespaceDescriptors,
}

/// Numbers of the descriptors that pin the namespaces of the Pod. Those of the node have none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NamespaceDescriptors {
    /// Network.
    pub network: Option<i32>,
    /// System V IPC.
    pub ipc: Option<i32>,
    /// Host name.
    pub uts: Option<i32>,
    /// Processes.
    pub pid: Option<i32>,
    /// Users.
    pub user: Option<i32>,
}

impl Hello {
    /// Returns a path of the namespace with this descriptor, for the OCI configuration. It is valid while the keeper
    /// lives.
    #[must_use]
    pub fn namespace_path(&self, descriptor: i32) -> PathBuf {
        PathBuf::from(format!("/proc/{}/fd/{descriptor}", self.pid))
    }
}

/// Error of a call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct CallError {
    /// Kind of error.
    pub code: ErrorCode,
    /// Text; that of the OCI runtime for [`ErrorCode::Runtime`].
    pub message: String,
}

impl CallError {
    pub(crate) fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }
}

/// Kind of error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ErrorCode {
    /// The other side speaks an unsupported version.
    Version,
    /// The request is invalid.
    Invalid,
    /// There is no such container or process.
    NotFound,
    /// The ID is in use.
    AlreadyExists,
    /// The state of the container does not allow the call.
    WrongState,
    /// A maximum number is reached.
    Limit,
    /// The OCI runtime failed.
    Runtime,
    /// The OCI runtime did not end in time, and was killed.
    Deadline,
    /// A call of the kernel failed.
    System,
}

/// State of a container.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ContainerState {
    /// Container ID.
    pub id: String,
    /// Status.
    pub status: Status,
    /// First process, unless it ended.
    pub pid: Option<i32>,
    /// Exit of a stopped container.
    pub exit: Option<Exit>,
    /// Number of bytes of the log that could not be written.
    pub lost_log_bytes: u64,
}

/// Status of a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Status {
    /// The OCI runtime creates it.
    Creating,
    /// Created.
    Created,
    /// Started.
    Running,
    /// Its first process ended.
    Stopped,
}

/// Event of a keeper.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Event {
    /// A container's first process ended. Its log and `exit.json` are complete.
    ContainerExited {
        /// Container ID.
        id: String,
        /// Exit.
        exit: Exit,
    },
    /// A process of `exec` ended.
    ExecExited {
        /// Container ID.
        id: String,
        /// ID of the process.
        exec_id: String,
        /// Exit code; 128 + n after signal n.
        exit_code: i32,
    },
}
