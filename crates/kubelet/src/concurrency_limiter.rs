//! Limit on concurrent work.

use std::time::Duration;
use tokio::sync::Semaphore;

/// Maximum time that a future holds a permit. It continues without one, so that a hanging future does not block the
/// others.
const MAX_PERMIT_DURATION: Duration = Duration::from_secs(2);

/// Runs at most a fixed number of futures at once, in FIFO order.
pub(crate) struct ConcurrencyLimiter(Semaphore);

impl ConcurrencyLimiter {
    pub(crate) fn new(limit: usize) -> Self {
        Self(Semaphore::new(limit.clamp(1, Semaphore::MAX_PERMITS)))
    }

    /// Runs a future when a permit is free.
    pub(crate) async fn run<T>(&self, future: impl Future<Output = T>) -> T {
        // The semaphore is never closed.
        let permit = self.0.acquire().await;
        let mut future = std::pin::pin!(future);
        if let Ok(output) = tokio::time::timeout(MAX_PERMIT_DURATION, &mut future).await {
            return output;
        }
        drop(permit);
        future.await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        future::pending,
        sync::atomic::{AtomicUsize, Ordering},
    };
    use tokio::time::{Instant, sleep};

    #[tokio::test(start_paused = true)]
    async fn limiter_runs_futures_in_order_up_to_its_limit() {
        let (limiter, running) = (ConcurrencyLimiter::new(2), AtomicUsize::new(0));
        let start = Instant::now();
        let future = |_| {
            limiter.run(async {
                assert!(running.fetch_add(1, Ordering::Relaxed) < 2);
                sleep(Duration::from_secs(1)).await;
                running.fetch_sub(1, Ordering::Relaxed);
                start.elapsed().as_secs()
            })
        };
        let ends = futures::future::join_all((0..6).map(future)).await;
        assert_eq!(ends, [1, 1, 2, 2, 3, 3]);
    }

    #[tokio::test(start_paused = true)]
    async fn hanging_future_blocks_the_limiter_for_two_seconds() {
        let limiter = ConcurrencyLimiter::new(1);
        let start = Instant::now();
        tokio::select! {
            biased;
            () = limiter.run(pending()) => {}
            after = limiter.run(async { start.elapsed() }) => assert_eq!(after, MAX_PERMIT_DURATION),
        }
    }
}
