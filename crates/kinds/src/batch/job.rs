//! Job.

mod indexes;
mod policies;
mod status;

use super::GROUP;
use crate::{
    AGE, Cell, FieldErrors, KindInfo, NAME, WriteContext, defaulting, enums,
    field_cursor::FieldCursor,
    field_validation::{items, validate_domain_prefixed_path},
    generic_kind::GenericKind,
    human_duration,
    pod_template_spec::{self, CONTAINERS, IMAGES, SELECTOR},
    selector, text,
};
use jiff::Timestamp;
use serde_json::{Value, json};

pub(crate) static JOB: GenericKind = GenericKind {
    columns: &[
        NAME,
        text("Status", Cell::Computed(|job, _| json!(status_cell(job)))),
        text("Completions", Cell::Computed(|job, _| json!(completions_cell(job)))),
        text("Duration", Cell::Computed(|job, now| json!(duration_cell(job, now)))),
        AGE,
        CONTAINERS,
        IMAGES,
        SELECTOR,
    ],
    fields: &["status.successful"],
    // Upstream's label has another name than the field (`JobToSelectableFields`).
    number_fields: &[("status.successful", "status.succeeded")],
    default,
    prepare,
    name: api::names::dns1123_subdomain,
    validate: |job, errors| validate_job_spec(&FieldCursor::object(job).at("spec"), errors),
    validate_new,
    validate_change,
    warnings: |job, old| {
        let of_template = pod_template_spec::warnings_with_name(job, old, pod_template_spec::SPEC_PATH);
        index_count_warning(&job["spec"], "spec").into_iter().chain(of_template).collect()
    },
    validate_status: status::validate_status,
    ..GenericKind::new(&KindInfo {
        categories: &["all"],
        status: true,
        generation: true,
        orphans_by_default: true,
        orphan_warning: Some(
            "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to remove them or set propagationPolicy=Orphan to suppress this warning",
        ),
        ..KindInfo::namespaced(GROUP, "Job", "jobs", "job")
    })
};

/// Thresholds of the warning for indexed Jobs.
const WARN_COMPLETIONS: i64 = 100_000;
const WARN_PARALLELISM: i64 = 10_000;

/// Returns the warning for an indexed Job with too many indexes (`WarningsForJobSpec`).
pub(super) fn index_count_warning(spec: &Value, path: &str) -> Option<String> {
    let exceeds = |field: &str, limit: i64| spec[field].as_i64().is_some_and(|n| n > limit);
    let too_many = spec["completionMode"] == "Indexed"
        && exceeds("completions", WARN_COMPLETIONS)
        && exceeds("parallelism", WARN_PARALLELISM);
    let detail = "In Indexed Jobs with a number of completions higher than 10^5 and a parallelism higher than 10^4, Kubernetes might not be able to track completedIndexes when a big number of indexes fail";
    too_many.then(|| format!("{path}: {detail}"))
}

/// Maximum parallelism and failed indexes of an indexed Job.
const MAX_INDEXES: i64 = 100_000;
/// The same limit for more completions with a backoff limit per index.
const MAX_INDEXES_WITH_BACKOFF_LIMIT: i64 = 10_000;
/// Maximum length of `managedBy` in bytes.
const MAX_MANAGED_BY_LENGTH: usize = 63;
const CONTROLLER_UID_LABEL: &str = "batch.kubernetes.io/controller-uid";

/// Returns the status cell: the first true condition in the order of `printJob`.
fn status_cell(job: &Value) -> &str {
    let holds = |kind: &str| items(&job["status"], "conditions").any(|c| c["type"] == kind && c["status"] == "True");
    let is_terminating = !job["metadata"]["deletionTimestamp"].is_null();
    match ["Complete", "Failed"].into_iter().find(|c| holds(c)) {
        Some(end) => end,
        None if is_terminating => "Terminating",
        None => {
            let next = ["Suspended", "FailureTarget", "SuccessCriteriaMet"].into_iter().find(|c| holds(c));
            next.unwrap_or("Running")
        }
    }
}

fn completions_cell(job: &Value) -> String {
    let done = job["status"]["succeeded"].as_i64().unwrap_or(0);
    match (job["spec"]["completions"].as_i64(), job["spec"]["parallelism"].as_i64().unwrap_or(0)) {
        (Some(expected), _) => format!("{done}/{expected}"),
        (None, parallel) if parallel > 1 => format!("{done}/1 of {parallel}"),
        (None, _) => format!("{done}/1"),
    }
}

