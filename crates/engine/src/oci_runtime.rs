//! The OCI runtime of a sandbox: the keeper's configuration, and deletion without a keeper.

use crate::{
    handlers::Handler,
    records::{SandboxRecord, VERSION},
    state::Inner,
    steps::failed,
};
use keeper::{KeeperConfig, NamespaceMode as Mode, NamespaceModes, OciRuntime, PROTOCOL_VERSION, UserMapping};
use runtime::{NamespaceMode, RuntimeError, SandboxConfig};
use std::{
    fs, io,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};
use tokio::process::Command;

/// State directories of OCI runtimes, one for each sandbox. They describe processes, so that a reboot must remove them.
const STATE_DIR: &str = "/run/podium/oci";
/// Global argument of `runc` and `crun`: systemd creates the container's cgroup.
const SYSTEMD_CGROUP: &str = "--systemd-cgroup";
/// Deadline of a run of the OCI runtime, as of requests to a CRI runtime.
const RUNTIME_TIMEOUT: Duration = Duration::from_secs(120);
/// Deadline of a deletion.
const DELETE_TIMEOUT: Duration = Duration::from_secs(60);

/// Returns the state directory of a sandbox's OCI runtime.
pub(crate) fn state_dir(sandbox_id: &str) -> PathBuf {
    Path::new(STATE_DIR).join(sandbox_id)
}

/// Removes the state directory of a sandbox's OCI runtime. Before the sandbox's own directory, so that an interrupted removal
/// is repeated.
///
/// # Errors
/// When the file system fails.
pub(crate) fn remove_state_dir(sandbox_id: &str) -> io::Result<()> {
    match fs::remove_dir_all(state_dir(sandbox_id)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Returns the handler with this name.
///
/// # Errors
/// When there is none; worded as containerd does.
pub(crate) fn handler<'a>(inner: &'a Inner, name: &str) -> Result<&'a Handler, RuntimeError> {
    let unknown = || RuntimeError::Failed(format!("no runtime for {name:?} is configured"));
    inner.handlers.get(name).ok_or_else(unknown)
}

/// Returns the configuration of a sandbox's keeper.
///
/// # Errors
/// When the handler is unknown, or a sysctl is not allowed.
pub(crate) fn keeper_config(
    inner: &Inner,
    config: &SandboxConfig,
    record: &SandboxRecord,
) -> Result<KeeperConfig, RuntimeError> {
    let handler = handler(inner, &config.runtime_handler)?;
    let mode = |mode| if mode == NamespaceMode::Pod { Mode::Pod } else { Mode::Node };
    let uts = mode(record.network);
    // Process 1 of a shared one is the sandbox container.
    let pid = if record.has_container() { Mode::Node } else { mode(record.pid) };
    let sysctls = bundle::sandbox_sysctls(config).map_err(|error| RuntimeError::Failed(error.to_string()))?;
    Ok(KeeperConfig {
        version: PROTOCOL_VERSION,
        sandbox_id: record.id.clone(),
        hostname: (uts == Mode::Pod && !config.hostname.is_empty()).then(|| config.hostname.clone()),
        namespaces: NamespaceModes { network: mode(record.network), ipc: mode(record.ipc), uts, pid },
        user_mapping: config.namespaces.users.map(|users| UserMapping { host_id: users.host_id, length: users.length }),
        sysctls,
        runtime: OciRuntime {
            program: handler.program.clone(),
            root: state_dir(&record.id),
            args: arguments(handler, record),
            direct_kill: handler.signals_directly,
            refuses_hybrid_cgroups: handler.refuses_hybrid_cgroups,
            sandbox_container: record.has_container(),
            timeout_seconds: RUNTIME_TIMEOUT.as_secs(),
        },
    })
}

/// Returns the global arguments of the OCI runtime in a sandbox, before the subcommand.
fn arguments(handler: &Handler, record: &SandboxRecord) -> Vec<String> {
    let driver = record.systemd_cgroup.then(|| SYSTEMD_CGROUP.to_owned());
    handler.args.iter().cloned().chain(driver).collect()
}

/// Deletes a container in the OCI runtime, whose keeper has ended.
///
/// # Errors
/// When the OCI runtime fails, for example because it does not know the container.
pub(crate) async fn delete(inner: &Inner, sandbox: &SandboxRecord, id: &str) -> Result<(), RuntimeError> {
    debug_assert_eq!(sandbox.version, VERSION);
    let root = state_dir(&sandbox.id);
    // Where a runtime with sandboxes keeps a container's state is not known. It ignores an unknown ID.
    let state = if sandbox.has_container() { root.clone() } else { root.join(id) };
    // First: a reboot removes the state, and an administrator may remove the handler.
    if !state.exists() {
        return Ok(());
    }
    let handler = handler(inner, &sandbox.runtime_handler)?;
    let mut command = Command::new(&handler.program);
    command.args(arguments(handler, sandbox)).arg("--root").arg(root).args(["delete", "--force", id]);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).kill_on_drop(true);
    let delete = || failed::<String>(format!("delete container {id}"));
    let output = match tokio::time::timeout(DELETE_TIMEOUT, command.output()).await {
        Ok(output) => output.map_err(|error| delete()(error.to_string()))?,
        Err(_) => return Err(delete()(format!("timed out after {DELETE_TIMEOUT:?}"))),
    };
    if output.status.success() {
        return Ok(());
    }
    Err(delete()(format!("{}: {}", output.status, String::from_utf8_lossy(&output.stderr).trim())))
}
