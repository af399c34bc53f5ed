//! The Pods that wait for a node. Pure: the time is an argument.
//!
//! A Pod that could not be placed is parked until something changes; then it is tried again, but not before its
//! back-off of 1, 2, 4, 8, 10 s since the last attempt is over.

use crate::cluster::Uid;
use k8s_openapi::api::core::v1::Pod;
use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

const FIRST_BACKOFF: Duration = Duration::from_secs(1);
const LAST_BACKOFF: Duration = Duration::from_secs(10);
/// A change that nobody noticed must not leave a Pod parked for ever (upstream: 5 minutes, too).
const LONGEST_PARKED: Duration = Duration::from_secs(300);

/// Pods that wait for a node.
#[derive(Debug, Default)]
pub struct Queue {
    entries: HashMap<Uid, Entry>,
    /// To be tried now: the highest priority first, then the oldest.
    active: BTreeSet<(Reverse<i32>, u64, Uid)>,
    /// To be tried at a time.
    timed: BTreeSet<(Instant, Uid)>,
    /// Counts the Pods that came, for their order.
    arrivals: u64,
    /// Counts the changes of the cluster: an attempt that saw an older one is not parked.
    changes: u64,
}

#[derive(Debug)]
struct Entry {
    pod: Arc<Pod>,
    arrival: u64,
    attempts: u32,
    state: State,
    /// Whether something was asked for that it needs.
    asked: bool,
}

/// Where a waiting Pod is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// In `active`.
    Active,
    /// An attempt is on its way; it began at this change.
    Tried { changes: u64, again: bool },
    /// In `timed`: its back-off runs.
    BackingOff { until: Instant },
    /// In `timed`, for the longest time a Pod may be parked; a change lets it go at `backoff` at the earliest.
    Parked { until: Instant, backoff: Instant },
}

impl Queue {
    /// Takes a Pod that waits, or its newest state. Only a change of what decides lets a parked Pod go.
    pub fn set(&mut self, uid: &str, pod: Arc<Pod>, now: Instant) {
        let Some(entry) = self.entries.get_mut(uid) else {
            self.arrivals += 1;
            let arrival = self.arrivals;
            self.entries
                .insert(uid.to_owned(), Entry { pod, arrival, attempts: 0, state: State::Active, asked: false });
            self.activate(uid);
            return;
        };
        let changed = entry.pod.spec != pod.spec || entry.pod.metadata.labels != pod.metadata.labels;
        let (state, old) = (entry.state, priority(&entry.pod));
        entry.pod = pod;
        match state {
            State::Active => {
                self.active.remove(&(Reverse(old), self.entries[uid].arrival, uid.to_owned()));
                self.activate(uid);
            }
            State::Tried { changes, again } => {
                self.set_state(uid, State::Tried { changes, again: again || changed });
            }
            State::Parked { until, backoff } if changed => {
                self.timed.remove(&(until, uid.to_owned()));
                self.back_off(uid, backoff, now);
            }
            State::Parked { .. } | State::BackingOff { .. } => {}
        }
    }

    /// Forgets a Pod: it is bound, gone, or not ours any more.
    pub fn remove(&mut self, uid: &str) {
        let Some(entry) = self.entries.remove(uid) else {
            return;
        };
        match entry.state {
            State::Active => {
                self.active.remove(&(Reverse(priority(&entry.pod)), entry.arrival, uid.to_owned()));
            }
            State::BackingOff { until } | State::Parked { until, .. } => {
                self.timed.remove(&(until, uid.to_owned()));
            }
            State::Tried { .. } => {}
        }
    }

    /// Forgets the Pods that are not listed.
    pub fn retain(&mut self, listed: impl Fn(&str) -> bool) {
        let gone: Vec<Uid> = self.entries.keys().filter(|uid| !listed(uid)).cloned().collect();
        for uid in gone {
            self.remove(&uid);
        }
    }

    /// The next Pod to try; whoever takes it tells how it went by [`Self::park`], [`Self::retry`] or [`Self::remove`].
    pub fn pop(&mut self, now: Instant) -> Option<(Uid, Arc<Pod>)> {
        while let Some((at, _)) = self.timed.first()
            && *at <= now
        {
            if let Some((_, uid)) = self.timed.pop_first() {
                self.activate(&uid);
            }
        }
        let (_, _, uid) = self.active.pop_first()?;
        let changes = self.changes;
        let entry = self.entries.get_mut(&uid)?;
        entry.attempts = entry.attempts.saturating_add(1);
        entry.state = State::Tried { changes, again: false };
        let pod = Arc::clone(&entry.pod);
        Some((uid, pod))
    }

