//! Keeper: the process that is the parent of one Pod's containers, its protocol, and its client.
//!
//! One small process per Pod outlives Podium. It is the subreaper of the containers, pins the namespaces of the Pod,
//! owns the containers' pipes and terminals, writes their logs, reaps them, and stores their exit codes before it
//! reports them. It starts containers with an OCI runtime (`runc` or another one with the same command line).
//!
//! It is single-threaded, has no async runtime, and executes the program that contains it again, under the name
//! [`KEEPER_NAME`]. So `main` calls [`run_if_named`] before it creates a thread. A client that died leaves nothing
//! behind: a new one connects to the socket in the sandbox's directory, and lists the containers.
//!
//! A keeper that is killed leaves its containers without a parent. Its clients observe the end of the connection, and
//! kill the containers through their cgroups.
#![forbid(unsafe_code)]

mod attachment;
mod cgroups;
mod client;
mod config;
mod connection;
mod container;
mod cri_log;
mod exit_file;
mod exits;
mod io_source;
mod keeper;
mod namespaces;
mod operation;
mod output;
mod pod_init;
mod process;
mod protocol;
mod requests;
mod runtime_calls;
mod sandbox_container;
mod socket;
mod startup;
mod user_namespace;

pub use client::{AttachStreams, Client, Error, Events, Exec, ExecStreams};
pub use config::{ContainerOptions, Exit, KeeperConfig, NamespaceMode, NamespaceModes, OciRuntime, UserMapping};
pub use protocol::{
    CallError, ContainerState, ErrorCode, Event, Hello, MAX_MESSAGE, NamespaceDescriptors, OLDEST_VERSION,
    PROTOCOL_VERSION, Status,
};

use std::{path::Path, process::ExitCode};

/// Base name of `argv[0]` of a keeper. Its argument is the directory of the sandbox.
pub const KEEPER_NAME: &str = "podium-keeper";
/// Base name of `argv[0]` of process 1 in the shared process namespace of a Pod.
pub const POD_INIT_NAME: &str = "podium-pod-init";
/// Base name of `argv[0]` of the process that creates the user namespace of a Pod.
pub const USER_NAMESPACE_NAME: &str = "podium-user-namespace";

/// Runs the keeper, or another process of a Pod, if this process has its name. To be called before any thread exists.
#[must_use]
pub fn run_if_named() -> Option<ExitCode> {
    let name = std::env::args_os().next()?;
    match Path::new(&name).file_name()?.to_str()? {
        KEEPER_NAME => Some(startup::main()),
        POD_INIT_NAME => Some(pod_init::main()),
        USER_NAMESPACE_NAME => Some(user_namespace::main()),
        _ => None,
    }
}
