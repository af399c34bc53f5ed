//! Types of apiextensions: `JSONSchemaPropsOrBool`, `JSONSchemaPropsOrArray`, and floating-point numbers.

use super::{
    DecodeError,
    decode::{self, Depth},
    encode,
    message_table::TABLE,
    wire::{Fields, Wire, put_bytes, put_number},
};
use serde_json::{Map, Value, json};

/// `JSONSchemaPropsOrBool`: a boolean in field 1, a schema in field 2.
pub(super) fn bool_or(index: usize, bytes: &[u8], depth: Depth) -> Result<Value, DecodeError> {
    let (mut allows, mut schema, mut fields) = (false, None, Fields::new(bytes));
    while let Some((number, wire)) = fields.next()? {
        match (number, wire) {
            (1, Wire::Varint(flag)) => allows = flag != 0,
            (2, Wire::Bytes(bytes)) => schema = Some(message(index, bytes, depth)?),
            (1 | 2, _) => return Err(DecodeError::WireType),
            _ => {}
        }
    }
    Ok(schema.unwrap_or(json!(allows)))
}

/// `JSONSchemaPropsOrArray`: a schema in field 1, a list in field 2.
pub(super) fn list_or(index: usize, bytes: &[u8], depth: Depth) -> Result<Value, DecodeError> {
    let (mut all, mut schema, mut fields) = (Vec::new(), None, Fields::new(bytes));
    while let Some((number, wire)) = fields.next()? {
        match (number, wire) {
            (1, Wire::Bytes(bytes)) => schema = Some(message(index, bytes, depth)?),
            (2, Wire::Bytes(bytes)) => all.push(message(index, bytes, depth)?),
            (1 | 2, _) => return Err(DecodeError::WireType),
            _ => {}
        }
    }
    Ok(schema.unwrap_or(Value::Array(all)))
}

fn message(index: usize, bytes: &[u8], depth: Depth) -> Result<Value, DecodeError> {
    let mut map = Map::new();
    decode::message(&TABLE.messages[index], bytes, &mut map, depth)?;
    Ok(Value::Object(map))
}

/// Decodes a `double`; a whole number has no decimal point in JSON.
pub(super) fn number(bits: u64) -> Value {
    let number = f64::from_bits(bits);
    #[expect(clippy::cast_possible_truncation, reason = "only small whole numbers are cast")]
    if number.fract() == 0.0 && number.abs() < 9e15 { json!(number as i64) } else { json!(number) }
}

pub(super) fn put_bool_or(index: usize, value: &Value) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    match value {
        Value::Bool(allows) => put_number(&mut out, 1, i64::from(*allows)),
        schema => {
            put_number(&mut out, 1, 1);
            put_bytes(&mut out, 2, &encode::message(&TABLE.messages[index], schema.as_object()?)?);
        }
    }
    Some(out)
}

pub(super) fn put_list_or(index: usize, value: &Value) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    let mut put = |number, schema: &Value| {
        put_bytes(&mut out, number, &encode::message(&TABLE.messages[index], schema.as_object()?)?);
        Some(())
    };
    match value {
        Value::Array(all) => all.iter().try_for_each(|schema| put(2, schema))?,
        schema => put(1, schema)?,
    }
    Some(out)
}
