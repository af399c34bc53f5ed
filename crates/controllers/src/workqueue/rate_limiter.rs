//! Rate limiters of failed keys (client-go's `DefaultTypedControllerRateLimiter`): the delay is the longer one of the
//! key's own back-off and of a bucket that all keys of the controller share.

use crate::clock::saturating_add;
use std::{collections::HashMap, time::Duration};
use tokio::time::Instant;

/// Delay of a key's first retry.
const BASE_DELAY: Duration = Duration::from_millis(5);
/// Interval at which the bucket gets a token: 10 retries per second.
const TOKEN_INTERVAL: Duration = Duration::from_millis(100);
/// Time in which the empty bucket gets its 100 tokens.
const FILL_TIME: Duration = Duration::from_secs(10);

/// Delay that doubles with each failure of a key.
#[derive(Debug)]
pub(super) struct ItemExponentialFailureRateLimiter {
    max_delay: Duration,
    failures: HashMap<String, u32>,
}

impl ItemExponentialFailureRateLimiter {
    pub(super) fn new(max_delay: Duration) -> Self {
        Self { max_delay, failures: HashMap::new() }
    }

    /// Counts a failure. Returns the delay after which the key is retried.
    pub(super) fn when(&mut self, key: &str) -> Duration {
        let failures = self.failures.entry(key.to_owned()).or_default();
        let delay = BASE_DELAY.saturating_mul(2_u32.saturating_pow(*failures)).min(self.max_delay);
        *failures = failures.saturating_add(1);
        delay
    }

    pub(super) fn forget(&mut self, key: &str) {
        self.failures.remove(key);
    }
}

/// Token bucket with a maximum delay (`TypedWithMaxWaitRateLimiter`).
#[derive(Debug)]
pub(super) struct BucketRateLimiter {
    max_delay: Duration,
    /// Time at which the bucket is full again; `None` before the first token is taken.
    full_at: Option<Instant>,
}

impl BucketRateLimiter {
    pub(super) fn new(max_delay: Duration) -> Self {
        Self { max_delay, full_at: None }
    }

    /// Takes a token. Returns the time until the bucket has it. If that exceeds the maximum delay, takes none: a burst
    /// of failures must not delay keys that fail long after it.
    pub(super) fn when(&mut self, now: Instant) -> Duration {
        let full_at = saturating_add(self.full_at.map_or(now, |at| at.max(now)), TOKEN_INTERVAL);
        let delay = full_at.saturating_duration_since(now).saturating_sub(FILL_TIME);
        if delay > self.max_delay {
            return self.max_delay;
        }
        self.full_at = Some(full_at);
        delay
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delay_doubles_up_to_the_maximum_for_each_key() {
        let mut limiter = ItemExponentialFailureRateLimiter::new(Duration::from_secs(1000));
        let delays: Vec<u128> = (0..40).map(|_| limiter.when("a").as_millis()).collect();
        assert_eq!(delays[..5], [5, 10, 20, 40, 80]);
        assert_eq!((delays[17], delays[18], delays[39]), (655_360, 1_000_000, 1_000_000));
        assert_eq!(limiter.when("b").as_millis(), 5);
        limiter.forget("a");
        assert_eq!((limiter.when("a").as_millis(), limiter.failures.len()), (5, 2));
    }

    #[test]
    fn bucket_refills_at_ten_tokens_per_second() {
        let (mut bucket, start) = (BucketRateLimiter::new(Duration::from_secs(1000)), Instant::now());
        let mut take = |millis| bucket.when(start + Duration::from_millis(millis)).as_millis();
        assert!((0..100).all(|_| take(0) == 0));
        assert_eq!([take(0), take(0), take(100), take(400)], [100, 200, 200, 0]);
        // The bucket holds no more than its burst, however long it was not used.
        assert!((0..100).all(|_| take(1_000_000) == 0));
        assert_eq!(take(1_000_000), 100);
    }

    #[test]
    fn bucket_takes_no_token_beyond_the_maximum_delay() {
        let (mut bucket, start) = (BucketRateLimiter::new(Duration::from_secs(30)), Instant::now());
        let mut take = |seconds| bucket.when(start + Duration::from_secs(seconds)).as_millis();
        let longest = (0..10_000).map(|_| take(0)).max();
        assert_eq!((longest, take(0)), (Some(30_000), 30_000));
        assert_eq!((take(1), take(30)), (29_100, 200));
        assert!((0..100).all(|_| take(41) == 0));
    }
}
