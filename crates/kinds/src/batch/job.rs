//! Job.

mod indexes;
mod policies;
mod status;

use super::GROUP;
use crate::{
    AGE, Cell, FieldErrors, FieldPath, KindInfo, NAME, WriteContext, defaulting, enums,
    field_validation::{
        items, text as text_of, validate_domain_prefixed_path, validate_immutable, validate_nonnegative,
    },
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
    validate: |job, errors| validate_job_spec(&job["spec"], &FieldPath::new("spec"), errors),
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
fn validate_generated_selector(job: &Value, errors: &mut FieldErrors) {
    if has_manual_selector(job) || job["spec"]["selector"].is_null() {
        return;
    }
    let labels = &job["spec"]["template"]["metadata"]["labels"];
    let at = FieldPath::new("spec").child("template").child("metadata").child("labels");
    let mut expected = json!({});
    for label_index in [0, 1] {
        for (keys, value) in [(UID_LABELS, &job["metadata"]["uid"]), (NAME_LABELS, &job["metadata"]["name"])] {
            let (key, detail) = (keys[label_index], format!("must be '{}'", value.as_str().unwrap_or("")));
            expected[key] = value.clone();
            match labels.get(key) {
                None => errors.required(&at.key(key), &detail),
                Some(found) if found != value => errors.invalid(&at.key(key), labels, &detail),
                Some(_) => {}
            }
        }
    }
    if selector::matches(&job["spec"]["selector"], &expected) == Some(false) {
        let at = FieldPath::new("spec").child("selector");
        errors.invalid(&at, &job["spec"]["selector"], "`selector` not auto-generated");
    }
}

/// Validates the hostname of an indexed Job's last Pod, which has the Job's name and index. Like upstream, only creates are
/// validated.
fn validate_last_hostname(job: &Value, errors: &mut FieldErrors) {
    let completions = job["spec"]["completions"].as_i64().filter(|n| *n > 0);
    let Some(last) = completions.filter(|_| job["spec"]["completionMode"] == "Indexed").map(|n| n - 1) else { return };
    let name = &job["metadata"]["name"];
    let host = format!("{}-{last}", name.as_str().unwrap_or(""));
    if !api::names::dns1123_label(&host).is_empty() {
        let detail = format!("will not able to create pod with invalid DNS label: {host}");
        errors.invalid(&FieldPath::new("metadata").child("name"), name, &detail);
    }
}

/// Validates a Job's spec (`ValidateJobSpec`).
pub(super) fn validate_job_spec(spec: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    validate_job_spec_without_selector(spec, path, errors);
    let (at, template_path) = (path.child("selector"), path.child("template"));
    if spec["selector"].is_null() {
        errors.required(&at, "");
    } else {
        selector::validate(&spec["selector"], &at, errors);
    }
    if let Some(selected) = selector::matches(&spec["selector"], &spec["template"]["metadata"]["labels"]) {
        pod_template_spec::validate_selector_matches(&spec["template"], selected, &template_path, errors);
    }
}

/// Validates a Job's spec except its selector (`validateJobSpec`).
pub(super) fn validate_job_spec_without_selector(spec: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    let numbers = [
        "parallelism",
        "completions",
        "activeDeadlineSeconds",
        "backoffLimit",
        "ttlSecondsAfterFinished",
        "backoffLimitPerIndex",
        "maxFailedIndexes",
    ];
    numbers.iter().for_each(|field| validate_nonnegative(spec, field, path, errors));
    if !spec["maxFailedIndexes"].is_null() && spec["backoffLimitPerIndex"].is_null() {
        errors.required(&path.child("backoffLimitPerIndex"), "when maxFailedIndexes is specified");
    }
    if !spec["managedBy"].is_null() {
        let at = path.child("managedBy");
        validate_domain_prefixed_path(&spec["managedBy"], &at, errors);
        if text_of(spec, "managedBy").len() > MAX_MANAGED_BY_LENGTH {
            errors.too_long(&at, MAX_MANAGED_BY_LENGTH);
        }
    }
    match text_of(spec, "completionMode") {
        "NonIndexed" => {
            for field in ["backoffLimitPerIndex", "maxFailedIndexes"].into_iter().filter(|f| !spec[*f].is_null()) {
                errors.invalid(&path.child(field), &spec[field], "requires indexed completion mode");
            }
        }
        "Indexed" => validate_indexed(spec, path, errors),
        _ => errors.not_supported(&path.child("completionMode"), &spec["completionMode"], enums::COMPLETION_MODES),
    }
    policies::validate_policies(spec, path, errors);
    let at = path.child("template");
    pod_template_spec::validate(&spec["template"], &at, errors);
    let (pods, at) = (&spec["template"]["spec"], at.child("spec").child("restartPolicy"));
    match text_of(pods, "restartPolicy") {
        "Always" => errors.required(&at, "valid values: \"OnFailure\", \"Never\""),
        "OnFailure" if !spec["podFailurePolicy"].is_null() => {
            let detail = "only \"Never\" is supported when podFailurePolicy is specified";
            errors.invalid(&at, &pods["restartPolicy"], detail);
        }
        "OnFailure" | "Never" => {}
        _ => errors.not_supported(&at, &pods["restartPolicy"], &["OnFailure", "Never"]),
    }
}

/// Validates the number of Pods and indexes of an indexed Job, which bounds the size of its status.
fn validate_indexed(spec: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    let number = |field: &str| spec[field].as_i64();
    let at_most = |field: &str, maximum: i64, detail: &str, errors: &mut FieldErrors| {
        if number(field).is_some_and(|n| n > maximum) {
            errors.invalid(&path.child(field), &spec[field], &format!("must be less than or equal to {detail}"));
        }
    };
    let (completions, failed) = (number("completions"), "maxFailedIndexes");
    if completions.is_none() {
        errors.required(&path.child("completions"), "when completion mode is Indexed");
    }
    let detail = format!("{MAX_INDEXES} when completion mode is Indexed");
    at_most("parallelism", MAX_INDEXES, &detail, errors);
    at_most(failed, completions.unwrap_or(i64::MAX), "completions", errors);
    at_most(failed, MAX_INDEXES, &MAX_INDEXES.to_string(), errors);
    if completions.is_some_and(|n| n > MAX_INDEXES) && !spec["backoffLimitPerIndex"].is_null() {
        if spec[failed].is_null() {
            let detail = format!("must be specified when completions is above {MAX_INDEXES}");
            errors.required(&path.child(failed), &detail);
        }
        let detail = format!(
            "{MAX_INDEXES_WITH_BACKOFF_LIMIT} when completions are above {MAX_INDEXES} and used with backoff limit per index"
        );
        at_most("parallelism", MAX_INDEXES_WITH_BACKOFF_LIMIT, &detail, errors);
        at_most(failed, MAX_INDEXES_WITH_BACKOFF_LIMIT, &detail, errors);
    }
}

/// Validates an update (`ValidateJobSpecUpdate`).
fn validate_change(object: &Value, old: &Value, errors: &mut FieldErrors) {
    let (path, spec, before) = (FieldPath::new("spec"), &object["spec"], &old["spec"]);
    let validate_same = |field: &str, errors: &mut FieldErrors| {
        validate_immutable(&spec[field], &before[field], &path.child(field), errors);
    };
    // Elastic indexed Jobs change completions together with parallelism.
    if spec["completionMode"] != "Indexed" {
        validate_same("completions", errors);
    } else if ![&before["completions"], &spec["parallelism"], &Value::Null].contains(&&spec["completions"]) {
        let detail = "can only be modified in tandem with spec.parallelism";
        errors.invalid(&path.child("completions"), &spec["completions"], detail);
    }
    validate_same("selector", errors);
    // A suspended Job that has not started may change scheduling directives.
    let is_suspended_and_unstarted = before["suspend"] == json!(true) && old["status"]["startTime"].is_null();
    let (mut template, was) = (spec["template"].clone(), &before["template"]);
    if is_suspended_and_unstarted {
        for field in ["nodeSelector", "affinity", "tolerations", "schedulingGates"] {
            restore_field(&mut template["spec"], &was["spec"], field);
        }
        for field in ["labels", "annotations"] {
            restore_field(&mut template["metadata"], &was["metadata"], field);
        }
    }
    if &template != was {
        errors.invalid(&path.child("template"), &spec["template"], "field is immutable");
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
