//! Stops a container: the stop signal, the grace period, SIGKILL.

use crate::state::{Container, Inner, Sandbox};
use runtime::{ContainerState, RuntimeError, StopSignal};
use std::{sync::Arc, time::Duration};

const SIGKILL: i32 = 9;
/// Maximum time until a killed process has ended.
const KILL_TIMEOUT: Duration = Duration::from_secs(60);

/// Stops a container. Each call waits for its own grace period, so that a shorter one shortens an earlier call's.
///
/// # Errors
/// When the container does not end.
pub(crate) async fn stop(
    inner: &Inner,
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
    if !grace.is_zero() {
        send_stop_signal(&sandbox, &container, signal).await?;
        if tokio::time::timeout(grace, container.wait()).await.is_ok() {
            return Ok(());
        }
    }
    kill(&sandbox, &container).await
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
pub(crate) async fn kill(sandbox: &Sandbox, container: &Container) -> Result<(), RuntimeError> {
    let id = container.id();
    if container.state() != ContainerState::Running {
        return Ok(());
    }
    let sent = match sandbox.keeper() {
        Ok(keeper) => keeper.kill_container(&id, SIGKILL, false).await.map_err(|error| error.to_string()),
        Err(error) => Err(error.to_string()),
    };
    match tokio::time::timeout(KILL_TIMEOUT, container.wait()).await {
        Ok(()) => Ok(()),
        Err(_) => {
            let cause = sent.err().unwrap_or_else(|| format!("it did not end within {KILL_TIMEOUT:?}"));
            Err(RuntimeError::Deadline(format!("failed to kill container {id}: {cause}")))
        }
    }
}