    /// The attempt found no node: the Pod waits for a change. One that came meanwhile counts.
    pub fn park(&mut self, uid: &str, now: Instant) {
        let Some(Entry { attempts, state: State::Tried { changes, again }, .. }) = self.entries.get(uid) else {
            return;
        };
        let backoff = now + backoff(*attempts);
        if *again || *changes != self.changes {
            self.back_off(uid, backoff, now);
            return;
        }
        let until = now + LONGEST_PARKED;
        self.timed.insert((until, uid.to_owned()));
        self.set_state(uid, State::Parked { until, backoff });
    }

    /// Something that the Pod needs was asked for.
    pub fn note_asked(&mut self, uid: &str) {
        if let Some(entry) = self.entries.get_mut(uid) {
            entry.asked = true;
        }
    }

    /// Whether something was asked for since the last call: who has to ask again has not got it.
    pub fn take_asked(&mut self, uid: &str) -> bool {
        self.entries.get_mut(uid).is_some_and(|entry| std::mem::take(&mut entry.asked))
    }

    /// The attempt was none: it is not held against the Pod.
    pub fn forgive(&mut self, uid: &str) {
        if let Some(entry) = self.entries.get_mut(uid) {
            entry.attempts = entry.attempts.saturating_sub(1);
        }
    }

    /// The attempt failed for another reason: the Pod is tried again after its back-off.
    pub fn retry(&mut self, uid: &str, now: Instant) {
        if let Some(Entry { attempts, state: State::Tried { .. }, .. }) = self.entries.get(uid) {
            let until = now + backoff(*attempts);
            self.back_off(uid, until, now);
        }
    }

    /// The cluster changed so that a parked Pod may fit now.
    pub fn changed(&mut self, now: Instant) {
        self.changed_for(now, |_| true);
    }

    /// The same, of those Pods only that it concerns.
    pub fn changed_for(&mut self, now: Instant, concerns: impl Fn(&Pod) -> bool) {
        self.changes += 1;
        let parked: Vec<(Uid, Instant, Instant)> = self
            .entries
            .iter()
            .filter_map(|(uid, entry)| match entry.state {
                State::Parked { until, backoff } if concerns(&entry.pod) => Some((uid.clone(), until, backoff)),
                _ => None,
            })
            .collect();
        for (uid, until, backoff) in parked {
            self.timed.remove(&(until, uid.clone()));
            self.back_off(&uid, backoff, now);
        }
    }

    /// When [`Self::pop`] may have something that it has not now.
    #[must_use]
    pub fn next_wakeup(&self) -> Option<Instant> {
        self.timed.first().map(|(at, _)| *at)
    }

    /// How many Pods wait.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether none waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    fn back_off(&mut self, uid: &str, until: Instant, now: Instant) {
        if until <= now {
            self.activate(uid);
            return;
        }
        self.timed.insert((until, uid.to_owned()));
        self.set_state(uid, State::BackingOff { until });
    }

    fn activate(&mut self, uid: &str) {
        if let Some(entry) = self.entries.get_mut(uid) {
            entry.state = State::Active;
            self.active.insert((Reverse(priority(&entry.pod)), entry.arrival, uid.to_owned()));
        }
    }

    fn set_state(&mut self, uid: &str, state: State) {
        if let Some(entry) = self.entries.get_mut(uid) {
            entry.state = state;
        }
    }
}

fn priority(pod: &Pod) -> i32 {
    pod.spec.as_ref().and_then(|s| s.priority).unwrap_or(0)
}

