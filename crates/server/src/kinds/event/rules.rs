//! What an Event must say (`pkg/apis/core/validation/events.go`), in the names of the core group.

use crate::kinds::{
    FieldErrors, FieldPath,
    checks::{qualified, text},
};
use serde_json::{Value, json};

/// Fields and the most characters that they can have; the first three must be there.
const LENGTHS: [(&str, usize); 4] = [("reportingInstance", 128), ("action", 128), ("reason", 128), ("message", 1024)];

/// Whether a field holds nothing, or what Go takes for nothing.
fn is_unset(value: &Value) -> bool {
    matches!(value, Value::Null) || *value == "" || *value == 0
}

/// What holds for Events of both groups.
pub(super) fn legacy(object: &Value, core: bool, errors: &mut FieldErrors) {
    let (own, about) = (text(&object["metadata"], "namespace"), text(&object["involvedObject"], "namespace"));
    let is_new = !is_unset(&object["eventTime"]);
    // What has no namespace has its events in `default`, or in `kube-system` if they are of the new form.
    let matches = match about {
        "" => own == "default" || (is_new && own == "kube-system"),
        about => is_new || own == about,
    };
    if !matches {
        let path = FieldPath::new("involvedObject").child("namespace");
        errors.invalid(&path, &json!(about), "does not match event.namespace");
    }
    if !is_new {
        return;
    }
    let reporter = FieldPath::new(if core { "reportingComponent" } else { "reportingController" });
    if text(object, "reportingComponent").is_empty() {
        errors.required(&reporter, "");
    }
    qualified(&json!(text(object, "reportingComponent")), &reporter, errors);
    for (field, most) in LENGTHS {
        if field != "message" && text(object, field).is_empty() {
            errors.required(&FieldPath::new(field), "");
        }
        if text(object, field).len() > most {
            errors.invalid(&FieldPath::new(field), &json!(""), &format!("can have at most {most} characters"));
        }
    }
}

/// What holds beside for new Events of `events.k8s.io`.
pub(super) fn strict(object: &Value, errors: &mut FieldErrors) {
    series(object, errors);
    if is_unset(&object["eventTime"]) {
        errors.required(&FieldPath::new("eventTime"), "");
    }
    let kind = text(object, "type");
    if !["Normal", "Warning"].contains(&kind) {
        errors.invalid(&FieldPath::new("type"), &json!(""), &format!("has invalid value: {kind}"));
    }
    let source = &object["source"];
    let deprecated = [
        ("firstTimestamp", is_unset(&object["firstTimestamp"])),
        ("lastTimestamp", is_unset(&object["lastTimestamp"])),
        ("count", is_unset(&object["count"])),
        ("source", is_unset(&source["component"]) && is_unset(&source["host"])),
    ];
    for (field, _) in deprecated.into_iter().filter(|(_, unset)| !unset) {
        errors.invalid(&FieldPath::new(field), &json!(""), "needs to be unset");
    }
}

fn series(object: &Value, errors: &mut FieldErrors) {
    let Some(series) = object["series"].as_object() else { return };
    let path = |field: &str| FieldPath::new(&format!("series.{field}"));
    if series.get("count").and_then(Value::as_i64).unwrap_or(0) < 2 {
        errors.invalid(&path("count"), &json!(""), "should be at least 2");
    }
    if series.get("lastObservedTime").is_none_or(is_unset) {
        errors.required(&path("lastObservedTime"), "");
    }
}

/// What an update through `events.k8s.io` must leave as it is.
pub(super) fn unchanged(new: &Value, old: &Value, errors: &mut FieldErrors) {
    if new["series"] != old["series"] {
        series(new, errors);
    }
    const FIELDS: [&str; 13] = [
        "involvedObject",
        "reason",
        "message",
        "source",
        "firstTimestamp",
        "lastTimestamp",
        "count",
        "type",
        "eventTime",
        "action",
        "related",
        "reportingController",
        "reportingInstance",
    ];
    for field in FIELDS {
        let stored = if field == "reportingController" { "reportingComponent" } else { field };
        let (now, before) = (&new[stored], &old[stored]);
        if now != before && !(is_unset(now) && is_unset(before)) {
            errors.invalid(&FieldPath::new(field), now, "field is immutable");
        }
    }
}
