//! Removes all Pods of an owner.

use super::CriRuntime;
use crate::{Runtime, RuntimeError, SandboxId};
use std::{path::Path, time::Duration};

/// Time during which the removal of Pods is retried.
const REMOVAL_TIMEOUT: Duration = Duration::from_secs(10);
/// Delay before a retry.
const RETRY_DELAY: Duration = Duration::from_millis(50);

/// Stops and removes every sandbox of an owner, with all containers. Retries for a while: a stop fails while the runtime still
/// processes the kubelet's stop of the same sandbox.
///
/// # Errors
/// If the runtime does not respond, or a sandbox cannot be removed.
pub async fn remove_pods(endpoint: &str, owner: &Path) -> Result<(), RuntimeError> {
    let runtime = CriRuntime::new(endpoint, owner)?;
    let deadline = tokio::time::Instant::now() + REMOVAL_TIMEOUT;
    loop {
        let removals = runtime.sandboxes().await?.into_iter().map(|s| remove_pod(&runtime, s.id));
        // All calls are awaited: a cancelled removal would make the next attempt fail.
        let failed = futures::future::join_all(removals).await.into_iter().find_map(Result::err);
        match failed {
            None => return Ok(()),
            Some(error) if tokio::time::Instant::now() > deadline => return Err(error),
            Some(error) => tracing::debug!(%error, "failed to remove a Pod, retrying"),
        }
        tokio::time::sleep(RETRY_DELAY).await;
    }
}

async fn remove_pod(runtime: &CriRuntime, id: SandboxId) -> Result<(), RuntimeError> {
    runtime.stop_sandbox(&id).await?;
    runtime.remove_sandbox(&id).await
}
