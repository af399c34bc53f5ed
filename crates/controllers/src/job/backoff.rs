//! Pod failure back-off of a Job: 10 s, doubled with each failure, at most 10 min.

use crate::pod_summary::PodSummary;
use jiff::{SignedDuration, Timestamp};
use std::time::Duration;

const DEFAULT_BACKOFF: SignedDuration = SignedDuration::from_secs(10);
const MAX_BACKOFF: SignedDuration = SignedDuration::from_mins(10);

/// Failures since the last success (`backoffRecord`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct BackoffRecord {
    failures: u32,
    last: Option<Timestamp>,
}

/// Returns when a Pod finished, or the best approximation (`getFinishedTime`).
pub(super) fn finish_time(pod: &PodSummary) -> Timestamp {
    let known = pod.job.as_ref().and_then(|job| job.finished);
    known.or(pod.created).unwrap_or(Timestamp::UNIX_EPOCH)
}

impl BackoffRecord {
    /// Returns the record after these Pods have succeeded and failed (`newBackoffRecord`).
    pub(super) fn after(self, succeeded: &[&PodSummary], failed: &[&PodSummary]) -> Self {
        let last_success = succeeded.iter().map(|pod| finish_time(pod)).max();
        let known = if last_success.is_some() { Self::default() } else { self };
        let new =
            failed.iter().map(|pod| finish_time(pod)).filter(|at| last_success.is_none_or(|success| *at > success));
        let last = new.clone().max().or(known.last);
        Self { failures: known.failures.saturating_add(u32::try_from(new.count()).unwrap_or(0)), last }
    }

    /// Returns the record of an index: its number of failed Pods, and when the last one failed.
    pub(super) fn of_index(failures: i32, last: Timestamp) -> Self {
        Self { failures: u32::try_from(failures).unwrap_or(0), last: Some(last) }
    }

    /// Returns the remaining delay (`getRemainingTime`).
    pub(super) fn remaining(self, now: Timestamp) -> Option<Duration> {
        let last = self.last.filter(|_| self.failures > 0)?;
        let delay = DEFAULT_BACKOFF.saturating_mul(2_i32.saturating_pow(self.failures - 1)).min(MAX_BACKOFF);
        let left = delay.saturating_sub(now.duration_since(last));
        Duration::try_from(left).ok().filter(|left| !left.is_zero())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pod_summary::JobPodSummary;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn ended(second: i64) -> PodSummary {
        let part = JobPodSummary { finished: Some(at(second)), ..JobPodSummary::default() };
        PodSummary { job: Some(Box::new(part)), ..PodSummary::default() }
    }

    #[test]
    fn job_backoff_doubles_from_10_seconds_to_10_minutes() {
        let waits = |failures| BackoffRecord::of_index(failures, at(0)).remaining(at(0)).map(|left| left.as_secs());
        assert_eq!(
            [0, 1, 2, 3, 6, 7, 30].map(waits),
            [None, Some(10), Some(20), Some(40), Some(320), Some(600), Some(600)]
        );
        assert_eq!(BackoffRecord::of_index(1, at(0)).remaining(at(4)), Some(Duration::from_secs(6)));
        assert_eq!(BackoffRecord::of_index(1, at(0)).remaining(at(10)), None);
    }

    #[test]
    fn success_resets_the_job_backoff() {
        let two_failures = BackoffRecord::default().after(&[], &[&ended(5), &ended(3)]);
        assert_eq!(two_failures, BackoffRecord { failures: 2, last: Some(at(5)) });
        assert_eq!(two_failures.after(&[], &[&ended(9)]), BackoffRecord { failures: 3, last: Some(at(9)) });
        assert_eq!(two_failures.after(&[&ended(7)], &[]), BackoffRecord::default());
        assert_eq!(
            two_failures.after(&[&ended(7)], &[&ended(6), &ended(8)]),
            BackoffRecord { failures: 1, last: Some(at(8)) }
        );
        assert_eq!(two_failures.after(&[], &[]), two_failures);
    }
}
