//! Format library (`apiserver/pkg/cel/library/format.go`) and `string.format`.

use crate::{
    EvalError, Value,
    eval::{Evaluator, Outcome},
    functions::conversions,
    value::Key,
};
use base64::{Engine, engine::general_purpose::STANDARD};
use std::fmt::Write;

const FORMATS: [&str; 13] = [
    "dns1123Label",
    "dns1123Subdomain",
    "dns1035Label",
    "qualifiedName",
    "dns1123LabelPrefix",
    "dns1123SubdomainPrefix",
    "dns1035LabelPrefix",
    "labelValue",
    "uri",
    "uuid",
    "byte",
    "date",
    "datetime",
];

/// Returns a named format.
pub(super) fn create(name: &str, args: &[Value]) -> Outcome {
    let known = |name: &str| FORMATS.iter().find(|n| **n == name).map(|n| Value::Format(n));
    match (name, args) {
        ("named", [Value::String(name)]) => Ok(known(name).map_or(Value::Optional(None), Value::some)),
        (name, []) => known(name).ok_or_else(EvalError::overload),
        _ => Err(EvalError::overload()),
    }
}

/// Validates a string; returns an optional list of errors.
pub(super) fn validate(name: &str, format: &str, args: &[Value]) -> Outcome {
    let ("validate", [Value::String(text)]) = (name, args) else { return Err(EvalError::overload()) };
    let prefix = format!("{}a", text.trim_end_matches('-'));
    let error_unless = |is_valid: bool, message: &str| if is_valid { Vec::new() } else { vec![message.to_owned()] };
    let errors = match format {
        "dns1123Label" => api::names::dns1123_label(text),
        "dns1123Subdomain" => api::names::dns1123_subdomain(text),
        "dns1035Label" => api::names::dns1035_label(text),
        "dns1123LabelPrefix" => api::names::dns1123_label(&prefix),
        "dns1123SubdomainPrefix" => api::names::dns1123_subdomain(&prefix),
        "dns1035LabelPrefix" => api::names::dns1035_label(&prefix),
        "qualifiedName" => api::names::qualified_name(text),
        "labelValue" => api::names::label_value(text),
        "byte" => error_unless(STANDARD.decode(text.as_bytes()).is_ok(), "invalid base64"),
        "date" => {
            error_unless(text.len() == 10 && jiff::civil::Date::strptime("%Y-%m-%d", &**text).is_ok(), "invalid date")
        }
        "datetime" => error_unless(text.parse::<jiff::Timestamp>().is_ok(), "invalid datetime"),
        "uuid" => error_unless(is_uuid(text), "does not match the UUID format"),
        "uri" => error_unless(matches!(super::net::create("isURL", args), Some(Ok(Value::Bool(true)))), "invalid URI"),
        _ => return Err(EvalError::overload()),
    };
    Ok(if errors.is_empty() {
        Value::Optional(None)
    } else {
        Value::some(Value::list(errors.iter().map(|w| Value::string(w)).collect()))
    })
}

fn is_uuid(text: &str) -> bool {
    let digits = text.bytes().filter(u8::is_ascii_hexdigit).count();
    digits == 32 && text.bytes().all(|b| b.is_ascii_hexdigit() || b == b'-')
}

/// Formats values: `'%s is %d'.format([a, 1])`.
pub(super) fn format(evaluator: &mut Evaluator, text: &str, values: &[Value]) -> Outcome {
    let (mut out, mut values) = (String::new(), values.iter());
    let mut rest = text.chars().peekable();
    while let Some(c) = rest.next() {
        if c != '%' {
            out.push(c);
            continue;
        }
        let mut precision = String::new();
        if rest.next_if_eq(&'.').is_some() {
            while let Some(digit) = rest.next_if(char::is_ascii_digit) {
                precision.push(digit);
            }
        }
        let clause = rest.next().ok_or_else(|| EvalError::new("unexpected end of string"))?;
        if clause == '%' {
            out.push('%');
            continue;
        }
        let value = values.next().ok_or_else(|| EvalError::new("index out of range"))?;
        let precision = precision.parse::<usize>().ok().map_or(6, |p| p.min(100));
        format_clause(&mut out, clause, precision, value)?;
        evaluator.charge(u64::try_from(out.len() / 100).unwrap_or(u64::MAX))?;
    }
    Ok(Value::string(&out))
}

fn format_clause(out: &mut String, clause: char, precision: usize, value: &Value) -> Result<(), EvalError> {
    let wrong = || EvalError::new(format!("error during formatting: no formatting function for clause %{clause}"));
    let written = match (clause, value) {
        ('s', value) => {
            format_value(out, value)?;
            Ok(())
        }
        ('d', Value::Int(i)) => write!(out, "{i}"),
        ('d', Value::Uint(u)) => write!(out, "{u}"),
        ('f', Value::Double(d)) => write!(out, "{d:.precision$}"),
        ('e', Value::Double(d)) => write!(out, "{d:.precision$e}"),
        ('b', Value::Int(i)) => write!(out, "{i:b}"),
        ('b', Value::Bool(b)) => write!(out, "{}", u8::from(*b)),
        ('o', Value::Int(i)) => write!(out, "{i:o}"),
        ('x', Value::Int(i)) => write!(out, "{i:x}"),
        ('X', Value::Int(i)) => write!(out, "{i:X}"),
        _ => return Err(wrong()),
    };
    written.map_err(|_| wrong())
}

fn format_value(out: &mut String, value: &Value) -> Result<(), EvalError> {
    let each = |out: &mut String, i: usize| {
        if i > 0 {
            out.push_str(", ");
        }
    };
    match value {
        Value::Null => out.push_str("null"),
        Value::List(items) => {
            out.push('[');
            for (i, item) in items.iter().enumerate() {
                each(out, i);
                format_value(out, item)?;
            }
            out.push(']');
        }
        Value::Map(map) => {
            out.push('{');
            for (i, (key, value)) in map.iter().enumerate() {
                each(out, i);
                match key {
                    Key::Bool(b) => out.push_str(&b.to_string()),
                    Key::Int(i) => out.push_str(&i.to_string()),
                    Key::String(s) => out.push_str(s),
                }
                out.push_str(": ");
                format_value(out, value)?;
            }
            out.push('}');
        }
        other => match conversions::apply("string", std::slice::from_ref(other)) {
            Some(Ok(Value::String(text))) => out.push_str(&text),
            _ => return Err(EvalError::overload()),
        },
    }
    Ok(())
}
