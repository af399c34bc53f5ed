//! Validation of updates of a Job's status (`ValidateJobStatusUpdate`). A rule applies only if its fields change, so that
//! statuses that predate the rule stay valid.

use super::indexes;
use crate::{
    FieldErrors, FieldPath,
    field_cursor::FieldCursor,
    field_validation::{items, text as text_of},
};
use jiff::Timestamp;
use serde_json::{Value, json};
use std::collections::BTreeSet;

pub(super) fn validate_status(object: &Value, old: &Value, errors: &mut FieldErrors) {
    let path = FieldPath::new("status");
    let status = &object["status"];
    let cursor = FieldCursor::new(status, &path);
    for name in ["active", "succeeded", "failed", "ready", "terminating"] {
        cursor.at(name).nonnegative(errors);
    }
    validate_uncounted_pods(&cursor.at("uncountedTerminatedPods"), errors);
    validate_conditions(object, old, &cursor.at("conditions"), errors);
    validate_times(object, old, &path, errors);
    validate_finished_job(object, old, &path, errors);
    self::validate_indexes(object, old, &path, errors);
    let (ready, active) = (number(object, "ready"), number(object, "active"));
    let applies = field_changed(object, old, "ready") || field_changed(object, old, "active");
    if applies && !status["ready"].is_null() && ready > active {
        errors.invalid(&path.child("ready"), &json!(ready), "cannot set more ready pods than active");
    }
    validate_counters(object, old, &path, errors);
}

fn has_condition(job: &Value, kind: &str) -> bool {
    items(&job["status"], "conditions").any(|c| c["type"] == kind && c["status"] == "True")
}

fn is_finished(job: &Value) -> bool {
    has_condition(job, "Complete") || has_condition(job, "Failed")
}

fn number(job: &Value, field: &str) -> i64 {
    job["status"][field].as_i64().unwrap_or(0)
}

fn field_changed(object: &Value, old: &Value, field: &str) -> bool {
    object["status"][field] != old["status"][field]
}

fn condition_changed(object: &Value, old: &Value, kind: &str) -> bool {
    has_condition(object, kind) != has_condition(old, kind)
}

/// Validates that UIDs of uncounted terminated Pods are unique.
fn validate_uncounted_pods(pods: &FieldCursor<'_, '_>, errors: &mut FieldErrors) {
    let mut seen = BTreeSet::new();
    for list in [pods.at("succeeded"), pods.at("failed")] {
        for uid in list.items() {
            if uid.text().is_empty() {
                uid.invalid("must not be empty", errors);
            } else if !seen.insert(uid.text()) {
                uid.duplicate(errors);
            }
        }
    }
}

/// Validates conditions that exclude or require each other, and terminal conditions.
fn validate_conditions(object: &Value, old: &Value, conditions: &FieldCursor<'_, '_>, errors: &mut FieldErrors) {
    let (complete, failed) = (has_condition(object, "Complete"), has_condition(object, "Failed"));
    let (failing, succeeding) = (has_condition(object, "FailureTarget"), has_condition(object, "SuccessCriteriaMet"));
    let any_changed = |kinds: &[&str]| kinds.iter().any(|kind| condition_changed(object, old, kind));
    let rules = [
        (
            any_changed(&["Complete", "Failed"]) && complete && failed,
            "cannot set Complete=True and Failed=true conditions",
        ),
        (
            any_changed(&["Complete", "FailureTarget"]) && complete && failing,
            "cannot set Complete=True and FailureTarget=true conditions",
        ),
        (
            any_changed(&["Failed", "FailureTarget"]) && failed && !failing,
            "cannot set Failed=True condition without the FailureTarget=true condition",
        ),
        (
            any_changed(&["Complete", "SuccessCriteriaMet"]) && complete && !succeeding,
            "cannot set Complete=True condition without the SuccessCriteriaMet=true condition",
        ),
        (succeeding && failed, "cannot set SuccessCriteriaMet=True and Failed=true conditions"),
        (succeeding && failing, "cannot set SuccessCriteriaMet=True and FailureTarget=true conditions"),
        (
            !object["spec"]["successPolicy"].is_null() && complete && !succeeding,
            "cannot set Complete=True for Job with SuccessPolicy unless SuccessCriteriaMet=True",
        ),
        (
            has_condition(old, "SuccessCriteriaMet") && !succeeding,
            "cannot disable the SuccessCriteriaMet=True condition",
        ),
        (
            has_condition(old, "Complete") && !has_condition(old, "SuccessCriteriaMet") && succeeding,
            "cannot set SuccessCriteriaMet=True for Job already has Complete=true conditions",
        ),
    ];
    rules
        .iter()
        .filter(|(is_violated, _)| *is_violated)
        .for_each(|(_, detail)| conditions.invalid_without_value(detail, errors));
    for kind in ["Failed", "Complete", "FailureTarget"] {
        if has_condition(old, kind) && !has_condition(object, kind) {
            conditions.invalid_without_value(&format!("cannot disable the terminal {kind}=True condition"), errors);
        }
    }
}

