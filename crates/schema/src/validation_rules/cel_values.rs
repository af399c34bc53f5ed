//! Conversion of schemas and values to CEL types and values.

use crate::{AdditionalProperties, JsonType, Schema};
use base64::{Engine, engine::general_purpose::STANDARD};
use expr::{Key, RESERVED, Type, Value};
use jiff::Timestamp;
use serde_json::{Map, Value as Json};
use std::{collections::BTreeMap, sync::Arc};

/// Returns the escaped name of a field in CEL; `None` if it cannot be accessed (`cel.Escape`).
pub(super) fn escape_field_name(name: &str) -> Option<String> {
    if RESERVED.contains(&name) {
        return Some(format!("__{name}__"));
    }
    let is_name_start = |c: char| c.is_ascii_alphabetic() || "_.-/".contains(c);
    let is_escapable = name.starts_with(is_name_start) && name.chars().all(|c| is_name_start(c) || c.is_ascii_digit());
    is_escapable.then(|| {
        name.replace("__", "__underscores__").replace('.', "__dot__").replace('-', "__dash__").replace('/', "__slash__")
    })
}

impl Schema {
    /// Returns the CEL type of the schema; `root` is set for a resource.
    pub(crate) fn as_type(&self, root: bool) -> Type {
        match self.kind {
            _ if self.int_or_string => Type::Dyn,
            None => Type::Dyn,
            Some(JsonType::Boolean) => Type::BOOL,
            Some(JsonType::Integer) => Type::INT,
            Some(JsonType::Number) => Type::DOUBLE,
            Some(JsonType::String) => match self.value_validation.format.as_deref() {
                Some("byte") => Type::BYTES,
                Some("duration") => Type::DURATION,
                Some("date" | "date-time") => Type::TIMESTAMP,
                _ => Type::STRING,
            },
            Some(JsonType::Array) => Type::list(self.items.as_ref().map_or(Type::Dyn, |items| items.as_type(false))),
            Some(JsonType::Object) => match &self.additional {
                AdditionalProperties::Schema(like) => Type::Map(Box::new(like.as_type(false))),
                AdditionalProperties::Allowed => Type::Map(Box::new(Type::Dyn)),
                AdditionalProperties::Unspecified | AdditionalProperties::Forbidden => {
                    Type::Object(Arc::new(self.field_types(root)))
                }
            },
        }
    }

    fn field_types(&self, root: bool) -> BTreeMap<String, Type> {
        let mut fields = BTreeMap::new();
        if root || self.embedded {
            let names = ["name", "generateName"].map(|n| (n.to_owned(), Type::STRING));
            fields.insert("metadata".to_owned(), Type::Object(Arc::new(BTreeMap::from(names))));
            fields.extend(["apiVersion", "kind"].map(|n| (n.to_owned(), Type::STRING)));
        }
        let properties = self.properties.iter().filter(|(name, _)| !fields.contains_key(name.as_ref()));
        let properties: Vec<_> =
            properties.filter_map(|(name, schema)| Some((escape_field_name(name)?, schema.as_type(false)))).collect();
        fields.extend(properties);
        fields
    }

    /// Converts a value of the schema to CEL; `root` is set for a resource. Nulls are absent.
    pub(crate) fn as_value(&self, json: &Json, root: bool) -> Value {
        match (json, self.kind) {
            _ if self.int_or_string || self.kind.is_none() => untyped(json),
            (Json::Number(number), Some(JsonType::Number)) => Value::Double(number.as_f64().unwrap_or_default()),
            (Json::String(text), Some(JsonType::String)) => self.text(text),
            (Json::Array(items), Some(JsonType::Array)) => match &self.items {
                Some(item_schema) => {
                    Value::List(Arc::new(items.iter().map(|item| item_schema.as_value(item, false)).collect()))
                }
                None => untyped(json),
            },
            (Json::Object(fields), Some(JsonType::Object)) => match &self.additional {
                AdditionalProperties::Schema(like) => {
                    convert_map(fields, |_, value| Some(like.as_value(value, false)), |name| Some(name.to_owned()))
                }
                AdditionalProperties::Allowed => untyped(json),
                AdditionalProperties::Unspecified | AdditionalProperties::Forbidden => {
                    self.object(fields, root || self.embedded)
                }
            },
            _ => untyped(json),
        }
    }

    fn object(&self, fields: &Map<String, Json>, resource: bool) -> Value {
        let value = |name: &str, value: &Json| match name {
            "metadata" if resource => Some(convert_map(
                value.as_object().unwrap_or(&Map::new()),
                |_, value| Some(untyped(value)),
                |name| matches!(name, "name" | "generateName").then(|| name.to_owned()),
            )),
            "apiVersion" | "kind" if resource => Some(untyped(value)),
            name => self.properties.get(name).map(|property| property.as_value(value, false)),
        };
        convert_map(fields, value, escape_field_name)
    }

    fn text(&self, text: &str) -> Value {
        let parsed = match self.value_validation.format.as_deref() {
            Some("byte") => STANDARD.decode(text).ok().map(|bytes| Value::Bytes(bytes.into())),
            Some("date-time") => date_time(text).map(Value::Time),
            Some("date") => format!("{text}T00:00:00Z").parse().ok().map(Value::Time),
            Some("duration") => api::duration::parse_duration(text).ok().map(Value::Duration),
            _ => None,
        };
        parsed.unwrap_or_else(|| Value::string(text))
    }
}

/// Parses a time. The last hours of 9999, which clients use for "never", become the maximum timestamp.
fn date_time(text: &str) -> Option<Timestamp> {
    let text = text.to_uppercase();
    text.parse().ok().or_else(|| text.starts_with("9999-12-3").then_some(Timestamp::MAX))
}

fn convert_map(
    fields: &Map<String, Json>,
    convert: impl Fn(&str, &Json) -> Option<Value>,
    name: impl Fn(&str) -> Option<String>,
) -> Value {
    let present = fields.iter().filter(|(_, value)| !value.is_null());
    let entries = present.filter_map(|(key, value)| Some((Key::String(name(key)?.into()), convert(key, value)?)));
    Value::Map(Arc::new(entries.collect()))
}

/// Converts a value without a schema.
fn untyped(json: &Json) -> Value {
    match json {
        Json::Null => Value::Null,
        Json::Bool(flag) => Value::Bool(*flag),
        Json::Number(number) => match (number.as_i64(), number.as_f64()) {
            (Some(whole), _) => Value::Int(whole),
            #[expect(clippy::cast_possible_truncation, reason = "only what is whole and small is cast")]
            (None, Some(whole)) if whole.fract() == 0.0 && whole.abs() < 9e15 => Value::Int(whole as i64),
            (None, number) => Value::Double(number.unwrap_or_default()),
        },
        Json::String(text) => Value::string(text),
        Json::Array(items) => Value::List(Arc::new(items.iter().map(untyped).collect())),
        Json::Object(fields) => convert_map(fields, |_, value| Some(untyped(value)), |name| Some(name.to_owned())),
    }
}
