//! Which requests webhooks and policies are about (`pkg/apis/admissionregistration/validation`).

use crate::kinds::{
    FieldErrors, FieldPath,
    checks::{items, text},
    path_segment, selector,
};
use serde_json::Value;
use std::collections::BTreeSet;

/// `validateMatchResources`: what a policy or a binding is about.
pub(super) fn match_resources(about: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    let policies = ["Equivalent", "Exact"];
    match text(about, "matchPolicy") {
        "" => errors.required(&path.child("matchPolicy"), ""),
        other if !policies.contains(&other) => {
            errors.not_supported(&path.child("matchPolicy"), &about["matchPolicy"], &policies);
        }
        _ => {}
    }
    for list in ["namespaceSelector", "objectSelector"] {
        selector::validate(&about[list], &path.child(list), errors);
    }
    for list in ["resourceRules", "excludeResourceRules"] {
        for (i, rule) in items(about, list).enumerate() {
            names(rule, &path.child(list).index(i), errors);
        }
        check(about, list, path, errors);
    }
}

fn names(rule: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    let mut seen = BTreeSet::new();
    for (i, name) in items(rule, "resourceNames").enumerate() {
        let (at, text) = (path.child("resourceNames").index(i), name.as_str().unwrap_or(""));
        path_segment(text).iter().for_each(|e| errors.invalid(&at, name, e));
        if !seen.insert(text) {
            errors.duplicate(&at, name);
        }
    }
}

/// `validateRuleWithOperations`, of a list of rules.
pub(super) fn check(holder: &Value, list: &str, path: &FieldPath, errors: &mut FieldErrors) {
    for (i, rule) in items(holder, list).enumerate() {
        one(rule, &path.child(list).index(i), errors);
    }
}

fn one(rule: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    for (field, what) in [("operations", "operations"), ("apiGroups", "API groups"), ("apiVersions", "API versions")] {
        let at = path.child(field);
        if items(rule, field).next().is_none() {
            errors.required(&at, "");
        }
        if items(rule, field).count() > 1 && items(rule, field).any(|v| v == "*") {
            errors.invalid(&at, &rule[field], &format!("if '*' is present, must not specify other {what}"));
        }
    }
    for (i, _) in items(rule, "apiVersions").enumerate().filter(|(_, version)| *version == "") {
        errors.required(&path.child("apiVersions").index(i), "");
    }
    let operations = ["*", "CONNECT", "CREATE", "DELETE", "UPDATE"];
    for (j, operation) in items(rule, "operations").enumerate() {
        if !operation.as_str().is_some_and(|o| operations.contains(&o)) {
            errors.not_supported(&path.child("operations").index(j), operation, &operations);
        }
    }
    resources(rule, &path.child("resources"), errors);
    let scopes = ["*", "Cluster", "Namespaced"];
    if !scopes.contains(&text(rule, "scope")) {
        errors.not_supported(&path.child("scope"), &rule["scope"], &scopes);
    }
}

/// `validateResources`: `pods`, `pods/status`, `pods/*`, `*/status`, `*`, `*/*`.
fn resources(rule: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    let list = &rule["resources"];
    let all: Vec<&str> = items(rule, "resources").map(|r| r.as_str().unwrap_or("")).collect();
    if all.is_empty() {
        errors.required(path, "");
    }
    let (mut of_resource, mut of_subresource) = (BTreeSet::new(), BTreeSet::new());
    for (i, name) in all.iter().enumerate() {
        let (at, value) = (path.index(i), &list[i]);
        if name.is_empty() {
            errors.required(&at, "");
            continue;
        }
        let Some((resource, subresource)) = name.split_once('/') else { continue };
        if of_resource.contains(resource) {
            errors.invalid(&at, value, &format!("if '{resource}/*' is present, must not specify {name}"));
        }
        if of_subresource.contains(subresource) {
            errors.invalid(&at, value, &format!("if '*/{subresource}' is present, must not specify {name}"));
        }
        if subresource == "*" {
            of_resource.insert(resource);
        }
        if resource == "*" {
            of_subresource.insert(subresource);
        }
    }
    if all.len() > 1 && all.contains(&"*/*") {
        errors.invalid(path, list, "if '*/*' is present, must not specify other resources");
    }
    let is_whole = |name: &&str| !name.is_empty() && !name.contains('/');
    // As upstream, which remembers the last of them only.
    if all.contains(&"*") && all.iter().rfind(|name| is_whole(name)).is_some_and(|name| *name != "*") {
        errors.invalid(path, list, "if '*' is present, must not specify other resources without subresources");
    }
}
