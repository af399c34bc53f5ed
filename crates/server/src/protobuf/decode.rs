//! From the wire to the JSON that a Go client would have written for the same object.

use super::{
    DecodeError, shapes,
    table::{Field, Kind, Message, Shape, TABLE},
    wire::{Fields, Wire},
};
use crate::duration;
use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::{Map, Value, json};
use std::time::Duration;

/// How deep messages may stand in each other; the deepest of Kubernetes is about a dozen.
const MAX_DEPTH: usize = 64;

/// What a message is decoded within.
#[derive(Clone, Copy)]
pub(super) struct Depth(usize);

impl Depth {
    pub(super) const START: Self = Self(MAX_DEPTH);

    pub(super) fn deeper(self) -> Result<Self, DecodeError> {
        self.0.checked_sub(1).map(Self).ok_or(DecodeError::TooDeep)
    }
}

/// Adds a message's fields to this object; a message that comes in parts is merged.
pub(super) fn message(
    message: &Message,
    bytes: &[u8],
    into: &mut Map<String, Value>,
    depth: Depth,
) -> Result<(), DecodeError> {
    let depth = depth.deeper()?;
    let mut fields = Fields::new(bytes);
    while let Some((number, wire)) = fields.next()? {
        // A field of a newer version is left out, as upstream does.
        if let Some(field) = message.field(number) {
            add(field, wire, into, depth).map_err(|e| e.within(message, field))?;
        }
    }
    for field in message.fields.iter().filter(|f| f.always && f.shape == Shape::Plain) {
        if let Some(zero) = zero(field.kind)
            && !into.contains_key(field.name)
        {
            into.insert(field.name.to_owned(), zero);
        }
    }
    Ok(())
}

/// What JSON shows for a field that the wire left out; only for plain values.
fn zero(kind: Kind) -> Option<Value> {
    match kind {
        Kind::String | Kind::Bytes => Some(json!("")),
        Kind::Bool => Some(json!(false)),
        Kind::Int32 | Kind::Int64 => Some(json!(0)),
        _ => None,
    }
}

fn add(field: &Field, wire: Wire<'_>, into: &mut Map<String, Value>, depth: Depth) -> Result<(), DecodeError> {
    match field.shape {
        Shape::Inline => match (field.kind, wire) {
            (Kind::Message(place), Wire::Bytes(bytes)) => message(&TABLE.messages[place], bytes, into, depth),
            _ => Err(DecodeError::WireType),
        },
        Shape::List => {
            let entry = into.entry(field.name).or_insert_with(|| json!([]));
            let list = entry.as_array_mut().ok_or(DecodeError::WireType)?;
            match (field.kind, wire) {
                (Kind::Int32 | Kind::Int64 | Kind::Bool, Wire::Bytes(packed)) => {
                    let mut numbers = Fields::new(packed);
                    while !numbers.is_empty() {
                        list.push(value(field.kind, Wire::Varint(numbers.varint()?), None, depth)?);
                    }
                }
                _ => list.push(value(field.kind, wire, None, depth)?),
            }
            Ok(())
        }
        Shape::Map => {
            let entry = into.entry(field.name).or_insert_with(|| json!({}));
            let map = entry.as_object_mut().ok_or(DecodeError::WireType)?;
            let (key, value) = map_entry(field.kind, wire, depth)?;
            map.insert(key, value);
            Ok(())
        }
        Shape::Plain | Shape::Pointer => {
            let before = into.remove(field.name);
            let value = value(field.kind, wire, before, depth)?;
            // Go writes plain values even when they are zero, and `omitempty` leaves them out of the JSON.
            let empty = match &value {
                Value::Null => true,
                Value::Object(map) => map.is_empty(),
                other => zero(field.kind).as_ref() == Some(other) || *other == 0,
            };
            if value.is_null() || (empty && field.shape == Shape::Plain && !field.always) {
                return Ok(());
            }
            into.insert(field.name.to_owned(), value);
            Ok(())
        }
    }
}

fn map_entry(kind: Kind, wire: Wire<'_>, depth: Depth) -> Result<(String, Value), DecodeError> {
    let Wire::Bytes(bytes) = wire else { return Err(DecodeError::WireType) };
    let (mut key, mut held) = (String::new(), None);
    let mut fields = Fields::new(bytes);
    while let Some((number, wire)) = fields.next()? {
        match (number, wire) {
            (1, Wire::Bytes(bytes)) => key = text(bytes)?,
            (2, wire) => held = Some(value(kind, wire, None, depth)?),
            (1, _) => return Err(DecodeError::WireType),
            _ => {}
        }
    }
    let held = match held {
        Some(held) => held,
        None => match zero(kind) {
            Some(zero) => zero,
            None => value(kind, Wire::Bytes(&[]), None, depth)?,
        },
    };
    Ok((key, held))
}

