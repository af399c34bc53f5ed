//! Conditions (`metav1.Condition`): validation, and updates of a status.

use super::{FieldErrors, field_cursor::FieldCursor};
use serde_json::{Value, json};
use std::collections::BTreeSet;

const MAX_REASON_LENGTH: usize = 1024;
const MAX_MESSAGE_LENGTH: usize = 32 * 1024;
const REASON_FORMAT_ERROR: &str = "a condition reason must start with alphabetic character, optionally followed by a string of alphanumeric characters or '_,:', and must end with an alphanumeric character or '_' (e.g. 'my_name',  or 'MY_NAME',  or 'MyName',  or 'ReasonA,ReasonB',  or 'ReasonA:ReasonB', regex used for validation is '[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?')";

/// Validates the conditions of a status (apimachinery's `ValidateConditions`).
pub(super) fn validate(conditions: &FieldCursor<'_, '_>, errors: &mut FieldErrors) {
    let mut seen = BTreeSet::new();
    for condition in conditions.items() {
        let condition_type = condition.at("type");
        if !seen.insert(condition_type.text()) {
            condition_type.duplicate(errors);
        }
        self::validate_condition(&condition, errors);
    }
}

fn validate_condition(condition: &FieldCursor<'_, '_>, errors: &mut FieldErrors) {
    condition.at("type").validate_text(api::names::qualified_name, errors);
    condition.at("status").supported(&["False", "True", "Unknown"], errors);
    let (generation, time) = (condition.at("observedGeneration"), condition.at("lastTransitionTime"));
    if generation.integer().is_some_and(|n| n < 0) {
        generation.invalid("must be greater than or equal to zero", errors);
    }
    if matches!(time.text(), "" | "0001-01-01T00:00:00Z") {
        time.required("must be set", errors);
    }
    let (reason, message) = (condition.at("reason"), condition.at("message"));
    if reason.text().is_empty() {
        reason.required("must be set", errors);
    } else {
        if !is_valid_reason(reason.text()) {
            reason.invalid(REASON_FORMAT_ERROR, errors);
        }
        if reason.text().len() > MAX_REASON_LENGTH {
            reason.too_long(MAX_REASON_LENGTH, errors);
        }
    }
    if message.text().len() > MAX_MESSAGE_LENGTH {
        message.too_long(MAX_MESSAGE_LENGTH, errors);
    }
}

fn is_valid_reason(text: &str) -> bool {
    let is_word_char = |c: char| c.is_ascii_alphanumeric() || c == '_';
    text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text.ends_with(is_word_char)
        && text.chars().all(|c| is_word_char(c) || c == ',' || c == ':')
}

/// Sets a condition. `lastTransitionTime` changes with the status only, and is always set, so that setting a condition
/// twice changes nothing.
pub fn set_condition(
    status: &mut Value,
    condition: &str,
    value: &str,
    reason: &str,
    message: &str,
    now: jiff::Timestamp,
) {
    if !status["conditions"].is_array() {
        status["conditions"] = json!([]);
    }
    let Some(conditions) = status["conditions"].as_array_mut() else { return };
    let mut new = json!({
        "type": condition, "status": value, "reason": reason, "message": message, "lastTransitionTime": now,
    });
    match conditions.iter_mut().find(|c| c["type"] == condition) {
        None => conditions.push(new),
        Some(old) => {
            if old["status"] == value && old["lastTransitionTime"].is_string() {
                new["lastTransitionTime"] = old["lastTransitionTime"].clone();
            }
            *old = new;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn validate_status(object: &Value, errors: &mut FieldErrors) {
        validate(&FieldCursor::object(object).at("status").at("conditions"), errors);
    }

    #[track_caller]
    fn check(change: Value, expected: &[&str]) {
        let mut condition = json!({"type": "DisruptionAllowed", "status": "True", "reason": "InsufficientPods",
            "message": "", "lastTransitionTime": "2026-11-23T10:00:00Z"});
        condition.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        let mut errors = FieldErrors::default();
        validate_status(&json!({"status": {"conditions": [condition]}}), &mut errors);
        let messages = errors.0.iter().map(|e| e.to_string().trim_start_matches("status.conditions[0].").to_owned());
        assert_eq!(messages.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn condition_fields_are_validated() {
        check(json!({}), &[]);
        check(json!({"reason": "A,B:c_"}), &[]);
        check(
            json!({"status": "true"}),
            &[r#"status: Unsupported value: "true": supported values: "False", "True", "Unknown""#],
        );
        check(
            json!({"observedGeneration": -1}),
            &["observedGeneration: Invalid value: -1: must be greater than or equal to zero"],
        );
        for absent in [json!(null), json!("0001-01-01T00:00:00Z")] {
            check(json!({"lastTransitionTime": absent}), &["lastTransitionTime: Required value: must be set"]);
        }
        check(json!({"reason": ""}), &["reason: Required value: must be set"]);
        check(json!({"reason": "a b"}), &[&format!("reason: Invalid value: \"a b\": {REASON_FORMAT_ERROR}")]);
        check(json!({"message": "m".repeat(32_769)}), &["message: Too long: may not be more than 32768 bytes"]);
    }

    #[test]
    fn duplicate_condition_type_is_rejected() {
        let one = json!({"type": "A", "status": "True", "reason": "R", "lastTransitionTime": "2026-11-23T10:00:00Z"});
        let mut errors = FieldErrors::default();
        validate_status(&json!({"status": {"conditions": [one.clone(), one]}}), &mut errors);
        assert_eq!(
            errors.0.iter().map(ToString::to_string).collect::<Vec<_>>(),
            [r#"status.conditions[1].type: Duplicate value: "A""#,]
        );
    }
}
