//! Ordering, equality and formatting of JSON values.

use serde_json::{Map, Value};
use std::cmp::Ordering;

/// Returns the rank of a value's type in the order.
fn rank(value: &Value) -> u8 {
    match value {
        Value::Number(_) => 0,
        Value::String(_) => 1,
        Value::Bool(_) => 2,
        Value::Array(_) => 3,
        Value::Object(_) => 4,
        Value::Null => 5,
    }
}

/// Compares two values in a total order (`value.Compare`); the numbers `1` and `1.0` are equal.
pub(crate) fn order(left: &Value, right: &Value) -> Ordering {
    match (left, right) {
        (Value::Number(l), Value::Number(r)) => match (l.as_i64(), r.as_i64()) {
            (Some(l), Some(r)) => l.cmp(&r),
            _ => l.as_f64().unwrap_or(f64::MAX).total_cmp(&r.as_f64().unwrap_or(f64::MAX)),
        },
        (Value::String(l), Value::String(r)) => l.cmp(r),
        (Value::Bool(l), Value::Bool(r)) => l.cmp(r),
        (Value::Array(l), Value::Array(r)) => {
            lexicographic_order(l.iter().zip(r).map(|(l, r)| order(l, r)), l.len(), r.len())
        }
        (Value::Object(l), Value::Object(r)) => {
            let pairs = l.iter().zip(r).map(|((lk, l), (rk, r))| lk.cmp(rk).then_with(|| order(l, r)));
            lexicographic_order(pairs, l.len(), r.len())
        }
        _ => rank(left).cmp(&rank(right)),
    }
}

/// Returns the first difference of two sequences; without one, the shorter sequence is less.
pub(crate) fn lexicographic_order(mut parts: impl Iterator<Item = Ordering>, left: usize, right: usize) -> Ordering {
    parts.find(|o| o.is_ne()).unwrap_or_else(|| left.cmp(&right))
}

/// Returns whether two values are equal (`value.Equals`).
pub(crate) fn equal(left: &Value, right: &Value) -> bool {
    // Most values are identical.
    left == right || order(left, right).is_eq()
}

/// Formats a value for messages; strings are quoted as Go's `%q`.
pub(crate) fn format_value(value: &Value) -> String {
    match value {
        Value::String(text) => quote(text),
        Value::Array(items) => format!("[{}]", items.iter().map(format_value).collect::<Vec<_>>().join(",")),
        Value::Object(map) => map.iter().map(|(k, v)| format!("{k}={}", format_value(v))).collect(),
        other => other.to_string(),
    }
}

/// Quotes a string.
pub(crate) fn quote(text: &str) -> String {
    Value::from(text).to_string()
}

/// Returns whether a value is an empty map.
pub(crate) fn is_empty_map(value: &Value) -> bool {
    value.as_object().is_some_and(Map::is_empty)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn json_values_have_a_total_order() {
        let sorted = [
            json!(-1),
            json!(1.5),
            json!(2),
            json!("a"),
            json!("b"),
            json!(false),
            json!(true),
            json!([]),
            json!([1]),
            json!({}),
            json!({"a": 1}),
            json!(null),
        ];
        for (i, left) in sorted.iter().enumerate() {
            for (j, right) in sorted.iter().enumerate() {
                assert_eq!(order(left, right), i.cmp(&j), "{left} {right}");
            }
        }
        assert!(equal(&json!({"a": [1.0]}), &json!({"a": [1]})));
    }
}
