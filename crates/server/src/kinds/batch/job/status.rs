//! What a Job's status may say, and how it may change (`ValidateJobStatusUpdate`). A rule is asked when what it is about
//! changes: a status that was written before there was the rule can still be written.

use super::indexes;
use crate::kinds::{
    FieldErrors, FieldPath,
    checks::{invalid_whole, items, not_negative, text as text_of},
};
use jiff::Timestamp;
use serde_json::{Value, json};
use std::collections::BTreeSet;

pub(super) fn validate(object: &Value, old: &Value, errors: &mut FieldErrors) {
    let path = FieldPath::new("status");
    let status = &object["status"];
    for field in ["active", "succeeded", "failed", "ready", "terminating"] {
        not_negative(status, field, &path, errors);
    }
    uncounted(status, &path.child("uncountedTerminatedPods"), errors);
    conditions(object, old, &path.child("conditions"), errors);
    times(object, old, &path, errors);
    finished(object, old, &path, errors);
    self::indexes(object, old, &path, errors);
    let (ready, active) = (number(object, "ready"), number(object, "active"));
    let asked = changed(object, old, "ready") || changed(object, old, "active");
    if asked && !status["ready"].is_null() && ready > active {
        errors.invalid(&path.child("ready"), &json!(ready), "cannot set more ready pods than active");
    }
    counters(object, old, &path, errors);
}

fn holds(job: &Value, kind: &str) -> bool {
    items(&job["status"], "conditions").any(|c| c["type"] == kind && c["status"] == "True")
}

fn is_finished(job: &Value) -> bool {
    holds(job, "Complete") || holds(job, "Failed")
}

fn number(job: &Value, field: &str) -> i64 {
    job["status"][field].as_i64().unwrap_or(0)
}

fn changed(object: &Value, old: &Value, field: &str) -> bool {
    object["status"][field] != old["status"][field]
}

fn turned(object: &Value, old: &Value, kind: &str) -> bool {
    holds(object, kind) != holds(old, kind)
}

/// Each Pod is noted once, whether it succeeded or failed.
fn uncounted(status: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    let mut seen = BTreeSet::new();
    for list in ["succeeded", "failed"] {
        for (i, uid) in items(&status["uncountedTerminatedPods"], list).enumerate() {
            let at = path.child(list).index(i);
            if uid == "" {
                errors.invalid(&at, uid, "must not be empty");
            } else if !seen.insert(uid.as_str()) {
                errors.duplicate(&at, uid);
            }
        }
    }
}

/// Conditions that exclude each other, that need each other, and that stay.
fn conditions(object: &Value, old: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    let (complete, failed) = (holds(object, "Complete"), holds(object, "Failed"));
    let (failing, succeeding) = (holds(object, "FailureTarget"), holds(object, "SuccessCriteriaMet"));
    let turned = |kinds: &[&str]| kinds.iter().any(|kind| turned(object, old, kind));
    let rules = [
        (turned(&["Complete", "Failed"]) && complete && failed, "cannot set Complete=True and Failed=true conditions"),
        (
            turned(&["Complete", "FailureTarget"]) && complete && failing,
            "cannot set Complete=True and FailureTarget=true conditions",
        ),
        (
            turned(&["Failed", "FailureTarget"]) && failed && !failing,
            "cannot set Failed=True condition without the FailureTarget=true condition",
        ),
        (
            turned(&["Complete", "SuccessCriteriaMet"]) && complete && !succeeding,
            "cannot set Complete=True condition without the SuccessCriteriaMet=true condition",
        ),
        (succeeding && failed, "cannot set SuccessCriteriaMet=True and Failed=true conditions"),
        (succeeding && failing, "cannot set SuccessCriteriaMet=True and FailureTarget=true conditions"),
        (
            !object["spec"]["successPolicy"].is_null() && complete && !succeeding,
            "cannot set Complete=True for Job with SuccessPolicy unless SuccessCriteriaMet=True",
        ),
        (holds(old, "SuccessCriteriaMet") && !succeeding, "cannot disable the SuccessCriteriaMet=True condition"),
        (
            holds(old, "Complete") && !holds(old, "SuccessCriteriaMet") && succeeding,
            "cannot set SuccessCriteriaMet=True for Job already has Complete=true conditions",
        ),
    ];
    rules.iter().filter(|(broken, _)| *broken).for_each(|(_, why)| invalid_whole(path, why, errors));
    for kind in ["Failed", "Complete", "FailureTarget"] {
        if holds(old, kind) && !holds(object, kind) {
            invalid_whole(path, &format!("cannot disable the terminal {kind}=True condition"), errors);
        }
    }
}

