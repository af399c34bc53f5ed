//! Decoding of scalar values, normalized to Go's encoding.

use crate::protobuf::message_table::ValueType;
use api::{
    quantity::{QuantityError, normalize_quantity, round_up_to_milli},
    rfc3339::{self, ParseTimeError, Precision},
};
use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::Value;

/// Error of a value.
pub(super) enum ValueError {
    /// The value has the wrong type.
    Type,
    /// A number is out of the type's range.
    Number,
    /// The value is invalid.
    Value(InvalidValue),
}

/// Invalid value of the right type, with Go's message.
#[derive(Debug, Clone, thiserror::Error)]
pub enum InvalidValue {
    #[error("illegal base64 data at input byte {0}")]
    Base64(usize),
    #[error(transparent)]
    Time(#[from] ParseTimeError),
    #[error(transparent)]
    Quantity(#[from] QuantityError),
}

/// Normalizes a value to Go's encoding. Null is the zero value of its type.
pub(super) fn normalize(value_type: ValueType, value: &mut Value) -> Result<(), ValueError> {
    if let Some(normalized) = normalized(value_type, value)? {
        *value = normalized;
    }
    Ok(())
}

/// Returns Go's encoding of a value; `None` when it is unchanged.
fn normalized(value_type: ValueType, value: &Value) -> Result<Option<Value>, ValueError> {
    let if_changed = |normalized: Value| (normalized != *value).then_some(normalized);
    match (value_type, value) {
        (ValueType::Bytes, _) => bytes(value).map(if_changed),
        (ValueType::Time | ValueType::MicroTime, _) => time(value_type, value).map(if_changed),
        (ValueType::Quantity, _) => quantity(value).map(if_changed),
        (ValueType::String, Value::Null) => Ok(Some(Value::from(""))),
        (ValueType::Bool, Value::Null) => Ok(Some(Value::from(false))),
        (ValueType::Int32 | ValueType::Int64 | ValueType::IntOrString | ValueType::Double, Value::Null) => {
            Ok(Some(Value::from(0)))
        }
        (ValueType::Int32 | ValueType::IntOrString, Value::Number(number)) => {
            let fits = number.as_i64().is_some_and(|n| i32::try_from(n).is_ok());
            if fits { Ok(None) } else { Err(ValueError::Number) }
        }
        (ValueType::Int64, Value::Number(number)) => number.as_i64().map(|_| None).ok_or(ValueError::Number),
        (ValueType::Strings, Value::Array(items)) if !items.iter().all(Value::is_string) => Err(ValueError::Type),
        // Objects with a Duration are never stored.
        (ValueType::String | ValueType::IntOrString | ValueType::Duration, Value::String(_))
        | (ValueType::Bool, Value::Bool(_))
        | (ValueType::Double, Value::Number(_))
        | (ValueType::Strings, Value::Null | Value::Array(_))
        | (ValueType::Raw | ValueType::Json | ValueType::Message(_) | ValueType::BoolOr(_) | ValueType::ListOr(_), _) => {
            Ok(None)
        }
        _ => Err(ValueError::Type),
    }
}

fn text(value: &Value) -> Result<&str, ValueError> {
    match value {
        Value::Null => Ok(""),
        Value::String(text) => Ok(text),
        _ => Err(ValueError::Type),
    }
}

fn bytes(value: &Value) -> Result<Value, ValueError> {
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
            Err(ValueError::Value(InvalidValue::Base64(at)))
        }
    }
}

fn time(value_type: ValueType, value: &Value) -> Result<Value, ValueError> {
    let text = match value {
        Value::Null => return Ok(Value::Null),
        Value::String(text) => text,
        _ => return Err(ValueError::Type),
    };
    let precision = if value_type == ValueType::Time { Precision::Seconds } else { Precision::Microseconds };
    let stamp = rfc3339::parse(text, precision).map_err(|error| ValueError::Value(error.into()))?;
    let stamp = if value_type == ValueType::Time { format!("{stamp:.0}") } else { format!("{stamp:.6}") };
    Ok(Value::from(stamp))
}

fn quantity(value: &Value) -> Result<Value, ValueError> {
    let text = match value {
        Value::String(text) => text.trim().to_owned(),
        Value::Number(number) => number.to_string(),
        Value::Null => "0".to_owned(),
        _ => return Err(ValueError::Type),
    };
    normalize_quantity(&text).map(Value::from).map_err(|error| ValueError::Value(error.into()))
}

/// Rounds a quantity of a `ResourceList` up to a thousandth (upstream's `SetDefaults_ResourceList`).
pub(super) fn round_resource_list_quantity(value: &mut Value) {
    if let Some(text) = value.as_str().and_then(round_up_to_milli) {
        *value = Value::from(text);
    }
}
