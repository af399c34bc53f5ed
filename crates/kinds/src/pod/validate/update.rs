//! Validation of Pod updates (`ValidatePodUpdate`).

use super::{apparmor, items, scheduling, text};
use crate::{FieldErrors, FieldPath, field_cursor::FieldCursor};
use serde_json::{Map, Value, json};
use std::collections::HashSet;

const IMMUTABLE_FIELDS_MESSAGE: &str = "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)";

/// Validates an update of a Pod: only the fields that [`IMMUTABLE_FIELDS_MESSAGE`] names may change.
pub(crate) fn validate_update(object: &Value, old: &Value, errors: &mut FieldErrors) {
    let (path, spec, before) = (FieldPath::new("spec"), &object["spec"], &old["spec"]);
    apparmor::validate_annotation_update(object, old, errors);
    for list in ["containers", "initContainers"] {
        if items(spec, list).count() != items(before, list).count() {
            return errors.forbidden(&path.child(list), "pod updates may not add or remove containers");
        }
    }
    if !validate_deadline(spec, before, &path, errors) {
        return;
    }
    validate_toleration_update(spec, before, &path.child("tolerations"), errors);
    validate_scheduling_gates(spec, before, &path.child("schedulingGates"), errors);
    if spec == before {
        return;
    }
    let gated = items(before, "schedulingGates").next().is_some();
    let mut allowed = spec.clone();
    for list in ["initContainers", "containers"] {
        let images = items(before, list).map(|c| c["image"].clone());
        for (c, image) in allowed.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten().zip(images) {
            c["image"] = image;
        }
    }
    for field in ["activeDeadlineSeconds", "tolerations", "schedulingGates"] {
        copy_field(&mut allowed, before, field);
    }
    let grace = "terminationGracePeriodSeconds";
    if before[grace].as_i64().is_some_and(|s| s < 0) && spec[grace] == 1 {
        copy_field(&mut allowed, before, grace);
    }
    if gated {
        validate_node_selector(spec, before, &path.child("nodeSelector"), errors);
        copy_field(&mut allowed, before, "nodeSelector");
        let (new, old) = (&spec["affinity"]["nodeAffinity"], &before["affinity"]["nodeAffinity"]);
        super::node_affinity::validate_mutation(new, old, &path.child("affinity").child("nodeAffinity"), errors);
        let mut affinity = allowed["affinity"].as_object().cloned().unwrap_or_default();
        match before["affinity"].get("nodeAffinity") {
            Some(node) => drop(affinity.insert("nodeAffinity".to_owned(), node.clone())),
            None => drop(affinity.remove("nodeAffinity")),
        }
        let is_unset = affinity.is_empty() && !before["affinity"].is_object();
        allowed["affinity"] = if is_unset { Value::Null } else { Value::Object(affinity) };
    }
    let changed = changed_fields(&allowed, before);
    if !changed.is_empty() {
        errors.forbidden(&path, &format!("{IMMUTABLE_FIELDS_MESSAGE}\nchanged: {}", changed.join(", ")));
    }
}

/// Returns the top-level fields of the spec that differ.
fn changed_fields(new: &Value, old: &Value) -> Vec<String> {
    let empty = Map::new();
    let (new, old) = (new.as_object().unwrap_or(&empty), old.as_object().unwrap_or(&empty));
    let mut all: Vec<String> =
        new.iter().filter(|(k, v)| !v.is_null() && old.get(*k) != Some(v)).map(|(k, _)| format!("spec.{k}")).collect();
    let removed = old.iter().filter(|(k, v)| !v.is_null() && new.get(*k).is_none_or(Value::is_null));
    all.extend(removed.map(|(k, _)| format!("spec.{k}")));
    all
}

/// Validates that the deadline is only set or shortened. Returns whether validation continues.
fn validate_deadline(spec: &Value, old_spec: &Value, path: &FieldPath, errors: &mut FieldErrors) -> bool {
    let (path, field) = (path.child("activeDeadlineSeconds"), "activeDeadlineSeconds");
    match (spec[field].as_i64(), old_spec[field].as_i64()) {
        (Some(new), _) if !(0..=2_147_483_647).contains(&new) => {
            errors.invalid(&path, &json!(new), "must be between 0 and 2147483647, inclusive");
            false
        }
        (Some(new), Some(old)) if old < new => {
            errors.invalid(&path, &json!(new), "must be less than or equal to previous value");
            false
        }
        (None, Some(_)) => {
            errors.invalid(&path, &Value::Null, "must not update from a positive integer to nil value");
            true
        }
        _ => true,
    }
}

fn validate_toleration_update(spec: &Value, old_spec: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    let without_seconds = |t: &Value| {
        let mut t = t.clone();
        t.as_object_mut().map(|m| m.remove("tolerationSeconds"));
        t
    };
    let new_tolerations: HashSet<Value> = items(spec, "tolerations").map(without_seconds).collect();
    if items(old_spec, "tolerations").all(|t| new_tolerations.contains(&without_seconds(t))) {
        scheduling::validate_tolerations(&FieldCursor::new(&spec["tolerations"], path), errors);
    } else {
        errors.forbidden(path, "existing toleration can not be modified except its tolerationSeconds");
    }
}

