//! Validation of a Job's Pod failure policy, success policy and Pod replacement policy.

use super::indexes;
use crate::{FieldErrors, enums, field_cursor::FieldCursor};
use std::collections::BTreeSet;

/// Maximum number of rules of a policy, and of Pod conditions of a rule.
const MAX_RULES: usize = 20;
/// Maximum number of exit codes of a rule.
const MAX_EXIT_CODES: usize = 255;
/// Maximum length of a rule's `succeededIndexes` in bytes.
const MAX_INDEXES_LENGTH: usize = 64 * 1024;

pub(super) fn validate_policies(spec: &FieldCursor<'_, '_>, errors: &mut FieldErrors) {
    let (failure, success, replacement) =
        (spec.at("podFailurePolicy"), spec.at("successPolicy"), spec.at("podReplacementPolicy"));
    if failure.is_set() {
        validate_pod_failure_policy(spec, errors);
    }
    if success.is_set() {
        if spec.at("completionMode").text() == "Indexed" {
            let completions = spec.at("completions").integer().unwrap_or(0);
            validate_success_policy(&success.at("rules"), completions, errors);
        } else {
            success.invalid("requires indexed completion mode", errors);
        }
    }
    let allowed: &[&str] = if failure.is_null() { enums::POD_REPLACEMENT_POLICIES } else { &["Failed"] };
    if replacement.is_set() {
        replacement.supported(allowed, errors);
    }
}

/// Validates the Pod failure policy (`validatePodFailurePolicy`).
fn validate_pod_failure_policy(spec: &FieldCursor<'_, '_>, errors: &mut FieldErrors) {
    let (policy, template) = (spec.at("podFailurePolicy"), spec.at("template"));
    let (rules, pod_spec) = (policy.at("rules"), template.at("spec"));
    validate_max_items(&rules, MAX_RULES, errors);
    let mut containers = BTreeSet::new();
    for list in [pod_spec.at("containers"), pod_spec.at("initContainers")] {
        containers.extend(list.items().map(|container| container.at("name").text()));
    }
    for rule in rules.items() {
        let (action, codes, conditions) = (rule.at("action"), rule.at("onExitCodes"), rule.at("onPodConditions"));
        if action.text() == "FailIndex" && spec.at("backoffLimitPerIndex").is_null() {
            action.invalid("requires the backoffLimitPerIndex to be set", errors);
        }
        validate_required_enum(&action, enums::POD_FAILURE_POLICY_ACTIONS, errors);
        if codes.is_set() {
            validate_exit_codes(&codes, &containers, errors);
        }
        validate_pod_conditions(&conditions, errors);
        match (codes.is_null(), conditions.count() == 0) {
            (false, false) => {
                let detail = "specifying both OnExitCodes and OnPodConditions is not supported";
                rule.invalid_without_value(detail, errors);
            }
            (true, true) => {
                rule.invalid_without_value("specifying one of OnExitCodes and OnPodConditions is required", errors);
            }
            _ => {}
        }
    }
}

fn validate_exit_codes(rule: &FieldCursor<'_, '_>, containers: &BTreeSet<&str>, errors: &mut FieldErrors) {
    let (operator, container, values) = (rule.at("operator"), rule.at("containerName"), rule.at("values"));
    validate_required_enum(&operator, enums::EXIT_CODES_OPERATORS, errors);
    if container.is_set() && !containers.contains(container.text()) {
        container.invalid("must be one of the container or initContainer names in the pod template", errors);
    }
    if values.count() == 0 {
        values.invalid("at least one value is required", errors);
    }
    validate_max_items(&values, MAX_EXIT_CODES, errors);
    let mut seen = BTreeSet::new();
    for code in values.items() {
        if code.integer() == Some(0) && operator.text() == "In" {
            code.invalid("must not be 0 for the In operator", errors);
        }
        if !seen.insert(code.integer()) {
            code.duplicate(errors);
        }
    }
    if !values.items().map(|code| code.integer()).is_sorted() {
        values.invalid("must be ordered", errors);
    }
}

fn validate_pod_conditions(conditions: &FieldCursor<'_, '_>, errors: &mut FieldErrors) {
    validate_max_items(conditions, MAX_RULES, errors);
    for pattern in conditions.items() {
        pattern.at("type").validate_text(api::names::qualified_name, errors);
        validate_required_enum(&pattern.at("status"), &["False", "True", "Unknown"], errors);
    }
}

/// Validates the rules of a success policy (`validateSuccessPolicy`).
fn validate_success_policy(rules: &FieldCursor<'_, '_>, completions: i64, errors: &mut FieldErrors) {
    if rules.count() == 0 {
        rules.required("at least one rules must be specified when the successPolicy is specified", errors);
    }
    validate_max_items(rules, MAX_RULES, errors);
    for rule in rules.items() {
        let (succeeded, count) = (rule.at("succeededIndexes"), rule.at("succeededCount"));
        if succeeded.is_null() && count.is_null() {
            rule.required("at least one of succeededCount or succeededIndexes must be specified", errors);
        }
        let mut index_count = 0;
        if succeeded.is_set() {
            if succeeded.text().len() > MAX_INDEXES_LENGTH {
                succeeded.too_long(MAX_INDEXES_LENGTH, errors);
            }
            match indexes::count_indexes(succeeded.text(), completions) {
                Ok(count) => index_count = count,
                Err(error) => succeeded.invalid(&format!("error parsing succeededIndexes: {error}"), errors),
            }
        }
        count.nonnegative(errors);
        let bounds = [
            (Some(completions), "the number of specified completions"),
            (
                succeeded.is_set().then_some(index_count),
                "the number of indexes in the specified succeededIndexes field",
            ),
        ];
        for (max, message) in bounds {
            if let (Some(number), Some(max)) = (count.integer(), max)
                && number > max
            {
                count.invalid(&format!("must be less than or equal to {max} ({message})"), errors);
            }
        }
    }
}

fn validate_max_items(list: &FieldCursor<'_, '_>, max: usize, errors: &mut FieldErrors) {
    if list.count() > max {
        list.too_many(max, errors);
    }
}

/// Validates a required enumeration value, with the message that only Jobs have.
fn validate_required_enum(field: &FieldCursor<'_, '_>, allowed: &[&str], errors: &mut FieldErrors) {
    if field.text().is_empty() {
        let all: Vec<String> = allowed.iter().map(|a| format!("{a:?}")).collect();
        field.required(&format!("valid values: [{}]", all.join(" ")), errors);
    } else {
        field.supported(allowed, errors);
    }
}
