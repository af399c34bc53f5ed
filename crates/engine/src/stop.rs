//! Stops a container: the stop signal, the grace period, SIGKILL.

use crate::{
    keeper_events::end_unobserved,
    sandbox_container,
    state::{Container, Inner, Sandbox},
    steps::failed,
};
use runtime::{ContainerState, RuntimeError, StopSignal};
use std::{sync::Arc, time::Duration};
use tokio::time::{Instant, timeout, timeout_at};

const SIGKILL: i32 = 9;
/// Maximum time until a killed process has ended.
const KILL_TIMEOUT: Duration = Duration::from_secs(60);
/// The same in the sandbox of an OCI runtime, where no device of this machine delays it.
const SANDBOX_KILL_TIMEOUT: Duration = Duration::from_secs(20);
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
    if !grace.is_zero()
        && sandbox.has_keeper()
        && send_stop_signal(&sandbox, &container, signal, grace).await?
        && timeout(grace, container.wait()).await.is_ok()
    {
        return Ok(());
    }
    kill(inner, &sandbox, &container).await
}

/// Sends the stop signal, unless it was sent. Returns whether the container can end by it: `runsc` has no real-time signals.
///
/// # Errors
/// When the keeper has ended, or its connection.
async fn send_stop_signal(
    sandbox: &Arc<Sandbox>,
    container: &Arc<Container>,
    signal: Option<StopSignal>,
    grace: Duration,
) -> Result<bool, RuntimeError> {
    let record = container.record();
    let signal = signal.or(record.stop_signal).unwrap_or(StopSignal::DEFAULT);
    if !container.take_signal() {
        return Ok(true);
    }
    // A container that is being started has no process yet.
    let _started = container.starting.lock().await;
    let (keeper, id) = (sandbox.keeper()?, &record.id);
    let sent = timeout(grace, keeper.kill_container(id, signal.number().cast_signed(), false)).await;
    let cause = match sent {
        Ok(Ok(())) => return Ok(true),
        _ if container.exit().is_some() => return Ok(true),
        Ok(Err(error)) if error.code().is_none() => {
            container.return_signal();
            return Err(failed(format!("signal container {id}"))(error));
        }
        Ok(Err(error)) => error.to_string(),
        Err(_) => "the OCI runtime did not send it in time".to_owned(),
    };
    container.return_signal();
    tracing::warn!(container = id, cause, "failed to send the stop signal, killing the container");
    Ok(false)
}

/// Kills a container, and waits for its end. If the sandbox of an OCI runtime hangs, it is killed with all its containers.
///
/// # Errors
/// When it does not end.
pub(crate) async fn kill(
    inner: &Arc<Inner>,
    sandbox: &Sandbox,
    container: &Arc<Container>,
) -> Result<(), RuntimeError> {
    let (id, mut sandbox_cgroup) = (container.id(), sandbox.record().container_cgroup);
    let limit = if sandbox_cgroup.is_some() { SANDBOX_KILL_TIMEOUT } else { KILL_TIMEOUT };
    let (mut deadline, mut cause) = (Instant::now() + limit, None);
    while container.state() == ContainerState::Running {
        let Ok(keeper) = sandbox.keeper() else { return end_unobserved(inner, sandbox, container).await };
        if let Ok(Err(error)) = timeout_at(deadline, keeper.kill_container(&id, SIGKILL, false)).await {
            cause = Some(error.to_string());
        }
        // Repeated: the OCI runtime may be creating the process, or the keeper may be killed meanwhile.
        if timeout(KILL_INTERVAL, container.wait()).await.is_ok() || Instant::now() <= deadline {
            continue;
        }
        let Some(cgroup) = sandbox_cgroup.take() else {
            let cause = cause.unwrap_or_else(|| format!("it did not end within {KILL_TIMEOUT:?}"));
            return Err(RuntimeError::Deadline(format!("failed to kill container {id}: {cause}")));
        };
        tracing::warn!(container = id, cause, "failed to kill a container, killing its sandbox");
        sandbox_container::kill(&cgroup).await.map_err(failed("kill the sandbox container"))?;
        (deadline, cause) = (Instant::now() + KILL_TIMEOUT, None);
    }
    Ok(())
}
