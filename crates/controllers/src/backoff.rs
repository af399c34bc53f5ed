//! How long what failed waits before it is made again: twice as long each time, until it has not failed for a good while
//! (`flowcontrol.Backoff`).

use crate::clock::saturating_add;
use std::collections::HashMap;
use std::time::Duration;
use tokio::time::Instant;

const INITIAL_BACKOFF: Duration = Duration::from_secs(1);

/// By owner, and by what its owner calls it: until when to wait, and for how long that was.
#[derive(Debug)]
pub(crate) struct Backoff {
    max: Duration,
    entries: HashMap<(String, String), (Instant, Duration)>,
}

impl Backoff {
    pub(crate) fn with_max(max: Duration) -> Self {
        Self { max, entries: HashMap::new() }
    }

    /// How long it must wait now; if it need not, it must the next time, twice as long.
    pub(crate) fn next(&mut self, owner: &str, what: String, now: Instant) -> Option<Duration> {
        let (at, max) = ((owner.to_owned(), what), self.max);
        // After a good while all begins anew.
        self.entries.retain(|_, (until, _)| now.saturating_duration_since(*until) < max);
        let delay = match self.entries.get(&at) {
            Some((until, _)) if now < *until => return Some(until.saturating_duration_since(now)),
            Some((_, delay)) => delay.saturating_mul(2).min(max),
            None => INITIAL_BACKOFF,
        };
        self.entries.insert(at, (saturating_add(now, delay), delay));
        None
    }

    pub(crate) fn delete_owner(&mut self, owner: &str) {
        self.entries.retain(|(of, _), _| of != owner);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_fails_again_and_again_waits_twice_as_long_each_time() {
        let (mut backoff, start) = (Backoff::with_max(Duration::from_secs(5)), Instant::now());
        let mut ask = |at, what: &str| {
            let left = backoff.next("a", what.to_owned(), start + Duration::from_secs(at));
            left.map(|left| left.as_secs())
        };
        assert_eq!(ask(0, "x"), None);
        assert_eq!(ask(0, "x"), Some(1));
        assert_eq!((ask(1, "x"), ask(1, "x")), (None, Some(2)));
        // Others have nothing to do with it.
        assert_eq!(ask(1, "y"), None);
        assert_eq!((ask(4, "x"), ask(5, "x")), (None, Some(3)));
        assert_eq!((ask(9, "x"), ask(9, "x")), (None, Some(5)));
        // After a good while it begins anew.
        assert_eq!((ask(20, "x"), ask(20, "x")), (None, Some(1)));
        assert_eq!(backoff.entries.len(), 1, "what is long ago is forgotten");
        backoff.delete_owner("a");
        assert!(backoff.entries.is_empty());
    }
}
