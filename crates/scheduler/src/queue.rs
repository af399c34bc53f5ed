//! Scheduling queue: active, backoff and unschedulable Pods. Pure: the time is an argument.
//!
//! An unschedulable Pod is moved when the cluster changes, after its backoff of 1, 2, 4, 8, 10 s since the last
//! attempt.

use crate::cache::Uid;
use informer::pod_summary::PodSummary;
use std::{
    cmp::Reverse,
    collections::{BTreeSet, HashMap},
    sync::Arc,
    time::Duration,
};
use tokio::time::Instant;

const INITIAL_BACKOFF: Duration = Duration::from_secs(1);
const MAX_BACKOFF: Duration = Duration::from_secs(10);
/// Maximum time that a Pod stays unschedulable after a missed event (`DefaultPodMaxInUnschedulablePodsDuration`).
const MAX_UNSCHEDULABLE_DURATION: Duration = Duration::from_secs(300);

/// Scheduling queue.
#[derive(Debug, Default)]
pub struct SchedulingQueue {
    entries: HashMap<Uid, QueuedPod>,
    /// Active queue: the highest priority first, then the oldest.
    active: BTreeSet<(Reverse<i32>, u64, Uid)>,
    /// Pods in backoff and unschedulable Pods, by expiry.
    timers: BTreeSet<(Instant, Uid)>,
    /// Number of Pods added so far, for their order.
    arrivals: u64,
    /// Number of moves so far: a Pod in flight during a move does not become unschedulable (upstream's
    /// `moveRequestCycle`).
    moves: u64,
}

/// A Pod without a node.
#[derive(Debug, Clone)]
pub struct PendingPod {
    /// The Pod, as the informer has it.
    pub summary: Arc<PodSummary>,
    /// Whether events of other Pods, nodes or namespaces can make it schedulable.
    pub depends_on_other_pods: bool,
}

#[derive(Debug)]
struct QueuedPod {
    pod: PendingPod,
    arrival: u64,
    attempts: u32,
    state: State,
    /// Whether provisioning of a volume was requested.
    provisioning_requested: bool,
}

/// State of a queued Pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// In `active`.
    Active,
    /// Popped: an attempt is in flight; it started at this number of moves. `updated`: the Pod has changed since.
    InFlight { moves: u64, updated: bool },
    /// In `timers`, in backoff.
    BackingOff { until: Instant },
    /// In `timers` until the maximum unschedulable duration; a move requeues it, not before `backoff`.
    Unschedulable { until: Instant, backoff: Instant },
}

impl SchedulingQueue {
    /// Adds or updates a pending Pod. An unschedulable Pod is moved only if its spec or labels have changed.
    pub fn add_or_update(&mut self, uid: &str, pod: PendingPod, now: Instant) {
        let Some(entry) = self.entries.get_mut(uid) else {
            self.arrivals += 1;
            let arrival = self.arrivals;
            self.entries.insert(
                uid.to_owned(),
                QueuedPod { pod, arrival, attempts: 0, state: State::Active, provisioning_requested: false },
            );
            self.activate(uid);
            return;
        };
        let changed = !entry.pod.summary.is_scheduled_alike(&pod.summary);
        let (state, old) = (entry.state, priority(&entry.pod));
        entry.pod = pod;
        match state {
            State::Active => {
                self.active.remove(&(Reverse(old), self.entries[uid].arrival, uid.to_owned()));
                self.activate(uid);
            }
            State::InFlight { moves, updated } => {
                self.set_state(uid, State::InFlight { moves, updated: updated || changed });
            }
            State::Unschedulable { until, backoff } if changed => {
                self.timers.remove(&(until, uid.to_owned()));
                self.back_off(uid, backoff, now);
            }
            State::Unschedulable { .. } | State::BackingOff { .. } => {}
        }
    }

    /// Removes a Pod that is bound, deleted, or another scheduler's.
    pub fn remove(&mut self, uid: &str) {
        let Some(entry) = self.entries.remove(uid) else {
            return;
        };
        match entry.state {
            State::Active => {
                self.active.remove(&(Reverse(priority(&entry.pod)), entry.arrival, uid.to_owned()));
            }
            State::BackingOff { until } | State::Unschedulable { until, .. } => {
                self.timers.remove(&(until, uid.to_owned()));
            }
            State::InFlight { .. } => {}
        }
    }

    /// Removes Pods that are not listed.
    pub fn retain(&mut self, listed: impl Fn(&str) -> bool) {
        let removed: Vec<Uid> = self.entries.keys().filter(|uid| !listed(uid)).cloned().collect();
        for uid in removed {
            self.remove(&uid);
        }
    }