fn backoff(attempts: u32) -> Duration {
    let Some(doublings) = attempts.checked_sub(1) else {
        return Duration::ZERO;
    };
    let doublings = doublings.min(8);
    (FIRST_BACKOFF * 2_u32.pow(doublings)).min(LAST_BACKOFF)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    struct Clock {
        start: Instant,
        queue: Queue,
    }

    impl Clock {
        fn new() -> Self {
            Self { start: Instant::now(), queue: Queue::default() }
        }

        fn at(&self, seconds: u64) -> Instant {
            self.start + Duration::from_secs(seconds)
        }

        fn set(&mut self, name: &str, priority: i32, seconds: u64) {
            let pod = json!({ "metadata": { "name": name }, "spec": { "containers": [], "priority": priority } });
            let now = self.at(seconds);
            self.queue.set(name, Arc::new(serde_json::from_value(pod).expect("a Pod")), now);
        }

        /// Everything that is to be tried at a time, in order.
        fn tried(&mut self, seconds: u64) -> Vec<String> {
            let now = self.at(seconds);
            std::iter::from_fn(|| self.queue.pop(now)).map(|(uid, _)| uid).collect()
        }

        fn park(&mut self, name: &str, seconds: u64) {
            let now = self.at(seconds);
            self.queue.park(name, now);
        }

        fn changed(&mut self, seconds: u64) {
            let now = self.at(seconds);
            self.queue.changed(now);
        }
    }

    #[test]
    fn the_highest_priority_goes_first_and_then_the_oldest() {
        let mut clock = Clock::new();
        clock.set("a", 0, 0);
        clock.set("b", 5, 0);
        clock.set("c", 0, 0);
        assert_eq!(clock.tried(0), ["b", "a", "c"]);
    }

    #[test]
    fn a_parked_pod_waits_for_a_change_and_for_its_back_off() {
        let mut clock = Clock::new();
        clock.set("a", 0, 0);
        assert_eq!(clock.tried(0), ["a"]);
        clock.park("a", 0);
        assert!(clock.tried(60).is_empty());
        clock.changed(60);
        assert_eq!(clock.tried(60), ["a"], "the back-off of 1 s is long over");
        clock.park("a", 60);
        clock.changed(61);
        assert!(clock.tried(61).is_empty());
        assert_eq!(clock.queue.next_wakeup(), Some(clock.at(62)));
        assert_eq!(clock.tried(62), ["a"], "the second back-off is 2 s");
    }

    #[test]
    fn a_change_during_an_attempt_is_not_lost() {
        let mut clock = Clock::new();
        clock.set("a", 0, 0);
        clock.tried(0);
        clock.changed(0);
        clock.park("a", 0);
        assert_eq!(clock.tried(1), ["a"]);
    }

    #[test]
    fn an_update_lets_a_parked_pod_go_only_when_it_matters() {
        let mut clock = Clock::new();
        clock.set("a", 0, 0);
        clock.tried(0);
        clock.park("a", 0);
        clock.set("a", 0, 20);
        assert!(clock.tried(20).is_empty());
        clock.set("a", 1, 20);
        assert_eq!(clock.tried(20), ["a"]);
    }

    #[test]
    fn back_offs_double_up_to_ten_seconds() {
        let seconds: Vec<u64> = (1..=6).map(|n| backoff(n).as_secs()).collect();
        assert_eq!(seconds, [1, 2, 4, 8, 10, 10]);
        assert_eq!(backoff(u32::MAX), LAST_BACKOFF);
    }

    #[test]
    fn what_was_no_attempt_costs_no_back_off() {
        let mut clock = Clock::new();
        clock.set("a", 0, 0);
        clock.tried(0);
        clock.queue.forgive("a");
        clock.park("a", 0);
        assert!(clock.tried(0).is_empty());
        clock.changed(0);
        assert_eq!(clock.tried(0), ["a"]);
    }

    #[test]
    fn nobody_is_parked_for_ever() {
        let mut clock = Clock::new();
        clock.set("a", 0, 0);
        clock.tried(0);
        clock.park("a", 0);
        assert_eq!(clock.queue.next_wakeup(), Some(clock.at(300)));
        assert_eq!(clock.tried(300), ["a"]);
    }

    #[test]
    fn what_is_removed_leaves_nothing_behind() {
        let mut clock = Clock::new();
        for name in ["a", "b", "c"] {
            clock.set(name, 0, 0);
        }
        clock.tried(0);
        clock.set("d", 0, 0);
        clock.park("a", 0);
        let now = clock.at(0);
        clock.queue.retry("b", now);
        clock.queue.retain(|_| false);
        assert!(clock.queue.is_empty() && clock.queue.active.is_empty() && clock.queue.timed.is_empty());
    }
}