fn validate_times(object: &Value, old: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    let (complete, at) = (has_condition(object, "Complete"), path.child("completionTime"));
    let (start, end) = (&object["status"]["startTime"], &object["status"]["completionTime"]);
    let applies = condition_changed(object, old, "Complete") || field_changed(object, old, "completionTime");
    if applies && !complete && !end.is_null() {
        errors.invalid(&at, end, "cannot set completionTime when there is no Complete=True condition");
    }
    if applies && complete && end.is_null() {
        errors.required(&at, "completionTime is required for Complete jobs");
    }
    let time = |v: &Value| v.as_str().and_then(|t| t.parse::<Timestamp>().ok());
    if let (Some(start), Some(ended)) = (time(start), time(end))
        && (field_changed(object, old, "startTime") || field_changed(object, old, "completionTime"))
        && ended < start
    {
        errors.invalid(&at, end, "completionTime cannot be set before startTime");
    }
    let old_time = &old["status"]["completionTime"];
    if !end.is_null() && !old_time.is_null() && end != old_time {
        errors.invalid(&at, end, "completionTime cannot be mutated");
    }
    // A suspended Job resets its start time, from which the deadline counts.
    let suspended = object["spec"]["suspend"] == json!(true) || has_condition(old, "Suspended");
    if !old["status"]["startTime"].is_null() && field_changed(object, old, "startTime") && !suspended {
        errors.required(&path.child("startTime"), "startTime cannot be removed for unsuspended job");
    }
}

/// Validates that a finished Job has no active or uncounted Pods.
fn validate_finished_job(object: &Value, old: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    if !is_finished(object) {
        return;
    }
    let (status, ends) = (&object["status"], !is_finished(old));
    let applies = |field: &str| ends || field_changed(object, old, field);
    for field in ["active", "terminating"].into_iter().filter(|f| applies(f) && number(object, f) > 0) {
        errors.invalid(&path.child(field), &status[field], &format!("{field}>0 is invalid for finished job"));
    }
    let never_started = object["spec"]["suspend"] == json!(true) && object["spec"]["completions"] == json!(0);
    if applies("startTime") && status["startTime"].is_null() && !never_started {
        errors.required(&path.child("startTime"), "startTime is required for finished job");
    }
    let pods = &status["uncountedTerminatedPods"];
    let has_uncounted = ["succeeded", "failed"].iter().any(|list| items(pods, list).next().is_some());
    if applies("uncountedTerminatedPods") && has_uncounted {
        let at = path.child("uncountedTerminatedPods");
        errors.invalid(&at, pods, "uncountedTerminatedPods needs to be empty for finished job");
    }
}

fn validate_indexes(object: &Value, old: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    let (spec, status) = (&object["spec"], &object["status"]);
    let (completed, failed) = (text_of(status, "completedIndexes"), &status["failedIndexes"]);
    let at = |field: &str| path.child(field);
    let (new_completed, new_failed) = (
        field_changed(object, old, "completedIndexes"),
        field_changed(object, old, "failedIndexes") && !failed.is_null(),
    );
    let has_index_limit = !spec["backoffLimitPerIndex"].is_null();
    if let Some(completions) = spec["completions"].as_i64() {
        let read = |text: &str| indexes::parse_intervals(text, completions);
        if new_completed && let Err(error) = read(completed) {
            let error = format!("error parsing completedIndexes: {error}");
            errors.invalid(&at("completedIndexes"), &json!(completed), &error);
        }
        let text = failed.as_str().unwrap_or("");
        if new_failed
            && has_index_limit
            && let Err(error) = read(text)
        {
            errors.invalid(&at("failedIndexes"), failed, &format!("error parsing failedIndexes: {error}"));
        }
        if let (true, Ok(completed_intervals), Ok(failed_intervals)) =
            (new_completed || new_failed, read(completed), read(text))
            && let Some(first) = first_common_index(&failed_intervals, &completed_intervals)
        {
            let detail = format!("failedIndexes and completedIndexes overlap at index: {first}");
            errors.invalid(&at("failedIndexes"), failed, &detail);
        }
    }
    if new_completed && !completed.is_empty() && spec["completionMode"] != "Indexed" {
        let detail = "cannot set non-empty completedIndexes when non-indexed completion mode";
        errors.invalid(&at("completedIndexes"), &json!(completed), detail);
    }
    if new_failed && !has_index_limit {
        let detail = "cannot set non-null failedIndexes when backoffLimitPerIndex is null";
        errors.invalid(&at("failedIndexes"), failed, detail);
    }
}

/// Returns the first index that two ascending lists of intervals share.
fn first_common_index(left: &[(i64, i64)], right: &[(i64, i64)]) -> Option<i64> {
    let (mut l, mut r) = (left.iter().peekable(), right.iter().peekable());
    while let (Some(a), Some(b)) = (l.peek(), r.peek()) {
        let (first, last) = (a.0.max(b.0), a.1.min(b.1));
        if first <= last {
            return Some(first);
        }
        if a.1 < b.1 {
            l.next()
        } else {
            r.next()
        };
    }
    None
}

/// Validates that counters do not decrease, except `succeeded` of an indexed Job that is scaled down.
fn validate_counters(object: &Value, old: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    let spec = &object["spec"];
    let scales_down = !spec["completions"].is_null() && spec["completions"] == spec["parallelism"];
    for (field, may) in [("failed", false), ("succeeded", scales_down)] {
        let count = number(object, field);
        if !may && count < number(old, field) {
            errors.invalid(&path.child(field), &json!(count), &format!("cannot decrease the {field} counter"));
        }
    }
}
