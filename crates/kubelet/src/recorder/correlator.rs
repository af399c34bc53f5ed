//! What of many events is told, as client-go's `EventCorrelator` decides it: what is the same is counted, what is similar
//! is combined, and whoever tells too much about one object is not listened to for a while. Pure: the time is an argument.

use jiff::{SignedDuration, Timestamp};
use std::{
    collections::{BTreeSet, HashMap},
    hash::Hash,
};

/// How many keys each memory has.
const REMEMBERED: usize = 4096;
/// From so many different messages on, similar events are combined.
const SIMILAR: usize = 10;
/// Unless so much time has passed since the last of them.
const INTERVAL: SignedDuration = SignedDuration::from_mins(10);
/// What the message of combined events begins with.
const COMBINED: &str = "(combined from similar events): ";
/// So many events about one object are told at once.
const BURST: f64 = 25.0;
/// And after those one in so many seconds.
const SECONDS_PER_TOKEN: f64 = 300.0;

/// What is told, about whom.
#[derive(Debug, Clone, Copy)]
pub(super) struct Occurrence<'a> {
    /// The object, by its kind and UID.
    pub(super) object: &'a str,
    /// What of the object it is about.
    pub(super) field_path: &'a str,
    /// `Normal` or `Warning`.
    pub(super) kind: &'a str,
    pub(super) reason: &'a str,
    pub(super) message: &'a str,
}

/// What is to be written.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Told {
    pub(super) message: String,
    pub(super) count: i32,
    pub(super) first: Timestamp,
    /// The event in the API that is written over, if there is one.
    pub(super) known: Option<String>,
    /// Where [`Correlator::written`] keeps what was written.
    key: Key,
}

/// Events with the same key are one event in the API.
type Key = [String; 5];

#[derive(Debug)]
struct Similar {
    messages: BTreeSet<String>,
    last: Timestamp,
}

#[derive(Debug)]
struct Seen {
    /// Of the event in the API.
    name: Option<String>,
    count: i32,
    first: Timestamp,
    last: Timestamp,
}

/// Tokens of an object; each event takes one.
#[derive(Debug)]
struct Bucket {
    tokens: f64,
    last: Timestamp,
}

/// What is remembered of the events so far.
#[derive(Debug, Default)]
pub(super) struct Correlator {
    similar: HashMap<Key, Similar>,
    seen: HashMap<Key, Seen>,
    buckets: HashMap<String, Bucket>,
}

impl Correlator {
    /// What is to be written of what just happened; `None` when too much was told about its object. It is counted all the
    /// same.
    pub(super) fn correlate(&mut self, event: Occurrence<'_>, now: Timestamp) -> Option<Told> {
        let (key, message) = self.combine(event, now);
        make_room(&mut self.seen, |s| s.last);
        let seen = self.seen.entry(key.clone()).or_insert(Seen { name: None, count: 0, first: now, last: now });
        seen.count = seen.count.saturating_add(1);
        seen.last = now;
        let told = Told { message, count: seen.count, first: seen.first, known: seen.name.clone(), key };
        self.take_token(event.object, now).then_some(told)
    }

    /// Remembers under which name it was written.
    pub(super) fn written(&mut self, told: &Told, name: String) {
        if let Some(seen) = self.seen.get_mut(&told.key) {
            seen.name = Some(name);
        }
    }

    /// The key and the message of an event by itself, or of all that are similar to it.
    fn combine(&mut self, event: Occurrence<'_>, now: Timestamp) -> (Key, String) {
        let key =
            |path: &str, message: &str| [event.object, path, event.kind, event.reason, message].map(str::to_owned);
        make_room(&mut self.similar, |s| s.last);
        let all = key("", "");
        let new = || Similar { messages: BTreeSet::new(), last: now };
        let similar = self.similar.entry(all.clone()).or_insert_with(new);
        if now.duration_since(similar.last) > INTERVAL {
            similar.messages.clear();
        }
        similar.last = now;
        similar.messages.insert(event.message.to_owned());
        if similar.messages.len() < SIMILAR {
            return (key(event.field_path, event.message), event.message.to_owned());
        }
        similar.messages.pop_first();
        (all, format!("{COMBINED}{}", event.message))
    }

    fn take_token(&mut self, object: &str, now: Timestamp) -> bool {
        make_room(&mut self.buckets, |b| b.last);
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

/// Forgets what was used the longest time ago, if there is no room for more.
fn make_room<K: Clone + Eq + Hash, V>(memory: &mut HashMap<K, V>, last: impl Fn(&V) -> Timestamp) {
    if memory.len() >= REMEMBERED
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
        let told = |(seconds, object, number): &(i64, &str, u32)| {
            let message = format!("m{number}");
            let event = Occurrence { object, field_path: "", kind: "Normal", reason: "R", message: &message };
            let Some(told) = correlator.correlate(event, at(*seconds)) else { return "-".to_owned() };
            let text = format!("{} {}", told.count, told.message);
            assert_eq!(told.known.is_some(), told.count > 1, "what was written once is written over");
            correlator.written(&told, "name".to_owned());
            text
        };
        assert_eq!(events.iter().map(told).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn what_is_the_same_is_counted() {
        check(&[(0, "a", 1), (1, "a", 1), (2, "b", 1), (3, "a", 1)], &["1 m1", "2 m1", "1 m1", "3 m1"]);
    }

    #[test]
    fn what_is_similar_is_combined_from_the_tenth_on() {
        let events: Vec<(i64, &str, u32)> = (1..=12).map(|n| (i64::from(n), "a", n)).collect();
        let mut expected: Vec<String> = (1..=9).map(|n| format!("1 m{n}")).collect();
        expected.extend((1..=3).map(|n| format!("{n} {COMBINED}m{}", n + 9)));
        check(&events, &expected.iter().map(String::as_str).collect::<Vec<_>>());
    }

    #[test]
    fn ten_quiet_minutes_end_a_series_of_similar_events() {
        let mut events: Vec<(i64, &str, u32)> = (1..=9).map(|n| (i64::from(n), "a", n)).collect();
        events.extend([(9 + 601, "a", 10), (9 + 602, "a", 11)]);
        let expected: Vec<String> = (1..=11).map(|n| format!("1 m{n}")).collect();
        check(&events, &expected.iter().map(String::as_str).collect::<Vec<_>>());
    }

    #[test]
    fn an_object_has_twenty_five_events_and_one_more_each_five_minutes() {
        let mut events: Vec<(i64, &str, u32)> = (0..26).map(|_| (0, "a", 1)).collect();
        // Others are heard meanwhile.
        events.extend([(1, "b", 1), (299, "a", 1), (300, "a", 1), (301, "a", 1), (901, "a", 1), (902, "a", 1)]);
        let mut expected: Vec<String> = (1..=25).map(|n| format!("{n} m1")).collect();
        expected.extend(["-", "1 m1", "-", "28 m1", "-", "30 m1", "31 m1"].map(str::to_owned));
        check(&events, &expected.iter().map(String::as_str).collect::<Vec<_>>());
    }

    #[test]
    fn the_memory_has_an_end() {
        let mut correlator = Correlator::default();
        for n in 0..5000_i64 {
            let object = n.to_string();
            let event = Occurrence { object: &object, field_path: "", kind: "Normal", reason: "R", message: "m" };
            let told = correlator.correlate(event, at(n)).expect("each has its own tokens");
            correlator.written(&told, "name".to_owned());
        }
        let sizes = [correlator.similar.len(), correlator.seen.len(), correlator.buckets.len()];
        assert!(sizes.iter().all(|size| *size <= REMEMBERED), "{sizes:?}");
    }
}