/// One value; `before` is what the same field held, for messages that come in parts.
fn value(kind: Kind, wire: Wire<'_>, before: Option<Value>, depth: Depth) -> Result<Value, DecodeError> {
    let bytes = match (kind, wire) {
        (Kind::Bool, Wire::Varint(v)) => return Ok(json!(v != 0)),
        (Kind::Int64, Wire::Varint(v)) => return Ok(json!(v.cast_signed())),
        (Kind::Int32, Wire::Varint(v)) => return Ok(json!(int32(v))),
        (Kind::Double, Wire::Fixed(bits)) => return Ok(shapes::number(bits)),
        (Kind::Bool | Kind::Int32 | Kind::Int64 | Kind::Double, _)
        | (_, Wire::Varint(_) | Wire::Fixed(_) | Wire::Other) => {
            return Err(DecodeError::WireType);
        }
        (_, Wire::Bytes(bytes)) => bytes,
    };
    match kind {
        Kind::String => Ok(Value::String(text(bytes)?)),
        Kind::Bytes => Ok(Value::String(STANDARD.encode(bytes))),
        Kind::Time => time(bytes, false),
        Kind::MicroTime => time(bytes, true),
        Kind::Quantity => quantity(bytes),
        Kind::Duration => length(bytes),
        Kind::IntOrString => int_or_string(bytes),
        Kind::Json => only_bytes(bytes)?.map_or(Ok(Value::Null), json_text),
        Kind::Raw => match only_bytes(bytes)? {
            None => Ok(Value::Null),
            Some(raw) if raw.starts_with(&super::MAGIC) => super::envelope(raw, depth.deeper()?),
            Some(raw) => json_text(raw),
        },
        Kind::Strings => strings(bytes),
        Kind::Message(place) => {
            let mut map = match before {
                Some(Value::Object(map)) => map,
                _ => Map::new(),
            };
            message(&TABLE.messages[place], bytes, &mut map, depth)?;
            Ok(Value::Object(map))
        }
        Kind::BoolOr(place) => shapes::bool_or(place, bytes, depth.deeper()?),
        Kind::ListOr(place) => shapes::list_or(place, bytes, depth.deeper()?),
        Kind::Bool | Kind::Int32 | Kind::Int64 | Kind::Double => Err(DecodeError::WireType),
    }
}

#[expect(clippy::cast_possible_truncation, reason = "an int32 is written as the 64 bits of its sign extension")]
fn int32(value: u64) -> i32 {
    value.cast_signed() as i32
}

pub(super) fn text(bytes: &[u8]) -> Result<String, DecodeError> {
    String::from_utf8(bytes.to_vec()).map_err(|_| DecodeError::Utf8)
}

fn json_text(bytes: &[u8]) -> Result<Value, DecodeError> {
    if bytes.is_empty() { Ok(Value::Null) } else { serde_json::from_slice(bytes).map_err(DecodeError::Json) }
}

/// The bytes of a message that has nothing else, field 1.
fn only_bytes(message: &[u8]) -> Result<Option<&[u8]>, DecodeError> {
    let (mut found, mut fields) = (None, Fields::new(message));
    while let Some((number, wire)) = fields.next()? {
        match (number, wire) {
            (1, Wire::Bytes(bytes)) => found = Some(bytes),
            (1, _) => return Err(DecodeError::WireType),
            _ => {}
        }
    }
    Ok(found)
}

fn strings(bytes: &[u8]) -> Result<Value, DecodeError> {
    let (mut all, mut fields) = (Vec::new(), Fields::new(bytes));
    while let Some((number, wire)) = fields.next()? {
        match (number, wire) {
            (1, Wire::Bytes(bytes)) => all.push(Value::String(text(bytes)?)),
            (1, _) => return Err(DecodeError::WireType),
            _ => {}
        }
    }
    Ok(Value::Array(all))
}

/// `Quantity` has its text in field 1; Go reads none as zero.
fn quantity(bytes: &[u8]) -> Result<Value, DecodeError> {
    let text = only_bytes(bytes)?.map(text).transpose()?.unwrap_or_default();
    Ok(Value::String(if text.is_empty() { "0".to_owned() } else { text }))
}

/// `Duration` has its nanoseconds in field 1.
fn length(message: &[u8]) -> Result<Value, DecodeError> {
    let (mut nanos, mut fields) = (0, Fields::new(message));
    while let Some((number, wire)) = fields.next()? {
        match (number, wire) {
            (1, Wire::Varint(v)) => nanos = v.cast_signed(),
            (1, _) => return Err(DecodeError::WireType),
            _ => {}
        }
    }
    let sign = if nanos < 0 { "-" } else { "" };
    Ok(Value::String(format!("{sign}{}", duration::format_duration(Duration::from_nanos(nanos.unsigned_abs())))))
}

/// Seconds and nanoseconds since 1970; nothing at all is Go's zero time, which is null.
fn time(bytes: &[u8], micro: bool) -> Result<Value, DecodeError> {
    if bytes.is_empty() {
        return Ok(Value::Null);
    }
    let (mut seconds, mut nanos, mut fields) = (0, 0, Fields::new(bytes));
    while let Some((number, wire)) = fields.next()? {
        match (number, wire) {
            (1, Wire::Varint(v)) => seconds = v.cast_signed(),
            (2, Wire::Varint(v)) => nanos = int32(v),
            (1 | 2, _) => return Err(DecodeError::WireType),
            _ => {}
        }
    }
    // Upstream's JSON has whole seconds only, so it reads no more than those.
    let stamp = jiff::Timestamp::new(seconds, if micro { nanos } else { 0 }).map_err(|_| DecodeError::Time)?;
    Ok(Value::String(if micro { format!("{stamp:.6}") } else { stamp.to_string() }))
}

/// `type` 0 is a number, in field 2; 1 a string, in field 3.
fn int_or_string(bytes: &[u8]) -> Result<Value, DecodeError> {
    let (mut is_string, mut number, mut string, mut fields) = (false, 0, String::new(), Fields::new(bytes));
    while let Some((field, wire)) = fields.next()? {
        match (field, wire) {
            (1, Wire::Varint(v)) => is_string = v != 0,
            (2, Wire::Varint(v)) => number = int32(v),
            (3, Wire::Bytes(bytes)) => string = text(bytes)?,
            (1..=3, _) => return Err(DecodeError::WireType),
            _ => {}
        }
    }
    Ok(if is_string { json!(string) } else { json!(number) })
}
