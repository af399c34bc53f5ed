//! Creation, start and removal of containers.

use crate::{
    cgroup::Cgroup,
    directories::remove_dir,
    oci_runtime,
    pod_files::unmount,
    prepare,
    records::SandboxState,
    sandboxes::new_id,
    state::{Container, Inner, Sandbox},
    steps::{blocking, failed},
    stop,
};
use jiff::Timestamp;
use keeper::{Client as Keeper, ErrorCode};
use runtime::{
    ContainerConfig, ContainerDisk, ContainerId, ContainerState, Exit, LinuxResources, RuntimeError, RuntimeEvent,
    SandboxConfig,
};
use std::{fs, io, path::Path, sync::Arc, time::Duration};
use tokio::time::Instant;

/// Exit code and reason of a container that failed to start, as containerd reports them.
const START_ERROR: (i32, &str) = (128, "StartError");
/// Maximum time that other calls of the keeper use a container, and interval of attempts to delete it.
const DELETE_TIMEOUT: Duration = Duration::from_secs(30);
const DELETE_INTERVAL: Duration = Duration::from_millis(10);
/// Maximum time to measure a writable layer.
const DISK_TIMEOUT: Duration = Duration::from_secs(30);

/// Creates a container: its root file system, its OCI configuration and its record. No process is created yet.
///
/// # Errors
/// When the sandbox is not ready, the name is in use, or a step fails; what the earlier steps created is removed.
pub(crate) async fn create(
    inner: Arc<Inner>,
    sandbox_id: String,
    config: ContainerConfig,
    sandbox_config: SandboxConfig,
) -> Result<ContainerId, RuntimeError> {
    let sandbox = inner.sandbox(&sandbox_id)?;
    // Exclusive: a stop must not miss a container, and a name is used once.
    let _changes = sandbox.changes.write().await;
    if sandbox.record().state != SandboxState::Ready {
        return Err(RuntimeError::Failed(format!("sandbox {sandbox_id} is not ready")));
    }
    let is_used = |container: &Arc<Container>| {
        let record = container.record();
        record.name == config.name && record.attempt == config.attempt
    };
    if sandbox.all_containers().iter().any(is_used) {
        let ContainerConfig { name, attempt, .. } = &config;
        return Err(RuntimeError::AlreadyExists(format!("container {name} with attempt {attempt} exists already")));
    }
    let target_pid = match &config.security.target_container {
        Some(target) => Some(running_pid(&sandbox, &target.0)?),
        None => None,
    };
    let id = new_id();
    let dir = Sandbox::containers_dir(&sandbox.dir).join(&id);
    let request = prepare::Request {
        id: id.clone(),
        dir: dir.clone(),
        config,
        sandbox: sandbox.record(),
        sandbox_config,
        files: sandbox.files.clone(),
        namespaces: sandbox.keeper()?.hello().clone(),
        target_pid,
    };
    let engine = inner.clone();
    let prepared = tokio::task::spawn_blocking(move || prepare::prepare(&engine, &request)).await;
    let prepared = prepared.unwrap_or_else(|error| Err(RuntimeError::Failed(error.to_string())));
    let container = match prepared {
        Ok(record) => Arc::new(Container::new(dir, record, None)),
        Err(error) => {
            let engine = inner.clone();
            let cleaned = blocking(move || remove_container_files(&engine, &id, &dir)).await;
            if let Err(error) = cleaned {
                tracing::warn!(%error, "failed to remove an incomplete container");
            }
            return Err(error);
        }
    };
    sandbox.containers.lock().insert(id.clone(), container);
    Ok(ContainerId(id))
}

fn running_pid(sandbox: &Sandbox, id: &str) -> Result<i32, RuntimeError> {
    let target = sandbox.containers.lock().get(id).cloned();
    let pid = target.filter(|target| target.state() == ContainerState::Running).and_then(|target| target.pid());
    pid.ok_or_else(|| RuntimeError::Failed(format!("target container {id} is not running")))
}