fn duration_cell(job: &Value, now: Timestamp) -> String {
    let time = |field: &str| job["status"][field].as_str().and_then(|t| t.parse::<Timestamp>().ok());
    let Some(start) = time("startTime") else { return String::new() };
    human_duration(time("completionTime").unwrap_or(now).duration_since(start).as_secs())
}

/// Sets the defaults of a Job (`SetDefaults_Job`).
fn default(object: &mut Value) {
    defaulting::set_defaults_at(object, "/spec", &[("manualSelector", json!(false))]);
    pod_template_spec::set_pod_template_defaults(object, pod_template_spec::SPEC);
    set_default_labels(object);
    set_job_spec_defaults(object, "/spec");
}

/// Sets the labels of a Job without labels to those of its template.
fn set_default_labels(object: &mut Value) {
    let labels = object["spec"]["template"]["metadata"]["labels"].clone();
    let has_labels = object["metadata"]["labels"].as_object().is_some_and(|l| !l.is_empty());
    if labels.is_object() && !has_labels {
        object["metadata"]["labels"] = labels;
    }
}

/// Sets the defaults of a Job's spec, except its template.
pub(super) fn set_job_spec_defaults(object: &mut Value, at: &str) {
    let Some(spec) = object.pointer_mut(at) else { return };
    if spec["completions"].is_null() && spec["parallelism"].is_null() {
        spec["completions"] = json!(1);
    }
    let indexed = !spec["backoffLimitPerIndex"].is_null();
    let failed = !spec["podFailurePolicy"].is_null();
    let values = [
        ("parallelism", json!(1)),
        ("backoffLimit", json!(if indexed { i32::MAX } else { 6 })),
        ("completionMode", json!("NonIndexed")),
        ("suspend", json!(false)),
        ("podReplacementPolicy", json!(if failed { "Failed" } else { "TerminatingOrFailed" })),
    ];
    defaulting::set_defaults_at(object, at, &values);
    for i in 0..items(&object.pointer(at).cloned().unwrap_or_default()["podFailurePolicy"], "rules").count() {
        let rule = format!("{at}/podFailurePolicy/rules/{i}");
        let count = object.pointer(&rule).map_or(0, |rule| items(rule, "onPodConditions").count());
        (0..count).for_each(|j| {
            defaulting::set_defaults_at(object, &format!("{rule}/onPodConditions/{j}"), &[("status", json!("True"))]);
        });
    }
}

/// Labels of a Job's Pods with its name and its UID: legacy label first.
const NAME_LABELS: [&str; 2] = ["job-name", "batch.kubernetes.io/job-name"];
const UID_LABELS: [&str; 2] = ["controller-uid", CONTROLLER_UID_LABEL];

/// Generates the labels of the template and the selector, which uses the Job's UID (`generateSelector`).
fn prepare(object: &mut Value, old: Option<&Value>, _ctx: &WriteContext) {
    if old.is_some() || has_manual_selector(object) {
        return;
    }
    let (uid, name) = (object["metadata"]["uid"].clone(), object["metadata"]["name"].clone());
    for (keys, value) in [(NAME_LABELS, &name), (UID_LABELS, &uid)] {
        // Given labels stay; validation rejects wrong ones.
        let labels = &mut object["spec"]["template"]["metadata"]["labels"];
        if labels.get(keys[0]).is_none() {
            keys.iter().for_each(|key| labels[*key] = value.clone());
        }
    }
    let selected = &mut object["spec"]["selector"]["matchLabels"];
    if selected.get(CONTROLLER_UID_LABEL).is_none() {
        selected[CONTROLLER_UID_LABEL] = uid;
    }
    set_default_labels(object);
}

fn has_manual_selector(job: &Value) -> bool {
    job["spec"]["manualSelector"] == json!(true)
}

/// Additional validation of creates.
fn validate_new(job: &Value, errors: &mut FieldErrors) {
    validate_generated_selector(job, errors);
    validate_last_hostname(job, errors);
}

