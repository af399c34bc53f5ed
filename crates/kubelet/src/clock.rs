//! Clock of the kubelet.

use jiff::Timestamp;
use std::{sync::Arc, time::Duration};
use tokio::time::Instant;

/// Wall time that never goes back: the later of the wall clock and the start time plus the monotonic clock.
///
/// A wall clock that is set back does not stop back-offs or move deadlines. One that is set forward is followed,
/// because
/// the exit times of the runtime follow it, too.
#[derive(Clone)]
pub struct Clock {
    start: Timestamp,
    monotonic: Instant,
    wall: Arc<dyn Fn() -> Timestamp + Send + Sync>,
}

impl std::fmt::Debug for Clock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Clock").field("start", &self.start).finish_non_exhaustive()
    }
}

impl Clock {
    /// Returns the system clock.
    #[must_use]
    pub fn system() -> Self {
        Self { start: Timestamp::now(), monotonic: Instant::now(), wall: Arc::new(Timestamp::now) }
    }

    /// Returns a clock that starts at `start` and follows tokio's clock, which a test can pause.
    #[must_use]
    pub fn starting_at(start: Timestamp) -> Self {
        Self { start, monotonic: Instant::now(), wall: Arc::new(move || start) }
    }

    /// Returns the current time.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        let counted = self.start.checked_add(self.monotonic.elapsed()).unwrap_or(self.start);
        counted.max((self.wall)())
    }

    /// Returns the duration until `at`; zero if it has passed.
    #[must_use]
    pub fn until(&self, at: Timestamp) -> Duration {
        Duration::try_from(at.duration_since(self.now())).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn clock_does_not_go_back_with_the_wall_clock() {
        let mut clock = Clock::starting_at(Timestamp::UNIX_EPOCH);
        tokio::time::advance(Duration::from_secs(5)).await;
        assert_eq!(clock.now().as_second(), 5);
        clock.wall = Arc::new(|| Timestamp::from_second(100).unwrap_or_default());
        assert_eq!(clock.now().as_second(), 100, "a leap forward is followed");
        assert_eq!(clock.until(Timestamp::UNIX_EPOCH), Duration::ZERO);
    }
}
