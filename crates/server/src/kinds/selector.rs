//! Label selectors of objects: what they may say, what they select, and how tables show them.

use super::{FieldErrors, FieldPath, checks::items, checks::text, or_none};
use crate::object_meta;
use api::selector::Selector;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde_json::{Value, json};

/// Checks a label selector (`ValidateLabelSelector`).
pub(in crate::kinds) fn validate(selector: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    object_meta::labels(&selector["matchLabels"], &path.child("matchLabels"), errors);
    for (i, r) in items(selector, "matchExpressions").enumerate() {
        let path = path.child("matchExpressions").index(i);
        if !operator(r, &path, errors) {
            errors.invalid(&path.child("operator"), &json!(text(r, "operator")), "not a valid selector operator");
        }
        label_requirement(r, &path, errors);
    }
}

/// Checks that a requirement has values where its operator wants some; whether it is an operator at all.
pub(crate) fn operator(r: &Value, path: &FieldPath, errors: &mut FieldErrors) -> bool {
    let (at, count) = (path.child("values"), items(r, "values").count());
    match text(r, "operator") {
        "In" | "NotIn" if count == 0 => {
            errors.required(&at, "must be specified when `operator` is 'In' or 'NotIn'");
        }
        "Exists" | "DoesNotExist" if count > 0 => {
            errors.forbidden(&at, "may not be specified when `operator` is 'Exists' or 'DoesNotExist'");
        }
        "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
        _ => return false,
    }
    true
}

/// Checks the label and its values that a requirement speaks of.
pub(crate) fn label_requirement(r: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    let wrong = api::names::qualified_name(text(r, "key"));
    wrong.iter().for_each(|e| errors.invalid(&path.child("key"), &r["key"], e));
    for (j, value) in items(r, "values").enumerate() {
        let wrong = api::names::label_value(value.as_str().unwrap_or(""));
        wrong.iter().for_each(|e| errors.invalid(&path.child("values").index(j), value, e));
    }
}

/// Whether the selector speaks of this label.
pub(in crate::kinds) fn names(selector: &Value, key: &Value) -> bool {
    let label = key.as_str().is_some_and(|key| selector["matchLabels"].get(key).is_some());
    label || items(selector, "matchExpressions").any(|r| r["key"] == *key)
}

/// Whether a selector selects everything, since it says nothing.
pub(in crate::kinds) fn is_empty(selector: &Value) -> bool {
    selector["matchLabels"].as_object().is_none_or(serde_json::Map::is_empty)
        && items(selector, "matchExpressions").next().is_none()
}

/// Whether a selector selects what has these labels; none at all selects nothing, and an empty one everything. `None`
/// when it makes no sense.
pub(crate) fn selects(selector: &Value, labels: &Value) -> Option<bool> {
    if selector.is_null() {
        return Some(false);
    }
    let lacks_values = |r: &Value| matches!(text(r, "operator"), "In" | "NotIn") && items(r, "values").next().is_none();
    if items(selector, "matchExpressions").any(lacks_values) {
        return None;
    }
    let typed: LabelSelector = serde_json::from_value(selector.clone()).ok()?;
    let selector = Selector::from_object(&typed).ok()?;
    Some(selector.matches(|key| labels.get(key).and_then(Value::as_str)))
}

/// Labels as tables show them.
pub(in crate::kinds) fn labels(labels: &Value) -> Value {
    or_none(&pairs(labels).join(","))
}

/// A selector as tables show it.
pub(in crate::kinds) fn shown(selector: &Value) -> Value {
    or_none(&as_text(selector))
}

/// A selector in the form of query parameters, ordered by its keys; empty when it says nothing.
pub(crate) fn as_text(selector: &Value) -> String {
    let labels = selector["matchLabels"].as_object().into_iter().flatten();
    let labels = labels.map(|(key, value)| (key.as_str(), value.as_str().unwrap_or("")));
    let expressions = items(selector, "matchExpressions").map(|one| {
        let values = items(one, "values").filter_map(Value::as_str).collect();
        (text(one, "key"), text(one, "operator"), values)
    });
    // Validation lets no other operators in.
    api::selector::text(labels, expressions).unwrap_or_default()
}

/// Plain labels in the form of query parameters.
pub(crate) fn labels_as_text(labels: &Value) -> String {
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

    #[test]
    fn a_selector_is_shown_as_a_query_says_it() {
        let check = |selector: Value, expected: &str| assert_eq!(shown(&selector), expected);
        check(json!({}), "<none>");
        check(json!({"matchLabels": {"b": "1", "a": "2"}}), "a=2,b=1");
        let of = |key: &str, operator: &str, values: Value| json!({"key": key, "operator": operator, "values": values});
        check(
            json!({"matchLabels": {"m": "1"}, "matchExpressions": [
                of("z", "In", json!(["b", "a"])), of("a", "NotIn", json!(["x"])), of("k", "Exists", json!([])), of("l", "DoesNotExist", json!([])),
            ]}),
            "a notin (x),k,!l,m=1,z in (a,b)",
        );
    }
}
