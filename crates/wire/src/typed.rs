//! Typed decoding of objects, as with upstream's Go types: finds unknown fields, checks types, and normalizes `omitempty`
//! fields.
//!
//! It is driven by the [message table](crate::protobuf::message_table) of types, so that kinds need no code.

mod convert;
mod scalar;

use crate::protobuf::message_table::{Cardinality, Field, Message, TABLE, ValueType};
use api::bounded_messages::BoundedMessages;
pub use convert::{ConversionError, ConverterError, convert};
use scalar::InvalidValue;
use serde_json::{Map, Value};

/// Lists for which defaulting distinguishes empty from absent (upstream's `copyHPAScalingRules`). Validation rejects empty
/// ones, so none is stored. Handwritten: only code of upstream says it, no tag or marker of the field.
const EMPTY_LIST_IS_SET: [(&str, &str); 1] = [("autoscaling/v2.HPAScalingRules", "policies")];

/// A field cannot be decoded, with the message of Go's decoder.
#[derive(Debug, Clone, thiserror::Error)]
pub enum DecodeFieldError {
    /// `json.UnmarshalTypeError`.
    #[error("json: cannot unmarshal {found} into Go struct field {field} of type {expected}")]
    Type {
        /// Go's name of the JSON value's type.
        found: String,
        /// Struct and path of the field.
        field: String,
        /// Go's name of the field's type.
        expected: String,
    },
    /// Error of a type's own decoder.
    #[error("{path}: {source}")]
    Value {
        /// Path of the field.
        path: String,
        /// Error of the value.
        source: InvalidValue,
    },
}

/// Removes the unknown fields of an object; returns `unknown field "path"` for each. Kinds that are not in the table are
/// unchanged.
///
/// # Errors
/// If a value has the wrong type. The object is invalid then.
pub fn decode_object(api_version: &str, kind: &str, object: &mut Value) -> Result<Vec<String>, DecodeFieldError> {
    let Some(message) = TABLE.kind(api_version, kind) else { return Ok(Vec::new()) };
    let mut decoder = Decoder::default();
    decoder.message(message, object, kind)?;
    object["apiVersion"] = api_version.into();
    object["kind"] = kind.into();
    Ok(decoder.unknown.into_messages())
}

/// As [`decode_object`], for `ObjectMeta` at a path.
///
/// # Errors
/// If a value has the wrong type.
pub fn decode_metadata(metadata: &mut Value, path: &str) -> Result<Vec<String>, DecodeFieldError> {
    let Some(message) = TABLE.message("meta/v1.ObjectMeta") else { return Ok(Vec::new()) };
    let mut decoder = Decoder { path: path.to_owned(), unknown: BoundedMessages::default() };
    decoder.message(message, metadata, "ObjectMeta")?;
    Ok(decoder.unknown.into_messages())
}

/// Returns the fields that Go encodes of an empty object.
pub fn empty_object(api_version: &str, kind: &str) -> Map<String, Value> {
    let mut fields = Map::new();
    TABLE.kind(api_version, kind).into_iter().for_each(|message| fill(message, &mut fields));
    fields
}

/// Decoder with the current path.
#[derive(Default)]
struct Decoder {
    /// `spec.containers[0].name`
    path: String,
    unknown: BoundedMessages,
}

impl Decoder {
    /// Decodes in place: most values need no change.
    fn message(&mut self, message: &Message, value: &mut Value, parent: &str) -> Result<(), DecodeFieldError> {
        if value.is_null() {
            *value = Value::Object(Map::new());
        }
        let Value::Object(fields) = value else { return Err(self.mismatch(parent, value, &go_name(message))) };
        let mut result = Ok(());
        fields.retain(|key, value| {
            let is_known = if result.is_ok() { self.key_value(message, key, value) } else { Ok(true) };
            is_known.unwrap_or_else(|error| {
                result = Err(error);
                true
            })
        });
        result?;
        fill(message, fields);
        Ok(())
    }

    /// Decodes the value of a key; returns whether it is kept.
    fn key_value(&mut self, message: &Message, key: &str, value: &mut Value) -> Result<bool, DecodeFieldError> {
        let has_type_meta = self.path.is_empty() || message.has_type_meta;
        if has_type_meta && matches!(key, "apiVersion" | "kind") {
            return Ok(true);
        }
        let at = self.enter(key);
        let is_known = match message.field_named(key) {
            None => {
                self.unknown.push(|| format!("unknown field {:?}", self.path));
                false
            }
            Some(_) if value.is_null() => false,
            Some(field) => {
                self.field(field, value, struct_name(message))?;
                let empty_is_set = EMPTY_LIST_IS_SET.contains(&(message.name.as_str(), key));
                field.cardinality == Cardinality::Pointer
                    || field.always_encoded
                    || empty_is_set
                    || !is_empty(field, value)
            }
        };
        self.path.truncate(at);
        Ok(is_known)
    }

    fn field(&mut self, field: &Field, value: &mut Value, parent: &str) -> Result<(), DecodeFieldError> {
        let at = self.path.len();
        match (field.cardinality, value) {
            (Cardinality::List, Value::Array(items)) => {
                for (i, item) in items.iter_mut().enumerate() {
                    self.path.push_str(&format!("[{i}]"));
                    self.element(field, item, parent)?;
                    self.path.truncate(at);
                }
                Ok(())
            }
            (Cardinality::Map, Value::Object(entries)) => {
                for (key, value) in entries {
                    self.path.extend(["[", key.as_str(), "]"]);
                    self.element(field, value, parent)?;
                    if field.value_type == ValueType::Quantity {
                        scalar::round_resource_list_quantity(value);
                    }
                    self.path.truncate(at);
                }
                Ok(())
            }
            (Cardinality::List | Cardinality::Map, other) => Err(self.mismatch(parent, other, &type_name(field))),
            (_, value) => self.element(field, value, parent),
        }
    }

