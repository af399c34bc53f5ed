//! Blocking file system work on separate threads: a hanging file system blocks its own Pod only.

/// Runs a closure on a thread for blocking work.
pub(crate) async fn run<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, String> + Send + 'static,
) -> Result<T, String> {
    let span = tracing::Span::current();
    match tokio::task::spawn_blocking(move || span.in_scope(work)).await {
        Ok(result) => result,
        Err(error) => Err(format!("failed to complete a blocking task: {error}")),
    }
}
