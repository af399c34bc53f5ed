//! What only schemas of custom kinds hold: a schema or a flag, a schema or several, and numbers with a point.

use super::{
    DecodeError,
    decode::{self, Depth},
    encode,
    table::TABLE,
    wire::{Fields, Wire, put_bytes, put_number},
};
use serde_json::{Map, Value, json};

/// `JSONSchemaPropsOrBool`: a flag in field 1, a schema in field 2.
pub(super) fn bool_or(place: usize, bytes: &[u8], depth: Depth) -> Result<Value, DecodeError> {
    let (mut allows, mut schema, mut fields) = (false, None, Fields::new(bytes));
    while let Some((number, wire)) = fields.next()? {
        match (number, wire) {
            (1, Wire::Varint(flag)) => allows = flag != 0,
            (2, Wire::Bytes(bytes)) => schema = Some(message(place, bytes, depth)?),
            (1 | 2, _) => return Err(DecodeError::WireType),
            _ => {}
        }
    }
    Ok(schema.unwrap_or(json!(allows)))
}

/// `JSONSchemaPropsOrArray`: a schema in field 1, several in field 2.
pub(super) fn list_or(place: usize, bytes: &[u8], depth: Depth) -> Result<Value, DecodeError> {
    let (mut all, mut schema, mut fields) = (Vec::new(), None, Fields::new(bytes));
    while let Some((number, wire)) = fields.next()? {
        match (number, wire) {
            (1, Wire::Bytes(bytes)) => schema = Some(message(place, bytes, depth)?),
            (2, Wire::Bytes(bytes)) => all.push(message(place, bytes, depth)?),
            (1 | 2, _) => return Err(DecodeError::WireType),
            _ => {}
        }
    }
    Ok(schema.unwrap_or(Value::Array(all)))
}

fn message(place: usize, bytes: &[u8], depth: Depth) -> Result<Value, DecodeError> {
    let mut map = Map::new();
    decode::message(&TABLE.messages[place], bytes, &mut map, depth)?;
    Ok(Value::Object(map))
}

/// Whole numbers have no point in JSON.
pub(super) fn number(bits: u64) -> Value {
    let number = f64::from_bits(bits);
    #[expect(clippy::cast_possible_truncation, reason = "only what is whole and small is cast")]
    if number.fract() == 0.0 && number.abs() < 9e15 { json!(number as i64) } else { json!(number) }
}

pub(super) fn put_bool_or(place: usize, held: &Value) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    match held {
        Value::Bool(allows) => put_number(&mut out, 1, i64::from(*allows)),
        schema => {
            put_number(&mut out, 1, 1);
            put_bytes(&mut out, 2, &encode::message(&TABLE.messages[place], schema.as_object()?)?);
        }
    }
    Some(out)
}

pub(super) fn put_list_or(place: usize, held: &Value) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    let mut put = |number, schema: &Value| {
        put_bytes(&mut out, number, &encode::message(&TABLE.messages[place], schema.as_object()?)?);
        Some(())
    };
    match held {
        Value::Array(all) => all.iter().try_for_each(|schema| put(2, schema))?,
        schema => put(1, schema)?,
    }
    Some(out)
}
