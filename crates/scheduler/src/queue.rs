//! Scheduling queue: active, backoff and unschedulable Pods. Pure: the time is an argument.
//!
//! An unschedulable Pod is moved when the cluster changes: into the backoff queue, until 1, 2, 4, 8, 10 s have passed
//! since its last attempt. A scheduler without other work does not wait for that ([`SchedulingQueue::pop_backing_off`],
//! upstream's `SchedulerPopFromBackoffQ`), unless the attempt had failed by an error. It does so once in a backoff, where upstream
//! has no limit: a Pod that stays unschedulable in a changing cluster would be attempted, and reported, at each change.

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
/// Pods whose backoff ends in the same window are popped by priority (`backoffQOrderingWindowDuration`).
const BACKOFF_WINDOW: Duration = Duration::from_secs(1);

/// Place of a Pod in the active queue: the highest priority first, then the oldest.
type ActiveKey = (Reverse<i32>, u64, Uid);

/// Scheduling queue.
#[derive(Debug)]
pub struct SchedulingQueue {
    entries: HashMap<Uid, QueuedPod>,
    active: BTreeSet<ActiveKey>,
    /// Pods in backoff that [`SchedulingQueue::pop_backing_off`] may pop, by window.
    backing_off: BTreeSet<(u128, ActiveKey)>,
    /// Pods in backoff and unschedulable Pods, by expiry.
    timers: BTreeSet<(Instant, Uid)>,
    /// Number of Pods added so far, for their order.
    arrivals: u64,
    /// Number of moves so far: a Pod in flight during a move does not become unschedulable (upstream's
    /// `moveRequestCycle`).
    moves: u64,
    /// Start of the first window.
    start: Instant,
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
    /// Whether the last attempt did not wait for the end of the backoff.
    was_early: bool,
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
    /// In `timers`, and in `backing_off` if in a window.
    BackingOff { until: Instant, window: Option<u128> },
    /// In `timers` until the maximum unschedulable duration; a move requeues it, not before `backoff`.
    Unschedulable { until: Instant, backoff: Instant },
}

impl SchedulingQueue {
    /// Creates an empty queue.
    #[must_use]
    pub fn new(now: Instant) -> Self {
        Self {
            entries: HashMap::new(),
            active: BTreeSet::new(),
            backing_off: BTreeSet::new(),
            timers: BTreeSet::new(),
            arrivals: 0,
            moves: 0,
            start: now,
        }
    }

    /// Adds or updates a pending Pod. An unschedulable Pod is moved only if its spec or labels have changed.
    pub fn add_or_update(&mut self, uid: &str, pod: PendingPod, now: Instant) {
        // Its place depends on the old priority.
        self.leave_sets(uid);
        let Some(entry) = self.entries.get_mut(uid) else {
            self.arrivals += 1;
            let arrival = self.arrivals;
            self.entries.insert(
                uid.to_owned(),
                QueuedPod {
                    pod,
                    arrival,
                    attempts: 0,
                    was_early: false,
                    state: State::Active,
                    provisioning_requested: false,
                },
            );
            self.set_state(uid, State::Active);
            return;
        };
        let changed = !entry.pod.summary.is_scheduled_alike(&pod.summary);
        entry.pod = pod;
        match entry.state {
            State::InFlight { moves, updated } => {
                self.set_state(uid, State::InFlight { moves, updated: updated || changed });
            }
            State::Unschedulable { backoff, .. } if changed => self.back_off(uid, backoff, now),
            state => self.set_state(uid, state),
        }
    }

    /// Removes a Pod that is bound, deleted, or another scheduler's.
    pub fn remove(&mut self, uid: &str) {
        self.leave_sets(uid);
        self.entries.remove(uid);
    }

    /// Removes Pods that are not listed.
    pub fn retain(&mut self, listed: impl Fn(&str) -> bool) {
        let removed: Vec<Uid> = self.entries.keys().filter(|uid| !listed(uid)).cloned().collect();
        for uid in removed {
            self.remove(&uid);
        }
    }

    /// Pops the next active Pod. The caller finishes the attempt with [`Self::add_unschedulable`], [`Self::retry`] or
    /// [`Self::remove`].
    pub fn pop(&mut self, now: Instant) -> Option<(Uid, Arc<PodSummary>)> {
        while let Some((at, uid)) = self.timers.first().cloned()
            && at <= now
        {
            self.set_state(&uid, State::Active);
        }
        let (_, _, uid) = self.active.first()?.clone();
        self.start_attempt(uid, false)
    }

    /// Pops the next Pod in backoff, as [`Self::pop`] does, for a scheduler without other work.
    pub fn pop_backing_off(&mut self) -> Option<(Uid, Arc<PodSummary>)> {
        let (_, (_, _, uid)) = self.backing_off.first()?.clone();
        self.start_attempt(uid, true)
    }

