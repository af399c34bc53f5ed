//! Encoding of JSON to messages. A value that cannot be encoded is `None`, and the client gets JSON.

use super::{
    json_schema_props,
    message_table::{Cardinality, Field, Message, TABLE, ValueType},
    wire::{put_bytes, put_fixed, put_number},
};
use api::duration;
use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::{Map, Value};

/// Encodes a message. Fields that are not in the table are skipped; zero values in JSON are encoded.
pub(super) fn message(message: &Message, object: &Map<String, Value>) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    for field in &message.fields {
        if field.cardinality == Cardinality::Inline {
            let ValueType::Message(index) = field.value_type else { return None };
            let inner = self::message(&TABLE.messages[index], object)?;
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

fn put_field(out: &mut Vec<u8>, field: &Field, value: &Value) -> Option<()> {
    match field.cardinality {
        Cardinality::List => {
            value.as_array()?.iter().try_for_each(|v| put_value(out, field.number, field.value_type, v))
        }
        Cardinality::Map => value.as_object()?.iter().try_for_each(|(key, v)| {
            let mut entry = Vec::new();
            put_bytes(&mut entry, 1, key.as_bytes());
            put_value(&mut entry, 2, field.value_type, v)?;
            put_bytes(out, field.number, &entry);
            Some(())
        }),
        _ => put_value(out, field.number, field.value_type, value),
    }
}

fn put_value(out: &mut Vec<u8>, number: u32, value_type: ValueType, value: &Value) -> Option<()> {
    match value_type {
        ValueType::Bool => put_number(out, number, i64::from(value.as_bool()?)),
        ValueType::Int32 | ValueType::Int64 => put_number(out, number, value.as_i64()?),
        ValueType::String => put_bytes(out, number, value.as_str()?.as_bytes()),
        ValueType::Double => put_fixed(out, number, value.as_f64()?),
        _ => put_bytes(out, number, &length_delimited(value_type, value)?),
    }
    Some(())
}

/// Encodes a length-delimited value, without its length.
fn length_delimited(value_type: ValueType, value: &Value) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    match value_type {
        ValueType::Bytes => return STANDARD.decode(value.as_str()?).ok(),
        ValueType::Message(index) => return message(&TABLE.messages[index], value.as_object()?),
        ValueType::Quantity => match value {
            Value::String(text) => put_bytes(&mut out, 1, text.as_bytes()),
            Value::Number(number) => put_bytes(&mut out, 1, number.to_string().as_bytes()),
            _ => return None,
        },
        ValueType::Raw | ValueType::Json => put_bytes(&mut out, 1, value.to_string().as_bytes()),
        ValueType::Strings => {
            for item in value.as_array()? {
                put_bytes(&mut out, 1, item.as_str()?.as_bytes());
            }
        }
        ValueType::Time | ValueType::MicroTime if value.is_null() => {}
        ValueType::Time | ValueType::MicroTime => {
            let stamp: jiff::Timestamp = value.as_str()?.parse().ok()?;
            put_number(&mut out, 1, stamp.as_second());
            put_number(&mut out, 2, if value_type == ValueType::Time { 0 } else { stamp.subsec_nanosecond().into() });
        }
        ValueType::Duration => {
            let nanos = duration::parse_non_negative(value.as_str()?)?.as_nanos();
            put_number(&mut out, 1, i64::try_from(nanos).ok()?);
        }
        ValueType::IntOrString => match value {
            Value::String(text) => {
                put_number(&mut out, 1, 1);
                put_bytes(&mut out, 3, text.as_bytes());
            }
            number => {
                put_number(&mut out, 1, 0);
                put_number(&mut out, 2, number.as_i64()?);
            }
        },
        ValueType::BoolOr(index) => return json_schema_props::put_bool_or(index, value),
        ValueType::ListOr(index) => return json_schema_props::put_list_or(index, value),
        ValueType::Bool | ValueType::Int32 | ValueType::Int64 | ValueType::String | ValueType::Double => return None,
    }
    Some(out)
}
