//! Recent events of a Pod, for `podium explain` and for replay.
//!
//! A dump is JSON lines, each a [`HistoryRecord`]: the initial state, the events, and the resulting plan and status. The same
//! events give the same plan and status, so [`replay`] reproduces a node's decisions on any machine.

use crate::{NodePolicy, Plan, Pod, PodLifecycleEvent, observe, plan, status};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::PodStatus;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// Maximum number of events per Pod: some minutes of a Pod with probes, or the whole life of a Pod without.
const MAX_EVENTS: usize = 200;

/// Maximum size of the events per Pod, in bytes of JSON.
const MAX_BYTES: usize = 128 << 10;

/// The latest events of one Pod, and its state before them.
#[derive(Debug, Clone)]
pub struct History {
    before: Pod,
    /// Events as JSON text, which takes less memory than the parsed event.
    events: VecDeque<(Timestamp, Box<str>)>,
    size: usize,
}

/// Line of a dump.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum HistoryRecord {
    /// State before the first event, and the node's settings.
    Before {
        /// State of the Pod.
        pod: Box<Pod>,
        /// Node-wide settings.
        policy: NodePolicy,
    },
    /// Event passed to [`observe()`].
    #[serde(rename = "fact")]
    Event {
        /// Time of the event.
        at: Timestamp,
        /// The event.
        event: PodLifecycleEvent,
    },
    /// Result of all events.
    After {
        /// Time of the dump.
        at: Timestamp,
        /// The plan.
        plan: Plan,
        /// The status to report.
        status: Box<PodStatus>,
    },
}

/// The recorded and the replayed result of a dump.
#[derive(Debug, Clone, PartialEq)]
pub struct ReplayResult {
    /// Plan and status recorded in the dump.
    pub recorded: (Plan, PodStatus),
    /// Plan and status computed from its events.
    pub replayed: (Plan, PodStatus),
    /// Number of events.
    pub events: usize,
}

/// Error of [`replay`].
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// A line is not valid JSON of a [`HistoryRecord`].
    #[error("failed to parse line {0} of the history: {1}")]
    Line(usize, serde_json::Error),
    /// The first line must be the initial state, the last one the result.
    #[error("failed to replay the history: first or last line is missing")]
    Incomplete,
}

impl History {
    /// Creates an empty history that starts from this state.
    #[must_use]
    pub fn new(pod: &Pod) -> Self {
        Self { before: pod.clone(), events: VecDeque::new(), size: 0 }
    }

    /// Appends an event that is observed now. Events beyond the limits are applied to the initial state.
    pub fn push(&mut self, event: &PodLifecycleEvent, policy: &NodePolicy, now: Timestamp) {
        // The kubelet creates no event that fails to serialize.
        let Ok(text) = serde_json::to_string(event) else { return };
        self.size += text.len();
        self.events.push_back((now, text.into_boxed_str()));
        while self.events.len() > MAX_EVENTS || self.size > MAX_BYTES {
            let Some((at, text)) = self.events.pop_front() else { break };
            self.size -= text.len();
            if let Ok(event) = serde_json::from_str(&text) {
                observe(&mut self.before, event, policy, at);
            }
        }
    }

    /// Returns the lines of a dump, oldest first; `pod` is the state after all events.
    #[must_use]
    pub fn lines(&self, pod: &Pod, policy: &NodePolicy, now: Timestamp) -> Vec<HistoryRecord> {
        let line = |(at, text): &(Timestamp, Box<str>)| {
            Some(HistoryRecord::Event { at: *at, event: serde_json::from_str(text).ok()? })
        };
        let mut lines = vec![HistoryRecord::Before { pod: Box::new(self.before.clone()), policy: policy.clone() }];
        lines.extend(self.events.iter().filter_map(line));
        let (plan, status) = (plan(pod, policy, now), Box::new(status(pod, policy, now)));
        lines.push(HistoryRecord::After { at: now, plan, status });
        lines
    }
}

/// Replays the events of a dump.
///
/// # Errors
/// Fails if the text is not a dump.
pub fn replay(dump: &str) -> Result<ReplayResult, ReplayError> {
    let mut before = None;
    let mut event_count = 0;
    for (n, line) in dump.lines().enumerate() {
        match (serde_json::from_str(line).map_err(|e| ReplayError::Line(n + 1, e))?, &mut before) {
            (HistoryRecord::Before { pod, policy }, None) => before = Some((pod, policy)),
            (HistoryRecord::Event { at, event }, Some((pod, policy))) => {
                observe(pod, event, policy, at);
                event_count += 1;
            }
            (HistoryRecord::After { at, plan: recorded_plan, status: recorded_status }, Some((pod, policy))) => {
                let replayed = (plan(pod, policy, at), round_trip(&status(pod, policy, at)));
                return Ok(ReplayResult { recorded: (recorded_plan, *recorded_status), replayed, events: event_count });
            }
            _ => return Err(ReplayError::Incomplete),
        }
    }
    Err(ReplayError::Incomplete)
}

/// Round-trips the status through JSON, because API timestamps have whole seconds.
fn round_trip(status: &PodStatus) -> PodStatus {
    serde_json::to_value(status).and_then(|tree| decode::from_value(&tree)).unwrap_or_default()
}