    /// Returns whether [`Self::pop_backing_off`] has a Pod.
    #[must_use]
    pub fn has_backing_off(&self) -> bool {
        !self.backing_off.is_empty()
    }

    /// Marks the Pod as unschedulable; it is requeued if the queue was moved during the attempt.
    pub fn add_unschedulable(&mut self, uid: &str, now: Instant) {
        let Some(QueuedPod { attempts, state: State::InFlight { moves, updated }, .. }) = self.entries.get(uid) else {
            return;
        };
        let backoff = now + backoff_duration(*attempts);
        if *updated || *moves != self.moves {
            self.back_off(uid, backoff, now);
        } else {
            self.set_state(uid, State::Unschedulable { until: now + MAX_UNSCHEDULABLE_DURATION, backoff });
        }
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

    /// Requeues the Pod after its backoff, also if there is no other work: the attempt has failed by an error. There is a backoff
    /// after an attempt that was undone, too.
    pub fn retry(&mut self, uid: &str, now: Instant) {
        if let Some(QueuedPod { attempts, state: State::InFlight { .. }, .. }) = self.entries.get(uid) {
            let until = now + backoff_duration((*attempts).max(1));
            self.set_state(uid, State::BackingOff { until, window: None });
        }
    }

    /// Moves all unschedulable Pods (`MoveAllToActiveOrBackoffQueue`).
    pub fn move_all(&mut self, now: Instant) {
        self.move_matching(now, |_| true);
    }

    /// Moves the unschedulable Pods that the predicate selects.
    pub fn move_matching(&mut self, now: Instant, may_be_schedulable: impl Fn(&PendingPod) -> bool) {
        self.moves += 1;
        let unschedulable: Vec<(Uid, Instant)> = self
            .entries
            .iter()
            .filter_map(|(uid, entry)| match entry.state {
                State::Unschedulable { backoff, .. } if may_be_schedulable(&entry.pod) => Some((uid.clone(), backoff)),
                _ => None,
            })
            .collect();
        for (uid, backoff) in unschedulable {
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

    fn start_attempt(&mut self, uid: Uid, is_early: bool) -> Option<(Uid, Arc<PodSummary>)> {
        self.set_state(&uid, State::InFlight { moves: self.moves, updated: false });
        let entry = self.entries.get_mut(&uid)?;
        entry.attempts = entry.attempts.saturating_add(1);
        entry.was_early = is_early;
        let pod = Arc::clone(&entry.pod.summary);
        Some((uid, pod))
    }

    fn back_off(&mut self, uid: &str, until: Instant, now: Instant) {
        if until <= now {
            return self.set_state(uid, State::Active);
        }
        let was_early = self.entries.get(uid).is_some_and(|entry| entry.was_early);
        let window = until.duration_since(self.start).as_nanos() / BACKOFF_WINDOW.as_nanos();
        self.set_state(uid, State::BackingOff { until, window: (!was_early).then_some(window) });
    }

    /// Moves the Pod from the sets of its state to those of the new one.
    fn set_state(&mut self, uid: &str, state: State) {
        self.leave_sets(uid);
        let Some(entry) = self.entries.get_mut(uid) else { return };
        entry.state = state;
        match state {
            State::Active => {
                self.active.insert(entry.active_key(uid));
            }
            State::BackingOff { until, window } => {
                self.timers.insert((until, uid.to_owned()));
                self.backing_off.extend(window.map(|window| (window, entry.active_key(uid))));
            }
            State::Unschedulable { until, .. } => {
                self.timers.insert((until, uid.to_owned()));
            }
            State::InFlight { .. } => {}
        }
    }

    /// Takes the Pod out of the sets of its state.
    fn leave_sets(&mut self, uid: &str) {
        let Some(entry) = self.entries.get(uid) else { return };
        match entry.state {
            State::Active => {
                self.active.remove(&entry.active_key(uid));
            }
            State::BackingOff { until, window } => {
                self.timers.remove(&(until, uid.to_owned()));
                if let Some(window) = window {
                    self.backing_off.remove(&(window, entry.active_key(uid)));
                }
            }
            State::Unschedulable { until, .. } => {
                self.timers.remove(&(until, uid.to_owned()));
            }
            State::InFlight { .. } => {}
        }
    }
}

impl QueuedPod {
    fn active_key(&self, uid: &str) -> ActiveKey {
        (Reverse(self.pod.summary.priority), self.arrival, uid.to_owned())
    }
}

fn backoff_duration(attempts: u32) -> Duration {
    let Some(doublings) = attempts.checked_sub(1) else {
        return Duration::ZERO;
    };
    let doublings = doublings.min(8);
    (INITIAL_BACKOFF * 2_u32.pow(doublings)).min(MAX_BACKOFF)
}

#[cfg(test)]
mod tests;
