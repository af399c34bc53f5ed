//! Jobs of a CronJob's template.

use crate::pod_control::new_controller_ref;
use jiff::{Timestamp, tz::TimeZone};
use k8s_openapi::{
    api::batch::v1::{CronJob, Job},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};

/// Annotation of a Job: its scheduled time.
const CRONJOB_SCHEDULED_TIMESTAMP: &str = "batch.kubernetes.io/cronjob-scheduled-timestamp";

/// Returns the Job's name, which contains the scheduled minute, so that it is not created twice (`getJobName`).
pub(super) fn job_name(cron: &CronJob, at: Timestamp) -> String {
    format!("{}-{}", cron.metadata.name.as_deref().unwrap_or_default(), at.as_second() / 60)
}

/// Returns the Job for a scheduled time (`getJobFromTemplate2`).
pub(super) fn job_from_template(cron: &CronJob, at: Timestamp) -> Job {
    let spec = cron.spec.clone().unwrap_or_default();
    let zone = spec.time_zone.as_deref().and_then(|zone| TimeZone::get(zone).ok()).unwrap_or(TimeZone::UTC);
    let template = spec.job_template;
    let meta = template.metadata.unwrap_or_default();
    let mut annotations = meta.annotations.unwrap_or_default();
    annotations.insert(CRONJOB_SCHEDULED_TIMESTAMP.to_owned(), format_rfc3339(at, zone));
    Job {
        metadata: ObjectMeta {
            name: Some(job_name(cron, at)),
            labels: meta.labels,
            annotations: Some(annotations),
            owner_references: Some(vec![new_controller_ref(cron)]),
            ..ObjectMeta::default()
        },
        spec: template.spec,
        status: None,
    }
}

/// Formats as Go's RFC 3339: UTC is `Z`.
fn format_rfc3339(at: Timestamp, zone: TimeZone) -> String {
    let local = at.to_zoned(zone);
    let offset = if local.offset().seconds() == 0 { "Z" } else { "%:z" };
    local.strftime(&format!("%Y-%m-%dT%H:%M:%S{offset}")).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn job_name_has_its_minute_and_annotation_its_time() {
        let at: Timestamp = "2026-01-01T12:00:00Z".parse().unwrap();
        let made = |zone: Option<&str>| {
            let template = json!({"metadata": {"labels": {"a": "b"}, "annotations": {"c": "d"}},
                "spec": {"backoffLimit": 2, "template": {}}});
            let spec = json!({"schedule": "", "timeZone": zone, "jobTemplate": template});
            let cron = json!({"metadata": {"name": "tick", "uid": "t"}, "spec": spec});
            job_from_template(&serde_json::from_value(cron).unwrap(), at)
        };
        let job = made(None);
        assert_eq!(job.metadata.name.as_deref(), Some("tick-29454480"));
        assert_eq!(job.metadata.labels.unwrap()["a"], "b");
        let annotations = job.metadata.annotations.unwrap();
        assert_eq!(
            (annotations["c"].as_str(), annotations[CRONJOB_SCHEDULED_TIMESTAMP].as_str()),
            ("d", "2026-01-01T12:00:00Z")
        );
        assert_eq!(job.metadata.owner_references.unwrap()[0].kind, "CronJob");
        assert_eq!(job.spec.unwrap().backoff_limit, Some(2));
        let time = |zone: &str| made(Some(zone)).metadata.annotations.unwrap()[CRONJOB_SCHEDULED_TIMESTAMP].clone();
        assert_eq!(time("Asia/Kolkata"), "2026-01-01T17:30:00+05:30");
        assert_eq!(time("Europe/London"), "2026-01-01T12:00:00Z");
    }
}