fn validate_scheduling_gates(spec: &Value, old_spec: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    let old: HashSet<&str> = items(old_spec, "schedulingGates").map(|g| text(g, "name")).collect();
    for (i, gate) in items(spec, "schedulingGates").enumerate().filter(|(_, g)| !old.contains(&text(g, "name"))) {
        let detail = format!("only deletion is allowed, but found new scheduling gate '{}'", text(gate, "name"));
        errors.forbidden(&path.index(i).child("name"), &detail);
    }
}

fn validate_node_selector(spec: &Value, old_spec: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    let is_unchanged = |(key, value): (&String, &Value)| spec["nodeSelector"].get(key) == Some(value);
    if !old_spec["nodeSelector"].as_object().into_iter().flatten().all(is_unchanged) {
        errors.invalid(
            path,
            &spec["nodeSelector"],
            "only additions to spec.nodeSelector are allowed (no mutations or deletions)",
        );
    }
}

fn copy_field(to: &mut Value, from: &Value, key: &str) {
    match (to.as_object_mut(), from.get(key)) {
        (Some(map), Some(value)) => {
            map.insert(key.to_owned(), value.clone());
        }
        (Some(map), None) => {
            map.remove(key);
        }
        (None, _) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(change: impl Fn(&mut Value), expected: &str) {
        let old = json!({"spec": {"containers": [{"name": "c", "image": "a"}],
            "tolerations": [{"key": "k", "operator": "Exists"}], "activeDeadlineSeconds": 10}});
        let mut new = old.clone();
        change(&mut new);
        let mut errors = FieldErrors::default();
        validate_update(&new, &old, &mut errors);
        let got: Vec<String> = errors.0.iter().map(ToString::to_string).collect();
        assert_eq!(got.join("; "), expected);
    }

    #[test]
    fn pod_update_may_change_mutable_fields_only() {
        check(|_| {}, "");
        check(|p| p["spec"]["containers"][0]["image"] = json!("b"), "");
        check(|p| p["spec"]["tolerations"].as_array_mut().unwrap().push(json!({"key": "l", "operator": "Exists"})), "");
        check(
            |p| p["spec"]["tolerations"][0]["tolerationSeconds"] = json!(1),
            "spec.tolerations[0].effect: Invalid value: \"\": effect must be 'NoExecute' when `tolerationSeconds` is set",
        );
        check(
            |p| p["spec"]["tolerations"] = json!([]),
            "spec.tolerations: Forbidden: existing toleration can not be modified except its tolerationSeconds",
        );
        check(|p| p["spec"]["activeDeadlineSeconds"] = json!(5), "");
        check(
            |p| p["spec"]["activeDeadlineSeconds"] = json!(11),
            "spec.activeDeadlineSeconds: Invalid value: 11: must be less than or equal to previous value",
        );
        check(
            |p| p["spec"]["schedulingGates"] = json!([{"name": "g"}]),
            "spec.schedulingGates[0].name: Forbidden: only deletion is allowed, but found new scheduling gate 'g'",
        );
        check(
            |p| p["spec"]["containers"] = json!([]),
            "spec.containers: Forbidden: pod updates may not add or remove containers",
        );
        check(
            |p| p["spec"]["containers"][0]["command"] = json!(["x"]),
            &format!("spec: Forbidden: {IMMUTABLE_FIELDS_MESSAGE}\nchanged: spec.containers"),
        );
        check(
            |p| p["spec"]["nodeName"] = json!("n"),
            &format!("spec: Forbidden: {IMMUTABLE_FIELDS_MESSAGE}\nchanged: spec.nodeName"),
        );
    }

    #[test]
    fn gated_pod_node_affinity_may_only_be_narrowed() {
        let check = |old: Value, new: Value, expected: &str| {
            let pod = |terms: &Value| {
                let required = json!({"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}});
                let affinity = if terms.is_null() { json!({}) } else { json!({"nodeAffinity": required}) };
                json!({"spec": {"containers": [{"name": "c", "image": "a"}], "schedulingGates": [{"name": "g"}],
                    "affinity": affinity}})
            };
            let mut errors = FieldErrors::default();
            validate_update(&pod(&new), &pod(&old), &mut errors);
            let got: Vec<String> = errors.0.iter().map(|e| format!("{}: {}", e.field, e.message)).collect();
            assert!(got.join("; ").starts_with(expected) && got.is_empty() == expected.is_empty(), "{got:?}");
        };
        let is = |key: &str| json!({"key": key, "operator": "Exists"});
        let term = |keys: &[&str]| json!({"matchExpressions": keys.iter().map(|key| is(key)).collect::<Vec<_>>()});
        let terms = "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms";
        check(Value::Null, json!([term(&["a"])]), "");
        check(json!([term(&["a"])]), json!([term(&["a", "b"])]), "");
        check(json!([term(&["a"])]), json!([term(&["b", "a"])]), &format!("{terms}[0]: "));
        check(json!([term(&["a"])]), json!([term(&["a"]), term(&["b"])]), &format!("{terms}: "));
        check(json!([term(&["a"])]), Value::Null, &format!("{terms}: "));
        check(json!([term(&["a"]), {}]), json!([term(&["a"]), term(&["b"])]), &format!("{terms}[1]: "));
        let fields = json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]});
        check(json!([fields]), json!([term(&["a"])]), &format!("{terms}[0]: "));
    }
}
