//! Errors, in the words of libcni, go-cni and containerd, which users search for.

use std::{io, path::PathBuf};

/// Error of the CNI network of a Pod.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The directory has no configuration.
    #[error("cni plugin not initialized")]
    NotInitialized,
    /// The configuration is not valid.
    #[error("cni config load failed: failed to load CNI config file {file}: {reason}: invalid cni config")]
    InvalidConfig {
        /// The configuration file.
        file: PathBuf,
        /// What is invalid.
        reason: String,
    },
    /// The directory of the configurations cannot be used.
    #[error("cni config load failed: failed to read config file: {0}")]
    ReadConfigDir(#[source] io::Error),
    /// A plugin failed.
    #[error("plugin {plugin} failed ({command}): {source}")]
    Plugin {
        /// `type="TYPE"`, and ` name="NAME"` if the plugin's own configuration has one.
        plugin: String,
        /// `add` or `delete`.
        command: &'static str,
        /// What the plugin reported.
        source: PluginError,
    },
    /// A plugin is not ready (STATUS).
    #[error(transparent)]
    Status(PluginError),
    /// The result of the plugins is not valid.
    #[error("{0}: invalid result")]
    InvalidResult(String),
    /// The result has no address of the Pod's interface.
    #[error("failed to find network info for sandbox {0:?}")]
    NoAddress(String),
    /// A bandwidth annotation is not valid.
    #[error("get cni namespace options: reading pod bandwidth annotations: {0}")]
    Bandwidth(String),
    /// A field of the Pod cannot be an argument (`CNI_ARGS`).
    #[error("failed to make CNI_ARGS: {0} has a semicolon")]
    InvalidArgument(&'static str),
    /// The sandbox ID is not valid.
    #[error("invalid characters in containerID; {0}")]
    InvalidSandbox(String),
    /// Too many earlier sandboxes could not be disconnected.
    #[error("failed to connect sandbox: {0} earlier sandboxes could not be disconnected")]
    TooManyStale(usize),
    /// Plugins of an earlier process do not end.
    #[error("{running} CNI plugins of an earlier process still run for sandbox {sandbox:?}")]
    PluginsRunning {
        /// The sandbox.
        sandbox: String,
        /// Number of processes.
        running: usize,
    },
    /// The network namespace cannot be prepared.
    #[error("failed to {doing}: {source}")]
    Namespace {
        /// The step.
        doing: &'static str,
        /// Cause.
        source: io::Error,
    },
    /// A record cannot be read or written.
    #[error("failed to {doing} {path}: {source}")]
    Record {
        /// The operation.
        doing: &'static str,
        /// The record.
        path: PathBuf,
        /// Cause.
        source: io::Error,
    },
}

/// Failure of a plugin: `msg` and `details` of its JSON error, or why it has none.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct PluginError {
    /// Error code of the CNI specification; 0 if there is none.
    pub code: u32,
    /// Message, and details after a semicolon.
    pub message: String,
}

impl PluginError {
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self { code: 0, message: message.into() }
    }
}
