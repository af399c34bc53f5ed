//! Creation and removal of containers.

use crate::{
    cgroup::Cgroup,
    directories::remove_dir,
    oci_runtime,
    pod_files::unmount,
    prepare,
    records::SandboxState,
    rootfs, sandbox_container,
    sandboxes::new_id,
    state::{Container, Inner, Sandbox},
    steps::{blocking, failed},
    stop,
};
use keeper::{Client as Keeper, ErrorCode};
use runtime::{
    ContainerConfig, ContainerDisk, ContainerId, ContainerState, LinuxResources, RuntimeError, SandboxConfig,
};
use std::{fs, io, path::Path, sync::Arc, time::Duration};
use tokio::time::Instant;

/// Maximum time that other calls of the keeper use a container, and interval of attempts to delete it.
const DELETE_TIMEOUT: Duration = Duration::from_secs(30);
const DELETE_INTERVAL: Duration = Duration::from_millis(10);
/// Maximum time to measure a writable layer.
const DISK_TIMEOUT: Duration = Duration::from_secs(30);

/// Creates a container: its root file system, its OCI configuration and its record. No process is created yet.
///
/// No lock is held while its files are prepared: a file system that does not respond must not block the rest of the Pod.
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
    let _reservation = Reservation::new(&sandbox, &config.name, config.attempt)?;
    // After the reservation: a removal sees either the one or the other.
    check_ready(&sandbox)?;
    check_cgroup_driver(&sandbox, &sandbox_config)?;
    if let Some(target) = &config.security.target_container {
        if sandbox.record().has_container() {
            let text = "runtime handlers with a sandbox container cannot share the process namespace of one container";
            return Err(RuntimeError::Unimplemented(text.to_owned()));
        }
        let found = sandbox.containers.lock().get(&target.0).cloned();
        if found.is_none_or(|target| target.state() != ContainerState::Running) {
            return Err(RuntimeError::Failed(format!("target container {} is not running", target.0)));
        }
    }
    let id = new_id();
    let dir = Sandbox::containers_dir(&sandbox.dir).join(&id);
    let record = sandbox.record();
    let pid_namespace = sandbox_container::pid_namespace(&sandbox, config.security.namespaces.pid).await?;
    let request = prepare::Request {
        id: id.clone(),
        dir: dir.clone(),
        pid_namespace,
        config,
        recursive_read_only: inner.recursive_read_only_mounts(&record.runtime_handler).await,
        sandbox: record,
        sandbox_config,
        files: sandbox.files.clone(),
        namespaces: sandbox.keeper()?.hello().clone(),
        apparmor: inner.apparmor.current().await,
    };
    let engine = inner.clone();
    let prepared = tokio::task::spawn_blocking(move || prepare::prepare(&engine, &request)).await;
    let prepared = prepared.unwrap_or_else(|error| Err(RuntimeError::Failed(error.to_string())));
    // A stop of the sandbox has not begun, and sees the container; or it has ended, and the container does not exist.
    let _changes = sandbox.changes.read().await;
    match prepared.and_then(|record| check_ready(&sandbox).map(|()| record)) {
        Ok(record) => {
            let container = Arc::new(Container::new(dir, record, None));
            sandbox.containers.lock().insert(id.clone(), container);
            Ok(ContainerId(id))
        }
        Err(error) => {
            let engine = inner.clone();
            let cleaned = blocking(move || remove_container_files(&engine, &sandbox_id, &id, &dir)).await;
            if let Err(error) = cleaned {
                tracing::warn!(%error, "failed to remove an incomplete container");
            }
            Err(error)
        }
    }
}

fn check_ready(sandbox: &Sandbox) -> Result<(), RuntimeError> {
    let record = sandbox.record();
    match record.state {
        SandboxState::Ready => Ok(()),
        _ => Err(RuntimeError::Failed(format!("sandbox {} is not ready", record.id))),
    }
}

/// Refuses a cgroup of another driver than that of the sandbox: the container would not be in its Pod's cgroup.
fn check_cgroup_driver(sandbox: &Sandbox, config: &SandboxConfig) -> Result<(), RuntimeError> {
    let record = sandbox.record();
    if record.systemd_cgroup == bundle::is_systemd_cgroup(config.cgroup_parent.as_deref()) {
        return Ok(());
    }
    let driver = if record.systemd_cgroup { "systemd" } else { "cgroupfs" };
    Err(RuntimeError::Failed(format!("sandbox {} was created with the cgroup driver {driver}", record.id)))
}

/// Reservation of a container's name during its creation.
struct Reservation<'a> {
    sandbox: &'a Sandbox,
    name: (String, u32),
}

impl<'a> Reservation<'a> {
    fn new(sandbox: &'a Sandbox, name: &str, attempt: u32) -> Result<Self, RuntimeError> {
        let mut problem = None;
        sandbox.creating.send_if_modified(|creating| {
            let is_used = |container: &Arc<Container>| {
                let record = container.record();
                record.name == name && record.attempt == attempt
            };
            if sandbox.all_containers().iter().any(is_used) {
                problem = Some("exists already");
            } else if !creating.insert((name.to_owned(), attempt)) {
                problem = Some("is being created");
            }
            problem.is_none()
        });
        match problem {
            None => Ok(Self { sandbox, name: (name.to_owned(), attempt) }),
            Some(problem) => {
                Err(RuntimeError::AlreadyExists(format!("container {name} with attempt {attempt} {problem}")))
            }
        }
    }
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        self.sandbox.creating.send_modify(|creating| {
            creating.remove(&self.name);
        });
    }
}

/// Deletes an exited container in the OCI runtime, in the background.
pub(crate) fn delete_in_background(inner: &Arc<Inner>, sandbox: &Arc<Sandbox>, container: &Arc<Container>) {
    let (engine, sandbox, container) = (inner.clone(), sandbox.clone(), container.clone());
    inner.tasks.spawn(async move {
        if let Err(error) = delete_process(&engine, &sandbox, &container).await {
            tracing::warn!(container = container.id(), %error, "failed to delete an exited container");
        }
    });
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
///
/// # Errors
/// When the OCI runtime fails.
pub(crate) async fn delete_with_keeper(keeper: &Keeper, id: &str) -> Result<(), RuntimeError> {
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
    let _changes = sandbox.changes.read().await;
    // A start that is not complete would leave a process running.
    let _starting = container.starting.lock().await;
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
    let (removed, sandbox_id) = (id.clone(), sandbox.record().id);
    blocking(move || remove_container_files(&engine, &sandbox_id, &removed, &dir))
        .await
        .map_err(failed("remove the container's files"))?;
    sandbox.containers.lock().remove(&id);
    Ok(())
}

/// Unmounts and removes a container's directory, and releases its images.
///
/// # Errors
/// When the file system fails.
pub(crate) fn remove_container_files(inner: &Inner, sandbox: &str, id: &str, dir: &Path) -> io::Result<()> {
    rootfs::remove(dir, sandbox, id)?;
    let lower = dir.join(prepare::LOWER);
    if lower.exists() {
        files::mounts::unmount_tree(&lower).map_err(io::Error::other)?;
    }
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