/// Validates generated labels and selectors (`validateGeneratedSelector`).
fn validate_generated_selector(object: &Value, errors: &mut FieldErrors) {
    let job = FieldCursor::object(object);
    let (metadata, spec) = (job.at("metadata"), job.at("spec"));
    let (selector, template) = (spec.at("selector"), spec.at("template"));
    if has_manual_selector(object) || selector.is_null() {
        return;
    }
    let template_metadata = template.at("metadata");
    let (labels, uid, name) = (template_metadata.at("labels"), metadata.at("uid"), metadata.at("name"));
    let mut expected = json!({});
    for label_index in [0, 1] {
        for (keys, value) in [(UID_LABELS, uid), (NAME_LABELS, name)] {
            let (key, detail) = (keys[label_index], format!("must be '{}'", value.text()));
            expected[key] = value.value().clone();
            match labels.value().get(key) {
                None => labels.key(key).required(&detail, errors),
                // Upstream shows all labels.
                Some(found) if found != value.value() => {
                    labels.key(key).with_value(labels.value()).invalid(&detail, errors);
                }
                Some(_) => {}
            }
        }
    }
    if selector::matches(selector.value(), &expected) == Some(false) {
        selector.invalid("`selector` not auto-generated", errors);
    }
}

/// Validates the hostname of an indexed Job's last Pod, which has the Job's name and index. Like upstream, only creates are
/// validated.
fn validate_last_hostname(object: &Value, errors: &mut FieldErrors) {
    let job = FieldCursor::object(object);
    let (metadata, spec) = (job.at("metadata"), job.at("spec"));
    let completions = spec.at("completions").integer().filter(|n| *n > 0);
    let is_indexed = spec.at("completionMode").text() == "Indexed";
    let Some(last) = completions.filter(|_| is_indexed).map(|n| n - 1) else { return };
    let name = metadata.at("name");
    let host = format!("{}-{last}", name.text());
    if !api::names::dns1123_label(&host).is_empty() {
        name.invalid(&format!("will not able to create pod with invalid DNS label: {host}"), errors);
    }
}

/// Validates a Job's spec (`ValidateJobSpec`).
fn validate_job_spec(spec: &FieldCursor<'_, '_>, errors: &mut FieldErrors) {
    validate_job_spec_without_selector(spec, errors);
    let (selector, template) = (spec.at("selector"), spec.at("template"));
    if selector.is_null() {
        selector.required("", errors);
    } else {
        selector::validate(&selector, errors);
    }
    if let Some(selected) = selector::matches(selector.value(), template.at("metadata").at("labels").value()) {
        pod_template_spec::validate_selector_matches(&template, selected, errors);
    }
}

/// Validates a Job's spec except its selector (`validateJobSpec`).
pub(super) fn validate_job_spec_without_selector(spec: &FieldCursor<'_, '_>, errors: &mut FieldErrors) {
    let (limit, max_failed, managed_by) =
        (spec.at("backoffLimitPerIndex"), spec.at("maxFailedIndexes"), spec.at("managedBy"));
    let (mode, template) = (spec.at("completionMode"), spec.at("template"));
    for name in ["parallelism", "completions", "activeDeadlineSeconds", "backoffLimit", "ttlSecondsAfterFinished"] {
        spec.at(name).nonnegative(errors);
    }
    limit.nonnegative(errors);
    max_failed.nonnegative(errors);
    if max_failed.is_set() && limit.is_null() {
        limit.required("when maxFailedIndexes is specified", errors);
    }
    if managed_by.is_set() {
        validate_domain_prefixed_path(&managed_by, errors);
        if managed_by.text().len() > MAX_MANAGED_BY_LENGTH {
            managed_by.too_long(MAX_MANAGED_BY_LENGTH, errors);
        }
    }
    match mode.text() {
        "NonIndexed" => {
            for field in [limit, max_failed].iter().filter(|field| field.is_set()) {
                field.invalid("requires indexed completion mode", errors);
            }
        }
        "Indexed" => validate_indexed(spec, errors),
        _ => mode.not_supported(enums::COMPLETION_MODES, errors),
    }
    policies::validate_policies(spec, errors);
    pod_template_spec::validate(&template, errors);
    let pod_spec = template.at("spec");
    let restart_policy = pod_spec.at("restartPolicy");
    match restart_policy.text() {
        "Always" => restart_policy.required("valid values: \"OnFailure\", \"Never\"", errors),
        "OnFailure" if spec.at("podFailurePolicy").is_set() => {
            restart_policy.invalid("only \"Never\" is supported when podFailurePolicy is specified", errors);
        }
        _ => restart_policy.supported(&["OnFailure", "Never"], errors),
    }
}

