//! The objects that an autoscaler names, and the groups that they are of (`ValidateAPIVersion`).

use super::super::{FieldErrors, FieldPath, checks::items, checks::text};
use serde_json::Value;

/// The only kind of the core group that can be scaled.
const OF_THE_CORE: &str = "ReplicationController";

/// What holds for a new autoscaler.
pub(super) fn new(object: &Value, errors: &mut FieldErrors) {
    changed(object, &Value::Null, errors);
}

/// What holds for a change: what was wrong before may stay as it is.
pub(super) fn changed(object: &Value, old: &Value, errors: &mut FieldErrors) {
    let (path, spec, before) = (FieldPath::new("spec"), &object["spec"], &old["spec"]);
    let same = |a: &Value, b: &Value| ["apiVersion", "kind"].iter().all(|field| text(a, field) == text(b, field));
    let target = &spec["scaleTargetRef"];
    if before.is_null() || !same(target, &before["scaleTargetRef"]) {
        let core = text(target, "kind") == OF_THE_CORE;
        check(target, core, &path.child("scaleTargetRef"), errors);
    }
    let described = |metric: &Value| metric["object"]["describedObject"].clone();
    let known: Vec<Value> = items(before, "metrics").map(described).collect();
    let is_object = |(_, metric): &(usize, &Value)| text(metric, "type") == "Object" && metric["object"].is_object();
    for (i, metric) in items(spec, "metrics").enumerate().filter(is_object) {
        let described = described(metric);
        if !known.iter().any(|known| same(known, &described)) {
            let path = path.child("metrics").index(i).child("object").child("describedObject");
            check(&described, true, &path, errors);
        }
    }
}

fn check(reference: &Value, core: bool, path: &FieldPath, errors: &mut FieldErrors) {
    let version = text(reference, "apiVersion");
    let why = match version.split('/').collect::<Vec<_>>().as_slice() {
        [_] | ["", _] if core => return,
        [_] | ["", _] => "apiVersion must specify API group".to_owned(),
        [_, _] => return,
        _ => format!("unexpected GroupVersion string: {version}"),
    };
    errors.invalid(&path.child("apiVersion"), &Value::from(version), &why);
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[track_caller]
    fn check(new: Value, old: Value, expected: &[&str]) {
        let spec = |target: &Value| json!({"spec": {"scaleTargetRef": target}});
        let mut errors = FieldErrors::default();
        match &old {
            Value::Null => super::new(&spec(&new), &mut errors),
            old => changed(&spec(&new), &spec(old), &mut errors),
        }
        let found: Vec<String> = errors.0.iter().map(ToString::to_string).collect();
        assert_eq!(found, expected, "{new}");
    }

    #[test]
    fn a_target_names_its_group_unless_it_never_did() {
        let target = |version: &str, kind: &str, name: &str| json!({"apiVersion": version, "kind": kind, "name": name});
        let wrong = "spec.scaleTargetRef.apiVersion: Invalid value: \"v1\": apiVersion must specify API group";
        check(target("apps/v1", "Deployment", "a"), Value::Null, &[]);
        check(target("v1", "Deployment", "a"), Value::Null, &[wrong]);
        check(target("v1", "ReplicationController", "a"), Value::Null, &[]);
        check(target("v1", "Deployment", "b"), target("v1", "Deployment", "a"), &[]);
        check(target("v1", "Deployment", "a"), target("apps/v1", "Deployment", "a"), &[wrong]);
        check(target("v1", "StatefulSet", "a"), target("v1", "Deployment", "a"), &[wrong]);
    }
}
