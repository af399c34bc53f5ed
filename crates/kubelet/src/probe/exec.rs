//! `exec`: a command in the container.

use super::kept;
use lifecycle::ProbeOutcome;
use runtime::{ContainerId, Runtime, RuntimeError};
use std::time::Duration;

/// Exit code 0 is a success, any other and a command that takes too long are failures. A command that cannot be started
/// gives no verdict.
pub(crate) async fn probe(
    runtime: &dyn Runtime,
    id: &ContainerId,
    command: &[String],
    timeout: Duration,
) -> ProbeOutcome {
    match runtime.exec_sync(id, command, timeout).await {
        Ok(output) if output.code == 0 => ProbeOutcome::Success,
        Ok(output) => ProbeOutcome::Failure(kept(&[output.stdout, output.stderr].concat())),
        Err(RuntimeError::Deadline(_)) => ProbeOutcome::Failure(timed_out(command)),
        Err(error) => ProbeOutcome::Unknown(error.to_string()),
    }
}

/// Upstream's words for a command that took too long.
pub(crate) fn timed_out(command: &[String]) -> String {
    format!("command {:?} timed out", command.join(" "))
}
