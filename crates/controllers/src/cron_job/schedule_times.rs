//! Scheduled times that have passed, and the next one (`mostRecentScheduleTime`).

use api::cron::Schedule;
use jiff::{SignedDuration, Timestamp, tz::TimeZone};
use std::time::Duration;

/// Delay after a scheduled time, for clock skew (`nextScheduleDelta`).
const CLOCK_SKEW_DELTA: SignedDuration = SignedDuration::from_millis(100);
/// Number of missed times above which a warning is recorded.
const MAX_MISSED_TIMES: i64 = 100;

/// A schedule in a time zone.
#[derive(Debug)]
pub(super) struct ScheduleTimes<'a> {
    pub(super) schedule: &'a Schedule,
    pub(super) zone: &'a TimeZone,
}

/// The most recent scheduled time since a start time.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct MostRecentTime {
    /// The most recent time, if one has passed.
    pub(super) last: Option<Timestamp>,
    /// Approximate number of missed times.
    pub(super) missed: i64,
}

/// The schedule has no time, such as 31 February.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct NeverScheduled;

impl MostRecentTime {
    pub(super) fn has_too_many_missed(&self) -> bool {
        self.missed > MAX_MISSED_TIMES
    }
}

impl ScheduleTimes<'_> {
    fn next(&self, after: Timestamp) -> Option<Timestamp> {
        self.schedule.next(after, self.zone)
    }

    /// Returns the most recent scheduled time after `since` and up to `now`.
    pub(super) fn most_recent(&self, since: Timestamp, now: Timestamp) -> Result<MostRecentTime, NeverScheduled> {
        let first = self.next(since).ok_or(NeverScheduled)?;
        if now < first {
            return Ok(MostRecentTime { last: None, missed: 0 });
        }
        let second = self.next(first).ok_or(NeverScheduled)?;
        if now < second {
            return Ok(MostRecentTime { last: Some(first), missed: 0 });
        }
        // Estimate the number of missed times from the interval of the first two. Search for the last one from an
        // interval earlier, because intervals may differ.
        let pause = second.duration_since(first).as_secs().max(1);
        let missed = now.duration_since(first).as_secs() / pause + 1;
        let from = SignedDuration::from_secs((missed - 2).saturating_mul(pause));
        let mut at = first.checked_add(from).unwrap_or(first);
        let mut last = None;
        while let Some(next) = self.next(at).filter(|next| *next <= now) {
            last = Some(next);
            at = next;
        }
        Ok(MostRecentTime { last, missed })
    }

    /// Returns the time until the next scheduled time (`nextScheduleTimeDuration`).
    pub(super) fn until_next(&self, since: Timestamp, now: Timestamp) -> Option<Duration> {
        let from = match self.most_recent(since, now) {
            Ok(MostRecentTime { last: Some(last), .. }) => last,
            Ok(MostRecentTime { last: None, missed: 0 }) => since,
            Ok(MostRecentTime { last: None, .. }) | Err(NeverScheduled) => now,
        };
        let left = self.next(from)?.duration_since(now).saturating_add(CLOCK_SKEW_DELTA);
        Some(Duration::try_from(left).unwrap_or_default().max(Duration::from_millis(10)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[track_caller]
    fn check(schedule: &str, since: &str, now: &str, last: Option<&str>, missed: i64, left: Option<u64>) {
        let schedule = Schedule::parse(schedule).unwrap();
        let times = ScheduleTimes { schedule: &schedule, zone: &TimeZone::UTC };
        assert_eq!(times.most_recent(at(since), at(now)), Ok(MostRecentTime { last: last.map(at), missed }));
        let left = left.map(|seconds| Duration::from_secs(seconds) + Duration::from_millis(100));
        assert_eq!(times.until_next(at(since), at(now)), left);
    }

    #[test]
    fn most_recent_scheduled_time_is_found() {
        let hourly = "0 * * * *";
        check(hourly, "2026-01-01T00:00:00Z", "2026-01-01T00:59:50Z", None, 0, Some(10));
        check(hourly, "2026-01-01T00:00:00Z", "2026-01-01T01:00:00Z", Some("2026-01-01T01:00:00Z"), 0, Some(3600));
        check(hourly, "2026-01-01T00:10:00Z", "2026-01-01T05:30:00Z", Some("2026-01-01T05:00:00Z"), 5, Some(1800));
        check(hourly, "2026-01-01T00:10:00Z", "2026-02-01T00:00:00Z", Some("2026-02-01T00:00:00Z"), 744, Some(3600));
        // Intervals that differ: a night, then four hours.
        let days = "30 6-16/4 * * 1-5";
        check(days, "2026-01-01T16:30:00Z", "2026-01-05T07:00:00Z", Some("2026-01-05T06:30:00Z"), 19, Some(12_600));
        check("@every 7s", "2026-01-01T00:00:00Z", "2026-01-01T00:00:30Z", Some("2026-01-01T00:00:28Z"), 4, Some(5));
    }

    #[test]
    fn more_than_100_missed_times_are_too_many() {
        let schedule = Schedule::parse("* * * * *").unwrap();
        let times = ScheduleTimes { schedule: &schedule, zone: &TimeZone::UTC };
        let come = |now: &str| times.most_recent(at("2026-01-01T00:00:00Z"), at(now)).unwrap();
        assert!(!come("2026-01-01T01:40:00Z").has_too_many_missed());
        assert!(come("2026-01-01T01:41:00Z").has_too_many_missed());
    }

    #[test]
    fn schedule_without_times_is_never_scheduled() {
        let schedule = Schedule::parse("59 23 31 2 *").unwrap();
        let times = ScheduleTimes { schedule: &schedule, zone: &TimeZone::UTC };
        let since = at("2026-01-01T00:00:00Z");
        assert_eq!(times.most_recent(since, since), Err(NeverScheduled));
        assert_eq!(times.until_next(since, since), None);
    }
}
