//! Decoding of values that are not messages, in the form in which Go encodes them.

use crate::protobuf::table::Kind;
use api::quantity::{normalize_quantity, round_up_to_milli};
use api::rfc3339::{self, Precision};
use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::Value;

/// Error of a value.
pub(super) enum Wrong {
    /// The value has the wrong type.
    Type,
    /// A number is out of the type's range.
    Number,
    /// Upstream's error text.
    Value(String),
}

/// Normalizes a value to Go's encoding. Null is the zero value of its type.
pub(super) fn clean(kind: Kind, value: &mut Value) -> Result<(), Wrong> {
    if let Some(clean) = instead(kind, value)? {
        *value = clean;
    }
    Ok(())
}

/// Returns Go's encoding of a value; `None` when it is unchanged.
fn instead(kind: Kind, value: &Value) -> Result<Option<Value>, Wrong> {
    let another = |clean: Value| (clean != *value).then_some(clean);
    match (kind, value) {
        (Kind::Bytes, _) => bytes(value).map(another),
        (Kind::Time | Kind::MicroTime, _) => time(kind, value).map(another),
        (Kind::Quantity, _) => quantity(value).map(another),
        (Kind::String, Value::Null) => Ok(Some(Value::from(""))),
        (Kind::Bool, Value::Null) => Ok(Some(Value::from(false))),
        (Kind::Int32 | Kind::Int64 | Kind::IntOrString | Kind::Double, Value::Null) => Ok(Some(Value::from(0))),
        (Kind::Int32 | Kind::IntOrString, Value::Number(number)) => {
            let fits = number.as_i64().is_some_and(|n| i32::try_from(n).is_ok());
            if fits { Ok(None) } else { Err(Wrong::Number) }
        }
        (Kind::Int64, Value::Number(number)) => number.as_i64().map(|_| None).ok_or(Wrong::Number),
        (Kind::Strings, Value::Array(items)) if !items.iter().all(Value::is_string) => Err(Wrong::Type),
        // Of objects that have one nothing is ever written.
        (Kind::String | Kind::IntOrString | Kind::Duration, Value::String(_))
        | (Kind::Bool, Value::Bool(_))
        | (Kind::Double, Value::Number(_))
        | (Kind::Strings, Value::Null | Value::Array(_))
        | (Kind::Raw | Kind::Json | Kind::Message(_) | Kind::BoolOr(_) | Kind::ListOr(_), _) => Ok(None),
        _ => Err(Wrong::Type),
    }
}

fn text(value: &Value) -> Result<&str, Wrong> {
    match value {
        Value::Null => Ok(""),
        Value::String(text) => Ok(text),
        _ => Err(Wrong::Type),
    }
}

fn bytes(value: &Value) -> Result<Value, Wrong> {
    // Go's base64 decoder skips line breaks.
    let text: String = text(value)?.chars().filter(|c| !matches!(c, '\r' | '\n')).collect();
    match STANDARD.decode(&text) {
        Ok(bytes) => Ok(Value::from(STANDARD.encode(bytes))),
        Err(e) => {
            let at = match e {
                base64::DecodeError::InvalidByte(at, _) | base64::DecodeError::InvalidLastSymbol { offset: at, .. } => {
                    at
                }
                base64::DecodeError::InvalidLength(_) | base64::DecodeError::InvalidPadding => text.len() / 4 * 4,
            };
            Err(Wrong::Value(format!("illegal base64 data at input byte {at}")))
        }
    }
}

fn time(kind: Kind, value: &Value) -> Result<Value, Wrong> {
    let text = match value {
        Value::Null => return Ok(Value::Null),
        Value::String(text) => text,
        _ => return Err(Wrong::Type),
    };
    let precision = if kind == Kind::Time { Precision::Seconds } else { Precision::Microseconds };
    let stamp = rfc3339::parse(text, precision).map_err(|error| Wrong::Value(error.to_string()))?;
    let stamp = if kind == Kind::Time { format!("{stamp:.0}") } else { format!("{stamp:.6}") };
    Ok(Value::from(stamp))
}

fn quantity(value: &Value) -> Result<Value, Wrong> {
    let text = match value {
        Value::String(text) => text.trim().to_owned(),
        Value::Number(number) => number.to_string(),
        Value::Null => "0".to_owned(),
        _ => return Err(Wrong::Type),
    };
    normalize_quantity(&text).map(Value::from).map_err(|e| Wrong::Value(e.to_string()))
}

/// Rounds a quantity of a `ResourceList` up to a thousandth (upstream's `SetDefaults_ResourceList`).
pub(super) fn in_list(value: &mut Value) {
    if let Some(text) = value.as_str().and_then(round_up_to_milli) {
        *value = Value::from(text);
    }
}
