//! Tasks that change something. They run to their end, also when nobody waits, until the engine is closed.

use runtime::RuntimeError;
use std::time::Duration;
use tokio_util::{
    sync::CancellationToken,
    task::task_tracker::{TaskTracker, TaskTrackerToken},
};

/// Maximum time that [`Tasks::close`] waits. The creation of a container may hang because of a file system.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

/// The tasks of an engine.
#[derive(Debug, Clone, Default)]
pub(crate) struct Tasks {
    running: TaskTracker,
    closed: CancellationToken,
}

impl Tasks {
    /// Marks the begin of a change, which ends when the token is dropped; `None` when the engine is closed.
    pub(crate) fn begin(&self) -> Option<TaskTrackerToken> {
        // The token comes first: `close` waits for it, or it is not used.
        let token = self.running.token();
        (!self.closed.is_cancelled()).then_some(token)
    }

    /// Starts a task, unless the engine is closed.
    pub(crate) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        if let Some(token) = self.begin() {
            tokio::spawn(async move {
                work.await;
                drop(token);
            });
        }
    }

    /// Runs a change to its end, even if the caller stops waiting: half of a change would need a repair.
    ///
    /// # Errors
    /// Those of the change, and when the engine is closed.
    pub(crate) async fn to_the_end<T: Send + 'static>(
        &self,
        change: impl Future<Output = Result<T, RuntimeError>> + Send + 'static,
    ) -> Result<T, RuntimeError> {
        let Some(token) = self.begin() else { return Err(RuntimeError::Failed("the engine is closed".to_owned())) };
        let change = tokio::spawn(async move {
            let result = change.await;
            drop(token);
            result
        });
        change.await.map_err(|error| RuntimeError::Failed(error.to_string()))?
    }

    /// Refuses new changes, and waits for those that run, for a limited time.
    pub(crate) async fn close(&self) {
        self.closed.cancel();
        self.running.close();
        if tokio::time::timeout(CLOSE_TIMEOUT, self.running.wait()).await.is_err() {
            tracing::warn!(changes = self.running.len(), "changes of containers have not ended in time");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    };

    #[tokio::test(start_paused = true)]
    async fn close_waits_for_changes_whose_caller_is_gone() {
        let (tasks, done) = (Arc::new(Tasks::default()), Arc::new(AtomicBool::new(false)));
        let change = {
            let (tasks, done) = (tasks.clone(), done.clone());
            tokio::spawn(async move {
                let slow = async move {
                    tokio::time::sleep(Duration::from_secs(1)).await;
                    done.store(true, Ordering::SeqCst);
                    Ok(())
                };
                tasks.to_the_end(slow).await
            })
        };
        tokio::task::yield_now().await;
        change.abort();
        tasks.close().await;
        assert!(done.load(Ordering::SeqCst));
        tasks.to_the_end(async { Ok(()) }).await.unwrap_err();
        assert!(tasks.begin().is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn change_that_hangs_does_not_hold_up_close() {
        let tasks = Tasks::default();
        tasks.spawn(std::future::pending());
        tasks.close().await;
    }
}
