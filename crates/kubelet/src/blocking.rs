//! Blocking file system work on separate threads: a hanging file system blocks its own Pod only.

use std::io;
use tokio::task::JoinError;

/// A blocking task panicked, or the process is exiting.
#[derive(Debug, thiserror::Error)]
#[error("failed to complete a blocking task: {0}")]
pub(crate) struct BlockingTaskError(#[source] JoinError);

impl From<BlockingTaskError> for io::Error {
    fn from(error: BlockingTaskError) -> Self {
        Self::other(error)
    }
}

/// Runs a closure on a thread for blocking work.
pub(crate) async fn run<T, E>(work: impl FnOnce() -> Result<T, E> + Send + 'static) -> Result<T, E>
where
    T: Send + 'static,
    E: From<BlockingTaskError> + Send + 'static,
{
    run_infallible(work).await?
}

/// Runs a closure that cannot fail on a thread for blocking work.
pub(crate) async fn run_infallible<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, BlockingTaskError> {
    let span = tracing::Span::current();
    tokio::task::spawn_blocking(move || span.in_scope(work)).await.map_err(BlockingTaskError)
}
