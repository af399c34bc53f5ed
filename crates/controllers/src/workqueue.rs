//! Rate-limited work queue of keys, with the semantics of client-go's `util/workqueue`.
//!
//! A key that is being processed is handed out again only after [`WorkQueue::done`], so that two workers never have the
//! same key. A key that is added meanwhile is processed once more. One difference: client-go keeps delayed and ready
//! keys in two queues, here a key is queued once, at its earliest time. A reconcile that wants a later time returns it
//! each time it runs.
//!
//! The queue has no clock and no lock: time is an argument, and the controller's loop owns it.

mod rate_limiter;

use crate::clock::saturating_add;
use rate_limiter::{BucketRateLimiter, ItemExponentialFailureRateLimiter};
use std::{
    collections::{BTreeSet, HashMap},
    time::Duration,
};
use tokio::time::Instant;

/// Work queue of a controller.
#[derive(Debug)]
pub(crate) struct WorkQueue {
    /// Queued keys in the order of their time.
    due: BTreeSet<(Instant, String)>,
    /// Time of each queued key.
    queued_at: HashMap<String, Instant>,
    /// Keys that are being processed; with a time if they were added meanwhile.
    processing: HashMap<String, Option<Instant>>,
    /// Earliest times of keys, whenever they are added.
    not_before: HashMap<String, Instant>,
    failures: ItemExponentialFailureRateLimiter,
    rate_limiter: BucketRateLimiter,
}

impl WorkQueue {
    /// Creates a queue whose failed keys are delayed by at most `max_backoff`.
    pub(crate) fn new(max_backoff: Duration) -> Self {
        Self {
            due: BTreeSet::new(),
            queued_at: HashMap::new(),
            processing: HashMap::new(),
            not_before: HashMap::new(),
            failures: ItemExponentialFailureRateLimiter::new(max_backoff),
            rate_limiter: BucketRateLimiter::new(max_backoff),
        }
    }

    /// Adds a key at a time (`Add`, `AddAfter`). The earlier time wins.
    pub(crate) fn add(&mut self, key: String, at: Instant) {
        if let Some(again) = self.processing.get_mut(&key) {
            *again = Some(again.map_or(at, |known| known.min(at)));
            return;
        }
        let at = self.not_before.get(&key).map_or(at, |earliest| at.max(*earliest));
        match self.queued_at.get(&key) {
            Some(known) if *known <= at => return,
            Some(known) => {
                self.due.remove(&(*known, key.clone()));
            }
            None => {}
        }
        self.due.insert((at, key.clone()));
        self.queued_at.insert(key, at);
    }

    /// Adds a failed key after a delay, which it returns (`AddRateLimited`).
    pub(crate) fn add_rate_limited(&mut self, key: String, now: Instant) -> Duration {
        let delay = self.failures.when(&key).max(self.rate_limiter.when(now));
        self.add(key, saturating_add(now, delay));
        delay
    }

    /// Prevents that a key which is being processed is handed out again before a time.
    pub(crate) fn set_not_before(&mut self, key: &str, at: Instant) {
        self.not_before.insert(key.to_owned(), at);
    }

    /// Resets the delay of a key (`Forget`).
    pub(crate) fn forget(&mut self, key: &str) {
        self.failures.forget(key);
    }

    /// Returns the time at which the next key is ready.
    pub(crate) fn next_due(&self) -> Option<Instant> {
        self.due.first().map(|(at, _)| *at)
    }

    /// Takes the next ready key, which is being processed from now on (`Get`).
    pub(crate) fn get(&mut self, now: Instant) -> Option<String> {
        if self.next_due()? > now {
            return None;
        }
        let (_, key) = self.due.pop_first()?;
        self.queued_at.remove(&key);
        self.not_before.remove(&key);
        self.processing.insert(key.clone(), None);
        Some(key)
    }

