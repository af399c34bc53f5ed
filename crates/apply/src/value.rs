//! JSON values as fields of a set: their order, their equality, and how messages show them.

use serde_json::{Map, Value};
use std::cmp::Ordering;

/// Which kind of value comes first.
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

/// A total order of all values; a number is the same whether it was written as `1` or `1.0`.
pub(crate) fn order(left: &Value, right: &Value) -> Ordering {
    match (left, right) {
        (Value::Number(l), Value::Number(r)) => match (l.as_i64(), r.as_i64()) {
            (Some(l), Some(r)) => l.cmp(&r),
            _ => l.as_f64().unwrap_or(f64::MAX).total_cmp(&r.as_f64().unwrap_or(f64::MAX)),
        },
        (Value::String(l), Value::String(r)) => l.cmp(r),
        (Value::Bool(l), Value::Bool(r)) => l.cmp(r),
        (Value::Array(l), Value::Array(r)) => in_turn(l.iter().zip(r).map(|(l, r)| order(l, r)), l.len(), r.len()),
        (Value::Object(l), Value::Object(r)) => {
            let pairs = l.iter().zip(r).map(|((lk, l), (rk, r))| lk.cmp(rk).then_with(|| order(l, r)));
            in_turn(pairs, l.len(), r.len())
        }
        _ => rank(left).cmp(&rank(right)),
    }
}

/// The first difference; without one, the shorter comes first.
pub(crate) fn in_turn(mut parts: impl Iterator<Item = Ordering>, left: usize, right: usize) -> Ordering {
    parts.find(|o| o.is_ne()).unwrap_or_else(|| left.cmp(&right))
}

/// Whether two values say the same.
pub(crate) fn equal(left: &Value, right: &Value) -> bool {
    // What is equal to the letter, as most is, needs no second look.
    left == right || order(left, right).is_eq()
}

/// As messages show it: strings are quoted, as Go's `%q` does.
pub(crate) fn show(value: &Value) -> String {
    match value {
        Value::String(text) => quote(text),
        Value::Array(items) => format!("[{}]", items.iter().map(show).collect::<Vec<_>>().join(",")),
        Value::Object(map) => map.iter().map(|(k, v)| format!("{k}={}", show(v))).collect(),
        other => other.to_string(),
    }
}

/// A string in quotes.
pub(crate) fn quote(text: &str) -> String {
    Value::from(text).to_string()
}

/// Whether there is nothing to own below it: no value, null, or an empty map.
pub(crate) fn is_empty_map(value: &Value) -> bool {
    value.as_object().is_some_and(Map::is_empty)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn every_two_values_have_an_order() {
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
