//! Generator of sample objects with random or all fields, from the message table.

use crate::protobuf::message_table::{Cardinality, Field, Message, TABLE, ValueType};
use serde_json::{Map, Value, json};

/// Generates objects, deterministically by seed.
pub(super) struct Sample {
    /// `None` fills every field.
    chance: Option<u64>,
}

impl Sample {
    pub(super) fn new(seed: u64) -> Self {
        Self { chance: Some(seed | 1) }
    }

    pub(super) fn full() -> Self {
        Self { chance: None }
    }

    /// Xorshift generator.
    fn choose(&mut self) -> bool {
        let Some(state) = &mut self.chance else { return true };
        *state ^= *state << 13;
        *state ^= *state >> 7;
        *state ^= *state << 17;
        *state % 3 > 0
    }

    pub(super) fn message(&mut self, message: &Message, depth: usize) -> Map<String, Value> {
        let mut object = Map::new();
        for field in &message.fields {
            if let (Cardinality::Inline, ValueType::Message(index)) = (field.cardinality, field.value_type) {
                object.extend(self.message(&TABLE.messages[index], depth + 1));
                continue;
            }
            // Schemas are recursive.
            let is_recursive =
                matches!(field.value_type, ValueType::Message(index) if TABLE.messages[index].name == message.name);
            if is_recursive && depth > 0 {
                continue;
            }
            // Fields that are always encoded must be set, so that the decoded object is equal.
            let is_set =
                self.choose() && (depth < 12) || field.always_encoded && field.cardinality == Cardinality::Plain;
            if !is_set {
                continue;
            }
            let value = self.field(field, depth);
            let is_omitted = field.cardinality == Cardinality::Plain
                && !field.always_encoded
                && value.as_object().is_some_and(Map::is_empty);
            if !is_omitted {
                object.insert(field.name.to_owned(), value);
            }
        }
        object
    }

    fn field(&mut self, field: &Field, depth: usize) -> Value {
        match field.cardinality {
            Cardinality::List => json!([self.value(field.value_type, depth), self.value(field.value_type, depth)]),
            Cardinality::Map => {
                json!({"a": self.value(field.value_type, depth), "b/c.d": self.value(field.value_type, depth)})
            }
            _ => self.value(field.value_type, depth),
        }
    }

    fn value(&mut self, value_type: ValueType, depth: usize) -> Value {
        match value_type {
            ValueType::String => json!("ü x"),
            ValueType::Bool => json!(true),
            ValueType::Int32 => json!(if self.choose() { -7 } else { 2_147_483_647 }),
            ValueType::Int64 => json!(if self.choose() { i64::MIN } else { 300 }),
            ValueType::Bytes => json!("/wAB"),
            ValueType::Time => json!("2026-01-02T03:04:05Z"),
            ValueType::MicroTime => json!("1969-01-02T03:04:05.000006Z"),
            ValueType::Quantity => json!("1500m"),
            ValueType::Duration => json!("1m0.5s"),
            ValueType::IntOrString => {
                if self.choose() {
                    json!("25%")
                } else {
                    json!(8080)
                }
            }
            ValueType::Raw => json!({"apiVersion": "example.org/v1", "kind": "Any", "held": [1, {}]}),
            ValueType::Json => json!({"f:metadata": {"f:labels": {}}}),
            ValueType::Strings => json!(["get", "list"]),
            ValueType::Double => json!(if self.choose() { json!(0.5) } else { json!(-3) }),
            ValueType::BoolOr(_) => json!(self.choose()),
            ValueType::ListOr(_) => json!({"type": "string"}),
            ValueType::Message(index) => Value::Object(self.message(&TABLE.messages[index], depth + 1)),
        }
    }
}

/// Returns the API version of a package in `messages.txt`.
pub(super) fn api_version(package: &str) -> Option<&'static str> {
    let heads = include_str!("../messages.txt").lines().filter_map(|l| l.strip_prefix('[')?.strip_suffix(']'));
    heads.filter_map(|h| h.split_once(' ')).find(|(p, _)| *p == package).map(|(_, version)| version)
}
