//! Validation of the API groups of an autoscaler's references (`ValidateAPIVersion`).

use super::super::{
    FieldErrors, FieldPath,
    field_validation::{items, text},
};
use serde_json::Value;

/// The only scalable kind of the core group.
const SCALABLE_CORE_KIND: &str = "ReplicationController";

/// Validates the references of a new autoscaler.
pub(super) fn validate_new(object: &Value, errors: &mut FieldErrors) {
    validate_change(object, &Value::Null, errors);
}

/// Validates changed references of an update; invalid old references may stay.
pub(super) fn validate_change(object: &Value, old: &Value, errors: &mut FieldErrors) {
    let (path, spec, before) = (FieldPath::new("spec"), &object["spec"], &old["spec"]);
    let same_type = |a: &Value, b: &Value| ["apiVersion", "kind"].iter().all(|field| text(a, field) == text(b, field));
    let target = &spec["scaleTargetRef"];
    if before.is_null() || !same_type(target, &before["scaleTargetRef"]) {
        let core = text(target, "kind") == SCALABLE_CORE_KIND;
        validate_api_version(target, core, &path.child("scaleTargetRef"), errors);
    }
    let described = |metric: &Value| metric["object"]["describedObject"].clone();
    let known: Vec<Value> = items(before, "metrics").map(described).collect();
    let is_object = |(_, metric): &(usize, &Value)| text(metric, "type") == "Object" && metric["object"].is_object();
    for (i, metric) in items(spec, "metrics").enumerate().filter(is_object) {
        let described = described(metric);
        if !known.iter().any(|known| same_type(known, &described)) {
            let path = path.child("metrics").index(i).child("object").child("describedObject");
            validate_api_version(&described, true, &path, errors);
        }
    }
}

fn validate_api_version(reference: &Value, core: bool, path: &FieldPath, errors: &mut FieldErrors) {
    let version = text(reference, "apiVersion");
    let detail = match version.split('/').collect::<Vec<_>>().as_slice() {
        [_] | ["", _] if core => return,
        [_] | ["", _] => "apiVersion must specify API group".to_owned(),
        [_, _] => return,
        _ => format!("unexpected GroupVersion string: {version}"),
    };
    errors.invalid(&path.child("apiVersion"), &Value::from(version), &detail);
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[track_caller]
    fn validate_api_version(new: Value, old: Value, expected: &[&str]) {
        let spec = |target: &Value| json!({"spec": {"scaleTargetRef": target}});
        let mut errors = FieldErrors::default();
        match &old {
            Value::Null => super::validate_new(&spec(&new), &mut errors),
            old => validate_change(&spec(&new), &spec(old), &mut errors),
        }
        let found: Vec<String> = errors.0.iter().map(ToString::to_string).collect();
        assert_eq!(found, expected, "{new}");
    }

    #[test]
    fn target_without_group_is_rejected_unless_unchanged() {
        let target = |version: &str, kind: &str, name: &str| json!({"apiVersion": version, "kind": kind, "name": name});
        let wrong = "spec.scaleTargetRef.apiVersion: Invalid value: \"v1\": apiVersion must specify API group";
        validate_api_version(target("apps/v1", "Deployment", "a"), Value::Null, &[]);
        validate_api_version(target("v1", "Deployment", "a"), Value::Null, &[wrong]);
        validate_api_version(target("v1", "ReplicationController", "a"), Value::Null, &[]);
        validate_api_version(target("v1", "Deployment", "b"), target("v1", "Deployment", "a"), &[]);
        validate_api_version(target("v1", "Deployment", "a"), target("apps/v1", "Deployment", "a"), &[wrong]);
        validate_api_version(target("v1", "StatefulSet", "a"), target("v1", "Deployment", "a"), &[wrong]);
    }
}
