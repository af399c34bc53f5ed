//! Moments and spans: what clients write goes into the arithmetic, so that it stops at the ends of time instead of
//! panicking (the crate denies `arithmetic_side_effects`, which finds the operators).

use jiff::Timestamp;
use std::time::Duration;

/// That much later, or the last moment that there is.
pub(crate) fn after(at: Timestamp, by: Duration) -> Timestamp {
    at.saturating_add(by).unwrap_or(Timestamp::MAX)
}

/// That much earlier, or the first moment that there is.
pub(crate) fn before(at: Timestamp, by: Duration) -> Timestamp {
    at.saturating_sub(by).unwrap_or(Timestamp::MIN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_arithmetic_saturates() {
        let now: Timestamp = "2026-11-23T10:00:00Z".parse().unwrap();
        let later: Timestamp = "2026-11-23T10:00:30Z".parse().unwrap();
        assert_eq!(after(now, Duration::from_secs(30)), later);
        assert_eq!(before(later, Duration::from_secs(30)), now);
        for long in [Duration::from_secs(i64::MAX.unsigned_abs()), Duration::MAX] {
            assert_eq!(after(now, long), Timestamp::MAX);
            assert_eq!(before(now, long), Timestamp::MIN);
        }
    }
}
