//! Stopping a container with a signal of the caller's choice.
//!
//! The CRI takes the signal when a container is created, since 1.33. An older runtime ignores the field and would send its
//! image's signal, or SIGTERM. Of those, containerd can be asked for the signal by its own task service.

use super::{
    CriRuntime, REQUEST_TIMEOUT, call, proto,
    proto::tasks::{KillRequest, WaitRequest},
    tasks::{in_namespace, tasks},
};
use crate::{ContainerId, RuntimeError, StopSignal};
use std::time::Duration;

/// No grace is longer: fifty years.
const LONGEST: Duration = Duration::from_secs(50 * 365 * 24 * 3600);

pub(super) async fn stop(
    runtime: &CriRuntime,
    id: &ContainerId,
    grace: Duration,
    signal: Option<StopSignal>,
) -> Result<(), RuntimeError> {
    let Some(signal) = signal else { return by_cri(runtime, id, grace).await };
    match knows_signal(runtime, id).await {
        Ok(false) => {}
        Ok(true) => return by_cri(runtime, id, grace).await,
        Err(RuntimeError::NotFound(_)) => return Ok(()),
        Err(error) => return Err(error),
    }
    match send(runtime, id, signal).await {
        Ok(()) => wait(runtime, id, grace).await?,
        // It has just ended: the CRI only has to take note.
        Err(RuntimeError::NotFound(_)) => {}
        Err(RuntimeError::Unimplemented(_)) => {
            tracing::warn!(container = %id, %signal, "the container runtime knows no stop signals; it sends its own");
            return by_cri(runtime, id, grace).await;
        }
        Err(error) => return Err(error),
    }
    by_cri(runtime, id, Duration::ZERO).await?;
    runtime.signalled.lock().remove(&id.0);
    Ok(())
}

/// The CRI's own stop: its signal, then SIGKILL; with no grace SIGKILL at once. What is gone has stopped.
async fn by_cri(runtime: &CriRuntime, id: &ContainerId, grace: Duration) -> Result<(), RuntimeError> {
    // Longer ones overflow in runtimes that count nanoseconds, and end at once.
    let grace = grace.min(LONGEST);
    // Whole seconds, rounded up: a grace period is never cut short.
    let seconds = grace.as_secs() + u64::from(grace.subsec_nanos() > 0);
    let timeout = i64::try_from(seconds).unwrap_or(i64::MAX);
    let request = proto::StopContainerRequest { container_id: id.0.clone(), timeout };
    match call(grace + REQUEST_TIMEOUT, runtime.runtime().stop_container(request)).await {
        Ok(_) | Err(RuntimeError::NotFound(_)) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Whether the runtime itself sends the signal that the container was made with: it shows it then.
async fn knows_signal(runtime: &CriRuntime, id: &ContainerId) -> Result<bool, RuntimeError> {
    let request = proto::ContainerId { container_id: id.0.clone() };
    let answer = call(REQUEST_TIMEOUT, runtime.runtime().container_status(request)).await?;
    Ok(answer.status.is_some_and(|status| status.stop_signal != 0))
}

/// Sends the signal, once: to many programs a second one means to hurry. Who shortens the grace waits along.
async fn send(runtime: &CriRuntime, id: &ContainerId, signal: StopSignal) -> Result<(), RuntimeError> {
    if !runtime.signalled.lock().insert(id.0.clone()) {
        return Ok(());
    }
    let request =
        KillRequest { container_id: id.0.clone(), exec_id: String::new(), signal: signal.number(), all: false };
    let sent = call(REQUEST_TIMEOUT, tasks(runtime).kill(in_namespace(request))).await;
    if sent.is_err() {
        runtime.signalled.lock().remove(&id.0);
    }
    sent.map(drop)
}

/// Waits for the container's end, for as long as its grace lasts.
async fn wait(runtime: &CriRuntime, id: &ContainerId, grace: Duration) -> Result<(), RuntimeError> {
    let request = WaitRequest { container_id: id.0.clone(), exec_id: String::new() };
    match call(grace, tasks(runtime).wait(in_namespace(request))).await {
        Ok(_) | Err(RuntimeError::NotFound(_) | RuntimeError::Deadline(_)) => Ok(()),
        // Nobody knows whether it runs: it keeps what is left of its grace, and is asked for again.
        Err(error) => Err(error),
    }
}