    /// Decodes one value of a field, or one element of a list or map.
    fn element(&mut self, field: &Field, value: &mut Value, parent: &str) -> Result<(), DecodeFieldError> {
        match (field.value_type, value) {
            (ValueType::Raw | ValueType::Json, _) | (ValueType::BoolOr(_), Value::Bool(_)) => Ok(()),
            (ValueType::ListOr(index), Value::Array(items)) => {
                items.iter_mut().try_for_each(|item| self.message(&TABLE.messages[index], item, parent))
            }
            (ValueType::Message(index) | ValueType::BoolOr(index) | ValueType::ListOr(index), value) => {
                self.message(&TABLE.messages[index], value, parent)
            }
            (kind, value) => scalar::normalize(kind, value).map_err(|error| match error {
                scalar::ValueError::Type => self.mismatch(parent, value, element_name(field)),
                scalar::ValueError::Number => self.mismatch_of(parent, &format!("number {value}"), element_name(field)),
                scalar::ValueError::Value(source) => DecodeFieldError::Value { path: self.path.clone(), source },
            }),
        }
    }

    /// Appends a field to the path; returns the previous length.
    fn enter(&mut self, key: &str) -> usize {
        let at = self.path.len();
        if at > 0 {
            self.path.push('.');
        }
        self.path.push_str(key);
        at
    }

    /// Go's `UnmarshalTypeError`.
    fn mismatch(&self, parent: &str, value: &Value, expected: &str) -> DecodeFieldError {
        let found = match value {
            Value::Null => "null",
            Value::Bool(_) => "bool",
            Value::Number(_) => "number",
            Value::String(_) => "string",
            Value::Array(_) => "array",
            Value::Object(_) => "object",
        };
        self.mismatch_of(parent, found, expected)
    }

    fn mismatch_of(&self, parent: &str, found: &str, expected: &str) -> DecodeFieldError {
        let mut path = String::new();
        let mut depth = 0_u32;
        for c in self.path.chars() {
            match c {
                '[' => depth += 1,
                ']' => depth = depth.saturating_sub(1),
                _ if depth == 0 => path.push(c),
                _ => {}
            }
        }
        DecodeFieldError::Type {
            found: found.to_owned(),
            field: format!("{parent}.{path}"),
            expected: expected.to_owned(),
        }
    }
}

/// Whether Go omits a value (`omitempty`).
fn is_empty(field: &Field, value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(b) => !b,
        Value::Number(n) => n.as_i64() == Some(0) && field.value_type != ValueType::IntOrString,
        Value::String(s) => s.is_empty(),
        Value::Array(items) => items.is_empty(),
        // A struct is never omitted.
        Value::Object(map) => map.is_empty() && field.cardinality == Cardinality::Map,
    }
}

/// Adds the absent fields that Go always encodes: structs, and values without `omitempty`.
fn fill(message: &Message, fields: &mut Map<String, Value>) {
    for field in &message.fields {
        let is_absent = || !fields.contains_key(field.name);
        let value = match (field.cardinality, field.value_type) {
            (Cardinality::Inline, ValueType::Message(index)) => {
                fill(&TABLE.messages[index], fields);
                continue;
            }
            (Cardinality::Plain, ValueType::Message(index)) if is_absent() => {
                let mut inner = Map::new();
                fill(&TABLE.messages[index], &mut inner);
                Value::Object(inner)
            }
            (Cardinality::Plain, ValueType::String) if field.always_encoded && is_absent() => Value::from(""),
            (Cardinality::Plain, ValueType::Bool) if field.always_encoded && is_absent() => Value::from(false),
            (Cardinality::Plain, ValueType::Int32 | ValueType::Int64) if field.always_encoded && is_absent() => {
                Value::from(0)
            }
            _ => continue,
        };
        fields.insert(field.name.to_owned(), value);
    }
}

/// `Container` of `core/v1.Container`.
fn struct_name(message: &Message) -> &str {
    message.name.rsplit('.').next().unwrap_or_default()
}

/// `v1.Container` of `core/v1.Container`.
fn go_name(message: &Message) -> String {
    message.name.rsplit('/').next().unwrap_or_default().to_owned()
}

fn type_name(field: &Field) -> String {
    let element = match field.value_type {
        ValueType::Message(index) => go_name(&TABLE.messages[index]),
        _ => element_name(field).to_owned(),
    };
    match field.cardinality {
        Cardinality::List => format!("[]{element}"),
        Cardinality::Map => format!("map[string]{element}"),
        _ => element,
    }
}

/// Go's type of a scalar value.
fn element_name(field: &Field) -> &'static str {
    match field.value_type {
        ValueType::String
        | ValueType::Quantity
        | ValueType::IntOrString
        | ValueType::Time
        | ValueType::MicroTime
        | ValueType::Duration => "string",
        ValueType::Bool => "bool",
        ValueType::Int32 => "int32",
        ValueType::Int64 => "int64",
        ValueType::Bytes => "[]uint8",
        ValueType::Strings => "[]string",
        ValueType::Double => "float64",
        ValueType::Raw | ValueType::Json | ValueType::Message(_) | ValueType::BoolOr(_) | ValueType::ListOr(_) => {
            "struct"
        }
    }
}

#[cfg(test)]
mod tests;
