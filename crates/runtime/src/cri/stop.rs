//! Stops a container with a custom stop signal.
//!
//! Since CRI 1.33 the stop signal is part of the container configuration. Older runtimes ignore the field and send the
//! image's signal or SIGTERM. On an older containerd, the signal is sent with the task service.

use super::{
    CriRuntime, REQUEST_TIMEOUT, call,
    proto::{
        self,
        tasks::{KillRequest, WaitRequest},
    },
    tasks::{in_namespace, tasks},
};
use crate::{ContainerId, RuntimeError, StopSignal};
use std::time::Duration;

/// Maximum grace period: 50 years.
const MAX_GRACE_PERIOD: Duration = Duration::from_secs(50 * 365 * 24 * 3600);

pub(super) async fn stop(
    runtime: &CriRuntime,
    id: &ContainerId,
    grace: Duration,
    signal: Option<StopSignal>,
) -> Result<(), RuntimeError> {
    let Some(signal) = signal else { return by_cri(runtime, id, grace).await };
    match has_stop_signal(runtime, id).await {
        Ok(false) => {}
        Ok(true) => return by_cri(runtime, id, grace).await,
        Err(RuntimeError::NotFound(_)) => return Ok(()),
        Err(error) => return Err(error),
    }
    match send(runtime, id, signal).await {
        Ok(()) => wait(runtime, id, grace).await?,
        // The container has exited: the CRI only updates its status.
        Err(RuntimeError::NotFound(_)) => {}
        Err(RuntimeError::Unimplemented(_)) => {
            tracing::warn!(container = %id, %signal, "the container runtime does not support stop signals, sending its default signal");
            return by_cri(runtime, id, grace).await;
        }
        Err(error) => return Err(error),
    }
    by_cri(runtime, id, Duration::ZERO).await?;
    runtime.signalled.lock().remove(&id.0);
    Ok(())
}

/// Calls the CRI's StopContainer: stop signal, then SIGKILL; only SIGKILL without grace. Succeeds if the container does not
/// exist.
async fn by_cri(runtime: &CriRuntime, id: &ContainerId, grace: Duration) -> Result<(), RuntimeError> {
    // Longer grace periods overflow in runtimes that convert to nanoseconds, which then kill at once.
    let grace = grace.min(MAX_GRACE_PERIOD);
    // Rounded up to seconds, so that the grace period is not shortened.
    let seconds = grace.as_secs() + u64::from(grace.subsec_nanos() > 0);
    let timeout = i64::try_from(seconds).unwrap_or(i64::MAX);
    let request = proto::StopContainerRequest { container_id: id.0.clone(), timeout };
    match call(grace + REQUEST_TIMEOUT, runtime.runtime().stop_container(request)).await {
        Ok(_) | Err(RuntimeError::NotFound(_)) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Whether the runtime supports the configured stop signal: it then reports the signal in the container status.
async fn has_stop_signal(runtime: &CriRuntime, id: &ContainerId) -> Result<bool, RuntimeError> {
    let request = proto::ContainerId { container_id: id.0.clone() };
    let answer = call(REQUEST_TIMEOUT, runtime.runtime().container_status(request)).await?;
    Ok(answer.status.is_some_and(|status| status.stop_signal != 0))
}

/// Sends the signal once: many programs exit immediately on a second signal. A call with a shorter grace period does not
/// repeat it.
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

/// Waits for the exit of the container during its grace period.
async fn wait(runtime: &CriRuntime, id: &ContainerId, grace: Duration) -> Result<(), RuntimeError> {
    let request = WaitRequest { container_id: id.0.clone(), exec_id: String::new() };
    match call(grace, tasks(runtime).wait(in_namespace(request))).await {
        Ok(_) | Err(RuntimeError::NotFound(_) | RuntimeError::Deadline(_)) => Ok(()),
        // The state is not known after an error: poll again within the grace period.
        Err(error) => Err(error),
    }
}