/// Starts a container: the OCI runtime creates its process and starts it.
///
/// # Errors
/// When the OCI runtime refuses. The container is then exited with code 128, `StartError`.
pub(crate) async fn start(inner: Arc<Inner>, id: String) -> Result<(), RuntimeError> {
    let (sandbox, _) = inner.container(&id)?;
    // Until the process runs: a stop or removal that does not see it would leave it running.
    let _changes = sandbox.changes.read().await;
    let (_, container) = inner.container(&id)?;
    let _starting = container.starting.lock().await;
    if sandbox.record().state != SandboxState::Ready {
        return Err(RuntimeError::Failed(format!("sandbox {} is not ready", sandbox.record().id)));
    }
    if container.state() != ContainerState::Created {
        return Err(RuntimeError::Failed(format!("container {id} was started before")));
    }
    let keeper = sandbox.keeper()?;
    let (recorded, now) = (container.clone(), Timestamp::now());
    blocking(move || recorded.update(|record| record.started_at = Some(now)))
        .await
        .map_err(failed("record the start of the container"))?;
    let started = async {
        container.set_pid(Some(keeper.create_container(&id).await?));
        keeper.start_container(&id).await
    };
    let Err(error) = started.await else { return Ok(()) };
    let message = format!("failed to start container: {error}");
    record_start_error(&inner, &sandbox, &container, &message).await?;
    Err(RuntimeError::Failed(message))
}

async fn record_start_error(
    inner: &Arc<Inner>,
    sandbox: &Sandbox,
    container: &Arc<Container>,
    message: &str,
) -> Result<(), RuntimeError> {
    let (code, reason) = START_ERROR;
    let exit = Exit { code, reason: reason.to_owned(), message: message.to_owned(), finished_at: Timestamp::now() };
    // Before the deletion, which kills a created process: its exit is not the container's.
    let is_first = container.set_exit(exit.clone());
    delete_process(inner, sandbox, container).await?;
    if !is_first {
        return Ok(());
    }
    record_exit(container, &exit).await?;
    inner.events.send(RuntimeEvent::ContainerExited(ContainerId(container.id()), Some(exit)));
    Ok(())
}

async fn record_exit(container: &Arc<Container>, exit: &Exit) -> Result<(), RuntimeError> {
    let (ended, exit) = (container.clone(), exit.clone());
    let recorded = blocking(move || ended.update(|record| record.exit = Some(exit))).await;
    recorded.map_err(failed("record the exit of the container"))
}

/// Records an exit that the keeper did not record, and reports it.
///
/// # Errors
/// When the file system fails.
pub(crate) async fn end(inner: &Inner, container: &Arc<Container>, exit: Exit) -> Result<(), RuntimeError> {
    record_exit(container, &exit).await?;
    if container.set_exit(exit.clone()) {
        inner.events.send(RuntimeEvent::ContainerExited(ContainerId(container.id()), Some(exit)));
    }
    Ok(())
}

/// Deletes a container in the OCI runtime, with processes that outlived the first one. Succeeds if it is deleted already.
///
/// # Errors
/// When a process does not end, or the OCI runtime fails.
pub(crate) async fn delete_process(
    inner: &Arc<Inner>,
    sandbox: &Sandbox,
    container: &Container,
) -> Result<(), RuntimeError> {
    let record = container.record();
    // One deletion at a time: the keeper refuses a second one, which would then be missed.
    let mut deleted = container.deleted.lock().await;
    if *deleted || record.started_at.is_none() {
        return Ok(());
    }
    if let Some(cgroup) = Cgroup::find(&record.cgroup) {
        cgroup.kill_all().await.map_err(failed("kill the processes of the container"))?;
    }
    match sandbox.keeper() {
        Ok(keeper) => delete_with_keeper(&keeper, &record.id).await?,
        Err(_) => oci_runtime::delete(inner, &sandbox.record(), &record.id).await?,
    }
    *deleted = true;
    Ok(())
}

