//! Turns for work that is slower the more of it is done at once.

use std::time::Duration;
use tokio::sync::Semaphore;

/// A turn that takes longer has probably hung: it goes on, and does not hold up the next one.
const LONGEST: Duration = Duration::from_secs(2);

/// So many at a time, first come first served.
pub(crate) struct Turns(Semaphore);

impl Turns {
    pub(crate) fn new(at_a_time: usize) -> Self {
        Self(Semaphore::new(at_a_time.clamp(1, Semaphore::MAX_PERMITS)))
    }

    /// Does this work when it is its turn.
    pub(crate) async fn take<T>(&self, work: impl Future<Output = T>) -> T {
        // It is never closed.
        let turn = self.0.acquire().await;
        let mut work = std::pin::pin!(work);
        if let Ok(done) = tokio::time::timeout(LONGEST, &mut work).await {
            return done;
        }
        drop(turn);
        work.await
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
    async fn so_many_are_done_at_a_time_in_their_order() {
        let (turns, running) = (Turns::new(2), AtomicUsize::new(0));
        let start = Instant::now();
        let work = |_| {
            turns.take(async {
                assert!(running.fetch_add(1, Ordering::Relaxed) < 2);
                sleep(Duration::from_secs(1)).await;
                running.fetch_sub(1, Ordering::Relaxed);
                start.elapsed().as_secs()
            })
        };
        let ends = futures::future::join_all((0..6).map(work)).await;
        assert_eq!(ends, [1, 1, 2, 2, 3, 3]);
    }

    #[tokio::test(start_paused = true)]
    async fn what_hangs_holds_the_others_up_for_two_seconds_only() {
        let turns = Turns::new(1);
        let start = Instant::now();
        tokio::select! {
            biased;
            () = turns.take(pending()) => {}
            after = turns.take(async { start.elapsed() }) => assert_eq!(after, LONGEST),
        }
    }
}
