//! CronJob.

use super::{GROUP, job};
use crate::{
    AGE, Cell, FieldErrors, KindInfo, NAME, age, boolean, defaulting, enums, field_cursor::FieldCursor,
    field_validation::text as text_of, generic_kind::GenericKind, integer, pod_template_spec, selector, text,
};
use api::cron::Schedule;
use serde_json::{Value, json};

pub(crate) static CRON_JOB: GenericKind = GenericKind {
    columns: &[
        NAME,
        text("Schedule", Cell::Pointer("/spec/schedule")),
        text("Timezone", Cell::OrNone("/spec/timeZone")),
        boolean(
            "Suspend",
            Cell::Computed(|c, _| json!(if c["spec"]["suspend"] == json!(true) { "True" } else { "False" })),
        ),
        integer("Active", Cell::Count("/status/active")),
        text(
            "Last Schedule",
            Cell::Computed(|c, now| match c["status"]["lastScheduleTime"].as_str() {
                Some(time) => json!(age(Some(time), now)),
                None => json!("<none>"),
            }),
        ),
        AGE,
        text(
            "Containers",
            Cell::Computed(|c, _| {
                pod_template_spec::container_field_list(&c["spec"]["jobTemplate"]["spec"]["template"], "name")
            }),
        )
        .wide(),
        text(
            "Images",
            Cell::Computed(|c, _| {
                pod_template_spec::container_field_list(&c["spec"]["jobTemplate"]["spec"]["template"], "image")
            }),
        )
        .wide(),
        text("Selector", Cell::Computed(|c, _| selector::table_cell(&c["spec"]["jobTemplate"]["spec"]["selector"])))
            .wide(),
    ],
    default,
    validate,
    warnings,
    ..GenericKind::new(&KindInfo {
        short_names: &["cj"],
        categories: &["all"],
        status: true,
        generation: true,
        ..KindInfo::namespaced(GROUP, "CronJob", "cronjobs", "cronjob")
    })
};

/// Maximum length of a name: names of Jobs append a timestamp.
const MAX_NAME_LENGTH: usize = 52;

fn warnings(object: &Value, old: Option<&Value>) -> Vec<String> {
    let of_template = pod_template_spec::warnings_with_name(object, old, &["spec", "jobTemplate", "spec", "template"]);
    let indexes = job::index_count_warning(&object["spec"]["jobTemplate"]["spec"], "spec.jobTemplate.spec");
    let mut all: Vec<String> = indexes.into_iter().chain(of_template).collect();
    if old.is_some() && text_of(&object["spec"], "schedule").contains("TZ") {
        // Upstream's path has `spec` twice.
        all.push("cannot use TZ or CRON_TZ in spec.spec.schedule, use timeZone instead, see https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/ for more details".to_owned());
    }
    all
}

/// Sets the defaults of a CronJob (`SetDefaults_CronJob`).
fn default(object: &mut Value) {
    let values = [
        ("concurrencyPolicy", json!("Allow")),
        ("suspend", json!(false)),
        ("successfulJobsHistoryLimit", json!(3)),
        ("failedJobsHistoryLimit", json!(1)),
    ];
    defaulting::set_defaults_at(object, "/spec", &values);
    pod_template_spec::set_pod_template_defaults(object, "/spec/jobTemplate/spec/template");
}

/// Validates a CronJob (`ValidateCronJobSpec`).
fn validate(object: &Value, errors: &mut FieldErrors) {
    let object = FieldCursor::object(object);
    let (metadata, spec) = (object.at("metadata"), object.at("spec"));
    let (name, schedule, zone) = (metadata.at("name"), spec.at("schedule"), spec.at("timeZone"));
    if name.text().len() > MAX_NAME_LENGTH {
        name.invalid(&format!("must be no more than {MAX_NAME_LENGTH} characters"), errors);
    }
    if schedule.text().is_empty() {
        schedule.required("", errors);
    } else if schedule.text().contains("TZ") {
        // A time zone in the schedule was never supported; creates reject it.
        schedule.invalid("cannot use TZ or CRON_TZ in schedule, use timeZone field instead", errors);
    } else if let Err(error) = Schedule::parse(schedule.text()) {
        schedule.invalid(&error.to_string(), errors);
    }
    spec.at("startingDeadlineSeconds").nonnegative(errors);
    if zone.is_set() {
        validate_time_zone(&zone, errors);
    }
    spec.at("concurrencyPolicy").one_of(enums::CONCURRENCY_POLICIES, errors);
    let template = spec.at("jobTemplate");
    let job = template.at("spec");
    let manual = job.at("manualSelector");
    if manual.is_true() {
        manual.not_supported(&["nil", "false"], errors);
    }
    // The template has neither the generated selector nor the defaults of a Job.
    let mut template = template.value().clone();
    job::set_job_spec_defaults(&mut template, "/spec");
    job::validate_job_spec_without_selector(&job.with_value(&template["spec"]), errors);
    spec.at("successfulJobsHistoryLimit").nonnegative(errors);
    spec.at("failedJobsHistoryLimit").nonnegative(errors);
}

/// Validates a time zone (`validateTimeZone`).
fn validate_time_zone(zone: &FieldCursor<'_, '_>, errors: &mut FieldErrors) {
    let name = zone.text();
    if name.is_empty() {
        zone.invalid("timeZone must be nil or non-empty string", errors);
    } else if name.eq_ignore_ascii_case("Local") {
        zone.invalid("timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones", errors);
    } else if !is_known_time_zone(name) {
        zone.invalid(&format!("unknown time zone {name}"), errors);
    }
}

/// Whether Go knows a time zone, which is case-sensitive and consists of short path segments.
fn is_known_time_zone(name: &str) -> bool {
    let is_segment = |part: &str| {
        let is_allowed = |b: u8| b.is_ascii_alphanumeric() || b"._-+".contains(&b);
        (1..=14).contains(&part.len()) && part.bytes().all(is_allowed) && !part.starts_with('-')
    };
    let has_same_name = |zone: jiff::tz::TimeZone| zone.iana_name() == Some(name);
    name.split('/').all(|part| is_segment(part) && !matches!(part, "." | ".."))
        && jiff::tz::TimeZone::get(name).is_ok_and(has_same_name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[track_caller]
    fn check(zone: &str, expected: &str) {
        let mut errors = FieldErrors::default();
        validate_time_zone(&FieldCursor::object(&json!(zone)), &mut errors);
        let all: Vec<String> = errors.0.iter().map(|error| error.message.clone()).collect();
        assert_eq!(all.concat(), expected, "{zone}");
    }

    #[test]
    fn time_zone_names_are_case_sensitive() {
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
