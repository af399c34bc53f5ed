//! Saturating time arithmetic. Client-supplied numbers must not cause an overflow panic (the crate denies
//! `arithmetic_side_effects`, which finds the operators).

use jiff::Timestamp;
use std::time::Duration;

/// Adds a duration; saturates at the maximum timestamp.
pub(crate) fn after(at: Timestamp, by: Duration) -> Timestamp {
    at.saturating_add(by).unwrap_or(Timestamp::MAX)
}

/// Subtracts a duration; saturates at the minimum timestamp.
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