/// Validates the number of Pods and indexes of an indexed Job, which bounds the size of its status.
fn validate_indexed(spec: &FieldCursor<'_, '_>, errors: &mut FieldErrors) {
    let at_most = |field: &FieldCursor<'_, '_>, maximum: i64, detail: &str, errors: &mut FieldErrors| {
        if field.integer().is_some_and(|n| n > maximum) {
            field.invalid(&format!("must be less than or equal to {detail}"), errors);
        }
    };
    let (completions, parallelism, failed) =
        (spec.at("completions"), spec.at("parallelism"), spec.at("maxFailedIndexes"));
    let count = completions.integer();
    if count.is_none() {
        completions.required("when completion mode is Indexed", errors);
    }
    at_most(&parallelism, MAX_INDEXES, &format!("{MAX_INDEXES} when completion mode is Indexed"), errors);
    at_most(&failed, count.unwrap_or(i64::MAX), "completions", errors);
    at_most(&failed, MAX_INDEXES, &MAX_INDEXES.to_string(), errors);
    if count.is_some_and(|n| n > MAX_INDEXES) && spec.at("backoffLimitPerIndex").is_set() {
        if failed.is_null() {
            failed.required(&format!("must be specified when completions is above {MAX_INDEXES}"), errors);
        }
        let detail = format!(
            "{MAX_INDEXES_WITH_BACKOFF_LIMIT} when completions are above {MAX_INDEXES} and used with backoff limit per index"
        );
        at_most(&parallelism, MAX_INDEXES_WITH_BACKOFF_LIMIT, &detail, errors);
        at_most(&failed, MAX_INDEXES_WITH_BACKOFF_LIMIT, &detail, errors);
    }
}

/// Validates an update (`ValidateJobSpecUpdate`).
fn validate_change(object: &Value, old: &Value, errors: &mut FieldErrors) {
    let (object, old) = (FieldCursor::object(object), FieldCursor::object(old));
    let (spec, before) = (object.at("spec"), old.at("spec"));
    let validate_same =
        |name: &str, errors: &mut FieldErrors| spec.at(name).validate_immutable(&before.at(name), errors);
    let completions = spec.at("completions");
    // Elastic indexed Jobs change completions together with parallelism.
    if spec.at("completionMode").text() != "Indexed" {
        validate_same("completions", errors);
    } else if completions.is_set()
        && ![before.at("completions").value(), spec.at("parallelism").value()].contains(&completions.value())
    {
        completions.invalid("can only be modified in tandem with spec.parallelism", errors);
    }
    validate_same("selector", errors);
    // A suspended Job that has not started may change scheduling directives.
    let is_suspended_and_unstarted = before.at("suspend").is_true() && old.at("status").at("startTime").is_null();
    let (mut template, was) = (spec.at("template").value().clone(), before.at("template").value());
    if is_suspended_and_unstarted {
        for field in ["nodeSelector", "affinity", "tolerations", "schedulingGates"] {
            restore_field(&mut template["spec"], &was["spec"], field);
        }
        for field in ["labels", "annotations"] {
            restore_field(&mut template["metadata"], &was["metadata"], field);
        }
    }
    if &template != was {
        spec.at("template").invalid("field is immutable", errors);
    }
    for field in ["completionMode", "podFailurePolicy", "backoffLimitPerIndex", "managedBy", "successPolicy"] {
        validate_same(field, errors);
    }
}

/// Restores a field from the old object.
fn restore_field(new: &mut Value, old: &Value, field: &str) {
    let Some(map) = new.as_object_mut() else { return };
    match old.get(field) {
        Some(value) => drop(map.insert(field.to_owned(), value.clone())),
        None => drop(map.remove(field)),
    }
}

#[cfg(test)]
mod tests {
    use super::JOB;
    use crate::Kind;
    use serde_json::json;

    #[test]
    fn status_successful_selects_by_succeeded_pods() {
        let selected =
            |status: serde_json::Value| JOB.field_set(&json!({"status": status}))["status.successful"].clone();
        assert_eq!(selected(json!({"succeeded": 2})), "2");
        assert_eq!(selected(json!({})), "0");
        assert_eq!(JOB.field_dependencies("status.successful"), ["status.succeeded"]);
    }
}
