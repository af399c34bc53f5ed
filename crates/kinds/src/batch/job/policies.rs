//! Validation of a Job's Pod failure policy, success policy and Pod replacement policy.

use super::indexes;
use crate::{
    FieldErrors, FieldPath, enums,
    field_validation::{
        items, push_invalid_without_value, text as text_of, validate_nonnegative, validate_qualified_name,
    },
};
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// Maximum number of rules of a policy, and of Pod conditions of a rule.
const MAX_RULES: usize = 20;
/// Maximum number of exit codes of a rule.
const MAX_EXIT_CODES: usize = 255;
/// Maximum length of a rule's `succeededIndexes` in bytes.
const MAX_INDEXES_LENGTH: usize = 64 * 1024;

pub(super) fn validate_policies(spec: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    if !spec["podFailurePolicy"].is_null() {
        validate_pod_failure_policy(spec, &path.child("podFailurePolicy").child("rules"), errors);
    }
    if !spec["successPolicy"].is_null() {
        let at = path.child("successPolicy");
        if text_of(spec, "completionMode") == "Indexed" {
            validate_success_policy(spec, &at.child("rules"), errors);
        } else {
            errors.invalid(&at, &spec["successPolicy"], "requires indexed completion mode");
        }
    }
    let (at, replacement) = (path.child("podReplacementPolicy"), &spec["podReplacementPolicy"]);
    let allowed: &[&str] =
        if spec["podFailurePolicy"].is_null() { enums::POD_REPLACEMENT_POLICIES } else { &["Failed"] };
    if !replacement.is_null() && !allowed.iter().any(|a| replacement == a) {
        errors.not_supported(&at, replacement, allowed);
    }
}

/// Validates the Pod failure policy (`validatePodFailurePolicy`).
fn validate_pod_failure_policy(spec: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    let (policy, pods) = (&spec["podFailurePolicy"], &spec["template"]["spec"]);
    validate_max_items(items(policy, "rules").count(), MAX_RULES, path, errors);
    let containers: BTreeSet<&str> =
        ["containers", "initContainers"].iter().flat_map(|l| items(pods, l)).map(|c| text_of(c, "name")).collect();
    for (i, rule) in items(policy, "rules").enumerate() {
        let path = path.index(i);
        let (at, has_index_limit) = (path.child("action"), !spec["backoffLimitPerIndex"].is_null());
        if text_of(rule, "action") == "FailIndex" && !has_index_limit {
            errors.invalid(&at, &rule["action"], "requires the backoffLimitPerIndex to be set");
        }
        validate_required_enum(&rule["action"], enums::POD_FAILURE_POLICY_ACTIONS, &at, errors);
        let (codes, conditions) = (&rule["onExitCodes"], items(rule, "onPodConditions").count());
        if !codes.is_null() {
            validate_exit_codes(codes, &path.child("onExitCodes"), &containers, errors);
        }
        validate_pod_conditions(rule, &path.child("onPodConditions"), errors);
        match (codes.is_null(), conditions == 0) {
            (false, false) => {
                push_invalid_without_value(
                    &path,
                    "specifying both OnExitCodes and OnPodConditions is not supported",
                    errors,
                );
            }
            (true, true) => {
                push_invalid_without_value(
                    &path,
                    "specifying one of OnExitCodes and OnPodConditions is required",
                    errors,
                );
            }
            _ => {}
        }
    }
}

fn validate_exit_codes(rule: &Value, path: &FieldPath, containers: &BTreeSet<&str>, errors: &mut FieldErrors) {
    validate_required_enum(&rule["operator"], enums::EXIT_CODES_OPERATORS, &path.child("operator"), errors);
    if rule["containerName"].as_str().is_some_and(|name| !containers.contains(name)) {
        let detail = "must be one of the container or initContainer names in the pod template";
        errors.invalid(&path.child("containerName"), &rule["containerName"], detail);
    }
    let (path, values) = (path.child("values"), || items(rule, "values").filter_map(Value::as_i64));
    let codes: Vec<i64> = values().collect();
    if codes.is_empty() {
        errors.invalid(&path, &rule["values"], "at least one value is required");
    }
    validate_max_items(codes.len(), MAX_EXIT_CODES, &path, errors);
    let mut seen = BTreeSet::new();
    for (i, code) in codes.iter().enumerate() {
        if *code == 0 && rule["operator"] == "In" {
            errors.invalid(&path.index(i), &json!(code), "must not be 0 for the In operator");
        }
        if !seen.insert(code) {
            errors.duplicate(&path.index(i), &json!(code));
        }
    }
    if !codes.is_sorted() {
        errors.invalid(&path, &rule["values"], "must be ordered");
    }
}

fn validate_pod_conditions(rule: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    validate_max_items(items(rule, "onPodConditions").count(), MAX_RULES, path, errors);
    for (i, pattern) in items(rule, "onPodConditions").enumerate() {
        let path = path.index(i);
        validate_qualified_name(&pattern["type"], &path.child("type"), errors);
        validate_required_enum(&pattern["status"], &["False", "True", "Unknown"], &path.child("status"), errors);
    }
}

/// Validates the success policy (`validateSuccessPolicy`).
fn validate_success_policy(spec: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    let rules = || items(&spec["successPolicy"], "rules");
    if rules().next().is_none() {
        errors.required(path, "at least one rules must be specified when the successPolicy is specified");
    }
    validate_max_items(rules().count(), MAX_RULES, path, errors);
    let completions = spec["completions"].as_i64().unwrap_or(0);
    for (i, rule) in rules().enumerate() {
        let path = path.index(i);
        let (text, count) = (rule["succeededIndexes"].as_str(), rule["succeededCount"].as_i64());
        if text.is_none() && count.is_none() {
            errors.required(&path, "at least one of succeededCount or succeededIndexes must be specified");
        }
        let mut index_count = 0;
        if let Some(text) = text {
            let at = path.child("succeededIndexes");
            if text.len() > MAX_INDEXES_LENGTH {
                errors.too_long(&at, MAX_INDEXES_LENGTH);
            }
            match indexes::count_indexes(text, completions) {
                Ok(count) => index_count = count,
                Err(error) => errors.invalid(&at, &json!(text), &format!("error parsing succeededIndexes: {error}")),
            }
        }
        validate_nonnegative(rule, "succeededCount", &path, errors);
        let at = path.child("succeededCount");
        let bounds = [
            (Some(completions), "the number of specified completions"),
            (text.map(|_| index_count), "the number of indexes in the specified succeededIndexes field"),
        ];
        for (max, message) in bounds {
            if let (Some(count), Some(max)) = (count, max)
                && count > max
            {
                errors.invalid(&at, &json!(count), &format!("must be less than or equal to {max} ({message})"));
            }
        }
    }
}

fn validate_max_items(count: usize, max: usize, path: &FieldPath, errors: &mut FieldErrors) {
    if count > max {
        errors.too_many(path, count, max);
    }
}

/// Validates a required enumeration value, with the message that only Jobs have.
fn validate_required_enum(value: &Value, allowed: &[&str], path: &FieldPath, errors: &mut FieldErrors) {
    match value.as_str().unwrap_or("") {
        "" => {
            let all: Vec<String> = allowed.iter().map(|a| format!("{a:?}")).collect();
            errors.required(path, &format!("valid values: [{}]", all.join(" ")));
        }
        text if allowed.contains(&text) => {}
        _ => errors.not_supported(path, value, allowed),
    }
}
