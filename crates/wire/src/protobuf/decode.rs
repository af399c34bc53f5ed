//! Decoding of messages to the JSON that Go encodes for the same object.

use super::{
    DecodeError, json_schema_props,
    message_table::{Cardinality, Field, Message, TABLE, ValueType},
    wire::{Fields, Wire},
};
use api::duration;
use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::{Map, Value, json};
use std::time::Duration;

/// Maximum nesting of messages; the deepest of Kubernetes is about a dozen.
const MAX_DEPTH: usize = 64;

/// Remaining nesting of messages.
#[derive(Clone, Copy)]
pub(super) struct Depth(usize);

impl Depth {
    pub(super) const START: Self = Self(MAX_DEPTH);

    pub(super) fn deeper(self) -> Result<Self, DecodeError> {
        self.0.checked_sub(1).map(Self).ok_or(DecodeError::TooDeep)
    }
}

/// Adds a message's fields to an object. A message in several parts is merged.
pub(super) fn message(
    message: &Message,
    bytes: &[u8],
    into: &mut Map<String, Value>,
    depth: Depth,
) -> Result<(), DecodeError> {
    let depth = depth.deeper()?;
    let mut fields = Fields::new(bytes);
    while let Some((number, wire)) = fields.next()? {
        // As upstream, unknown fields are skipped.
        if let Some(field) = message.field(number) {
            add(field, wire, into, depth).map_err(|e| e.in_field(message, field))?;
        }
    }
    for field in message.fields.iter().filter(|f| f.always_encoded && f.cardinality == Cardinality::Plain) {
        if let Some(zero) = zero(field.value_type)
            && !into.contains_key(field.name)
        {
            into.insert(field.name.to_owned(), zero);
        }
    }
    Ok(())
}

/// Returns the JSON of a field's zero value; only for plain values.
fn zero(value_type: ValueType) -> Option<Value> {
    match value_type {
        ValueType::String | ValueType::Bytes => Some(json!("")),
        ValueType::Bool => Some(json!(false)),
        ValueType::Int32 | ValueType::Int64 => Some(json!(0)),
        _ => None,
    }
}

fn add(field: &Field, wire: Wire<'_>, into: &mut Map<String, Value>, depth: Depth) -> Result<(), DecodeError> {
    match field.cardinality {
        Cardinality::Inline => match (field.value_type, wire) {
            (ValueType::Message(index), Wire::Bytes(bytes)) => message(&TABLE.messages[index], bytes, into, depth),
            _ => Err(DecodeError::WireType),
        },
        Cardinality::List => {
            let entry = into.entry(field.name).or_insert_with(|| json!([]));
            let list = entry.as_array_mut().ok_or(DecodeError::WireType)?;
            match (field.value_type, wire) {
                (ValueType::Int32 | ValueType::Int64 | ValueType::Bool, Wire::Bytes(packed)) => {
                    let mut numbers = Fields::new(packed);
                    while !numbers.is_empty() {
                        list.push(value(field.value_type, Wire::Varint(numbers.varint()?), None, depth)?);
                    }
                }
                _ => list.push(value(field.value_type, wire, None, depth)?),
            }
            Ok(())
        }
        Cardinality::Map => {
            let entry = into.entry(field.name).or_insert_with(|| json!({}));
            let map = entry.as_object_mut().ok_or(DecodeError::WireType)?;
            let (key, value) = map_entry(field.value_type, wire, depth)?;
            map.insert(key, value);
            Ok(())
        }
        Cardinality::Plain | Cardinality::Pointer => {
            let old_value = into.remove(field.name);
            let value = value(field.value_type, wire, old_value, depth)?;
            // Go encodes plain zero values to protobuf, and omits them in JSON (`omitempty`).
            let empty = match &value {
                Value::Null => true,
                Value::Object(map) => map.is_empty(),
                other => zero(field.value_type).as_ref() == Some(other) || *other == 0,
            };
            if value.is_null() || (empty && field.cardinality == Cardinality::Plain && !field.always_encoded) {
                return Ok(());
            }
            into.insert(field.name.to_owned(), value);
            Ok(())
        }
    }
}

