//! Start of a container, also one that an earlier process of Podium began.
//!
//! The keeper creates and starts a process at most once: it refuses a second request. So a start continues from the state that
//! the keeper reports, whichever process requested it.

use crate::{
    containers::delete_process,
    keeper_events,
    masking::PathVerification,
    prepare::join_pid_namespace,
    records::SandboxState,
    state::{Container, Inner, Sandbox},
    steps::{blocking, failed},
};
use jiff::Timestamp;
use keeper::{Client as Keeper, ErrorCode, Status};
use runtime::{ContainerId, ContainerState, Exit, RuntimeError, RuntimeEvent};
use std::{fs::File, os::fd::AsRawFd, sync::Arc, time::Duration};

/// Exit code and reason of a container that failed to start, as containerd reports them.
const START_ERROR: (i32, &str) = (128, "StartError");
/// Interval of queries while the OCI runtime runs for an earlier request.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Starts a container: the OCI runtime creates its process and starts it.
///
/// # Errors
/// When the OCI runtime refuses. The container is then exited with code 128, `StartError`.
pub(crate) async fn start(inner: Arc<Inner>, id: String) -> Result<(), RuntimeError> {
    let (sandbox, container) = inner.container(&id)?;
    // Until the process runs: a stop that does not see it would leave it running.
    let _changes = sandbox.changes.read().await;
    let _starting = container.starting.lock().await;
    // It may be removed meanwhile.
    inner.container(&id)?;
    if sandbox.record().state != SandboxState::Ready {
        return Err(RuntimeError::Failed(format!("sandbox {} is not ready", sandbox.record().id)));
    }
    if container.state() != ContainerState::Created {
        return Err(RuntimeError::Failed(format!("container {id} was started before")));
    }
    sandbox.keeper()?;
    let (recorded, now) = (container.clone(), Timestamp::now());
    blocking(move || recorded.update(|record| record.started_at = Some(now)))
        .await
        .map_err(failed("record the start of the container"))?;
    complete(&inner, &sandbox, &container).await
}

/// Completes a start that an earlier process requested, and whose process the keeper has not started yet.
pub(crate) async fn resume(inner: Arc<Inner>, sandbox: Arc<Sandbox>, container: Arc<Container>) {
    let _changes = sandbox.changes.read().await;
    let _starting = container.starting.lock().await;
    let id = container.id();
    let is_requested = sandbox.record().state == SandboxState::Ready && container.state() == ContainerState::Running;
    if !is_requested || inner.container(&id).is_err() {
        return;
    }
    tracing::info!(container = id, "completing the start of a container");
    if let Err(error) = complete(&inner, &sandbox, &container).await {
        tracing::warn!(container = id, %error, "failed to complete the start of a container");
        // No caller reports it.
        inner.events.send(RuntimeEvent::ContainerExited(ContainerId(id), container.exit()));
    }
}

/// Makes a container startable again whose start was recorded, and which the keeper does not know: it never ran.
pub(crate) async fn reset(container: &Arc<Container>) {
    // A start of this process continues by itself.
    let Ok(_starting) = container.starting.try_lock() else { return };
    if container.state() != ContainerState::Running {
        return;
    }
    let recorded = container.clone();
    if let Err(error) = blocking(move || recorded.update(|record| record.started_at = None)).await {
        tracing::error!(container = container.id(), %error, "failed to record that a container was not started");
    }
}

async fn complete(inner: &Arc<Inner>, sandbox: &Arc<Sandbox>, container: &Arc<Container>) -> Result<(), RuntimeError> {
    let Err(error) = run(inner, sandbox, container).await else { return Ok(()) };
    let message = format!("failed to start container: {error}");
    record_start_error(inner, sandbox, container, &message).await?;
    Err(RuntimeError::Failed(message))
}

/// Progress of a start.
enum Progress {
    Started,
    /// The next step starts it.
    Created,
    /// The OCI runtime runs for an earlier request.
    Waiting,
}

/// Creates and starts the process. A connection that is renewed meanwhile does not end the start.
async fn run(inner: &Arc<Inner>, sandbox: &Arc<Sandbox>, container: &Arc<Container>) -> Result<(), RuntimeError> {
    let paths = PathVerification::new(container);
    loop {
        let keeper = sandbox.connected_keeper().await?;
        match step(inner, sandbox, container, &keeper, &paths).await {
            Ok(Progress::Started) => return Ok(()),
            Ok(Progress::Created) => {}
            Ok(Progress::Waiting) => tokio::time::sleep(POLL_INTERVAL).await,
            Err(StepError::Keeper(keeper::Error::Disconnected)) => {}
            Err(StepError::Keeper(error)) if error.code() == Some(ErrorCode::AlreadyExists) => {}
            Err(error) => return Err(RuntimeError::Failed(error.to_string())),
        }
    }
}

