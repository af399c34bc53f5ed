//! What a Pod's spec may say, and what an update may change, in upstream's words (`pkg/apis/core/validation`).

use crate::kinds::{FieldErrors, FieldPath};
use api::quantity::Amount;
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;

pub(super) fn spec(object: &Value, errors: &mut FieldErrors) {
    let path = FieldPath::new("spec");
    let spec = &object["spec"];
    one_of(spec, "restartPolicy", &["Always", "OnFailure", "Never"], &path, errors);
    one_of(spec, "dnsPolicy", &["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"], &path, errors);
    if spec["terminationGracePeriodSeconds"].as_i64().is_some_and(|s| s < 0) {
        let value = &spec["terminationGracePeriodSeconds"];
        errors.invalid(&path.child("terminationGracePeriodSeconds"), value, "must be greater than or equal to 0");
    }
    if spec["activeDeadlineSeconds"].as_i64().is_some_and(|s| !(1..=2_147_483_647).contains(&s)) {
        let value = &spec["activeDeadlineSeconds"];
        errors.invalid(&path.child("activeDeadlineSeconds"), value, "must be between 1 and 2147483647, inclusive");
    }
    let volumes = volumes(spec, &path.child("volumes"), errors);
    let mut names = BTreeSet::new();
    if items(spec, "containers").next().is_none() {
        errors.required(&path.child("containers"), "");
    }
    for list in ["initContainers", "containers"] {
        for (i, c) in items(spec, list).enumerate() {
            let path = path.child(list).index(i);
            container(c, &path, &volumes, errors);
            if !names.insert(text(c, "name").to_owned()) {
                errors.duplicate(&path.child("name"), &c["name"]);
            }
        }
    }
}

fn items<'a>(v: &'a Value, list: &str) -> impl Iterator<Item = &'a Value> + use<'a> {
    v[list].as_array().into_iter().flatten()
}

fn text<'a>(v: &'a Value, key: &str) -> &'a str {
    v[key].as_str().unwrap_or("")
}

fn one_of(v: &Value, key: &str, allowed: &[&str], path: &FieldPath, errors: &mut FieldErrors) {
    if !allowed.contains(&text(v, key)) {
        errors.not_supported(&path.child(key), &v[key], allowed);
    }
}

fn label(v: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    let name = v.as_str().unwrap_or("");
    if name.is_empty() {
        return errors.required(path, "");
    }
    api::names::dns1123_label(name).iter().for_each(|e| errors.invalid(path, v, e));
}

fn volumes(spec: &Value, path: &FieldPath, errors: &mut FieldErrors) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for (i, v) in items(spec, "volumes").enumerate() {
        let path = path.index(i);
        label(&v["name"], &path.child("name"), errors);
        if !names.insert(text(v, "name").to_owned()) {
            errors.duplicate(&path.child("name"), &v["name"]);
        }
        if v.as_object().is_some_and(|m| m.keys().filter(|k| *k != "name").count() > 1) {
            errors.forbidden(&path, "may not specify more than 1 volume type");
        }
    }
    names
}

fn container(c: &Value, path: &FieldPath, volumes: &BTreeSet<String>, errors: &mut FieldErrors) {
    label(&c["name"], &path.child("name"), errors);
    let image = text(c, "image");
    if image.is_empty() {
        errors.required(&path.child("image"), "");
    } else if image.trim() != image {
        errors.invalid(&path.child("image"), &c["image"], "must not have leading or trailing whitespace");
    }
    one_of(c, "imagePullPolicy", &["Always", "IfNotPresent", "Never"], path, errors);
    one_of(c, "terminationMessagePolicy", &["File", "FallbackToLogsOnError"], path, errors);
    for (i, e) in items(c, "env").enumerate() {
        let path = path.child("env").index(i).child("name");
        if text(e, "name").is_empty() {
            errors.required(&path, "");
        } else {
            api::names::env_var(text(e, "name")).iter().for_each(|m| errors.invalid(&path, &e["name"], m));
        }
    }
    let mut mounts = BTreeSet::new();
    for (i, m) in items(c, "volumeMounts").enumerate() {
        let path = path.child("volumeMounts").index(i);
        if !volumes.contains(text(m, "name")) {
            errors.not_found(&path.child("name"), &m["name"]);
        }
        if text(m, "mountPath").is_empty() {
            errors.required(&path.child("mountPath"), "");
        } else if !mounts.insert(text(m, "mountPath")) {
            errors.invalid(&path.child("mountPath"), &m["mountPath"], "must be unique");
        }
    }
    for (i, p) in items(c, "ports").enumerate() {
        let path = path.child("ports").index(i).child("containerPort");
        if !p["containerPort"].as_i64().is_some_and(|n| (1..=65_535).contains(&n)) {
            errors.invalid(&path, &p["containerPort"], "must be between 1 and 65535, inclusive");
        }
    }
    resources(&c["resources"], &path.child("resources"), errors);
}

