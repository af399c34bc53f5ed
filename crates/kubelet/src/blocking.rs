//! Work on the disk, away from the threads that run tasks: a file system that hangs then blocks its own Pod only.

/// Runs this on a thread that may block.
pub(crate) async fn run<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, String> + Send + 'static,
) -> Result<T, String> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(error) => Err(format!("a task on the disk ended without a result: {error}")),
    }
}
