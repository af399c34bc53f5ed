//! `exec` probes: run a command in the container.

use super::truncated_output;
use lifecycle::ProbeOutcome;
use runtime::{ContainerId, Runtime, RuntimeError};
use std::time::Duration;

/// Executes an `exec` probe. Exit code 0 is a success; another exit code and a timeout are failures. A command that
/// cannot be started has an unknown outcome.
pub(crate) async fn probe(
    runtime: &dyn Runtime,
    id: &ContainerId,
    command: &[String],
    timeout: Duration,
) -> ProbeOutcome {
    match runtime.exec_sync(id, command, timeout).await {
        Ok(output) if output.code == 0 => ProbeOutcome::Success,
        Ok(output) => ProbeOutcome::Failure(truncated_output(&[output.stdout, output.stderr].concat())),
        Err(RuntimeError::Deadline(_)) => ProbeOutcome::Failure(timeout_message(command)),
        Err(error) => ProbeOutcome::Unknown(grpc_error_text(&error)),
    }
}

/// Formats a runtime error like the CRI client of upstream (`status.Error`).
fn grpc_error_text(error: &RuntimeError) -> String {
    let (code, message) = match error {
        RuntimeError::NotFound(message) => ("NotFound", message),
        RuntimeError::AlreadyExists(message) => ("AlreadyExists", message),
        RuntimeError::Deadline(message) => ("DeadlineExceeded", message),
        RuntimeError::Unavailable(message) => ("Unavailable", message),
        RuntimeError::Unimplemented(message) => ("Unimplemented", message),
        RuntimeError::Failed(message) => ("Unknown", message),
    };
    format!("rpc error: code = {code} desc = {message}")
}

/// Returns upstream's message for a command that timed out.
pub(crate) fn timeout_message(command: &[String]) -> String {
    format!("command {:?} timed out", command.join(" "))
}
