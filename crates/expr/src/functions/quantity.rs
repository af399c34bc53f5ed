//! Quantity library (`apiserver/pkg/cel/library/quantity.go`).

use crate::{EvalError, Value, eval::Outcome};
use api::quantity::Amount;

/// Calls a function that creates or validates a quantity.
pub(super) fn create(name: &str, args: &[Value]) -> Option<Outcome> {
    Some(match (name, args) {
        ("quantity", [Value::String(text)]) => {
            Amount::parse(text).map(Value::Quantity).map_err(|e| EvalError::new(e.to_string()))
        }
        ("isQuantity", [Value::String(text)]) => Ok(Value::Bool(Amount::parse(text).is_ok())),
        _ => return None,
    })
}

/// Calls a method of a quantity.
pub(super) fn call_method(name: &str, amount: Amount, args: &[Value]) -> Outcome {
    let other = match args {
        [Value::Quantity(other)] => Some(*other),
        [Value::Int(units)] => Some(Amount::units(*units)),
        _ => None,
    };
    let whole = Amount::units(amount.value()) == amount;
    Ok(match (name, other) {
        ("isInteger", None) => Value::Bool(whole),
        ("asInteger", None) if whole => Value::Int(amount.value()),
        ("asInteger", None) => return Err(EvalError::new("cannot convert value to integer")),
        #[expect(clippy::cast_precision_loss, reason = "it is approximate")]
        ("asApproximateFloat", None) => Value::Double(amount.milli() as f64 / 1000.0),
        ("sign", None) => Value::Int(if amount.is_zero() {
            0
        } else if amount.is_negative() {
            -1
        } else {
            1
        }),
        ("add", Some(other)) => Value::Quantity(amount.saturating_add(other)),
        ("sub", Some(other)) => Value::Quantity(amount.saturating_sub(other)),
        ("isLessThan", Some(other)) => Value::Bool(amount < other),
        ("isGreaterThan", Some(other)) => Value::Bool(amount > other),
        ("compareTo", Some(other)) => Value::Int(amount.cmp(&other) as i64),
        _ => return Err(EvalError::overload()),
    })
}
