//! Steps of a change: blocking work, and errors that name the failed step.

use runtime::RuntimeError;
use std::io;

/// Formats a failed step.
pub(crate) fn failed<E: std::fmt::Display>(step: impl std::fmt::Display) -> impl FnOnce(E) -> RuntimeError {
    move |error| RuntimeError::Failed(format!("failed to {step}: {error}"))
}

/// Runs blocking work.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    tokio::task::spawn_blocking(work).await.map_err(io::Error::other)?
}
