//! CronJob.

use super::{GROUP, job};
use crate::kinds::{
    AGE, Cell, FieldErrors, FieldPath, KindInfo, NAME, age, boolean,
    checks::{not_negative, one_of, text as text_of},
    fill, integer,
    plain::Plain,
    selector, template, text,
};
use api::cron::Schedule;
use serde_json::{Value, json};

pub(in crate::kinds) static CRON_JOB: Plain = Plain {
    columns: &[
        NAME,
        text("Schedule", Cell::At("/spec/schedule")),
        text("Timezone", Cell::OrNone("/spec/timeZone")),
        boolean("Suspend", Cell::Of(|c, _| json!(if c["spec"]["suspend"] == json!(true) { "True" } else { "False" }))),
        integer("Active", Cell::Count("/status/active")),
        text(
            "Last Schedule",
            Cell::Of(|c, now| match c["status"]["lastScheduleTime"].as_str() {
                Some(time) => json!(age(Some(time), now)),
                None => json!("<none>"),
            }),
        ),
        AGE,
        text("Containers", Cell::Of(|c, _| template::joined(&c["spec"]["jobTemplate"]["spec"]["template"], "name")))
            .wide(),
        text("Images", Cell::Of(|c, _| template::joined(&c["spec"]["jobTemplate"]["spec"]["template"], "image")))
            .wide(),
        text("Selector", Cell::Of(|c, _| selector::shown(&c["spec"]["jobTemplate"]["spec"]["selector"]))).wide(),
    ],
    default,
    validate,
    warnings,
    ..Plain::of(&KindInfo {
        short_names: &["cj"],
        categories: &["all"],
        status: true,
        generation: true,
        ..KindInfo::of(GROUP, "CronJob", "cronjobs", "cronjob")
    })
};

/// Names of Jobs are made of that of their CronJob, and a time.
const LONGEST_NAME: usize = 52;

fn warnings(object: &Value, old: Option<&Value>) -> Vec<String> {
    let of_template = template::warnings_with_name(object, old, &["spec", "jobTemplate", "spec", "template"]);
    let indexes = job::too_many_indexes(&object["spec"]["jobTemplate"]["spec"], "spec.jobTemplate.spec");
    let mut all: Vec<String> = indexes.into_iter().chain(of_template).collect();
    if old.is_some() && text_of(&object["spec"], "schedule").contains("TZ") {
        // The field's path is upstream's.
        all.push("cannot use TZ or CRON_TZ in spec.spec.schedule, use timeZone instead, see https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/ for more details".to_owned());
    }
    all
}

/// `SetDefaults_CronJob`.
fn default(object: &mut Value) {
    let values = [
        ("concurrencyPolicy", json!("Allow")),
        ("suspend", json!(false)),
        ("successfulJobsHistoryLimit", json!(3)),
        ("failedJobsHistoryLimit", json!(1)),
    ];
    fill::at(object, "/spec", &values);
    template::default(object, "/spec/jobTemplate/spec/template");
}

/// `ValidateCronJobSpec`.
fn validate(object: &Value, errors: &mut FieldErrors) {
    let (path, spec) = (FieldPath::new("spec"), &object["spec"]);
    let name = text_of(&object["metadata"], "name");
    if name.len() > LONGEST_NAME {
        let at = FieldPath::new("metadata").child("name");
        errors.invalid(&at, &json!(name), &format!("must be no more than {LONGEST_NAME} characters"));
    }
    let (at, schedule) = (path.child("schedule"), text_of(spec, "schedule"));
    if schedule.is_empty() {
        errors.required(&at, "");
    } else if schedule.contains("TZ") {
        // A zone in the schedule was never supported, and is refused where it would be new.
        errors.invalid(&at, &spec["schedule"], "cannot use TZ or CRON_TZ in schedule, use timeZone field instead");
    } else if let Err(why) = Schedule::parse(schedule) {
        errors.invalid(&at, &spec["schedule"], &why.to_string());
    }
    not_negative(spec, "startingDeadlineSeconds", &path, errors);
    if spec.get("timeZone").is_some() {
        time_zone(&spec["timeZone"], &path.child("timeZone"), errors);
    }
    one_of(spec, "concurrencyPolicy", &["Allow", "Forbid", "Replace"], &path, errors);
    let (job, at) = (&spec["jobTemplate"]["spec"], path.child("jobTemplate").child("spec"));
    if job["manualSelector"] == json!(true) {
        errors.not_supported(&at.child("manualSelector"), &json!(true), &["nil", "false"]);
    }
    // Each Job gets a selector of its own, and the other defaults of a Job.
    let mut made = spec["jobTemplate"].clone();
    job::default_spec(&mut made, "/spec");
    job::validate_shape(&made["spec"], &at, errors);
    for field in ["successfulJobsHistoryLimit", "failedJobsHistoryLimit"] {
        not_negative(spec, field, &path, errors);
    }
}

/// `validateTimeZone`.
fn time_zone(zone: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    let name = zone.as_str().unwrap_or("");
    if name.is_empty() {
        errors.invalid(path, zone, "timeZone must be nil or non-empty string");
    } else if name.eq_ignore_ascii_case("Local") {
        let why = "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones";
        errors.invalid(path, zone, why);
    } else if !is_known(name) {
        errors.invalid(path, zone, &format!("unknown time zone {name}"));
    }
}

/// Whether Go knows a time zone of this name: in its own spelling only, and as a path of short parts.
fn is_known(name: &str) -> bool {
    let is_part = |part: &str| {
        let is_letter = |b: u8| b.is_ascii_alphanumeric() || b"._-+".contains(&b);
        (1..=14).contains(&part.len()) && part.bytes().all(is_letter) && !part.starts_with('-')
    };
    let is_spelled = |zone: jiff::tz::TimeZone| zone.iana_name() == Some(name);
    name.split('/').all(|part| is_part(part) && !matches!(part, "." | ".."))
        && jiff::tz::TimeZone::get(name).is_ok_and(is_spelled)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[track_caller]
    fn check(zone: &str, expected: &str) {
        let mut errors = FieldErrors::default();
        time_zone(&json!(zone), &FieldPath::new("z"), &mut errors);
        let all: Vec<String> = errors.0.iter().map(|error| error.message.clone()).collect();
        assert_eq!(all.concat(), expected, "{zone}");
    }

    #[test]
    fn time_zones_are_known_by_gos_spelling() {
        for known in ["UTC", "Europe/Berlin", "Etc/GMT+1", "America/Argentina/Buenos_Aires"] {
            check(known, "");
        }
        let local = "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones";
        check("Local", &format!("Invalid value: \"Local\": {local}"));
        check("local", &format!("Invalid value: \"local\": {local}"));
        check("", "Invalid value: \"\": timeZone must be nil or non-empty string");
        for unknown in ["Nowhere/Land", "europe/berlin", "utc", "Europe/../UTC", "/UTC", "-1", "Europe/Ber lin"] {
            check(unknown, &format!("Invalid value: {unknown:?}: unknown time zone {unknown}"));
        }
    }
}