    /// Pops the next Pod. The caller finishes the attempt with [`Self::add_unschedulable`], [`Self::retry`] or
    /// [`Self::remove`].
    pub fn pop(&mut self, now: Instant) -> Option<(Uid, Arc<PodSummary>)> {
        while let Some((at, _)) = self.timers.first()
            && *at <= now
        {
            if let Some((_, uid)) = self.timers.pop_first() {
                self.activate(&uid);
            }
        }
        let (_, _, uid) = self.active.pop_first()?;
        let moves = self.moves;
        let entry = self.entries.get_mut(&uid)?;
        entry.attempts = entry.attempts.saturating_add(1);
        entry.state = State::InFlight { moves, updated: false };
        let pod = Arc::clone(&entry.pod.summary);
        Some((uid, pod))
    }

    /// Marks the Pod as unschedulable; it is requeued if the queue was moved during the attempt.
    pub fn add_unschedulable(&mut self, uid: &str, now: Instant) {
        let Some(QueuedPod { attempts, state: State::InFlight { moves, updated }, .. }) = self.entries.get(uid) else {
            return;
        };
        let backoff = now + backoff_duration(*attempts);
        if *updated || *moves != self.moves {
            self.back_off(uid, backoff, now);
            return;
        }
        let until = now + MAX_UNSCHEDULABLE_DURATION;
        self.timers.insert((until, uid.to_owned()));
        self.set_state(uid, State::Unschedulable { until, backoff });
    }

    /// Marks that provisioning was requested for the Pod.
    pub fn mark_provisioning_requested(&mut self, uid: &str) {
        if let Some(entry) = self.entries.get_mut(uid) {
            entry.provisioning_requested = true;
        }
    }

    /// Returns and resets the mark: a second request means that provisioning has failed.
    pub fn take_provisioning_requested(&mut self, uid: &str) -> bool {
        self.entries.get_mut(uid).is_some_and(|entry| std::mem::take(&mut entry.provisioning_requested))
    }

    /// Does not count the attempt for the backoff.
    pub fn undo_attempt(&mut self, uid: &str) {
        if let Some(entry) = self.entries.get_mut(uid) {
            entry.attempts = entry.attempts.saturating_sub(1);
        }
    }

    /// Requeues the Pod after its backoff.
    pub fn retry(&mut self, uid: &str, now: Instant) {
        if let Some(QueuedPod { attempts, state: State::InFlight { .. }, .. }) = self.entries.get(uid) {
            let until = now + backoff_duration(*attempts);
            self.back_off(uid, until, now);
        }
    }

    /// Moves all unschedulable Pods (`MoveAllToActiveOrBackoffQueue`).
    pub fn move_all(&mut self, now: Instant) {
        self.move_matching(now, |_| true);
    }

    /// Moves the unschedulable Pods that the predicate selects.
    pub fn move_matching(&mut self, now: Instant, may_be_schedulable: impl Fn(&PendingPod) -> bool) {
        self.moves += 1;
        let unschedulable: Vec<(Uid, Instant, Instant)> = self
            .entries
            .iter()
            .filter_map(|(uid, entry)| match entry.state {
                State::Unschedulable { until, backoff } if may_be_schedulable(&entry.pod) => {
                    Some((uid.clone(), until, backoff))
                }
                _ => None,
            })
            .collect();
        for (uid, until, backoff) in unschedulable {
            self.timers.remove(&(until, uid.clone()));
            self.back_off(&uid, backoff, now);
        }
    }

    /// Returns whether the Pod is queued as it is in this summary.
    #[must_use]
    pub fn has(&self, uid: &str, pod: &Arc<PodSummary>) -> bool {
        self.entries.get(uid).is_some_and(|entry| Arc::ptr_eq(&entry.pod.summary, pod))
    }

    /// Returns when the next timer expires.
    #[must_use]
    pub fn next_wakeup(&self) -> Option<Instant> {
        self.timers.first().map(|(at, _)| *at)
    }

