//! Label selectors: validation, matching and formatting.

use super::{
    FieldErrors, FieldPath,
    field_cursor::FieldCursor,
    field_validation::{items, text},
    or_none,
};
use crate::object_meta;
use api::selector::LabelRequirements;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde_json::Value;

/// Validates a label selector (`ValidateLabelSelector`).
pub(crate) fn validate(selector: &FieldCursor<'_, '_>, errors: &mut FieldErrors) {
    object_meta::labels(&selector.at("matchLabels"), errors);
    for requirement in selector.at("matchExpressions").items() {
        let operator = requirement.at("operator");
        if !is_operator_valid(&requirement, errors) {
            operator.invalid("not a valid selector operator", errors);
        }
        validate_key_and_values(&requirement, errors);
    }
}

/// Validates the number of values of a requirement. Returns false for an unknown operator.
pub fn validate_operator(requirement: &Value, path: &FieldPath, errors: &mut FieldErrors) -> bool {
    is_operator_valid(&FieldCursor::new(requirement, path), errors)
}

fn is_operator_valid(requirement: &FieldCursor<'_, '_>, errors: &mut FieldErrors) -> bool {
    let values = requirement.at("values");
    match requirement.at("operator").text() {
        "In" | "NotIn" if values.count() == 0 => {
            values.required("must be specified when `operator` is 'In' or 'NotIn'", errors);
        }
        "Exists" | "DoesNotExist" if values.count() > 0 => {
            values.forbidden("may not be specified when `operator` is 'Exists' or 'DoesNotExist'", errors);
        }
        "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
        _ => return false,
    }
    true
}

/// Validates the key and the values of a requirement.
pub fn validate_label_requirement(requirement: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    validate_key_and_values(&FieldCursor::new(requirement, path), errors);
}

fn validate_key_and_values(requirement: &FieldCursor<'_, '_>, errors: &mut FieldErrors) {
    requirement.at("key").validate_text(api::names::qualified_name, errors);
    let values = requirement.at("values");
    values.items().for_each(|value| value.validate_text(api::names::label_value, errors));
}

/// Whether the selector has a requirement for a label key.
pub(crate) fn has_key(selector: &Value, key: &Value) -> bool {
    let label = key.as_str().is_some_and(|key| selector["matchLabels"].get(key).is_some());
    label || items(selector, "matchExpressions").any(|r| r["key"] == *key)
}

/// Whether a selector has no requirements, and so matches everything.
pub(crate) fn is_empty(selector: &Value) -> bool {
    selector["matchLabels"].as_object().is_none_or(serde_json::Map::is_empty)
        && items(selector, "matchExpressions").next().is_none()
}

/// Whether a selector matches labels. A null selector matches nothing, an empty one everything. `None` for an invalid
/// selector.
pub fn matches(selector: &Value, labels: &Value) -> Option<bool> {
    if selector.is_null() {
        return Some(false);
    }
    let lacks_values = |r: &Value| matches!(text(r, "operator"), "In" | "NotIn") && items(r, "values").next().is_none();
    if items(selector, "matchExpressions").any(lacks_values) {
        return None;
    }
    let typed: LabelSelector = serde_json::from_value(selector.clone()).ok()?;
    let selector = LabelRequirements::from_object(&typed).ok()?;
    Some(selector.matches(|key| labels.get(key).and_then(Value::as_str)))
}

/// Returns labels as a table cell.
pub(crate) fn labels_table_cell(labels: &Value) -> Value {
    or_none(&pairs(labels).join(","))
}

/// Returns a selector as a table cell.
pub(crate) fn table_cell(selector: &Value) -> Value {
    or_none(&format(selector))
}

/// Formats a selector in query syntax, ordered by keys (`FormatLabelSelector`); empty for an empty selector.
pub fn format(selector: &Value) -> String {
    let labels = selector["matchLabels"].as_object().into_iter().flatten();
    let labels = labels.map(|(key, value)| (key.as_str(), value.as_str().unwrap_or("")));
    let expressions = items(selector, "matchExpressions").map(|one| {
        let values = items(one, "values").filter_map(Value::as_str).collect();
        (text(one, "key"), text(one, "operator"), values)
    });
    // Validation rejects other operators.
    api::selector::format_label_selector(labels, expressions).unwrap_or_default()
}

/// Formats labels in query syntax.
pub fn format_labels(labels: &Value) -> String {
    pairs(labels).join(",")
}

fn pairs(labels: &Value) -> Vec<String> {
    let mut pairs: Vec<String> =
        labels.as_object().into_iter().flatten().map(|(k, v)| format!("{k}={}", v.as_str().unwrap_or(""))).collect();
    pairs.sort();
    pairs
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn selector_is_formatted_in_query_syntax() {
        let check = |selector: Value, expected: &str| assert_eq!(table_cell(&selector), expected);
        check(json!({}), "<none>");
        check(json!({"matchLabels": {"b": "1", "a": "2"}}), "a=2,b=1");
        let requirement =
            |key: &str, operator: &str, values: Value| json!({"key": key, "operator": operator, "values": values});
        check(
            json!({"matchLabels": {"m": "1"}, "matchExpressions": [
                requirement("z", "In", json!(["b", "a"])), requirement("a", "NotIn", json!(["x"])), requirement("k", "Exists", json!([])), requirement("l", "DoesNotExist", json!([])),
            ]}),
            "a notin (x),k,!l,m=1,z in (a,b)",
        );
    }
}
