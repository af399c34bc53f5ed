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
        Err(error) => ProbeOutcome::Unknown(of_grpc(&error)),
    }
}

/// What the runtime says, as upstream's CRI client shows it (`status.Error`).
fn of_grpc(error: &RuntimeError) -> String {
    let (code, said) = match error {
        RuntimeError::NotFound(said) => ("NotFound", said),
        RuntimeError::AlreadyExists(said) => ("AlreadyExists", said),
        RuntimeError::Deadline(said) => ("DeadlineExceeded", said),
        RuntimeError::Unavailable(said) => ("Unavailable", said),
        RuntimeError::Unimplemented(said) => ("Unimplemented", said),
        RuntimeError::Failed(said) => ("Unknown", said),
    };
    format!("rpc error: code = {code} desc = {said}")
}

/// Upstream's words for a command that took too long.
pub(crate) fn timed_out(command: &[String]) -> String {
    format!("command {:?} timed out", command.join(" "))
}
