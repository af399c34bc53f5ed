//! Event correlation like client-go's `EventCorrelator`: equal events are counted, similar ones aggregated, and the
//! rate
//! per object is limited. Pure: the time is an argument.

use jiff::{SignedDuration, Timestamp};
use std::{
    collections::{BTreeSet, HashMap},
    hash::Hash,
};

/// Limit of entries of each cache (client-go's `maxLruCacheEntries`).
const MAX_CACHE_ENTRIES: usize = 4096;
/// Number of different messages from which similar events are aggregated (`defaultAggregateMaxEvents`).
const AGGREGATE_MAX_EVENTS: usize = 10;
/// Idle time that resets an aggregation (`defaultAggregateIntervalInSeconds`).
const AGGREGATE_INTERVAL: SignedDuration = SignedDuration::from_mins(10);
/// Prefix of an aggregated message.
const AGGREGATED_PREFIX: &str = "(combined from similar events): ";
/// Burst of events about one object (`defaultSpamBurst`).
const BURST: f64 = 25.0;
/// Seconds per further event about one object (`defaultSpamQPS`).
const SECONDS_PER_TOKEN: f64 = 300.0;

/// An event to correlate.
#[derive(Debug, Clone, Copy)]
pub(super) struct Occurrence<'a> {
    /// Kind and UID of the object.
    pub(super) object: &'a str,
    /// Field path in the object.
    pub(super) field_path: &'a str,
    /// `Normal` or `Warning`.
    pub(super) kind: &'a str,
    pub(super) reason: &'a str,
    pub(super) message: &'a str,
}

/// Event to write.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct CorrelatedEvent {
    pub(super) message: String,
    pub(super) count: i32,
    pub(super) first: Timestamp,
    /// Name of the Event in the API to update, if it exists.
    pub(super) known: Option<String>,
    /// Key under which [`Correlator::written`] records the name.
    key: Key,
}

/// Aggregation key: events with the same key are one Event in the API.
type Key = [String; 5];

#[derive(Debug)]
struct Similar {
    messages: BTreeSet<String>,
    last: Timestamp,
}

#[derive(Debug)]
struct Seen {
    /// Name of the Event in the API.
    name: Option<String>,
    count: i32,
    first: Timestamp,
    last: Timestamp,
}

/// Token bucket of an object.
#[derive(Debug)]
struct Bucket {
    tokens: f64,
    last: Timestamp,
}

/// Caches of the correlation.
#[derive(Debug, Default)]
pub(super) struct Correlator {
    similar: HashMap<Key, Similar>,
    seen: HashMap<Key, Seen>,
    buckets: HashMap<String, Bucket>,
}

impl Correlator {
    /// Correlates an event. Returns the Event to write; `None` if the rate of the object is exceeded, in which case it
    /// is
    /// still counted.
    pub(super) fn correlate(&mut self, event: Occurrence<'_>, now: Timestamp) -> Option<CorrelatedEvent> {
        let (key, message) = self.aggregate(event, now);
        evict_oldest(&mut self.seen, |s| s.last);
        let seen = self.seen.entry(key.clone()).or_insert(Seen { name: None, count: 0, first: now, last: now });
        seen.count = seen.count.saturating_add(1);
        seen.last = now;
        let correlated =
            CorrelatedEvent { message, count: seen.count, first: seen.first, known: seen.name.clone(), key };
        self.take_token(event.object, now).then_some(correlated)
    }

    /// Records the name of a written Event.
    pub(super) fn written(&mut self, correlated: &CorrelatedEvent, name: String) {
        if let Some(seen) = self.seen.get_mut(&correlated.key) {
            seen.name = Some(name);
        }
    }

    /// Returns key and message of the event, or of its aggregation.
    fn aggregate(&mut self, event: Occurrence<'_>, now: Timestamp) -> (Key, String) {
        let key =
            |path: &str, message: &str| [event.object, path, event.kind, event.reason, message].map(str::to_owned);
        evict_oldest(&mut self.similar, |s| s.last);
        let all = key("", "");
        let new = || Similar { messages: BTreeSet::new(), last: now };
        let similar = self.similar.entry(all.clone()).or_insert_with(new);
        if now.duration_since(similar.last) > AGGREGATE_INTERVAL {
            similar.messages.clear();
        }
        similar.last = now;
        similar.messages.insert(event.message.to_owned());
        if similar.messages.len() < AGGREGATE_MAX_EVENTS {
            return (key(event.field_path, event.message), event.message.to_owned());
        }
        similar.messages.pop_first();
        (all, format!("{AGGREGATED_PREFIX}{}", event.message))
    }

