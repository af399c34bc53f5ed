//! From JSON to the wire. What cannot be said there gives `None`, and the client gets JSON.

use super::{
    shapes,
    table::{Field, Kind, Message, Shape, TABLE},
    wire::{put_bytes, put_fixed, put_number},
};
use crate::duration;
use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::{Map, Value};

/// A message's bytes. Fields that the table does not know stay out; zeros are written where JSON has them.
pub(super) fn message(message: &Message, object: &Map<String, Value>) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    for field in &message.fields {
        if field.shape == Shape::Inline {
            let Kind::Message(place) = field.kind else { return None };
            let inner = self::message(&TABLE.messages[place], object)?;
            if !inner.is_empty() {
                put_bytes(&mut out, field.number, &inner);
            }
            continue;
        }
        match object.get(field.name) {
            None | Some(Value::Null) => {}
            Some(value) => put_field(&mut out, field, value)?,
        }
    }
    Some(out)
}

fn put_field(out: &mut Vec<u8>, field: &Field, held: &Value) -> Option<()> {
    match field.shape {
        Shape::List => held.as_array()?.iter().try_for_each(|v| put_value(out, field.number, field.kind, v)),
        Shape::Map => held.as_object()?.iter().try_for_each(|(key, v)| {
            let mut entry = Vec::new();
            put_bytes(&mut entry, 1, key.as_bytes());
            put_value(&mut entry, 2, field.kind, v)?;
            put_bytes(out, field.number, &entry);
            Some(())
        }),
        _ => put_value(out, field.number, field.kind, held),
    }
}

fn put_value(out: &mut Vec<u8>, number: u32, kind: Kind, held: &Value) -> Option<()> {
    match kind {
        Kind::Bool => put_number(out, number, i64::from(held.as_bool()?)),
        Kind::Int32 | Kind::Int64 => put_number(out, number, held.as_i64()?),
        Kind::String => put_bytes(out, number, held.as_str()?.as_bytes()),
        Kind::Double => put_fixed(out, number, held.as_f64()?),
        _ => put_bytes(out, number, &content(kind, held)?),
    }
    Some(())
}

/// What stands behind the length of a value that has one.
fn content(kind: Kind, held: &Value) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    match kind {
        Kind::Bytes => return STANDARD.decode(held.as_str()?).ok(),
        Kind::Message(place) => return message(&TABLE.messages[place], held.as_object()?),
        Kind::Quantity => match held {
            Value::String(text) => put_bytes(&mut out, 1, text.as_bytes()),
            Value::Number(number) => put_bytes(&mut out, 1, number.to_string().as_bytes()),
            _ => return None,
        },
        Kind::Raw | Kind::Json => put_bytes(&mut out, 1, held.to_string().as_bytes()),
        Kind::Strings => {
            for item in held.as_array()? {
                put_bytes(&mut out, 1, item.as_str()?.as_bytes());
            }
        }
        Kind::Time | Kind::MicroTime if held.is_null() => {}
        Kind::Time | Kind::MicroTime => {
            let stamp: jiff::Timestamp = held.as_str()?.parse().ok()?;
            put_number(&mut out, 1, stamp.as_second());
            put_number(&mut out, 2, if kind == Kind::Time { 0 } else { stamp.subsec_nanosecond().into() });
        }
        Kind::Duration => {
            let nanos = duration::parse(held.as_str()?)?.as_nanos();
            put_number(&mut out, 1, i64::try_from(nanos).ok()?);
        }
        Kind::IntOrString => match held {
            Value::String(text) => {
                put_number(&mut out, 1, 1);
                put_bytes(&mut out, 3, text.as_bytes());
            }
            number => {
                put_number(&mut out, 1, 0);
                put_number(&mut out, 2, number.as_i64()?);
            }
        },
        Kind::BoolOr(place) => return shapes::put_bool_or(place, held),
        Kind::ListOr(place) => return shapes::put_list_or(place, held),
        Kind::Bool | Kind::Int32 | Kind::Int64 | Kind::String | Kind::Double => return None,
    }
    Some(out)
}