/// Deletes a container, and repeats while another call of the keeper uses it.
async fn delete_with_keeper(keeper: &Keeper, id: &str) -> Result<(), RuntimeError> {
    let deadline = Instant::now() + DELETE_TIMEOUT;
    loop {
        match keeper.delete_container(id, true).await {
            Ok(()) => return Ok(()),
            Err(error) if error.code() == Some(ErrorCode::NotFound) => return Ok(()),
            Err(error) if error.code() == Some(ErrorCode::WrongState) && Instant::now() < deadline => {
                tokio::time::sleep(DELETE_INTERVAL).await;
            }
            Err(error) => return Err(failed(format!("delete container {id}"))(error)),
        }
    }
}

/// Removes a container, and kills it if it is running. Succeeds if it does not exist.
///
/// # Errors
/// When a step fails; the call can be repeated.
pub(crate) async fn remove(inner: Arc<Inner>, id: String) -> Result<(), RuntimeError> {
    let Ok((sandbox, container)) = inner.container(&id) else { return Ok(()) };
    let _changes = sandbox.changes.write().await;
    stop::kill(&inner, &sandbox, &container).await?;
    delete_process(&inner, &sandbox, &container).await?;
    remove_files(&inner, &sandbox, &container).await
}

/// Removes the files of a container that has no processes, and forgets it.
///
/// # Errors
/// When the file system fails.
pub(crate) async fn remove_files(
    inner: &Arc<Inner>,
    sandbox: &Sandbox,
    container: &Container,
) -> Result<(), RuntimeError> {
    let (engine, dir, id) = (inner.clone(), container.dir.clone(), container.id());
    let removed = id.clone();
    blocking(move || remove_container_files(&engine, &removed, &dir))
        .await
        .map_err(failed("remove the container's files"))?;
    sandbox.containers.lock().remove(&id);
    Ok(())
}

/// Unmounts and removes a container's directory, and releases its images.
///
/// # Errors
/// When the file system fails.
pub(crate) fn remove_container_files(inner: &Inner, id: &str, dir: &Path) -> io::Result<()> {
    unmount(&dir.join(prepare::ROOTFS))?;
    for entry in fs::read_dir(dir.join(prepare::IMAGES)).into_iter().flatten().flatten() {
        unmount(&entry.path())?;
    }
    remove_dir(dir)?;
    prepare::release_images(inner, id)
}

pub(crate) async fn disk(inner: &Inner, id: &str) -> Result<Option<ContainerDisk>, RuntimeError> {
    let (_, container) = inner.container(id)?;
    let upper = container.dir.join(prepare::UPPER);
    let usage = blocking(move || images::disk_usage(&upper, DISK_TIMEOUT)).await;
    let usage = usage.map_err(failed("measure the container's files"))?;
    Ok(Some(ContainerDisk { bytes: usage.bytes, inodes: usage.inodes }))
}

pub(crate) async fn reopen_log(inner: &Inner, id: &str) -> Result<(), RuntimeError> {
    let (sandbox, _) = inner.container(id)?;
    sandbox.keeper()?.reopen_log(id).await.map_err(failed("reopen the container's log"))
}

pub(crate) async fn update_resources(
    inner: &Arc<Inner>,
    id: &str,
    resources: &LinuxResources,
) -> Result<(), RuntimeError> {
    let (sandbox, container) = inner.container(id)?;
    let (engine, resources, updated) = (inner.clone(), resources.clone(), container.clone());
    let update = blocking(move || prepare::update_resources(&engine, &updated, &resources)).await;
    let update = update.map_err(failed("update the container's resources"))?;
    // A container that does not run gets them at its start.
    if container.state() != ContainerState::Running {
        return Ok(());
    }
    sandbox.keeper()?.update_resources(id, update).await.map_err(failed("update the container's resources"))
}
