//! Tests of what is planned for a CronJob.

use super::plan::{CronJobSnapshot, Plan, jobs_beyond_history_limits};
use jiff::{Timestamp, tz::TimeZone};
use k8s_openapi::api::batch::v1::{CronJob, Job};
use serde_json::{Value, json};
use std::{collections::HashSet, sync::Arc, time::Duration};

/// Returns an hourly CronJob called `tick`, created at midnight.
fn cron(spec: &Value, status: &Value) -> CronJob {
    let mut all = json!({"schedule": "0 * * * *", "jobTemplate": {}});
    for (field, value) in spec.as_object().unwrap() {
        all[field] = value.clone();
    }
    let meta = json!({"name": "tick", "uid": "t", "creationTimestamp": "2026-01-01T00:00:00Z"});
    serde_json::from_value(json!({"metadata": meta, "spec": all, "status": status})).unwrap()
}

/// Returns a Job with a name and a finished condition.
fn job(name: &str, end: &str) -> Arc<Job> {
    let mut status = json!({"startTime": format!("2026-01-01T00:00:0{}Z", name.len() % 10)});
    if !end.is_empty() {
        status["conditions"] = json!([{"type": end, "status": "True"}]);
        status["completionTime"] = json!("2026-01-01T00:30:00Z");
    }
    let job = json!({"metadata": {"name": name, "uid": name}, "status": status});
    Arc::new(serde_json::from_value(job).unwrap())
}

/// Returns the active list of a status.
fn active(names: &[&str]) -> Value {
    json!(names.iter().map(|name| json!({"name": name, "uid": name, "namespace": "x"})).collect::<Vec<_>>())
}

fn at(time: &str) -> Timestamp {
    format!("2026-01-01T{time}Z").parse().unwrap()
}

struct Case {
    spec: Value,
    status: Value,
    jobs: Vec<Arc<Job>>,
    missing: &'static [&'static str],
    changed: bool,
    now: &'static str,
}

fn case(now: &'static str) -> Case {
    Case { spec: json!({}), status: json!({}), jobs: vec![], missing: &[], changed: false, now }
}

impl Case {
    fn plan(&self) -> Plan {
        let cron = cron(&self.spec, &self.status);
        let snapshot = CronJobSnapshot {
            cron: &cron,
            spec: cron.spec.as_ref().unwrap(),
            jobs: &self.jobs,
            missing: &self.missing.iter().map(|uid| (*uid).to_owned()).collect::<HashSet<_>>(),
            changed: self.changed,
            zone: &TimeZone::UTC,
            now: at(self.now),
        };
        snapshot.plan(cron.status.clone().unwrap_or_default())
    }

    /// Checks the scheduled time of the started Job, the reasons of Events, and the requeue delay in seconds.
    #[track_caller]
    fn check(&self, started: Option<&str>, events: &[&str], again: Option<u64>) {
        let plan = self.plan();
        assert_eq!(plan.start.map(|start| start.at), started.map(at));
        let recorded: Vec<String> = plan.events.iter().map(|t| format!("{}: {}", t.reason, t.message)).collect();
        assert_eq!(recorded, events);
        assert_eq!(plan.requeue_after, again.map(|seconds| Duration::from_secs(seconds) + Duration::from_millis(100)));
    }
}

#[test]
fn job_starts_at_its_scheduled_time() {
    case("00:59:59").check(None, &[], Some(1));
    case("01:00:00").check(Some("01:00:00"), &[], Some(3600));
    case("05:10:00").check(Some("05:00:00"), &[], Some(3000));
    let done = || json!({"lastScheduleTime": "2026-01-01T05:00:00Z"});
    Case { status: done(), ..case("05:10:00") }.check(None, &[], Some(3000));
    Case { status: done(), ..case("06:00:00") }.check(Some("06:00:00"), &[], Some(3600));
    // An active Job has the name of that time.
    let name = format!("tick-{}", at("05:00:00").as_second() / 60);
    let status = json!({"active": active(&[&name])});
    Case { status, jobs: vec![job(&name, "")], ..case("05:10:00") }.check(None, &[], Some(3000));
}

#[test]
fn schedule_uses_its_time_zone() {
    let spec = json!({"schedule": "0 9 * * *", "timeZone": "Asia/Tokyo"});
    Case { spec, ..case("00:00:30") }.check(None, &[], Some(86_370));
    let spec = json!({"schedule": "0 7 * * *", "timeZone": "Europe/Berlin"});
    Case { spec, ..case("06:00:00") }.check(Some("06:00:00"), &[], Some(86_400));
    let spec = json!({"timeZone": "Middle/Earth"});
    let events = "UnknownTimeZone: invalid timeZone: \"Middle/Earth\": unknown time zone Middle/Earth";
    Case { spec, ..case("06:00:00") }.check(None, &[events], None);
}

#[test]
fn changed_schedule_waits_and_counts_since_the_last_job() {
    let status = || json!({"lastScheduleTime": "2026-01-01T03:30:00Z"});
    let case = |changed: bool| Case { status: status(), changed, ..case("05:10:00") };
    case(true).check(None, &[], Some(3000));
    case(false).check(Some("05:00:00"), &[], Some(3000));
    // A concurrent Job is reported or replaced, even for a time before the change.
    let busy = |policy: &str| {
        let status = json!({"lastScheduleTime": "2026-01-01T03:30:00Z", "active": active(&["old"])});
        Case { spec: json!({"concurrencyPolicy": policy}), status, jobs: vec![job("old", "")], ..case(false) }
    };
    let events =
        "JobAlreadyActive: Not starting job because prior execution is running and concurrency policy is Forbid";
    busy("Forbid").check(None, &[events], Some(3000));
    assert_eq!(busy("Replace").plan().start.unwrap().replaces.len(), 1);
    Case { changed: true, ..busy("Forbid") }.check(None, &[], Some(3000));
}

