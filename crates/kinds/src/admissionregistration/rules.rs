//! Validation of rules and match constraints (`pkg/apis/admissionregistration/validation`).

use crate::{
    FieldErrors, FieldPath, enums,
    field_validation::{items, text},
    selector, validate_path_segment_name,
};
use serde_json::Value;
use std::collections::BTreeSet;

/// Validates the match constraints of a policy or binding (`validateMatchResources`).
pub(super) fn validate_match_resources(constraints: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    match text(constraints, "matchPolicy") {
        "" => errors.required(&path.child("matchPolicy"), ""),
        other if !enums::MATCH_POLICIES.contains(&other) => {
            errors.not_supported(&path.child("matchPolicy"), &constraints["matchPolicy"], enums::MATCH_POLICIES);
        }
        _ => {}
    }
    for list in ["namespaceSelector", "objectSelector"] {
        selector::validate(&constraints[list], &path.child(list), errors);
    }
    for list in ["resourceRules", "excludeResourceRules"] {
        for (i, rule) in items(constraints, list).enumerate() {
            validate_resource_names(rule, &path.child(list).index(i), errors);
        }
        validate_rules(constraints, list, path, errors);
    }
}

fn validate_resource_names(rule: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    let mut seen = BTreeSet::new();
    for (i, name) in items(rule, "resourceNames").enumerate() {
        let (at, text) = (path.child("resourceNames").index(i), name.as_str().unwrap_or(""));
        validate_path_segment_name(text).iter().for_each(|e| errors.invalid(&at, name, e));
        if !seen.insert(text) {
            errors.duplicate(&at, name);
        }
    }
}

/// Validates a list of rules (`validateRuleWithOperations`).
pub(super) fn validate_rules(holder: &Value, list: &str, path: &FieldPath, errors: &mut FieldErrors) {
    for (i, rule) in items(holder, list).enumerate() {
        validate_rule(rule, &path.child(list).index(i), errors);
    }
}

fn validate_rule(rule: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    for (field, plural) in [("operations", "operations"), ("apiGroups", "API groups"), ("apiVersions", "API versions")]
    {
        let at = path.child(field);
        if items(rule, field).next().is_none() {
            errors.required(&at, "");
        }
        if items(rule, field).count() > 1 && items(rule, field).any(|v| v == "*") {
            errors.invalid(&at, &rule[field], &format!("if '*' is present, must not specify other {plural}"));
        }
    }
    for (i, _) in items(rule, "apiVersions").enumerate().filter(|(_, version)| *version == "") {
        errors.required(&path.child("apiVersions").index(i), "");
    }
    for (j, operation) in items(rule, "operations").enumerate() {
        if !operation.as_str().is_some_and(|o| enums::OPERATIONS.contains(&o)) {
            errors.not_supported(&path.child("operations").index(j), operation, enums::OPERATIONS);
        }
    }
    validate_resources(rule, &path.child("resources"), errors);
    if !enums::SCOPES.contains(&text(rule, "scope")) {
        errors.not_supported(&path.child("scope"), &rule["scope"], enums::SCOPES);
    }
}

/// Validates resources such as `pods`, `pods/status`, `pods/*`, `*/status`, `*` and `*/*` (`validateResources`).
fn validate_resources(rule: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    let list = &rule["resources"];
    let all: Vec<&str> = items(rule, "resources").map(|r| r.as_str().unwrap_or("")).collect();
    if all.is_empty() {
        errors.required(path, "");
    }
    let (mut wildcard_resources, mut wildcard_subresources) = (BTreeSet::new(), BTreeSet::new());
    for (i, name) in all.iter().enumerate() {
        let (at, value) = (path.index(i), &list[i]);
        if name.is_empty() {
            errors.required(&at, "");
            continue;
        }
        let Some((resource, subresource)) = name.split_once('/') else { continue };
        if wildcard_resources.contains(resource) {
            errors.invalid(&at, value, &format!("if '{resource}/*' is present, must not specify {name}"));
        }
        if wildcard_subresources.contains(subresource) {
            errors.invalid(&at, value, &format!("if '*/{subresource}' is present, must not specify {name}"));
        }
        if subresource == "*" {
            wildcard_resources.insert(resource);
        }
        if resource == "*" {
            wildcard_subresources.insert(subresource);
        }
    }
    if all.len() > 1 && all.contains(&"*/*") {
        errors.invalid(path, list, "if '*/*' is present, must not specify other resources");
    }
    let is_whole = |name: &&str| !name.is_empty() && !name.contains('/');
    // Like upstream, which checks the last resource without a subresource only.
    if all.contains(&"*") && all.iter().rfind(|name| is_whole(name)).is_some_and(|name| *name != "*") {
        errors.invalid(path, list, "if '*' is present, must not specify other resources without subresources");
    }
}