    /// Ends the processing of a key (`Done`).
    pub(crate) fn done(&mut self, key: &str) {
        if let Some(at) = self.processing.remove(key).flatten() {
            self.add(key.to_owned(), at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX: Duration = Duration::from_secs(1000);

    fn queue() -> (WorkQueue, impl Fn(u64) -> Instant) {
        let start = Instant::now();
        (WorkQueue::new(MAX), move |seconds| start + Duration::from_secs(seconds))
    }

    #[test]
    fn queued_key_is_kept_once_at_its_earliest_time() {
        let (mut queue, at) = queue();
        queue.add("a".into(), at(5));
        queue.add("a".into(), at(9));
        queue.add("b".into(), at(7));
        queue.add("b".into(), at(3));
        assert_eq!(queue.get(at(2)), None);
        assert_eq!(queue.get(at(9)).as_deref(), Some("b"));
        assert_eq!(queue.get(at(9)).as_deref(), Some("a"));
        assert_eq!((queue.get(at(9)), queue.next_due()), (None, None));
    }

    #[test]
    fn key_added_while_processed_is_processed_once_more() {
        let (mut queue, at) = queue();
        queue.add("a".into(), at(0));
        assert_eq!(queue.get(at(0)).as_deref(), Some("a"));
        queue.add("a".into(), at(9));
        queue.add("a".into(), at(1));
        queue.add("b".into(), at(2));
        // Another worker gets another key, not the same one.
        assert_eq!(queue.get(at(9)).as_deref(), Some("b"));
        assert_eq!(queue.get(at(9)), None);
        queue.done("a");
        assert_eq!(queue.get(at(0)), None);
        assert_eq!(queue.get(at(1)).as_deref(), Some("a"));
        queue.done("a");
        queue.done("b");
        assert_eq!((queue.get(at(9)), queue.processing.len()), (None, 0));
    }

    #[test]
    fn events_do_not_shorten_the_minimum_delay() {
        let (mut queue, at) = queue();
        queue.add("a".into(), at(0));
        assert!(queue.get(at(0)).is_some());
        queue.add("a".into(), at(0));
        queue.set_not_before("a", at(5));
        queue.done("a");
        queue.add("a".into(), at(1));
        assert_eq!((queue.next_due(), queue.get(at(4))), (Some(at(5)), None));
        assert!(queue.get(at(5)).is_some());
        queue.done("a");
        queue.add("a".into(), at(2));
        assert_eq!((queue.next_due(), queue.not_before.len()), (Some(at(2)), 0));
    }

    #[test]
    fn event_after_a_failure_is_processed_at_once() {
        let (mut queue, at) = queue();
        queue.add("a".into(), at(0));
        for _ in 0..20 {
            assert!(queue.get(at(0)).is_some());
            queue.done("a");
            queue.add_rate_limited("a".into(), at(0));
            assert_eq!(queue.get(at(0)), None);
            queue.add("a".into(), at(0));
        }
        assert_eq!(queue.add_rate_limited("a".into(), at(0)), MAX);
        queue.forget("a");
        assert_eq!(queue.add_rate_limited("a".into(), at(0)), Duration::from_millis(5));
    }

    #[test]
    fn many_failures_share_ten_retries_per_second() {
        let (mut queue, at) = queue();
        let mut delay = |key: u32| queue.add_rate_limited(key.to_string(), at(0)).as_millis();
        assert!((0..100).all(|key| delay(key) == 5));
        assert_eq!([delay(100), delay(101), delay(102)], [100, 200, 300]);
    }

    #[test]
    fn many_failures_delay_no_key_beyond_the_maximum() {
        let (max, now) = (Duration::from_secs(30), Instant::now());
        let mut queue = WorkQueue::new(max);
        assert!((0..10_000).all(|key| queue.add_rate_limited(key.to_string(), now) <= max));
        let later = now + Duration::from_secs(41);
        assert_eq!(queue.add_rate_limited("late".into(), later), Duration::from_millis(5));
    }
}
