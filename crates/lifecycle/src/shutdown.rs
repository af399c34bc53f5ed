//! Graceful node shutdown: order and grace periods of Pods (KEP-2000, KEP-2712).
//!
//! Pods are terminated in groups by priority range, the lowest first. Each group has its own grace period; the next
//! group follows when all Pods of the group have ended, or its period is over.

use crate::{Admission, Eviction, Pod, pod::Volumes};
use api::pod::priority;
use std::time::Duration;

/// `status.reason` of a Pod that the shutdown terminated.
pub(crate) const REASON: &str = "Terminated";
const MESSAGE: &str = "Pod was terminated in response to imminent node shutdown.";
/// The lowest priority of critical Pods.
const SYSTEM_CRITICAL: i32 = 2_000_000_000;

/// Grace period of Pods with this priority or higher, up to the next range.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ShutdownGrace {
    /// Lowest priority of the range; the lowest range includes lower priorities, too.
    pub priority: i32,
    /// Seconds.
    pub seconds: u32,
}

/// Grace periods of a node shutdown.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ShutdownPolicy {
    ranges: Vec<ShutdownGrace>,
}

/// A Pod to terminate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShutdownPod {
    /// Its UID.
    pub uid: String,
    /// `spec.priority`.
    pub priority: i32,
    /// `terminationGracePeriodSeconds`.
    pub grace_seconds: u32,
}

/// Pods that are terminated at the same time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShutdownGroup {
    /// How long to wait for the group before the next one.
    pub limit: Duration,
    /// Pods by UID, each with its eviction.
    pub pods: Vec<(String, Eviction)>,
}

impl ShutdownPolicy {
    /// Creates the policy from `shutdownGracePeriod` and `shutdownGracePeriodCriticalPods`: critical Pods get the
    /// latter, all others the rest of the former. Empty if both are zero.
    #[must_use]
    pub fn from_grace_periods(total: Duration, critical: Duration) -> Self {
        let Some(others) = total.checked_sub(critical).filter(|_| !total.is_zero()) else { return Self::default() };
        let seconds = |d: Duration| u32::try_from(d.as_secs()).unwrap_or(u32::MAX);
        Self::by_priority(vec![
            ShutdownGrace { priority: 0, seconds: seconds(others) },
            ShutdownGrace { priority: SYSTEM_CRITICAL, seconds: seconds(critical) },
        ])
    }

    /// Creates the policy from `shutdownGracePeriodByPodPriority`.
    #[must_use]
    pub fn by_priority(mut ranges: Vec<ShutdownGrace>) -> Self {
        ranges.sort_unstable();
        Self { ranges }
    }

    /// Returns whether graceful node shutdown is disabled.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Returns the sum of all grace periods.
    #[must_use]
    pub fn total(&self) -> Duration {
        self.ranges.iter().map(|range| Duration::from_secs(range.seconds.into())).sum()
    }

    /// Returns the groups in their order, without empty ones.
    #[must_use]
    pub fn groups(&self, pods: &[ShutdownPod]) -> Vec<ShutdownGroup> {
        let mut groups: Vec<ShutdownGroup> = self
            .ranges
            .iter()
            .map(|range| ShutdownGroup { limit: Duration::from_secs(range.seconds.into()), pods: Vec::new() })
            .collect();
        for pod in pods {
            // The highest range that its priority reaches, else the lowest.
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

/// Rejection reason and message of a Pod that arrives during the shutdown.
pub(crate) const REJECTION: (&str, &str) = ("NodeShutdown", "Pod was rejected as the node is shutting down.");

impl ShutdownPod {
    /// Creates the shutdown data of a Pod.
    #[must_use]
    pub fn new(pod: &Pod) -> Self {
        Self {
            uid: pod.uid().to_owned(),
            priority: priority(pod.object()),
            grace_seconds: u32::try_from(pod.grace_period_seconds()).unwrap_or(0),
        }
    }
}

impl Pod {
    /// Returns whether the Pod reached a terminal phase.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.ended.is_some()
    }

    /// Returns whether the Pod is terminal and its volumes are unmounted.
    #[must_use]
    pub fn is_terminated_and_unmounted(&self) -> bool {
        self.ended.is_some() && matches!(*self.volumes, Volumes::Absent | Volumes::Removed)
    }

    /// Returns whether the runtime keeps dead containers of a terminated Pod, for their logs.
    #[must_use]
    pub fn keeps_dead_containers(&self) -> bool {
        self.is_terminated_and_unmounted() && (!self.emptied || self.containers.values().any(|c| !c.dead.is_empty()))
    }

    /// Returns whether the Pod was terminated or rejected only because of a node shutdown. A static Pod runs again
    /// afterwards.
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