fn times(object: &Value, old: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    let (complete, at) = (holds(object, "Complete"), path.child("completionTime"));
    let (start, end) = (&object["status"]["startTime"], &object["status"]["completionTime"]);
    let asked = turned(object, old, "Complete") || changed(object, old, "completionTime");
    if asked && !complete && !end.is_null() {
        errors.invalid(&at, end, "cannot set completionTime when there is no Complete=True condition");
    }
    if asked && complete && end.is_null() {
        errors.required(&at, "completionTime is required for Complete jobs");
    }
    let time = |v: &Value| v.as_str().and_then(|t| t.parse::<Timestamp>().ok());
    if let (Some(start), Some(ended)) = (time(start), time(end))
        && (changed(object, old, "startTime") || changed(object, old, "completionTime"))
        && ended < start
    {
        errors.invalid(&at, end, "completionTime cannot be set before startTime");
    }
    let before = &old["status"]["completionTime"];
    if !end.is_null() && !before.is_null() && end != before {
        errors.invalid(&at, end, "completionTime cannot be mutated");
    }
    // One that goes on begins anew: its deadline counts from there.
    let suspended = object["spec"]["suspend"] == json!(true) || holds(old, "Suspended");
    if !old["status"]["startTime"].is_null() && changed(object, old, "startTime") && !suspended {
        errors.required(&path.child("startTime"), "startTime cannot be removed for unsuspended job");
    }
}

/// One that has ended has no Pods left.
fn finished(object: &Value, old: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    if !is_finished(object) {
        return;
    }
    let (status, ends) = (&object["status"], !is_finished(old));
    let asked = |field: &str| ends || changed(object, old, field);
    for field in ["active", "terminating"].into_iter().filter(|f| asked(f) && number(object, f) > 0) {
        errors.invalid(&path.child(field), &status[field], &format!("{field}>0 is invalid for finished job"));
    }
    let never = object["spec"]["suspend"] == json!(true) && object["spec"]["completions"] == json!(0);
    if asked("startTime") && status["startTime"].is_null() && !never {
        errors.required(&path.child("startTime"), "startTime is required for finished job");
    }
    let pods = &status["uncountedTerminatedPods"];
    let some = ["succeeded", "failed"].iter().any(|list| items(pods, list).next().is_some());
    if asked("uncountedTerminatedPods") && some {
        let at = path.child("uncountedTerminatedPods");
        errors.invalid(&at, pods, "uncountedTerminatedPods needs to be empty for finished job");
    }
}

fn indexes(object: &Value, old: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    let (spec, status) = (&object["spec"], &object["status"]);
    let (completed, failed) = (text_of(status, "completedIndexes"), &status["failedIndexes"]);
    let at = |field: &str| path.child(field);
    let (new_completed, new_failed) =
        (changed(object, old, "completedIndexes"), changed(object, old, "failedIndexes") && !failed.is_null());
    let limited = !spec["backoffLimitPerIndex"].is_null();
    if let Some(completions) = spec["completions"].as_i64() {
        let read = |text: &str| indexes::intervals(text, completions);
        if new_completed && let Err(why) = read(completed) {
            let why = format!("error parsing completedIndexes: {why}");
            errors.invalid(&at("completedIndexes"), &json!(completed), &why);
        }
        let text = failed.as_str().unwrap_or("");
        if new_failed
            && limited
            && let Err(why) = read(text)
        {
            errors.invalid(&at("failedIndexes"), failed, &format!("error parsing failedIndexes: {why}"));
        }
        if let (true, Ok(done), Ok(lost)) = (new_completed || new_failed, read(completed), read(text))
            && let Some(first) = first_common(&lost, &done)
        {
            let why = format!("failedIndexes and completedIndexes overlap at index: {first}");
            errors.invalid(&at("failedIndexes"), failed, &why);
        }
    }
    if new_completed && !completed.is_empty() && spec["completionMode"] != "Indexed" {
        let why = "cannot set non-empty completedIndexes when non-indexed completion mode";
        errors.invalid(&at("completedIndexes"), &json!(completed), why);
    }
    if new_failed && !limited {
        let why = "cannot set non-null failedIndexes when backoffLimitPerIndex is null";
        errors.invalid(&at("failedIndexes"), failed, why);
    }
}

/// The first index that is in both of two lists of intervals, each in ascending order.
fn first_common(left: &[(i64, i64)], right: &[(i64, i64)]) -> Option<i64> {
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

/// What was counted stays counted; an indexed Job that shrinks loses what its indexes had done.
fn counters(object: &Value, old: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    let spec = &object["spec"];
    let shrinks = !spec["completions"].is_null() && spec["completions"] == spec["parallelism"];
    for (field, may) in [("failed", false), ("succeeded", shrinks)] {
        let count = number(object, field);
        if !may && count < number(old, field) {
            errors.invalid(&path.child(field), &json!(count), &format!("cannot decrease the {field} counter"));
        }
    }
}
