//! Graceful shutdown of the node: who goes when, and with how much grace (KEP-2000, KEP-2712).
//!
//! Pods go in groups, by ranges of priority, the lowest first. A group has its own grace period, in which all of it ends at
//! the same time; the next group follows when the last one of it has ended, or its time is up.

use crate::{Admission, Eviction, Pod, pod::Volumes};
use api::pod::priority;
use std::time::Duration;

/// `status.reason` of a Pod that the shutdown ended.
pub(crate) const REASON: &str = "Terminated";
const MESSAGE: &str = "Pod was terminated in response to imminent node shutdown.";
/// The lowest priority of critical Pods.
const SYSTEM_CRITICAL: i32 = 2_000_000_000;

/// The grace period of Pods whose priority is this or higher, up to that of the next range.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ShutdownGrace {
    /// The lowest priority of the range; those below the lowest range belong to it, too.
    pub priority: i32,
    /// Seconds.
    pub seconds: u32,
}

/// How Pods go when the node shuts down.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ShutdownPolicy {
    ranges: Vec<ShutdownGrace>,
}

/// A Pod that is to go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShutdownPod {
    /// Its UID.
    pub uid: String,
    /// `spec.priority`.
    pub priority: i32,
    /// `terminationGracePeriodSeconds`.
    pub grace_seconds: u32,
}

/// Pods that go at the same time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShutdownGroup {
    /// How long the next group waits for them at most.
    pub limit: Duration,
    /// By UID, and with what grace.
    pub pods: Vec<(String, Eviction)>,
}

impl ShutdownPolicy {
    /// From `shutdownGracePeriod` and `shutdownGracePeriodCriticalPods`: critical Pods have the latter, and all others what
    /// of the former is left. None when there is nothing to share out.
    #[must_use]
    pub fn of_two(total: Duration, critical: Duration) -> Self {
        let Some(others) = total.checked_sub(critical).filter(|_| !total.is_zero()) else { return Self::default() };
        let seconds = |d: Duration| u32::try_from(d.as_secs()).unwrap_or(u32::MAX);
        Self::by_priority(vec![
            ShutdownGrace { priority: 0, seconds: seconds(others) },
            ShutdownGrace { priority: SYSTEM_CRITICAL, seconds: seconds(critical) },
        ])
    }

    /// From `shutdownGracePeriodByPodPriority`.
    #[must_use]
    pub fn by_priority(mut ranges: Vec<ShutdownGrace>) -> Self {
        ranges.sort_unstable();
        Self { ranges }
    }

    /// Whether Pods get any time at all; without a policy the node goes down at once.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// How long the whole may take.
    #[must_use]
    pub fn total(&self) -> Duration {
        self.ranges.iter().map(|range| Duration::from_secs(range.seconds.into())).sum()
    }

    /// Who goes when: the groups in their order, without those that nobody belongs to.
    #[must_use]
    pub fn groups(&self, pods: &[ShutdownPod]) -> Vec<ShutdownGroup> {
        let mut groups: Vec<ShutdownGroup> = self
            .ranges
            .iter()
            .map(|range| ShutdownGroup { limit: Duration::from_secs(range.seconds.into()), pods: Vec::new() })
            .collect();
        for pod in pods {
            // The highest range that it reaches, or the lowest there is.
            let reached = self.ranges.partition_point(|range| range.priority <= pod.priority);
            let at = reached.saturating_sub(1);
            if let (Some(group), Some(range)) = (groups.get_mut(at), self.ranges.get(at)) {
                group.pods.push((pod.uid.clone(), eviction(pod.grace_seconds.min(range.seconds))));
            }
        }
        groups.retain(|group| !group.pods.is_empty());
        groups
    }
}

fn eviction(grace_seconds: u32) -> Eviction {
    Eviction {
        reason: REASON.to_owned(),
        message: MESSAGE.to_owned(),
        grace_seconds: Some(grace_seconds),
        disruption_target: true,
        ..Eviction::default()
    }
}

/// Reason and message of a Pod that comes while the node shuts down.
pub(crate) const REJECTION: (&str, &str) = ("NodeShutdown", "Pod was rejected as the node is shutting down.");

impl ShutdownPod {
    /// What of a Pod decides when it goes.
    #[must_use]
    pub fn of(pod: &Pod) -> Self {
        Self {
            uid: pod.uid().to_owned(),
            priority: priority(pod.object()),
            grace_seconds: u32::try_from(pod.grace_period_seconds()).unwrap_or(0),
        }
    }
}

impl Pod {
    /// Whether it has ended, for good.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.ended.is_some()
    }

    /// Whether nothing of it runs or is mounted any more, and nothing will.
    #[must_use]
    pub fn has_left(&self) -> bool {
        self.ended.is_some() && matches!(self.volumes, Volumes::Absent | Volumes::Removed)
    }

    /// Whether the runtime keeps containers of it that nobody needs, for people to read.
    #[must_use]
    pub fn keeps_dead_containers(&self) -> bool {
        self.has_left() && (!self.emptied || self.containers.values().any(|c| !c.dead.is_empty()))
    }

    /// Whether it ended, or was refused, for no other reason than a shutdown of the node: a static Pod runs again when that
    /// is over.
    #[must_use]
    pub fn is_shut_down(&self) -> bool {
        let reason = self.ended.as_ref().and_then(|ended| ended.reason.as_deref());
        match reason {
            Some(REASON) => self.evicted.as_ref().is_some_and(|(eviction, _)| eviction.reason == REASON),
            Some(reason) if reason == REJECTION.0 => matches!(self.admission, Some(Admission::Rejected { .. })),
            _ => false,
        }
    }
}
