//! Type conversions and `size`.

use crate::{
    EvalError, Value,
    eval::Outcome,
    operators::{overflow, unsigned_overflow},
};

pub(super) fn apply(name: &str, args: &[Value]) -> Option<Outcome> {
    let [one] = args else { return None };
    Some(match name {
        "size" => size(one),
        "type" => Ok(Value::Type(one.type_name().into())),
        "dyn" => Ok(one.clone()),
        "bool" => to_bool(one),
        "int" => to_int(one),
        "uint" => to_uint(one),
        "double" => to_double(one),
        "string" => to_string(one),
        "bytes" => match one {
            Value::Bytes(_) => Ok(one.clone()),
            Value::String(text) => Ok(Value::Bytes(text.as_bytes().into())),
            _ => Err(EvalError::overload()),
        },
        _ => return None,
    })
}

fn size(value: &Value) -> Outcome {
    let length = match value {
        Value::String(text) => text.chars().count(),
        Value::Bytes(bytes) => bytes.len(),
        Value::List(items) => items.len(),
        Value::Map(map) => map.len(),
        _ => return Err(EvalError::overload()),
    };
    Ok(super::lists::int(length))
}

fn to_bool(value: &Value) -> Outcome {
    match value {
        Value::Bool(_) => Ok(value.clone()),
        Value::String(text) => match &**text {
            "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(Value::Bool(true)),
            "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(Value::Bool(false)),
            _ => Err(EvalError::new("type conversion error from 'string' to 'bool'")),
        },
        _ => Err(EvalError::overload()),
    }
}

#[expect(clippy::cast_possible_truncation, reason = "what does not fit was refused")]
fn to_int(value: &Value) -> Outcome {
    match value {
        Value::Int(_) => Ok(value.clone()),
        Value::Uint(u) => i64::try_from(*u).map(Value::Int).map_err(|_| overflow()),
        Value::Double(d) if d.abs() < 9.2e18 => Ok(Value::Int(*d as i64)),
        Value::Double(_) => Err(overflow()),
        Value::String(text) => {
            text.parse().map(Value::Int).map_err(|_| EvalError::new("type conversion error from 'string' to 'int'"))
        }
        Value::Time(time) => Ok(Value::Int(time.as_second())),
        Value::Duration(duration) => i64::try_from(duration.as_nanos()).map(Value::Int).map_err(|_| overflow()),
        _ => Err(EvalError::overload()),
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "what does not fit was refused")]
fn to_uint(value: &Value) -> Outcome {
    match value {
        Value::Uint(_) => Ok(value.clone()),
        Value::Int(i) => u64::try_from(*i).map(Value::Uint).map_err(|_| unsigned_overflow()),
        Value::Double(d) if (0.0..1.8e19).contains(d) => Ok(Value::Uint(*d as u64)),
        Value::Double(_) => Err(unsigned_overflow()),
        Value::String(text) => {
            let number = text.parse().ok().filter(|_| !text.starts_with('+'));
            number.map(Value::Uint).ok_or_else(|| EvalError::new("type conversion error from 'string' to 'uint'"))
        }
        _ => Err(EvalError::overload()),
    }
}

#[expect(clippy::cast_precision_loss, reason = "as Go does")]
fn to_double(value: &Value) -> Outcome {
    match value {
        Value::Double(_) => Ok(value.clone()),
        Value::Int(i) => Ok(Value::Double(*i as f64)),
        Value::Uint(u) => Ok(Value::Double(*u as f64)),
        Value::String(text) => text
            .parse()
            .map(Value::Double)
            .map_err(|_| EvalError::new("type conversion error from 'string' to 'double'")),
        _ => Err(EvalError::overload()),
    }
}

fn to_string(value: &Value) -> Outcome {
    let text = match value {
        Value::String(_) => return Ok(value.clone()),
        Value::Bool(b) => b.to_string(),
        Value::Int(i) => i.to_string(),
        Value::Uint(u) => u.to_string(),
        Value::Double(d) => format_float(*d),
        Value::Bytes(bytes) => String::from_utf8(bytes.to_vec())
            .map_err(|_| EvalError::new("invalid UTF-8 in bytes, cannot convert to string"))?,
        Value::Time(time) => time.to_string(),
        Value::Duration(duration) => format!("{}s", duration.as_secs_f64()),
        Value::Url(url) => url.to_string(),
        Value::Ip(ip) => ip.to_string(),
        Value::Cidr(ip, length) => format!("{ip}/{length}"),
        _ => return Err(EvalError::overload()),
    };
    Ok(Value::string(&text))
}

/// Formats a float as Go's `%g`.
fn format_float(number: f64) -> String {
    if !number.is_finite() {
        return if number.is_nan() {
            "NaN"
        } else if number > 0.0 {
            "+Inf"
        } else {
            "-Inf"
        }
        .to_owned();
    }
    api::float::format_float(number)
}
