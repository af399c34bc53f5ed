//! Values that are no messages: checked, and in the form in which Go writes them.

use crate::protobuf::table::Kind;
use api::quantity::{Amount, canonical};
use base64::{Engine, engine::general_purpose::STANDARD};
use jiff::Timestamp;
use serde_json::Value;

/// What is wrong with a value.
pub(super) enum Wrong {
    /// Its type.
    Type,
    /// It is a number that the type cannot hold.
    Number,
    /// What it says, in upstream's words.
    Value(String),
}

/// The value as Go writes it. Null is the zero of its type.
pub(super) fn clean(kind: Kind, value: &Value) -> Result<Value, Wrong> {
    match kind {
        Kind::String => text(value).map(Value::from),
        Kind::Bool => match value {
            Value::Null => Ok(Value::from(false)),
            Value::Bool(_) => Ok(value.clone()),
            _ => Err(Wrong::Type),
        },
        Kind::Int32 => number(value).and_then(|n| i32::try_from(n).map(Value::from).map_err(|_| Wrong::Number)),
        Kind::Int64 => number(value).map(Value::from),
        Kind::Bytes => bytes(value),
        Kind::Time | Kind::MicroTime => time(kind, value),
        Kind::Quantity => quantity(value),
        Kind::IntOrString => match value {
            Value::String(_) => Ok(value.clone()),
            Value::Null => Ok(Value::from(0)),
            other => clean(Kind::Int32, other),
        },
        Kind::Strings => match value {
            Value::Null => Ok(Value::Null),
            Value::Array(items) if items.iter().all(Value::is_string) => Ok(value.clone()),
            _ => Err(Wrong::Type),
        },
        Kind::Double => match value {
            Value::Null => Ok(Value::from(0)),
            Value::Number(_) => Ok(value.clone()),
            _ => Err(Wrong::Type),
        },
        Kind::Raw | Kind::Json | Kind::Message(_) | Kind::BoolOr(_) | Kind::ListOr(_) => Ok(value.clone()),
    }
}

fn text(value: &Value) -> Result<&str, Wrong> {
    match value {
        Value::Null => Ok(""),
        Value::String(text) => Ok(text),
        _ => Err(Wrong::Type),
    }
}

fn number(value: &Value) -> Result<i64, Wrong> {
    match value {
        Value::Null => Ok(0),
        Value::Number(number) => number.as_i64().ok_or(Wrong::Number),
        _ => Err(Wrong::Type),
    }
}

fn bytes(value: &Value) -> Result<Value, Wrong> {
    // Go's decoder skips the line breaks of wrapped text.
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
    let parsed: Result<Timestamp, _> = text.parse();
    let Ok(stamp) = parsed else {
        let layout = if kind == Kind::Time { "2006-01-02T15:04:05Z07:00" } else { "2006-01-02T15:04:05.000000Z07:00" };
        return Err(Wrong::Value(format!("parsing time {text:?} as {layout:?}: cannot parse {text:?} as \"2006\"")));
    };
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
    canonical(&text).map(Value::from).map_err(|e| Wrong::Value(e.to_string()))
}

/// Upstream rounds the quantities of a `ResourceList` up to a thousandth (`SetDefaults_ResourceList`).
pub(super) fn in_list(value: Value) -> Value {
    let fine = value.as_str().filter(|s| s.ends_with(['n', 'u'])).and_then(|text| Amount::parse(text).ok());
    fine.map_or(value, |amount| Value::from(Amount::milli_units(amount.milli()).to_string()))
}
