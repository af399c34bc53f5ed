//! Validation of Events in the core group's version (`pkg/apis/core/validation/events.go`).

use crate::{FieldErrors, FieldPath, field_cursor::FieldCursor, field_validation::text};
use serde_json::{Value, json};

/// Maximum lengths of fields; the first three are required.
const MAX_LENGTHS: [(&str, usize); 4] =
    [("reportingInstance", 128), ("action", 128), ("reason", 128), ("message", 1024)];

/// Whether a field is null or Go's zero value.
fn is_unset(value: &Value) -> bool {
    matches!(value, Value::Null) || *value == "" || *value == 0
}

/// Validates Events of both groups (`legacyValidateEvent`).
pub(super) fn validate_legacy(object: &Value, core: bool, errors: &mut FieldErrors) {
    let (namespace, involved_namespace) =
        (text(&object["metadata"], "namespace"), text(&object["involvedObject"], "namespace"));
    let is_new = !is_unset(&object["eventTime"]);
    // Events of cluster-scoped objects are in `default`, or, if they have an `eventTime`, also in `kube-system`.
    let matches = match involved_namespace {
        "" => namespace == "default" || (is_new && namespace == "kube-system"),
        involved_namespace => is_new || namespace == involved_namespace,
    };
    if !matches {
        let path = FieldPath::new("involvedObject").child("namespace");
        errors.invalid(&path, &json!(involved_namespace), "does not match event.namespace");
    }
    if !is_new {
        return;
    }
    let cursor = FieldCursor::object(object);
    let reporter = cursor.at("reportingComponent");
    let reporter = if core { reporter } else { reporter.shown_as("reportingController") };
    let empty = json!("");
    let reporter = if reporter.is_null() { reporter.with_value(&empty) } else { reporter };
    if reporter.text().is_empty() {
        reporter.required("", errors);
    }
    reporter.validate_text(api::names::qualified_name, errors);
    for (field, max) in MAX_LENGTHS {
        if field != "message" && text(object, field).is_empty() {
            errors.required(&FieldPath::new(field), "");
        }
        if text(object, field).len() > max {
            errors.invalid(&FieldPath::new(field), &json!(""), &format!("can have at most {max} characters"));
        }
    }
}

/// Additional validation of new Events of `events.k8s.io` (`ValidateEventCreate`).
pub(super) fn validate_strict(object: &Value, errors: &mut FieldErrors) {
    validate_series(object, errors);
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

fn validate_series(object: &Value, errors: &mut FieldErrors) {
    let Some(series) = object["series"].as_object() else { return };
    let path = |field: &str| FieldPath::new(&format!("series.{field}"));
    if series.get("count").and_then(Value::as_i64).unwrap_or(0) < 2 {
        errors.invalid(&path("count"), &json!(""), "should be at least 2");
    }
    if series.get("lastObservedTime").is_none_or(is_unset) {
        errors.required(&path("lastObservedTime"), "");
    }
}

/// Validates that an update through `events.k8s.io` only changes mutable fields (`ValidateEventUpdate`).
pub(super) fn validate_immutable_fields(new: &Value, old: &Value, errors: &mut FieldErrors) {
    if new["series"] != old["series"] {
        validate_series(new, errors);
    }
    const IMMUTABLE_FIELDS: [&str; 13] = [
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
    for field in IMMUTABLE_FIELDS {
        let stored = if field == "reportingController" { "reportingComponent" } else { field };
        let (new_value, old_value) = (&new[stored], &old[stored]);
        if new_value != old_value && !(is_unset(new_value) && is_unset(old_value)) {
            errors.invalid(&FieldPath::new(field), new_value, "field is immutable");
        }
    }
}
