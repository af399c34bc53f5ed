//! The sandbox container of OCI runtimes that run a Pod in one sandbox, as gVisor's `runsc` does.
//!
//! Its process is the sandbox. It is started after the network of the Pod, whose addresses `runsc` takes over, and before the first
//! container; it is deleted after the last one. When it ends, the Pod's sandbox has ended.

use crate::{
    cgroup::Cgroup,
    keeper_process::kill_keeper_process,
    oci_runtime, prepare,
    records::{self, SandboxRecord},
    state::{Inner, Sandbox},
    steps::{blocking, failed},
};
use bundle::{Namespace, PodNamespaces};
use futures::future::join_all;
use keeper::{Client as Keeper, ContainerOptions, Hello, Status};
use runtime::{ContainerState, NamespaceMode, RuntimeError, SandboxConfig};
use std::{
    fs::{self, Permissions},
    io,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

/// Maximum time until the exits of all containers are known after the sandbox container has ended.
const EXITS_TIMEOUT: Duration = Duration::from_secs(5);

/// Starts the sandbox container of a sandbox whose network is connected, if its OCI runtime needs one.
///
/// # Errors
/// When a file cannot be written, or the OCI runtime fails.
pub(crate) async fn start(
    inner: &Arc<Inner>,
    config: &SandboxConfig,
    record: &SandboxRecord,
    keeper: &Keeper,
    sandbox_dir: &Path,
) -> Result<(), RuntimeError> {
    if !record.has_container() {
        return Ok(());
    }
    let namespaces = namespaces(record, keeper.hello());
    let spec = bundle::sandbox_container_spec(&record.id, config, &namespaces, &inner.host);
    let spec = spec.map_err(|error| RuntimeError::Unimplemented(error.to_string()))?;
    let program = bundle::pause_program(inner.host.architecture).unwrap_or_default();
    let dir = Sandbox::containers_dir(sandbox_dir).join(&record.id);
    let write = move || write(&dir, &program, &bundle::encode(&spec).map_err(io::Error::other)?);
    blocking(write).await.map_err(failed("write the sandbox container"))?;
    keeper.run_container(&record.id).await.map_err(failed("start the sandbox container"))?;
    Ok(())
}

fn write(dir: &Path, program: &[u8], config: &[u8]) -> io::Result<()> {
    let root = dir.join("rootfs");
    for directory in bundle::SANDBOX_DIRECTORIES {
        files::create_private_dir_all(&root.join(directory))?;
    }
    let pause = root.join(bundle::PAUSE_PATH.trim_start_matches('/'));
    // Not synced: no sandbox survives a power failure.
    files::replace_private_unsynced(&pause, program)?;
    fs::set_permissions(&pause, Permissions::from_mode(0o755))?;
    files::replace_private_unsynced(&dir.join(prepare::CONFIG), config)?;
    files::replace_private_unsynced(&dir.join(prepare::OPTIONS), &serde_json::to_vec(&ContainerOptions::default())?)
}

fn namespaces(record: &SandboxRecord, hello: &Hello) -> PodNamespaces {
    let held = hello.namespaces;
    PodNamespaces {
        network: prepare::pod_namespace(hello, record.network, held.network),
        ipc: prepare::pod_namespace(hello, record.ipc, held.ipc),
        uts: prepare::pod_namespace(hello, record.network, held.uts),
        // That of a Pod which shares it is the sandbox container's.
        pid: if record.pid == NamespaceMode::Node { Namespace::Node } else { Namespace::New },
        user: Namespace::Node,
    }
}

/// Returns whether the sandbox of a keeper's containers runs. Without a sandbox container, it does as long as the keeper.
pub(crate) fn is_running(record: &SandboxRecord, states: &[keeper::ContainerState]) -> bool {
    let is_it = |state: &keeper::ContainerState| state.id == record.id && state.status == Status::Running;
    !record.has_container() || states.iter().any(is_it)
}

/// Returns the path of the process namespace that the containers of a Pod share, as OCI runtimes with sandboxes know it: that of
/// the sandbox's process. `None` if the keeper has it, or the containers share none.
///
/// # Errors
/// When the sandbox has ended.
pub(crate) async fn pid_namespace(sandbox: &Sandbox, mode: NamespaceMode) -> Result<Option<PathBuf>, RuntimeError> {
    let record = sandbox.record();
    if !record.has_container() || mode != NamespaceMode::Pod {
        return Ok(None);
    }
    let states = sandbox.keeper()?.list_containers().await.map_err(failed("find the sandbox container"))?;
    let pid = states.iter().find(|state| state.id == record.id).and_then(|state| state.pid);
    let pid = pid.ok_or_else(|| has_ended(&record))?;
    Ok(Some(format!("/proc/{pid}/ns/pid").into()))
}

/// Returns an error if the sandbox container has ended, in a sandbox that has one.
///
/// # Errors
/// When it has ended, or the keeper does not answer.
pub(crate) async fn check_running(record: &SandboxRecord, keeper: &Keeper) -> Result<(), RuntimeError> {
    if !record.has_container() {
        return Ok(());
    }
    let states = keeper.list_containers().await.map_err(failed("find the sandbox container"))?;
    if is_running(record, &states) { Ok(()) } else { Err(has_ended(record)) }
}

fn has_ended(record: &SandboxRecord) -> RuntimeError {
    RuntimeError::Failed(format!("the sandbox container of {} has ended", record.id))
}

/// Handles the end of a sandbox container, if nobody requested it: the end of its keeper is that of the sandbox. The keeper
/// reports the exits of the containers before, which may have ended by themselves.
pub(crate) async fn ended(sandbox: Arc<Sandbox>) {
    if sandbox.is_ending() {
        return;
    }
    let id = sandbox.record().id;
    tracing::warn!(sandbox = id, "the sandbox container has ended");
    let running = sandbox.all_containers().into_iter().filter(|one| one.state() == ContainerState::Running);
    let exits = join_all(running.map(|container| async move { container.wait().await }));
    if tokio::time::timeout(EXITS_TIMEOUT, exits).await.is_err() {
        tracing::warn!(sandbox = id, "containers have not ended with their sandbox in time");
    }
    // A stop ends the keeper after its deletions. Only the keeper: its session kills what it left before it deletes containers.
    if !sandbox.is_ending() {
        kill_keeper_process(&sandbox.dir).await;
    }
}

/// Kills and deletes the sandbox container, if any, of a sandbox without a keeper. Succeeds if it is deleted already.
///
/// # Errors
/// When its processes do not end, or the OCI runtime fails.
pub(crate) async fn delete(inner: &Inner, sandbox: &Sandbox) -> Result<(), RuntimeError> {
    let _exclusive = sandbox.deletion.lock().await;
    delete_recorded(inner, &sandbox.record()).await
}

async fn delete_recorded(inner: &Inner, record: &SandboxRecord) -> Result<(), RuntimeError> {
    let Some(cgroup) = &record.container_cgroup else { return Ok(()) };
    kill(cgroup).await.map_err(failed("kill the sandbox container"))?;
    oci_runtime::delete(inner, record, &record.id).await
}

/// Kills the processes of a sandbox container, and with them its containers.
pub(crate) async fn kill(cgroup: &str) -> io::Result<()> {
    match Cgroup::find(cgroup) {
        Some(cgroup) => cgroup.kill_all().await,
        None => Ok(()),
    }
}

/// Deletes the sandbox container, if any, of a sandbox directory, whose keeper has ended.
///
/// # Errors
/// As [`delete`], and when the record cannot be read.
pub(crate) async fn delete_in(inner: &Inner, sandbox_dir: &Path) -> Result<(), RuntimeError> {
    let record = records::load::<SandboxRecord>(&Sandbox::record_path(sandbox_dir));
    match record.map_err(failed("read the sandbox's record"))? {
        Some(record) => delete_recorded(inner, &record).await,
        // It was about to be created.
        None => Ok(()),
    }
}
