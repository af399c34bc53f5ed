//! Exponential back-off for Pods that fail again (`flowcontrol.Backoff`): the delay doubles with each failure, and
//! resets after a period without one.

use crate::clock::saturating_add;
use parking_lot::Mutex;
use std::{collections::HashMap, time::Duration};
use tokio::time::Instant;

const INITIAL_BACKOFF: Duration = Duration::from_secs(1);

/// Entries by owner and item: the end of the delay, and its length.
#[derive(Debug)]
pub(crate) struct Backoff {
    max: Duration,
    entries: Mutex<HashMap<(String, String), (Instant, Duration)>>,
}

impl Backoff {
    pub(crate) fn with_max(max: Duration) -> Self {
        Self { max, entries: Mutex::default() }
    }

    /// Returns the remaining delay of an item. If there is none, the next delay starts, twice as long as the last.
    pub(crate) fn next(&self, owner: &str, operation: String, now: Instant) -> Option<Duration> {
        let (at, max) = ((owner.to_owned(), operation), self.max);
        let mut entries = self.entries.lock();
        // An entry that ended more than the maximum delay ago is reset.
        entries.retain(|_, (until, _)| now.saturating_duration_since(*until) < max);
        let delay = match entries.get(&at) {
            Some((until, _)) if now < *until => return Some(until.saturating_duration_since(now)),
            Some((_, delay)) => delay.saturating_mul(2).min(max),
            None => INITIAL_BACKOFF,
        };
        entries.insert(at, (saturating_add(now, delay), delay));
        None
    }

    pub(crate) fn delete_owner(&self, owner: &str) {
        self.entries.lock().retain(|(key, _), _| key != owner);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backoff_doubles_and_resets_after_the_maximum() {
        let (backoff, start) = (Backoff::with_max(Duration::from_secs(5)), Instant::now());
        let ask = |at, operation: &str| {
            let left = backoff.next("a", operation.to_owned(), start + Duration::from_secs(at));
            left.map(|left| left.as_secs())
        };
        assert_eq!(ask(0, "x"), None);
        assert_eq!(ask(0, "x"), Some(1));
        assert_eq!((ask(1, "x"), ask(1, "x")), (None, Some(2)));
        // Items are independent.
        assert_eq!(ask(1, "y"), None);
        assert_eq!((ask(4, "x"), ask(5, "x")), (None, Some(3)));
        assert_eq!((ask(9, "x"), ask(9, "x")), (None, Some(5)));
        // The delay is reset after a period without failures.
        assert_eq!((ask(20, "x"), ask(20, "x")), (None, Some(1)));
        assert_eq!(backoff.entries.lock().len(), 1, "what is long ago is forgotten");
        backoff.delete_owner("a");
        assert!(backoff.entries.lock().is_empty());
    }
}