    /// Returns the number of queued Pods.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns whether the queue is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    fn back_off(&mut self, uid: &str, until: Instant, now: Instant) {
        if until <= now {
            self.activate(uid);
            return;
        }
        self.timers.insert((until, uid.to_owned()));
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

fn priority(pod: &PendingPod) -> i32 {
    pod.summary.priority
}

fn backoff_duration(attempts: u32) -> Duration {
    let Some(doublings) = attempts.checked_sub(1) else {
        return Duration::ZERO;
    };
    let doublings = doublings.min(8);
    (INITIAL_BACKOFF * 2_u32.pow(doublings)).min(MAX_BACKOFF)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    struct Clock {
        start: Instant,
        queue: SchedulingQueue,
    }

    impl Clock {
        fn new() -> Self {
            Self { start: Instant::now(), queue: SchedulingQueue::default() }
        }

        fn at(&self, seconds: u64) -> Instant {
            self.start + Duration::from_secs(seconds)
        }

        fn add_or_update(&mut self, name: &str, priority: i32, seconds: u64) {
            let pod = json!({ "metadata": { "name": name }, "spec": { "containers": [], "priority": priority } });
            let now = self.at(seconds);
            let summary = Arc::new(PodSummary::from_pod(serde_json::from_value(pod).expect("a Pod")));
            self.queue.add_or_update(name, PendingPod { summary, depends_on_other_pods: false }, now);
        }

        /// Pops all Pods that are due, in order.
        fn pop_all(&mut self, seconds: u64) -> Vec<String> {
            let now = self.at(seconds);
            std::iter::from_fn(|| self.queue.pop(now)).map(|(uid, _)| uid).collect()
        }

        fn add_unschedulable(&mut self, name: &str, seconds: u64) {
            let now = self.at(seconds);
            self.queue.add_unschedulable(name, now);
        }

        fn move_all(&mut self, seconds: u64) {
            let now = self.at(seconds);
            self.queue.move_all(now);
        }
    }

    #[test]
    fn queue_orders_by_priority_then_arrival() {
        let mut clock = Clock::new();
        clock.add_or_update("a", 0, 0);
        clock.add_or_update("b", 5, 0);
        clock.add_or_update("c", 0, 0);
        assert_eq!(clock.pop_all(0), ["b", "a", "c"]);
    }

    #[test]
    fn unschedulable_pod_waits_for_move_and_backoff() {
        let mut clock = Clock::new();
        clock.add_or_update("a", 0, 0);
        assert_eq!(clock.pop_all(0), ["a"]);
        clock.add_unschedulable("a", 0);
        assert!(clock.pop_all(60).is_empty());
        clock.move_all(60);
        assert_eq!(clock.pop_all(60), ["a"], "the back-off of 1 s is long over");
        clock.add_unschedulable("a", 60);
        clock.move_all(61);
        assert!(clock.pop_all(61).is_empty());
        assert_eq!(clock.queue.next_wakeup(), Some(clock.at(62)));
        assert_eq!(clock.pop_all(62), ["a"], "the second back-off is 2 s");
    }

    #[test]
    fn move_during_attempt_requeues_pod() {
        let mut clock = Clock::new();
        clock.add_or_update("a", 0, 0);
        clock.pop_all(0);
        clock.move_all(0);
        clock.add_unschedulable("a", 0);
        assert_eq!(clock.pop_all(1), ["a"]);
    }

    #[test]
    fn only_relevant_update_requeues_unschedulable_pod() {
        let mut clock = Clock::new();
        clock.add_or_update("a", 0, 0);
        clock.pop_all(0);
        clock.add_unschedulable("a", 0);
        clock.add_or_update("a", 0, 20);
        assert!(clock.pop_all(20).is_empty());
        clock.add_or_update("a", 1, 20);
        assert_eq!(clock.pop_all(20), ["a"]);
    }

    #[test]
    fn backoff_doubles_up_to_ten_seconds() {
        let seconds: Vec<u64> = (1..=6).map(|n| backoff_duration(n).as_secs()).collect();
        assert_eq!(seconds, [1, 2, 4, 8, 10, 10]);
        assert_eq!(backoff_duration(u32::MAX), MAX_BACKOFF);
    }

    #[test]
    fn undone_attempt_has_no_backoff() {
        let mut clock = Clock::new();
        clock.add_or_update("a", 0, 0);
        clock.pop_all(0);
        clock.queue.undo_attempt("a");
        clock.add_unschedulable("a", 0);
        assert!(clock.pop_all(0).is_empty());
        clock.move_all(0);
        assert_eq!(clock.pop_all(0), ["a"]);
    }

    #[test]
    fn unschedulable_pod_is_retried_after_maximum_duration() {
        let mut clock = Clock::new();
        clock.add_or_update("a", 0, 0);
        clock.pop_all(0);
        clock.add_unschedulable("a", 0);
        assert_eq!(clock.queue.next_wakeup(), Some(clock.at(300)));
        assert_eq!(clock.pop_all(300), ["a"]);
    }

    #[test]
    fn removed_pods_leave_no_queue_entries() {
        let mut clock = Clock::new();
        for name in ["a", "b", "c"] {
            clock.add_or_update(name, 0, 0);
        }
        clock.pop_all(0);
        clock.add_or_update("d", 0, 0);
        clock.add_unschedulable("a", 0);
        let now = clock.at(0);
        clock.queue.retry("b", now);
        clock.queue.retain(|_| false);
        assert!(clock.queue.is_empty() && clock.queue.active.is_empty() && clock.queue.timers.is_empty());
    }
}
