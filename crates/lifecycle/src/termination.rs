//! Pod termination: its cause and deadline.

use crate::{Admission, pod::Pod, time::after};
use api::pod::DEFAULT_GRACE_PERIOD_SECONDS;
use jiff::Timestamp;
use std::time::Duration;

/// Termination of a Pod: cause and deadline.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct PodTermination {
    pub(crate) cause: TerminationCause,
    /// Time of SIGKILL.
    pub(crate) deadline: Timestamp,
}

/// Cause of a Pod's termination.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TerminationCause {
    /// The node rejected it.
    Rejected,
    /// Its object was removed from the API.
    Gone,
    /// It is being deleted.
    Deleted,
    /// The node evicts, preempts or shuts it down.
    Evicted,
    /// `activeDeadlineSeconds` exceeded.
    DeadlineExceeded,
    /// The API already shows a terminal phase.
    Terminal,
}

/// Grace period after a forced deletion (`minimumGracePeriodInSeconds`).
const FORCED_GRACE: Duration = Duration::from_secs(2);

impl Pod {
    /// Returns the deadline for all running containers, if the Pod is terminating.
    pub(crate) fn kill_deadline(&self, now: Timestamp) -> Option<Timestamp> {
        let lost = || self.lost_sandbox().map(|(_, since)| after(since, self.grace_period()));
        let finished = || self.finished_at.map(|at| after(at, self.grace_period()));
        self.stop(now).map(|s| s.deadline).or_else(finished).or_else(lost)
    }

    pub(crate) fn active_deadline(&self) -> Option<Timestamp> {
        let seconds = u64::try_from(self.spec().active_deadline_seconds?).ok()?;
        Some(after(self.seen_at, Duration::from_secs(seconds)))
    }

    /// Returns the Pod's own grace period.
    pub(crate) fn grace_period(&self) -> Duration {
        Duration::from_secs(u64::try_from(self.grace_period_seconds()).unwrap_or(1).max(1))
    }

    /// Returns `terminationGracePeriodSeconds`, which may be 0.
    pub(crate) fn grace_period_seconds(&self) -> i64 {
        self.spec().termination_grace_period_seconds.unwrap_or(DEFAULT_GRACE_PERIOD_SECONDS)
    }

    /// Returns whether preStop hooks run during termination: not with a zero grace period (`killContainer`).
    pub(crate) fn runs_pre_stop_hooks(&self) -> bool {
        let meta = &self.object.metadata;
        let evicted = self.evicted.as_ref().and_then(|(eviction, _)| eviction.grace_seconds);
        let grace_seconds = if meta.deletion_timestamp.is_some() {
            meta.deletion_grace_period_seconds.unwrap_or(0)
        } else {
            self.grace_period_seconds()
        };
        self.gone_at.is_none() && evicted != Some(0) && grace_seconds > 0
    }

    /// Returns cause and deadline of the termination, if any. The shortest grace period wins
    /// (`calculateEffectiveGracePeriod`); the cause is the one that determines the phase.
    pub(crate) fn stop(&self, now: Timestamp) -> Option<PodTermination> {
        let mut stops = Vec::new();
        let mut add = |cause, deadline: Timestamp| stops.push(PodTermination { cause, deadline });
        if matches!(self.admission, Some(Admission::Rejected { .. })) {
            add(TerminationCause::Rejected, self.seen_at);
        }
        if let Some((eviction, at)) = &self.evicted {
            let grace = eviction.grace_seconds.map_or(self.grace_period(), |s| Duration::from_secs(u64::from(s)));
            add(TerminationCause::Evicted, after(*at, grace));
        }
        if let Some(at) = self.overdue(now) {
            add(TerminationCause::DeadlineExceeded, after(at, self.grace_period()));
        }
        if let Some(at) = self.gone_at {
            add(TerminationCause::Gone, after(at, FORCED_GRACE));
        }
        if let Some(deadline) = self.deleted {
            add(TerminationCause::Deleted, deadline);
        }
        if let Some(at) = self.terminal_at {
            add(TerminationCause::Terminal, after(at, self.grace_period()));
        }
        let deadline = stops.iter().map(|s| s.deadline).min()?;
        let cause = stops.first()?.cause;
        Some(PodTermination { cause, deadline })
    }

    /// Returns when `activeDeadlineSeconds` was exceeded, if that was before the Pod ended.
    pub(crate) fn overdue(&self, now: Timestamp) -> Option<Timestamp> {
        self.active_deadline().filter(|at| *at <= self.ended.as_ref().map_or(now, |e| e.at))
    }
}
