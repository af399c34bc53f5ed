//! Priority level: a concurrency limit, and queues for the requests above it (upstream's `queueset`).
//!
//! Shuffle sharding deals a hand of queues to each flow, and a request is added to the shortest of its hand. So a flow
//! that floods the level rarely shares all queues with another one. Queues are served in round-robin order, one request
//! each.

use parking_lot::Mutex;
use serde::Deserialize;
use std::{collections::VecDeque, sync::Arc, time::Duration};
use tokio::sync::oneshot;

/// Maximum time in a queue: a quarter of the request timeout (upstream's `--request-timeout`).
const MAX_QUEUE_WAIT: Duration = Duration::from_secs(15);

/// `spec` of a PriorityLevelConfiguration.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct PriorityLevelSpec {
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

impl PriorityLevelSpec {
    pub(super) fn is_exempt(&self) -> bool {
        self.kind == "Exempt"
    }

    /// Returns the share of the server's concurrency limit.
    pub(super) fn concurrency_shares(&self) -> usize {
        if self.is_exempt() { 0 } else { self.limited.nominal_concurrency_shares }
    }
}

/// A priority level and its queues.
#[derive(Debug, Default)]
pub(super) struct PriorityLevel(Mutex<QueueSet>);

#[derive(Debug, Default)]
struct QueueSet {
    exempt: bool,
    concurrency_limit: usize,
    executing: usize,
    /// Without queues, requests above the limit are rejected.
    queuing: Queuing,
    queues: Vec<VecDeque<oneshot::Sender<Seat>>>,
    waiting: usize,
    /// Index of the queue that was served last.
    robin_index: usize,
}

/// A seat of an executing request. It is passed to a waiting request when it is dropped.
#[derive(Debug)]
pub(crate) struct Seat(Option<Arc<PriorityLevel>>);

/// The queue is full, or the request has waited too long.
#[derive(Debug)]
pub(super) struct Rejected;

impl PriorityLevel {
    /// Applies a configuration. Waiting requests stay in their queues.
    pub(super) fn configure(self: &Arc<Self>, spec: &PriorityLevelSpec, concurrency_limit: usize) {
        let response = &spec.limited.limit_response;
        let queuing = if response.kind == "Queue" { response.queuing } else { Queuing::default() };
        {
            let mut queue_set = self.0.lock();
            (queue_set.exempt, queue_set.concurrency_limit, queue_set.queuing) =
                (spec.is_exempt(), concurrency_limit, queuing);
            // Queues are never removed, because they may hold requests.
            let queues = queuing.queues.max(queue_set.queues.len());
            queue_set.queues.resize_with(queues, VecDeque::new);
        }
        loop {
            let waiter = self.0.lock().dispatch();
            match waiter {
                Some(waiter) => self.grant_seat(waiter),
                None => return,
            }
        }
    }

    /// Returns a seat for a request of a flow, immediately or after waiting in a queue.
    pub(super) async fn acquire_seat(self: &Arc<Self>, flow_hash: u64) -> Result<Seat, Rejected> {
        let mut receiver = {
            let mut queue_set = self.0.lock();
            if queue_set.exempt {
                return Ok(Seat(None));
            }
            if queue_set.executing < queue_set.concurrency_limit {
                queue_set.executing += 1;
                return Ok(Seat(Some(Arc::clone(self))));
            }
            queue_set.enqueue(flow_hash).ok_or(Rejected)?
        };
        match tokio::time::timeout(MAX_QUEUE_WAIT, &mut receiver).await {
            Ok(Ok(seat)) => Ok(seat),
            // The seat may have been granted since the timeout.
            _ => receiver.try_recv().map_err(|_| Rejected),
        }
    }

    fn release(self: &Arc<Self>) {
        let waiter = {
            let mut queue_set = self.0.lock();
            queue_set.executing -= 1;
            queue_set.dispatch()
        };
        if let Some(waiter) = waiter {
            self.grant_seat(waiter);
        }
    }

    /// Grants a counted seat to a waiting request, or to the next one if its client has gone.
    fn grant_seat(self: &Arc<Self>, waiter: oneshot::Sender<Seat>) {
        let mut waiter = waiter;
        while let Err(mut seat) = waiter.send(Seat(Some(Arc::clone(self)))) {
            seat.0 = None;
            let mut queue_set = self.0.lock();
            queue_set.executing -= 1;
            match queue_set.dispatch() {
                Some(next) => waiter = next,
                None => return,
            }
        }
    }

    #[cfg(test)]
    fn counts(&self) -> (usize, usize) {
        let queue_set = self.0.lock();
        (queue_set.executing, queue_set.waiting)
    }
}

impl QueueSet {
    /// Removes the next request from its queue if there is a free seat.
    fn dispatch(&mut self) -> Option<oneshot::Sender<Seat>> {
        if self.waiting == 0 || self.executing >= self.concurrency_limit {
            return None;
        }
        for _ in 0..self.queues.len() {
            self.robin_index = (self.robin_index + 1) % self.queues.len();
            if let Some(waiter) = self.queues[self.robin_index].pop_front() {
                self.waiting -= 1;
                self.executing += 1;
                return Some(waiter);
            }
        }
        None
    }

