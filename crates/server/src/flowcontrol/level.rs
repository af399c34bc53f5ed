//! A priority level: so many requests at a time, and behind them queues, from which the flows are served in turn.
//!
//! A flow is dealt a few of the queues and waits in the shortest, so that one that floods the level meets another in all of
//! its queues only rarely (upstream's shuffle sharding). Queues are served one request each, in turn.

use parking_lot::Mutex;
use serde::Deserialize;
use std::{collections::VecDeque, sync::Arc, time::Duration};
use tokio::sync::oneshot;

/// The longest that a request waits: a quarter of what it may take (upstream's `--request-timeout`).
const LONGEST_WAIT: Duration = Duration::from_secs(15);

/// `spec` of a PriorityLevelConfiguration.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct Spec {
    #[serde(rename = "type")]
    kind: String,
    limited: Limited,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Limited {
    nominal_concurrency_shares: usize,
    limit_response: LimitResponse,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct LimitResponse {
    #[serde(rename = "type")]
    kind: String,
    queuing: Queuing,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Queuing {
    queues: usize,
    hand_size: usize,
    queue_length_limit: usize,
}

impl Spec {
    pub(super) fn is_exempt(&self) -> bool {
        self.kind == "Exempt"
    }

    /// How large its share of what the server does at a time is.
    pub(super) fn shares(&self) -> usize {
        if self.is_exempt() { 0 } else { self.limited.nominal_concurrency_shares }
    }
}

#[derive(Debug, Default)]
pub(super) struct Level(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    exempt: bool,
    limit: usize,
    executing: usize,
    /// What follows from a configuration without queues is that nobody waits.
    queuing: Queuing,
    queues: Vec<VecDeque<oneshot::Sender<Seat>>>,
    waiting: usize,
    /// Whose turn it is.
    next: usize,
}

/// A request that is carried out; when it is dropped, another one is.
#[derive(Debug)]
pub(crate) struct Seat(Option<Arc<Level>>);

/// There is no room, and none soon.
#[derive(Debug)]
pub(super) struct Full;

impl Level {
    /// From now on this many at a time, as this says. Those who wait go on waiting.
    pub(super) fn configure(self: &Arc<Self>, spec: &Spec, limit: usize) {
        let response = &spec.limited.limit_response;
        let queuing = if response.kind == "Queue" { response.queuing } else { Queuing::default() };
        {
            let mut state = self.0.lock();
            (state.exempt, state.limit, state.queuing) = (spec.is_exempt(), limit, queuing);
            // Queues are not taken away from those who wait in them.
            let queues = queuing.queues.max(state.queues.len());
            state.queues.resize_with(queues, VecDeque::new);
        }
        loop {
            let waiter = self.0.lock().admit();
            match waiter {
                Some(waiter) => self.seat(waiter),
                None => return,
            }
        }
    }

    /// A seat for a request of this flow, at once or after a while.
    pub(super) async fn enter(self: &Arc<Self>, flow: u64) -> Result<Seat, Full> {
        let mut receiver = {
            let mut state = self.0.lock();
            if state.exempt {
                return Ok(Seat(None));
            }
            if state.executing < state.limit {
                state.executing += 1;
                return Ok(Seat(Some(Arc::clone(self))));
            }
            state.wait(flow).ok_or(Full)?
        };
        match tokio::time::timeout(LONGEST_WAIT, &mut receiver).await {
            Ok(Ok(seat)) => Ok(seat),
            // A seat may have come just now.
            _ => receiver.try_recv().map_err(|_| Full),
        }
    }

    fn release(self: &Arc<Self>) {
        let waiter = {
            let mut state = self.0.lock();
            state.executing -= 1;
            state.admit()
        };
        if let Some(waiter) = waiter {
            self.seat(waiter);
        }
    }

    /// Gives somebody who waits a seat that was counted; if they are gone, to the next.
    fn seat(self: &Arc<Self>, waiter: oneshot::Sender<Seat>) {
        let mut waiter = waiter;
        while let Err(mut seat) = waiter.send(Seat(Some(Arc::clone(self)))) {
            seat.0 = None;
            let mut state = self.0.lock();
            state.executing -= 1;
            match state.admit() {
                Some(next) => waiter = next,
                None => return,
            }
        }
    }

    #[cfg(test)]
    fn counts(&self) -> (usize, usize) {
        let state = self.0.lock();
        (state.executing, state.waiting)
    }
}

impl State {
    /// Takes whoever's turn it is out of their queue, if there is room.
    fn admit(&mut self) -> Option<oneshot::Sender<Seat>> {
        if self.waiting == 0 || self.executing >= self.limit {
            return None;
        }
        for _ in 0..self.queues.len() {
            self.next = (self.next + 1) % self.queues.len();
            if let Some(waiter) = self.queues[self.next].pop_front() {
                self.waiting -= 1;
                self.executing += 1;
                return Some(waiter);
            }
        }
        None
    }

    /// A place in the shortest of the flow's queues, unless that is full.
    fn wait(&mut self, flow: u64) -> Option<oneshot::Receiver<Seat>> {
        let Queuing { queues, hand_size, queue_length_limit } = self.queuing;
        let queue = deal(flow, queues, hand_size).into_iter().min_by_key(|i| self.queues[*i].len())?;
        let queue = &mut self.queues[queue];
        if queue.len() >= queue_length_limit {
            let before = queue.len();
            // Who has gone meanwhile takes no place.
            queue.retain(|waiter| !waiter.is_closed());
            self.waiting -= before - queue.len();
            if queue.len() >= queue_length_limit {
                return None;
            }
        }
        let (sender, receiver) = oneshot::channel();
        queue.push_back(sender);
        self.waiting += 1;
        Some(receiver)
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        if let Some(level) = self.0.take() {
            level.release();
        }
    }
}

/// As many different cards of a deck as a hand has, always the same for the same flow (`shufflesharding.Dealer`).
fn deal(mut flow: u64, deck: usize, hand: usize) -> Vec<usize> {
    let mut cards: Vec<usize> = Vec::with_capacity(hand);
    for left in (0..deck).rev().take(hand).map(|i| i as u64 + 1) {
        let mut card = usize::try_from(flow % left).unwrap_or(0);
        flow /= left;
        let mut before = cards.clone();
        before.sort_unstable();
        before.iter().for_each(|taken| card += usize::from(card >= *taken));
        cards.push(card);
    }
    cards
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;
    use serde_json::json;
    use std::collections::BTreeSet;

    fn level(limit: usize, queues: usize, hand: usize, length: usize) -> Arc<Level> {
        let queuing = json!({"queues": queues, "handSize": hand, "queueLengthLimit": length});
        let response = json!({"type": if queues > 0 { "Queue" } else { "Reject" }, "queuing": queuing});
        let spec = serde_json::from_value(json!({"type": "Limited", "limited": {"limitResponse": response}})).unwrap();
        let level = Arc::new(Level::default());
        level.configure(&spec, limit);
        level
    }

    #[test]
    fn a_hand_has_different_cards_and_is_always_the_same() {
        for flow in [0, 1, u64::MAX, 0x1234_5678_9abc_def0] {
            let hand = deal(flow, 64, 8);
            assert_eq!(hand, deal(flow, 64, 8));
            assert_eq!(hand.iter().collect::<BTreeSet<_>>().len(), 8);
            assert!(hand.iter().all(|card| *card < 64));
        }
        assert_eq!(deal(7, 3, 8).len(), 3);
        assert!(deal(7, 0, 8).is_empty());
    }

    #[tokio::test]
    async fn who_finds_no_room_is_refused_or_waits() {
        let rejecting = level(1, 0, 0, 0);
        let seat = rejecting.enter(1).await.unwrap();
        assert!(rejecting.enter(1).await.is_err());
        drop(seat);
        assert!(rejecting.enter(1).await.is_ok());

        let queuing = level(1, 1, 1, 2);
        let seat = queuing.enter(1).await.unwrap();
        let mut first = Box::pin(queuing.enter(1));
        let mut second = Box::pin(queuing.enter(1));
        assert!(first.as_mut().now_or_never().is_none() && second.as_mut().now_or_never().is_none());
        assert!(queuing.enter(1).await.is_err());
        drop(seat);
        let seat = first.await.unwrap();
        assert!(second.as_mut().now_or_never().is_none());
        drop(seat);
        assert!(second.await.is_ok());
        assert_eq!(queuing.counts(), (0, 0));
    }

    #[tokio::test]
    async fn flows_are_served_in_turn_however_many_of_one_wait() {
        // Each has a queue of its own.
        let level = level(1, 2, 1, 100);
        let seat = level.enter(0).await.unwrap();
        let mut flood: Vec<_> = (0..50).map(|_| Box::pin(level.enter(0))).collect();
        assert!(flood.iter_mut().all(|f| f.as_mut().now_or_never().is_none()));
        let mut other = Box::pin(level.enter(1));
        assert!(other.as_mut().now_or_never().is_none());
        drop(seat);
        // The other one is among the next two.
        if other.as_mut().now_or_never().is_none() {
            drop(flood.remove(0).await.unwrap());
            drop(other.await.unwrap());
        }
        drop(flood);
        assert_eq!(level.counts().0, 0);
    }

    #[tokio::test]
    async fn who_has_gone_takes_no_place() {
        let level = level(1, 1, 1, 2);
        let seat = level.enter(1).await.unwrap();
        for _ in 0..5 {
            let mut gone = Box::pin(level.enter(1));
            assert!(gone.as_mut().now_or_never().is_none());
        }
        let mut waits = Box::pin(level.enter(1));
        assert!(waits.as_mut().now_or_never().is_none());
        drop(seat);
        drop(waits.await.unwrap());
        // A seat that was given to somebody who went before they took it is free.
        let seat = level.enter(1).await.unwrap();
        let mut gone = Box::pin(level.enter(1));
        assert!(gone.as_mut().now_or_never().is_none());
        drop(seat);
        drop(gone);
        assert_eq!(level.counts(), (0, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_waits_for_ever() {
        let level = level(1, 1, 1, 2);
        let _seat = level.enter(1).await.unwrap();
        let start = tokio::time::Instant::now();
        assert!(level.enter(1).await.is_err());
        assert_eq!(start.elapsed(), LONGEST_WAIT);
    }

    #[tokio::test]
    async fn more_room_is_taken_by_those_who_wait() {
        let level = level(0, 1, 1, 10);
        let mut waits: Vec<_> = (0..3).map(|_| Box::pin(level.enter(1))).collect();
        assert!(waits.iter_mut().all(|w| w.as_mut().now_or_never().is_none()));
        let spec = serde_json::from_value(json!({"type": "Limited"})).unwrap();
        level.configure(&spec, 2);
        assert_eq!(level.counts(), (2, 1));
        for wait in waits {
            drop(wait.await.unwrap());
        }
        let exempt = serde_json::from_value(json!({"type": "Exempt"})).unwrap();
        level.configure(&exempt, 0);
        assert!(level.enter(1).await.is_ok());
    }
}