fn map_entry(value_type: ValueType, wire: Wire<'_>, depth: Depth) -> Result<(String, Value), DecodeError> {
    let Wire::Bytes(bytes) = wire else { return Err(DecodeError::WireType) };
    let (mut key, mut entry_value) = (String::new(), None);
    let mut fields = Fields::new(bytes);
    while let Some((number, wire)) = fields.next()? {
        match (number, wire) {
            (1, Wire::Bytes(bytes)) => key = text(bytes)?,
            (2, wire) => entry_value = Some(value(value_type, wire, None, depth)?),
            (1, _) => return Err(DecodeError::WireType),
            _ => {}
        }
    }
    let entry_value = match entry_value {
        Some(entry_value) => entry_value,
        None => match zero(value_type) {
            Some(zero) => zero,
            None => value(value_type, Wire::Bytes(&[]), None, depth)?,
        },
    };
    Ok((key, entry_value))
}

/// Decodes a value. `old_value` is the earlier value of the field, for messages in several parts.
fn value(value_type: ValueType, wire: Wire<'_>, old_value: Option<Value>, depth: Depth) -> Result<Value, DecodeError> {
    let bytes = match (value_type, wire) {
        (ValueType::Bool, Wire::Varint(v)) => return Ok(json!(v != 0)),
        (ValueType::Int64, Wire::Varint(v)) => return Ok(json!(v.cast_signed())),
        (ValueType::Int32, Wire::Varint(v)) => return Ok(json!(int32(v))),
        (ValueType::Double, Wire::Fixed(bits)) => return Ok(json_schema_props::number(bits)),
        (ValueType::Bool | ValueType::Int32 | ValueType::Int64 | ValueType::Double, _)
        | (_, Wire::Varint(_) | Wire::Fixed(_) | Wire::Other) => {
            return Err(DecodeError::WireType);
        }
        (_, Wire::Bytes(bytes)) => bytes,
    };
    match value_type {
        ValueType::String => Ok(Value::String(text(bytes)?)),
        ValueType::Bytes => Ok(Value::String(STANDARD.encode(bytes))),
        ValueType::Time => time(bytes, false),
        ValueType::MicroTime => time(bytes, true),
        ValueType::Quantity => quantity(bytes),
        ValueType::Duration => duration_text(bytes),
        ValueType::IntOrString => int_or_string(bytes),
        ValueType::Json => only_bytes(bytes)?.map_or(Ok(Value::Null), json_text),
        ValueType::Raw => match only_bytes(bytes)? {
            None => Ok(Value::Null),
            Some(raw) if raw.starts_with(&super::MAGIC) => super::envelope(raw, depth.deeper()?),
            Some(raw) => json_text(raw),
        },
        ValueType::Strings => strings(bytes),
        ValueType::Message(index) => {
            let mut map = match old_value {
                Some(Value::Object(map)) => map,
                _ => Map::new(),
            };
            message(&TABLE.messages[index], bytes, &mut map, depth)?;
            Ok(Value::Object(map))
        }
        ValueType::BoolOr(index) => json_schema_props::bool_or(index, bytes, depth.deeper()?),
        ValueType::ListOr(index) => json_schema_props::list_or(index, bytes, depth.deeper()?),
        ValueType::Bool | ValueType::Int32 | ValueType::Int64 | ValueType::Double => Err(DecodeError::WireType),
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

/// Returns the bytes of a message that has only field 1.
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
fn duration_text(message: &[u8]) -> Result<Value, DecodeError> {
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

/// Seconds and nanoseconds since 1970; an empty message is Go's zero time, which is null.
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
    // Upstream's JSON has whole seconds only.
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