fn resources(r: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    let empty = Map::new();
    let limits = r["limits"].as_object().unwrap_or(&empty);
    let parse = |v: &Value| Amount::parse(v.as_str().unwrap_or("")).or_else(|e| v.as_i64().map(Amount::units).ok_or(e));
    for (side, list) in [("limits", limits), ("requests", r["requests"].as_object().unwrap_or(&empty))] {
        for (name, value) in list {
            let path = path.child(side).key(name);
            match parse(value) {
                Err(e) => errors.invalid(&path, value, &e.to_string()),
                Ok(a) if a.is_negative() => errors.invalid(&path, value, "must be greater than or equal to 0"),
                Ok(a) if side == "requests" => {
                    if limits.get(name).and_then(|l| parse(l).ok()).is_some_and(|limit| a > limit) {
                        let text =
                            format!("must be less than or equal to {name} limit of {}", text(&json!(limits), name));
                        errors.invalid(&path, value, &text);
                    }
                }
                Ok(_) => {}
            }
        }
    }
}

/// A Pod's spec stays as it is, but for what these words name.
pub(super) fn update(object: &Value, old: &Value, errors: &mut FieldErrors) {
    let mut allowed = object["spec"].clone();
    for list in ["initContainers", "containers"] {
        let before = old["spec"][list].as_array();
        for (c, o) in
            allowed.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten().zip(before.into_iter().flatten())
        {
            c["image"] = o["image"].clone();
        }
    }
    let list = |v: &Value, key: &str| v["spec"][key].as_array().cloned().unwrap_or_default();
    let tolerations = list(object, "tolerations");
    if list(old, "tolerations").iter().all(|t| tolerations.contains(t)) {
        copy(&mut allowed, &old["spec"], "tolerations");
    }
    let gates = list(old, "schedulingGates");
    if list(object, "schedulingGates").iter().all(|g| gates.contains(g)) {
        copy(&mut allowed, &old["spec"], "schedulingGates");
    }
    let lower = object["spec"]["activeDeadlineSeconds"].as_i64();
    if lower.is_some_and(|new| old["spec"]["activeDeadlineSeconds"].as_i64().is_none_or(|old| new <= old)) {
        copy(&mut allowed, &old["spec"], "activeDeadlineSeconds");
    }
    if allowed != old["spec"] {
        errors.forbidden(
            &FieldPath::new("spec"),
            "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)",
        );
    }
}

fn copy(to: &mut Value, from: &Value, key: &str) {
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
    fn check(change: impl Fn(&mut Value), expected: usize) {
        let old = json!({"spec": {"containers": [{"name": "c", "image": "a"}], "tolerations": []}});
        let mut new = old.clone();
        change(&mut new);
        let mut errors = FieldErrors::default();
        update(&new, &old, &mut errors);
        assert_eq!(errors.0.len(), expected, "{errors:?}");
    }

    #[test]
    fn an_update_may_change_what_upstream_lets_it_change() {
        check(|_| {}, 0);
        check(|p| p["spec"]["containers"][0]["image"] = json!("b"), 0);
        check(|p| p["spec"]["tolerations"] = json!([{"key": "k"}]), 0);
        check(|p| p["spec"]["activeDeadlineSeconds"] = json!(5), 0);
        check(|p| p["spec"]["containers"][0]["command"] = json!(["x"]), 1);
        check(|p| p["spec"]["nodeName"] = json!("n"), 1);
    }
}