#[derive(Debug, thiserror::Error)]
enum StepError {
    #[error(transparent)]
    Keeper(#[from] keeper::Error),
    #[error(transparent)]
    Runtime(#[from] RuntimeError),
}

/// Continues from the state that the keeper reports.
async fn step(
    inner: &Arc<Inner>,
    sandbox: &Arc<Sandbox>,
    container: &Arc<Container>,
    keeper: &Keeper,
    paths: &PathVerification,
) -> Result<Progress, StepError> {
    let id = container.id();
    let states = keeper.list_containers().await?;
    let state = states.into_iter().find(|state| state.id == id);
    // A container is deleted only after its exit is known: one that ran is not created again.
    if container.exit().is_some() {
        return Ok(Progress::Started);
    }
    let Some(state) = state else {
        let pid_namespace = match &container.record().target_container {
            Some(target) => Some(pin_pid_namespace(sandbox, container, target, keeper).await?),
            None => None,
        };
        // The containers of a sandbox are no processes of this machine, and get their streams when they are started.
        let is_verified = !sandbox.record().has_container()
            && paths.is_needed().await.map_err(failed("read the container's configuration"))?;
        let created = if is_verified { keeper.create_container(&id).await } else { keeper.run_container(&id).await };
        container.set_pid(Some(created?));
        drop(pid_namespace);
        // A created container is verified in the next step.
        return Ok(if is_verified { Progress::Created } else { Progress::Started });
    };
    container.set_pid(state.pid);
    if let Some(exit) = &state.exit {
        keeper_events::container_exited(inner, sandbox, &id, exit);
        return Ok(Progress::Started);
    }
    match state.status {
        Status::Running | Status::Stopped => Ok(Progress::Started),
        Status::Creating => Ok(Progress::Waiting),
        Status::Created => match start_verified(inner, sandbox, container, keeper, paths).await {
            Ok(()) => Ok(Progress::Started),
            // It is being started, or its process has ended.
            Err(StepError::Keeper(error)) if error.code() == Some(ErrorCode::WrongState) => Ok(Progress::Waiting),
            Err(error) => Err(error),
        },
    }
}

/// Starts a created container, after what hides its paths was verified.
async fn start_verified(
    inner: &Inner,
    sandbox: &Sandbox,
    container: &Container,
    keeper: &Keeper,
    paths: &PathVerification,
) -> Result<(), StepError> {
    let pid = container.pid().ok_or_else(|| RuntimeError::Failed("the container has no process".to_owned()))?;
    paths.verify(inner, sandbox, pid).await.map_err(failed("verify the container's paths"))?;
    Ok(keeper.start_container(&container.id()).await?)
}

/// Opens the process namespace of another container, and lets a container join it. The OCI runtime opens it by the returned
/// descriptor: the process ID may be another process's before it does.
async fn pin_pid_namespace(
    sandbox: &Sandbox,
    container: &Arc<Container>,
    target: &str,
    keeper: &Keeper,
) -> Result<File, StepError> {
    let missing = || RuntimeError::Failed(format!("target container {target} is not running"));
    let found = sandbox.containers.lock().get(target).cloned();
    let pid = found.and_then(|target| target.pid()).ok_or_else(missing)?;
    let namespace = File::open(format!("/proc/{pid}/ns/pid")).map_err(|_| missing())?;
    // The keeper has not reaped the process, so that it was the container's when its namespace was opened.
    let states = keeper.list_containers().await?;
    if !states.iter().any(|state| state.id == target && state.pid == Some(pid)) {
        return Err(missing().into());
    }
    let path = format!("/proc/{}/fd/{}", std::process::id(), namespace.as_raw_fd());
    let dir = container.dir.clone();
    let written = blocking(move || join_pid_namespace(&dir, path.as_ref())).await;
    written.map_err(failed("write the container's configuration"))?;
    Ok(namespace)
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
    if !container.set_exit(exit.clone()) {
        return delete_process(inner, sandbox, container).await;
    }
    record_exit(container, &exit).await;
    delete_process(inner, sandbox, container).await?;
    // As with containerd, a container that failed to start has no start time.
    let failed_start = container.clone();
    let recorded = blocking(move || failed_start.update(|record| record.started_at = None)).await;
    recorded.map_err(failed("record that the container did not start"))
}

/// Records an exit. If that fails, for example because the disk is full, the container has ended all the same: the next start
/// of Podium ends it again, without this exit's reason.
async fn record_exit(container: &Arc<Container>, exit: &Exit) {
    let (ended, exit) = (container.clone(), exit.clone());
    if let Err(error) = blocking(move || ended.update(|record| record.exit = Some(exit))).await {
        tracing::error!(container = container.id(), %error, "failed to record the exit of a container");
    }
}

/// Ends a container whose exit the keeper did not record, and reports it.
pub(crate) async fn end(inner: &Inner, container: &Arc<Container>, exit: Exit) {
    if container.exit().is_some() {
        return;
    }
    record_exit(container, &exit).await;
    if container.set_exit(exit.clone()) {
        inner.events.send(RuntimeEvent::ContainerExited(ContainerId(container.id()), Some(exit)));
    }
}
