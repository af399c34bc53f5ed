//! Follows the events of the keepers: exits of containers and exec processes, and the end of a keeper.

use crate::{
    adopt, containers, keeper_process,
    records::SandboxState,
    sandbox_container, start,
    state::{Container, Inner, Sandbox},
    steps::blocking,
    tasks::Tasks,
};
use jiff::Timestamp;
use keeper::{Client as Keeper, Event, Events};
use runtime::{ContainerId, ContainerState, Exit, RuntimeEvent, SandboxId};
use std::{
    path::Path,
    sync::{Arc, Weak},
};

/// Exit code and reason of a container whose exit code nobody saw, as upstream's kubelet reports it.
const UNKNOWN_EXIT: (i32, &str) = (137, "ContainerStatusUnknown");

/// Follows the events of a sandbox's keeper in a task, until the keeper ends or the engine is closed or dropped.
pub(crate) fn follow(inner: &Arc<Inner>, sandbox: &Arc<Sandbox>, events: Events) {
    tokio::spawn(run(Arc::downgrade(inner), inner.tasks.clone(), sandbox.clone(), events));
}

async fn run(inner: Weak<Inner>, tasks: Tasks, sandbox: Arc<Sandbox>, mut events: Events) {
    // Also when the engine is closed: changes that run wait for exits.
    while let Some(event) = events.next().await {
        let Some(inner) = inner.upgrade() else { return };
        match event {
            Event::ContainerExited { id, .. } if id == sandbox.record().id => {
                // In a task: it waits for further events.
                inner.tasks.spawn(sandbox_container::ended(sandbox.clone()));
            }
            Event::ContainerExited { id, exit } => container_exited(&inner, &sandbox, &id, &exit),
            Event::ExecExited { id, exec_id, exit_code } => sandbox.execs.exited(&id, &exec_id, exit_code),
        }
    }
    // The owner of a closed engine may be ending the keepers.
    let (Some(inner), Some(_change)) = (inner.upgrade(), tasks.begin()) else { return };
    sandbox.execs.end();
    // The connection may have ended alone, for example after too many events that wait.
    if !sandbox.is_ending()
        && let Ok(keeper) = Keeper::connect(&sandbox.dir).await
        && adopt::follow(&inner, &sandbox, &keeper).await
    {
        // The events of the meantime are lost.
        inner.events.send(RuntimeEvent::Resync);
        return;
    }
    if sandbox.is_ending() {
        sandbox.take_keeper();
        return;
    }
    // A keeper without a connection would be a second parent. It is forgotten when it has ended with its runs of the OCI
    // runtime: the containers are deleted then.
    keeper_process::kill_keeper(&sandbox.dir).await;
    sandbox.take_keeper();
    keeper_lost(&inner, &sandbox).await;
}

/// Converts an exit of the keeper.
pub(crate) fn exit(exit: &keeper::Exit) -> Exit {
    let reason = match exit.exit_code {
        _ if exit.oom_killed => "OOMKilled",
        0 => "Completed",
        _ => "Error",
    };
    let finished_at = Timestamp::from_nanosecond(i128::from(exit.finished_at)).unwrap_or(Timestamp::UNIX_EPOCH);
    let message = exit.store_error.as_ref().map(|error| format!("The exit is not stored on disk: {error}"));
    Exit { code: exit.exit_code, reason: reason.to_owned(), message: message.unwrap_or_default(), finished_at }
}

/// Takes over an exit of the keeper, and deletes the container in the OCI runtime.
pub(crate) fn container_exited(inner: &Arc<Inner>, sandbox: &Arc<Sandbox>, id: &str, reported: &keeper::Exit) {
    let Some(container) = sandbox.containers.lock().get(id).cloned() else { return };
    let exit = exit(reported);
    if container.set_exit(exit.clone()) {
        inner.events.send(RuntimeEvent::ContainerExited(ContainerId(id.to_owned()), Some(exit)));
    }
    containers::delete_in_background(inner, sandbox, &container);
}

/// Ends what a keeper left that was killed: nothing runs without a keeper.
pub(crate) async fn keeper_lost(inner: &Arc<Inner>, sandbox: &Arc<Sandbox>) {
    let record = sandbox.record();
    tracing::warn!(sandbox = record.id, pod = record.name, namespace = record.namespace, "the keeper was killed");
    end_sandbox_container(inner, sandbox).await;
    for container in sandbox.all_containers() {
        if let Err(error) = end_unobserved(inner, sandbox, &container).await {
            tracing::error!(container = container.id(), %error, "failed to end a container without a keeper");
        }
    }
    let stopped = sandbox.clone();
    if let Err(error) = blocking(move || stopped.set_state(SandboxState::Stopped)).await {
        tracing::error!(sandbox = record.id, %error, "failed to record the end of a sandbox");
    }
    inner.events.send(RuntimeEvent::SandboxExited(SandboxId(record.id)));
}

/// Ends the sandbox container, if any, of a sandbox without a keeper. Errors are logged: the sandbox's stop tries again.
pub(crate) async fn end_sandbox_container(inner: &Inner, sandbox: &Sandbox) {
    if let Err(error) = sandbox_container::delete(inner, sandbox).await {
        tracing::error!(sandbox = sandbox.record().id, %error, "failed to end a sandbox container without a keeper");
    }
}

/// Kills a container without a keeper. Its exit is the recorded one, if the keeper lived until then.
pub(crate) async fn end_unobserved(
    inner: &Arc<Inner>,
    sandbox: &Sandbox,
    container: &Arc<Container>,
) -> Result<(), runtime::RuntimeError> {
    containers::delete_process(inner, sandbox, container).await?;
    if container.state() != ContainerState::Running {
        return Ok(());
    }
    if let Some(recorded) = read_exit(&container.dir) {
        let exit = exit(&recorded);
        if container.set_exit(exit.clone()) {
            inner.events.send(RuntimeEvent::ContainerExited(ContainerId(container.id()), Some(exit)));
        }
        return Ok(());
    }
    let (code, reason) = UNKNOWN_EXIT;
    let message = "The keeper of the Pod was killed, and its containers with it; the exit code is not known".to_owned();
    let exit = Exit { code, reason: reason.to_owned(), message, finished_at: Timestamp::now() };
    start::end(inner, container, exit).await;
    Ok(())
}

/// Reads the exit that a keeper recorded.
pub(crate) fn read_exit(container_dir: &Path) -> Option<keeper::Exit> {
    let text = files::read_bounded(&container_dir.join("exit.json"), 1 << 16).ok()?;
    serde_json::from_slice(&text).ok()
}
