//! What happened to a Pod lately: every fact with its time, so that it can be told, and gone through again.
//!
//! A dump is lines of JSON, a [`Line`] each: what was known at first, the facts, and what followed from them. Since the
//! same facts give the same plan and status, [`replay`] shows on any machine what a node saw.

use crate::{Event, NodePolicy, Plan, Pod, observe, plan, status};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::PodStatus;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// How many facts are kept of each Pod: some minutes of one with probes, or all the life of one without.
const MAX_EVENTS: usize = 200;

/// How many bytes of them are kept.
const MAX_BYTES: usize = 128 << 10;

/// The newest facts about one Pod, and what was known before them.
#[derive(Debug, Clone)]
pub struct History {
    before: Pod,
    /// Each as JSON, which takes a small part of the room.
    facts: VecDeque<(Timestamp, Box<str>)>,
    size: usize,
}

/// One line of a dump.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Line {
    /// What was known before the first fact, and by which rules.
    Before {
        /// What was known.
        pod: Box<Pod>,
        /// What the node decides for all of its Pods.
        policy: NodePolicy,
    },
    /// A fact, as [`observe`] took it.
    Fact {
        /// When.
        at: Timestamp,
        /// What happened.
        event: Event,
    },
    /// What followed from all of them.
    After {
        /// When that was asked for.
        at: Timestamp,
        /// What was to be done.
        plan: Plan,
        /// What the API was to show.
        status: Box<PodStatus>,
    },
}

/// What a dump told, and what the same facts give now.
#[derive(Debug, Clone, PartialEq)]
pub struct Replayed {
    /// The plan and the status of the dump.
    pub told: (Plan, PodStatus),
    /// Those that follow from its facts.
    pub again: (Plan, PodStatus),
    /// How many facts there were.
    pub facts: usize,
}

/// A dump that cannot be gone through.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// A line is none of a dump.
    #[error("line {0} is none of a history: {1}")]
    Line(usize, serde_json::Error),
    /// The first line has to say what was known before, and the last one what followed.
    #[error("a history has a first and a last line")]
    Incomplete,
}

impl History {
    /// Nothing has happened since this was known.
    #[must_use]
    pub fn new(pod: &Pod) -> Self {
        Self { before: pod.clone(), facts: VecDeque::new(), size: 0 }
    }

    /// Keeps a fact that is folded in at this moment. What is too old becomes a part of what was known before.
    pub fn push(&mut self, event: &Event, policy: &NodePolicy, now: Timestamp) {
        // What has no text is nothing that a kubelet makes.
        let Ok(text) = serde_json::to_string(event) else { return };
        self.size += text.len();
        self.facts.push_back((now, text.into_boxed_str()));
        while self.facts.len() > MAX_EVENTS || self.size > MAX_BYTES {
            let Some((at, text)) = self.facts.pop_front() else { break };
            self.size -= text.len();
            if let Ok(event) = serde_json::from_str(&text) {
                observe(&mut self.before, event, policy, at);
            }
        }
    }

    /// The lines of a dump, oldest first; `pod` is what all the facts have led to.
    #[must_use]
    pub fn lines(&self, pod: &Pod, policy: &NodePolicy, now: Timestamp) -> Vec<Line> {
        let fact =
            |(at, text): &(Timestamp, Box<str>)| Some(Line::Fact { at: *at, event: serde_json::from_str(text).ok()? });
        let mut lines = vec![Line::Before { pod: Box::new(self.before.clone()), policy: policy.clone() }];
        lines.extend(self.facts.iter().filter_map(fact));
        let (plan, status) = (plan(pod, policy, now), Box::new(status(pod, policy, now)));
        lines.push(Line::After { at: now, plan, status });
        lines
    }
}

/// Goes through a dump again, fact by fact.
///
/// # Errors
/// For what is no dump.
pub fn replay(dump: &str) -> Result<Replayed, ReplayError> {
    let mut known = None;
    let mut facts = 0;
    for (n, line) in dump.lines().enumerate() {
        match (serde_json::from_str(line).map_err(|e| ReplayError::Line(n + 1, e))?, &mut known) {
            (Line::Before { pod, policy }, None) => known = Some((pod, policy)),
            (Line::Fact { at, event }, Some((pod, policy))) => {
                observe(pod, event, policy, at);
                facts += 1;
            }
            (Line::After { at, plan: told, status: shown }, Some((pod, policy))) => {
                let again = (plan(pod, policy, at), round_trip(&status(pod, policy, at)));
                return Ok(Replayed { told: (told, *shown), again, facts });
            }
            _ => return Err(ReplayError::Incomplete),
        }
    }
    Err(ReplayError::Incomplete)
}

/// As it is read back: the API's times are whole seconds.
fn round_trip(status: &PodStatus) -> PodStatus {
    serde_json::to_value(status).and_then(serde_json::from_value).unwrap_or_default()
}