    /// Adds a request to the shortest queue of the flow's hand, unless it is full.
    fn enqueue(&mut self, flow_hash: u64) -> Option<oneshot::Receiver<Seat>> {
        let Queuing { queues, hand_size, queue_length_limit } = self.queuing;
        let queue = deal(flow_hash, queues, hand_size).into_iter().min_by_key(|i| self.queues[*i].len())?;
        let queue = &mut self.queues[queue];
        if queue.len() >= queue_length_limit {
            let old_length = queue.len();
            // Clients that have gone do not count.
            queue.retain(|waiter| !waiter.is_closed());
            self.waiting -= old_length - queue.len();
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

/// Deals a hand of distinct cards from a deck, the same for the same hash (`shufflesharding.Dealer`).
fn deal(mut flow_hash: u64, deck: usize, hand: usize) -> Vec<usize> {
    let mut cards: Vec<usize> = Vec::with_capacity(hand);
    for left in (0..deck).rev().take(hand).map(|i| i as u64 + 1) {
        let mut card = usize::try_from(flow_hash % left).unwrap_or(0);
        flow_hash /= left;
        let mut dealt = cards.clone();
        dealt.sort_unstable();
        dealt.iter().for_each(|taken| card += usize::from(card >= *taken));
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

    fn level(concurrency_limit: usize, queues: usize, hand: usize, length: usize) -> Arc<PriorityLevel> {
        let queuing = json!({"queues": queues, "handSize": hand, "queueLengthLimit": length});
        let response = json!({"type": if queues > 0 { "Queue" } else { "Reject" }, "queuing": queuing});
        let spec = serde_json::from_value(json!({"type": "Limited", "limited": {"limitResponse": response}})).unwrap();
        let level = Arc::new(PriorityLevel::default());
        level.configure(&spec, concurrency_limit);
        level
    }

    #[test]
    fn hand_has_distinct_cards_and_is_deterministic() {
        for flow_hash in [0, 1, u64::MAX, 0x1234_5678_9abc_def0] {
            let hand = deal(flow_hash, 64, 8);
            assert_eq!(hand, deal(flow_hash, 64, 8));
            assert_eq!(hand.iter().collect::<BTreeSet<_>>().len(), 8);
            assert!(hand.iter().all(|card| *card < 64));
        }
        assert_eq!(deal(7, 3, 8).len(), 3);
        assert!(deal(7, 0, 8).is_empty());
    }

    #[tokio::test]
    async fn request_above_the_limit_is_rejected_or_queued() {
        let rejecting = level(1, 0, 0, 0);
        let seat = rejecting.acquire_seat(1).await.unwrap();
        assert!(rejecting.acquire_seat(1).await.is_err());
        drop(seat);
        assert!(rejecting.acquire_seat(1).await.is_ok());

        let queuing = level(1, 1, 1, 2);
        let seat = queuing.acquire_seat(1).await.unwrap();
        let mut first = Box::pin(queuing.acquire_seat(1));
        let mut second = Box::pin(queuing.acquire_seat(1));
        assert!(first.as_mut().now_or_never().is_none() && second.as_mut().now_or_never().is_none());
        assert!(queuing.acquire_seat(1).await.is_err());
        drop(seat);
        let seat = first.await.unwrap();
        assert!(second.as_mut().now_or_never().is_none());
        drop(seat);
        assert!(second.await.is_ok());
        assert_eq!(queuing.counts(), (0, 0));
    }

    #[tokio::test]
    async fn flows_are_served_in_turn_despite_a_flood() {
        // Each flow has its own queue.
        let level = level(1, 2, 1, 100);
        let seat = level.acquire_seat(0).await.unwrap();
        let mut flood: Vec<_> = (0..50).map(|_| Box::pin(level.acquire_seat(0))).collect();
        assert!(flood.iter_mut().all(|f| f.as_mut().now_or_never().is_none()));
        let mut other = Box::pin(level.acquire_seat(1));
        assert!(other.as_mut().now_or_never().is_none());
        drop(seat);
        // The other flow is among the next two.
        if other.as_mut().now_or_never().is_none() {
            drop(flood.remove(0).await.unwrap());
            drop(other.await.unwrap());
        }
        drop(flood);
        assert_eq!(level.counts().0, 0);
    }

    #[tokio::test]
    async fn canceled_request_frees_its_place() {
        let level = level(1, 1, 1, 2);
        let seat = level.acquire_seat(1).await.unwrap();
        for _ in 0..5 {
            let mut canceled = Box::pin(level.acquire_seat(1));
            assert!(canceled.as_mut().now_or_never().is_none());
        }
        let mut waits = Box::pin(level.acquire_seat(1));
        assert!(waits.as_mut().now_or_never().is_none());
        drop(seat);
        drop(waits.await.unwrap());
        // A seat that was granted to a canceled request is free.
        let seat = level.acquire_seat(1).await.unwrap();
        let mut canceled = Box::pin(level.acquire_seat(1));
        assert!(canceled.as_mut().now_or_never().is_none());
        drop(seat);
        drop(canceled);
        assert_eq!(level.counts(), (0, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn request_is_rejected_after_the_queue_wait() {
        let level = level(1, 1, 1, 2);
        let _seat = level.acquire_seat(1).await.unwrap();
        let start = tokio::time::Instant::now();
        assert!(level.acquire_seat(1).await.is_err());
        assert_eq!(start.elapsed(), MAX_QUEUE_WAIT);
    }

    #[tokio::test]
    async fn waiting_requests_get_the_seats_of_a_raised_limit() {
        let level = level(0, 1, 1, 10);
        let mut waits: Vec<_> = (0..3).map(|_| Box::pin(level.acquire_seat(1))).collect();
        assert!(waits.iter_mut().all(|w| w.as_mut().now_or_never().is_none()));
        let spec = serde_json::from_value(json!({"type": "Limited"})).unwrap();
        level.configure(&spec, 2);
        assert_eq!(level.counts(), (2, 1));
        for wait in waits {
            drop(wait.await.unwrap());
        }
        let exempt = serde_json::from_value(json!({"type": "Exempt"})).unwrap();
        level.configure(&exempt, 0);
        assert!(level.acquire_seat(1).await.is_ok());
    }
}
