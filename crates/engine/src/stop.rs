//! Stops a container: the stop signal, the grace period, SIGKILL.

use crate::{
    keeper_events::end_unobserved,
    state::{Container, Inner, Sandbox},
};
use runtime::{ContainerState, RuntimeError, StopSignal};
use std::{sync::Arc, time::Duration};
use tokio::time::Instant;

const SIGKILL: i32 = 9;
/// Maximum time until a killed process has ended.
const KILL_TIMEOUT: Duration = Duration::from_secs(60);
/// Time after which SIGKILL is sent again.
const KILL_INTERVAL: Duration = Duration::from_secs(1);

/// Stops a container. Each call waits for its own grace period, so that a shorter one shortens an earlier call's.
///
/// # Errors
/// When the container does not end.
pub(crate) async fn stop(
    inner: &Arc<Inner>,
    id: &str,
    grace: Duration,
    signal: Option<StopSignal>,
) -> Result<(), RuntimeError> {
    let (sandbox, container) = match inner.container(id) {
        Ok(found) => found,
        Err(RuntimeError::NotFound(_)) => return Ok(()),
        Err(error) => return Err(error),
    };
    if container.state() != ContainerState::Running {
        return Ok(());
    }
    if !grace.is_zero() && sandbox.has_keeper() {
        send_stop_signal(&sandbox, &container, signal).await?;
        if tokio::time::timeout(grace, container.wait()).await.is_ok() {
            return Ok(());
        }
    }
    kill(inner, &sandbox, &container).await
}

async fn send_stop_signal(
    sandbox: &Arc<Sandbox>,
    container: &Arc<Container>,
    signal: Option<StopSignal>,
) -> Result<(), RuntimeError> {
    let record = container.record();
    let signal = signal.or(record.stop_signal).unwrap_or(StopSignal::DEFAULT);
    if !container.take_signal() {
        return Ok(());
    }
    // A container that is being started has no process yet.
    let _started = container.starting.lock().await;
    let sent = sandbox.keeper()?.kill_container(&record.id, signal.number().cast_signed(), false).await;
    if let Err(error) = sent
        && container.exit().is_none()
    {
        container.return_signal();
        return Err(RuntimeError::Failed(format!("failed to signal container {}: {error}", record.id)));
    }
    Ok(())
}

/// Kills a container, and waits for its end.
///
/// # Errors
/// When it does not end.
pub(crate) async fn kill(
    inner: &Arc<Inner>,
    sandbox: &Sandbox,
    container: &Arc<Container>,
) -> Result<(), RuntimeError> {
    let (id, deadline) = (container.id(), Instant::now() + KILL_TIMEOUT);
    let mut cause = None;
    while container.state() == ContainerState::Running {
        let Ok(keeper) = sandbox.keeper() else { return end_unobserved(inner, sandbox, container).await };
        if let Err(error) = keeper.kill_container(&id, SIGKILL, false).await {
            cause = Some(error.to_string());
        }
        // Repeated: the OCI runtime may be creating the process, or the keeper may be killed meanwhile.
        if tokio::time::timeout(KILL_INTERVAL, container.wait()).await.is_err() && Instant::now() > deadline {
            let cause = cause.unwrap_or_else(|| format!("it did not end within {KILL_TIMEOUT:?}"));
            return Err(RuntimeError::Deadline(format!("failed to kill container {id}: {cause}")));
        }
    }
    Ok(())
}
