//! What time it is, for those who do something at a time.

use jiff::Timestamp;
use jiff::tz::TimeZone;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Tells the time, and what clocks show where nobody says otherwise.
#[derive(Clone)]
pub struct Clock {
    now: Arc<dyn Fn() -> Timestamp + Send + Sync>,
    zone: TimeZone,
}

impl Clock {
    /// The machine's.
    #[must_use]
    pub fn system() -> Self {
        Self::new(Timestamp::now, TimeZone::system())
    }

    /// Another one.
    pub fn new(now: impl Fn() -> Timestamp + Send + Sync + 'static, zone: TimeZone) -> Self {
        Self { now: Arc::new(now), zone }
    }

    pub(crate) fn now(&self) -> Timestamp {
        (self.now)()
    }

    pub(crate) fn zone(&self) -> &TimeZone {
        &self.zone
    }
}

/// That much later. Spans that clients write may be longer than a clock of the machine goes: then in thirty years.
pub(crate) fn saturating_add(now: Instant, by: Duration) -> Instant {
    now.checked_add(by.min(MAX_DELAY)).unwrap_or(now)
}

/// To the second, as the API keeps times.
pub(crate) fn truncate_to_seconds(time: Timestamp) -> Timestamp {
    Timestamp::from_second(time.as_second()).unwrap_or(time)
}

const MAX_DELAY: Duration = Duration::from_secs(30 * 365 * 24 * 3600);

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Clock").field("zone", &self.zone).finish_non_exhaustive()
    }
}
