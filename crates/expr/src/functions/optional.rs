//! Optional values.

use crate::{EvalError, Value, eval::Outcome};

/// Creates an optional value.
pub(super) fn create(name: &str, args: &[Value]) -> Outcome {
    match (name, args) {
        ("none", []) => Ok(Value::Optional(None)),
        ("of", [value]) => Ok(Value::some(value.clone())),
        ("ofNonZeroValue", [value]) => {
            Ok(if is_zero(value) { Value::Optional(None) } else { Value::some(value.clone()) })
        }
        _ => Err(EvalError::overload()),
    }
}

fn is_zero(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) | Value::Int(0) | Value::Uint(0) | Value::Optional(None) => true,
        Value::Double(d) => *d == 0.0,
        Value::String(text) => text.is_empty(),
        Value::Bytes(bytes) => bytes.is_empty(),
        Value::List(items) => items.is_empty(),
        Value::Map(map) => map.is_empty(),
        Value::Duration(duration) => duration.is_zero(),
        _ => false,
    }
}

/// Calls a method of an optional value.
pub(super) fn call_method(name: &str, inner_value: Option<&Value>, args: &[Value]) -> Outcome {
    match (name, inner_value, args) {
        ("hasValue", inner_value, []) => Ok(Value::Bool(inner_value.is_some())),
        ("value", Some(value), []) | ("orValue", Some(value), [_]) => Ok(value.clone()),
        ("value", None, []) => Err(EvalError::new("optional.none() dereference")),
        ("or", Some(value), [_]) => Ok(Value::some(value.clone())),
        ("or" | "orValue", None, [other]) => Ok(other.clone()),
        _ => Err(EvalError::overload()),
    }
}