    fn take_token(&mut self, object: &str, now: Timestamp) -> bool {
        evict_oldest(&mut self.buckets, |b| b.last);
        let bucket = self.buckets.entry(object.to_owned()).or_insert(Bucket { tokens: BURST, last: now });
        let gained = now.duration_since(bucket.last).as_secs_f64().max(0.0) / SECONDS_PER_TOKEN;
        bucket.tokens = (bucket.tokens + gained).min(BURST);
        bucket.last = now;
        let enough = bucket.tokens >= 1.0;
        if enough {
            bucket.tokens -= 1.0;
        }
        enough
    }
}

/// Evicts the least recently used entry of a full cache.
fn evict_oldest<K: Clone + Eq + Hash, V>(memory: &mut HashMap<K, V>, last: impl Fn(&V) -> Timestamp) {
    if memory.len() >= MAX_CACHE_ENTRIES
        && let Some(oldest) = memory.iter().min_by_key(|(_, v)| last(v)).map(|(k, _)| k.clone())
    {
        memory.remove(&oldest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::UNIX_EPOCH + SignedDuration::from_secs(seconds)
    }

    /// Tells what happened at these seconds; a number for each message, counted as `count message`, or `-`.
    #[track_caller]
    fn check(events: &[(i64, &str, u32)], expected: &[&str]) {
        let mut correlator = Correlator::default();
        let correlated = |(seconds, object, number): &(i64, &str, u32)| {
            let message = format!("m{number}");
            let event = Occurrence { object, field_path: "", kind: "Normal", reason: "R", message: &message };
            let Some(correlated) = correlator.correlate(event, at(*seconds)) else { return "-".to_owned() };
            let text = format!("{} {}", correlated.count, correlated.message);
            assert_eq!(correlated.known.is_some(), correlated.count > 1, "what was written once is written over");
            correlator.written(&correlated, "name".to_owned());
            text
        };
        assert_eq!(events.iter().map(correlated).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn equal_events_are_counted() {
        check(&[(0, "a", 1), (1, "a", 1), (2, "b", 1), (3, "a", 1)], &["1 m1", "2 m1", "1 m1", "3 m1"]);
    }

    #[test]
    fn similar_events_are_aggregated_from_the_tenth() {
        let events: Vec<(i64, &str, u32)> = (1..=12).map(|n| (i64::from(n), "a", n)).collect();
        let mut expected: Vec<String> = (1..=9).map(|n| format!("1 m{n}")).collect();
        expected.extend((1..=3).map(|n| format!("{n} {AGGREGATED_PREFIX}m{}", n + 9)));
        check(&events, &expected.iter().map(String::as_str).collect::<Vec<_>>());
    }

    #[test]
    fn ten_idle_minutes_reset_the_aggregation() {
        let mut events: Vec<(i64, &str, u32)> = (1..=9).map(|n| (i64::from(n), "a", n)).collect();
        events.extend([(9 + 601, "a", 10), (9 + 602, "a", 11)]);
        let expected: Vec<String> = (1..=11).map(|n| format!("1 m{n}")).collect();
        check(&events, &expected.iter().map(String::as_str).collect::<Vec<_>>());
    }

    #[test]
    fn events_of_an_object_are_rate_limited() {
        let mut events: Vec<(i64, &str, u32)> = (0..26).map(|_| (0, "a", 1)).collect();
        // Other objects are not limited.
        events.extend([(1, "b", 1), (299, "a", 1), (300, "a", 1), (301, "a", 1), (901, "a", 1), (902, "a", 1)]);
        let mut expected: Vec<String> = (1..=25).map(|n| format!("{n} m1")).collect();
        expected.extend(["-", "1 m1", "-", "28 m1", "-", "30 m1", "31 m1"].map(str::to_owned));
        check(&events, &expected.iter().map(String::as_str).collect::<Vec<_>>());
    }

    #[test]
    fn correlator_caches_are_bounded() {
        let mut correlator = Correlator::default();
        for n in 0..5000_i64 {
            let object = n.to_string();
            let event = Occurrence { object: &object, field_path: "", kind: "Normal", reason: "R", message: "m" };
            let correlated = correlator.correlate(event, at(n)).expect("each has its own tokens");
            correlator.written(&correlated, "name".to_owned());
        }
        let sizes = [correlator.similar.len(), correlator.seen.len(), correlator.buckets.len()];
        assert!(sizes.iter().all(|size| *size <= MAX_CACHE_ENTRIES), "{sizes:?}");
    }
}