#[test]
fn job_after_the_starting_deadline_is_skipped() {
    let spec = |seconds: i64| json!({"startingDeadlineSeconds": seconds});
    Case { spec: spec(600), ..case("05:10:00") }.check(None, &[], Some(3000));
    Case { spec: spec(601), ..case("05:10:00") }.check(Some("05:00:00"), &[], Some(3000));
    Case { spec: spec(i64::MAX), ..case("05:10:00") }.check(Some("05:00:00"), &[], Some(3000));
}

#[test]
fn too_many_missed_times_warn_and_start_the_last() {
    let spec = json!({"schedule": "* * * * *"});
    let events = "TooManyMissedTimes: too many missed start times. Set or decrease .spec.startingDeadlineSeconds or check clock skew";
    Case { spec, ..case("05:00:30") }.check(Some("05:00:00"), &[events], Some(30));
    let spec = json!({"schedule": "* * * * *", "startingDeadlineSeconds": 200});
    Case { spec, ..case("05:00:30") }.check(Some("05:00:00"), &[], Some(30));
}

#[test]
fn suspended_or_invalid_schedule_starts_nothing() {
    Case { spec: json!({"suspend": true}), ..case("05:00:00") }.check(None, &[], None);
    let events = "UnparseableSchedule: unparseable schedule: \"now\" : expected exactly 5 fields, found 1: [now]";
    Case { spec: json!({"schedule": "now"}), ..case("05:00:00") }.check(None, &[events], None);
    let events =
        "InvalidSchedule: invalid schedule: 0 0 31 2 * : time difference between two schedules is less than 1 second";
    Case { spec: json!({"schedule": "0 0 31 2 *"}), ..case("05:00:00") }.check(None, &[events], None);
}

#[test]
fn concurrency_policy_applies_to_active_jobs() {
    let running = |policy: &str| Case {
        spec: json!({"concurrencyPolicy": policy}),
        status: json!({"active": active(&["old"])}),
        jobs: vec![job("old", "")],
        ..case("05:00:00")
    };
    running("Allow").check(Some("05:00:00"), &[], Some(3600));
    assert!(running("Allow").plan().start.unwrap().replaces.is_empty());
    let events =
        "JobAlreadyActive: Not starting job because prior execution is running and concurrency policy is Forbid";
    running("Forbid").check(None, &[events], Some(3600));
    running("Replace").check(Some("05:00:00"), &[], Some(3600));
    let gone = running("Replace").plan().start.unwrap().replaces;
    assert_eq!(gone.iter().map(|job| job.name.as_deref()).collect::<Vec<_>>(), [Some("old")]);
}

#[test]
fn finished_and_missing_jobs_update_status_and_events() {
    let seen = Case {
        status: json!({"active": active(&["done", "bad", "runs", "gone"]), "lastScheduleTime": "2026-01-01T00:00:00Z"}),
        jobs: vec![job("done", "Complete"), job("bad", "Failed"), job("runs", ""), job("manual", "")],
        missing: &["gone"],
        ..case("00:40:00")
    };
    let events = [
        "SawCompletedJob: Saw completed job: done, condition: Complete",
        "SawCompletedJob: Saw completed job: bad, condition: Failed",
        "UnexpectedJob: Saw a job that the controller did not create or forgot: manual",
        "MissingJob: Active job went missing: gone",
    ];
    seen.check(None, &events, Some(1200));
    let status = seen.plan().status;
    let left: Vec<_> = status.active.iter().flatten().map(|job| job.name.as_deref().unwrap()).collect();
    assert_eq!(left, ["runs"]);
    assert_eq!(status.last_successful_time.unwrap().0, at("00:30:00"));
    // An unchanged status is not written.
    let later = Case { status: json!({"lastSuccessfulTime": "2026-01-01T00:35:00Z"}), ..seen };
    assert_eq!(later.plan().status.last_successful_time.unwrap().0, at("00:35:00"));
}

#[test]
fn oldest_finished_jobs_beyond_history_limits_are_deleted() {
    let jobs = [
        job("aaa", "Complete"),
        job("bb", "Complete"),
        job("c", "Complete"),
        job("dddd", "Failed"),
        job("ee", "Failed"),
        job("f", ""),
    ];
    let check = |limits: Value, expected: &[&str]| {
        let cron = cron(&limits, &json!({}));
        let gone = jobs_beyond_history_limits(cron.spec.as_ref().unwrap(), &jobs);
        assert_eq!(gone.iter().map(|job| job.metadata.name.as_deref().unwrap()).collect::<Vec<_>>(), expected);
    };
    check(json!({"successfulJobsHistoryLimit": 2, "failedJobsHistoryLimit": 1}), &["c", "ee"]);
    check(json!({"successfulJobsHistoryLimit": 0, "failedJobsHistoryLimit": 3}), &["c", "bb", "aaa"]);
    check(json!({}), &[]);
}
