//! Clock and time zone of the controllers, replaceable in tests.

use jiff::{Timestamp, tz::TimeZone};
use std::{fmt, sync::Arc, time::Duration};
use tokio::time::Instant;

/// Source of the current time and of the default time zone.
#[derive(Clone)]
pub struct Clock {
    now: Arc<dyn Fn() -> Timestamp + Send + Sync>,
    zone: TimeZone,
}

impl Clock {
    /// Returns the system clock.
    #[must_use]
    pub fn system() -> Self {
        Self::new(Timestamp::now, TimeZone::system())
    }

    /// Returns a clock that calls `now`.
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

/// Adds a duration that a client may have chosen, capped at 30 years: `Instant` cannot hold all of them.
pub(crate) fn saturating_add(now: Instant, by: Duration) -> Instant {
    now.checked_add(by.min(MAX_DELAY)).unwrap_or(now)
}

/// Truncates to full seconds, as the API stores times.
pub(crate) fn truncate_to_seconds(time: Timestamp) -> Timestamp {
    Timestamp::from_second(time.as_second()).unwrap_or(time)
}

const MAX_DELAY: Duration = Duration::from_secs(30 * 365 * 24 * 3600);

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Clock").field("zone", &self.zone).finish_non_exhaustive()
    }
}
