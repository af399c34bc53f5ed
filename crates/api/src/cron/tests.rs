//! Tests of cron schedules against the results of upstream's parser.

use super::Schedule;
use jiff::{Timestamp, tz::TimeZone};

#[test]
fn schedule_is_parsed_as_upstream() {
    let check = |schedule: &str, expected: &str| {
        let error = Schedule::parse(schedule).err().map(|e| e.to_string()).unwrap_or_default();
        assert_eq!(error, expected, "{schedule}");
    };
    for good in ["* * * * *", "*/5 0-3,5 1 JAN mon-fri", "? 1/2 * * 0", "@hourly", "0 0 31 12 6", "*-5 * * * *"] {
        check(good, "");
    }
    for good in ["1h30m", "1.5h", "-1h", "+2s", "0", "90m1.5s", "100ms", "1µs"] {
        check(&format!("@every {good}"), "");
    }
    check("hourly", "expected exactly 5 fields, found 1: [hourly]");
    check("60 * * * *", "end of range (60) above maximum (59): 60");
    check("* * 0 * *", "beginning of range (0) below minimum (1): 0");
    check("* * * * 7", "end of range (7) above maximum (6): 7");
    check("5-1 * * * *", "beginning of range (5) beyond end of range (1): 5-1");
    check("*/0 * * * *", "step of range should be a positive number: */0");
    check("1-2-3 * * * *", "too many hyphens: 1-2-3");
    check("1/2/3 * * * *", "too many slashes: 1/2/3");
    check("x * * * *", "failed to parse int from x: strconv.Atoi: parsing \"x\": invalid syntax");
    check("@often", "unrecognized descriptor: @often");
    check("@every soon", "failed to parse duration @every soon: time: invalid duration \"soon\"");
    check("@every 5", "failed to parse duration @every 5: time: missing unit in duration \"5\"");
    check("@every 5d", "failed to parse duration @every 5d: time: unknown unit \"d\" in duration \"5d\"");
    check("@every 9999999999h", "failed to parse duration @every 9999999999h: time: invalid duration \"9999999999h\"");
}

/// Checks the next times after `after`, in UTC.
#[track_caller]
fn check_in(zone: &str, schedule: &str, after: &str, expected: &[&str]) {
    let (schedule, zone) = (Schedule::parse(schedule).unwrap(), TimeZone::get(zone).unwrap());
    let mut at: Timestamp = after.parse().unwrap();
    let mut found = Vec::new();
    for _ in expected {
        let Some(next) = schedule.next(at, &zone) else { break };
        found.push(next.to_string());
        at = next;
    }
    assert_eq!(found, expected);
}

#[track_caller]
fn check(schedule: &str, after: &str, expected: &[&str]) {
    check_in("UTC", schedule, after, expected);
}

#[test]
fn next_time_is_the_first_that_matches_all_fields() {
    check("* * * * *", "2026-01-01T00:00:30.5Z", &["2026-01-01T00:01:00Z", "2026-01-01T00:02:00Z"]);
    check("*/15 * * * *", "2026-01-01T00:45:00Z", &["2026-01-01T01:00:00Z"]);
    check("20-35/15 * * * *", "2026-01-01T00:00:00Z", &["2026-01-01T00:20:00Z", "2026-01-01T00:35:00Z"]);
    check("30 8 * jan-feb ?", "2026-02-28T09:00:00Z", &["2027-01-01T08:30:00Z"]);
    check("0 0 29 2 *", "2026-01-01T00:00:00Z", &["2028-02-29T00:00:00Z"]);
    check("@weekly", "2026-01-01T00:00:00Z", &["2026-01-04T00:00:00Z", "2026-01-11T00:00:00Z"]);
    check("@yearly", "2026-01-01T00:00:00Z", &["2027-01-01T00:00:00Z"]);
    check("0 0 31 2 *", "2026-01-01T00:00:00Z", &[]);
}

#[test]
fn two_restricted_day_fields_match_either() {
    // The 1st, and Mondays; the 1st of January 2026 is a Thursday.
    let both = ["2026-01-05T00:00:00Z", "2026-01-12T00:00:00Z"];
    check("0 0 1 * mon", "2026-01-01T00:00:00Z", &both);
    check("0 0 6 * mon", "2026-01-05T00:00:00Z", &["2026-01-06T00:00:00Z", "2026-01-12T00:00:00Z"]);
    // `*` and `*/1` are unrestricted; `*/2` is not.
    check("0 0 * * mon", "2026-01-01T00:00:00Z", &both);
    check("0 0 */1 * mon", "2026-01-01T00:00:00Z", &both);
    check("0 0 */2 * mon", "2026-01-03T00:00:00Z", &["2026-01-05T00:00:00Z", "2026-01-07T00:00:00Z"]);
    check("0 0 12 * */2", "2026-01-10T00:00:00Z", &["2026-01-11T00:00:00Z", "2026-01-12T00:00:00Z"]);
}

#[test]
fn every_delays_from_the_last_time_in_whole_seconds() {
    check("@every 1h30m", "2026-01-01T00:10:20.7Z", &["2026-01-01T01:40:20Z", "2026-01-01T03:10:20Z"]);
    check("@every 1.9s", "2026-01-01T00:00:00Z", &["2026-01-01T00:00:01Z"]);
    check("@every 10ms", "2026-01-01T00:00:00Z", &["2026-01-01T00:00:01Z"]);
    check("@every -1h", "2026-01-01T00:00:00Z", &["2026-01-01T00:00:01Z"]);
}

#[test]
fn schedule_matches_local_time_of_its_zone() {
    check_in("Asia/Tokyo", "0 9 * * *", "2026-01-01T00:00:00Z", &["2026-01-02T00:00:00Z"]);
    check_in("Asia/Kolkata", "0 0 * * *", "2026-01-01T00:00:00Z", &["2026-01-01T18:30:00Z"]);
}

#[test]
fn skipped_time_never_matches_and_repeated_time_matches_twice() {
    // New York skips 2:00 on March 8 and repeats 1:00 on November 1.
    let zone = "America/New_York";
    check_in(zone, "30 2 * * *", "2026-03-07T08:00:00Z", &["2026-03-09T06:30:00Z"]);
    check_in(zone, "0 * * * *", "2026-03-08T06:30:00Z", &["2026-03-08T07:00:00Z", "2026-03-08T08:00:00Z"]);
    let twice = ["2026-11-01T05:30:00Z", "2026-11-01T06:30:00Z", "2026-11-02T06:30:00Z"];
    check_in(zone, "30 1 * * *", "2026-11-01T04:00:00Z", &twice);
    // In São Paulo, daylight saving time skipped midnight.
    let zone = "America/Sao_Paulo";
    check_in(zone, "0 0 9 10 ?", "2018-09-17T08:00:00Z", &["2018-10-09T03:00:00Z"]);
    check_in(zone, "0 1 * * *", "2018-11-03T12:00:00Z", &["2018-11-04T03:00:00Z"]);
}
