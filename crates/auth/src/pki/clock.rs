//! Clock of issuance and renewal of certificates.

use jiff::Timestamp;
use std::{fmt, sync::Arc};

/// A clock, replaceable in tests.
#[derive(Clone)]
pub struct Clock(Arc<dyn Fn() -> Timestamp + Send + Sync>);

impl Clock {
    /// Returns the system clock.
    #[must_use]
    pub fn system() -> Self {
        Self::new(Timestamp::now)
    }

    /// Creates a clock, for tests.
    pub fn new(now: impl Fn() -> Timestamp + Send + Sync + 'static) -> Self {
        Self(Arc::new(now))
    }

    pub(super) fn now(&self) -> Timestamp {
        (self.0)()
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Clock")
    }
}
