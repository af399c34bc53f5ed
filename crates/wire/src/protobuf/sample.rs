//! Generator of sample objects with random or all fields, from the message table.

use crate::protobuf::message_table::{Cardinality, Field, Message, TABLE, ValueType};
use serde_json::{Map, Value, json};

/// Generates objects, deterministically by seed.
pub struct Sample {
    /// `None` fills every field.
    chance: Option<u64>,
}

impl Sample {
    /// Returns a generator that fills fields at random.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self { chance: Some(seed | 1) }
    }

    /// Returns a generator that fills every field.
    #[must_use]
    pub fn full() -> Self {
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

    /// Generates an object of a message.
    pub fn message(&mut self, message: &Message, depth: usize) -> Map<String, Value> {
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
#[must_use]
pub fn api_version(package: &str) -> Option<&'static str> {
    let heads = include_str!("messages.txt").lines().filter_map(|l| l.strip_prefix('[')?.strip_suffix(']'));
    heads.filter_map(|h| h.split_once(' ')).find(|(p, _)| *p == package).map(|(_, version)| version)
}

/// Decodes hexadecimal digits; other characters are zero.
#[must_use]
pub fn bytes(hex: &str) -> Vec<u8> {
    (0..hex.len()).step_by(2).map(|i| u8::from_str_radix(&hex[i..i + 2], 16).unwrap_or(0)).collect()
}

/// Bodies that `kubectl create` 1.32 sends, and the JSON that it prints for the same objects.
pub const KUBECTL_BODIES: [(&str, &str); 5] = [
    (
        "6b3873000a0f0a02763112094e616d65737061636512190a110a017812001a0022002a0032003800420012001a020a001a002200",
        r#"{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "x"}}"#,
    ),
    (
        "6b3873000a0f0a0276311209436f6e6669674d617012270a110a016312001a0022002a0032003800420012060a01611201621a0a0a0362696e1203ff00011a002200",
        r#"{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"a": "b"}, "binaryData": {"bin": "/wAB"}}"#,
    ),
    (
        "6b3873000a0c0a0276311206536563726574121d0a110a017312001a0022002a0032003800420012060a01701201771a001a002200",
        r#"{"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "data": {"p": "dw=="}}"#,
    ),
    (
        "6b3873000a150a07617070732f7631120a4465706c6f796d656e7412a7010a1b0a016412001a0022002a003200380042005a080a03617070120164127a0801120a0a080a036170701201641a620a1a0a0012001a0022002a003200380042005a080a03617070120164124412260a01781201782a00320a0a001000185022002a0042006a007200800100880100900100a201001a00320042004a0052005800600068008201008a01009a0100c2010022020a00280038001a0c0800100018002000280038001a002200",
        r#"{"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d", "labels": {"app": "d"}}, "spec": {
            "replicas": 1, "selector": {"matchLabels": {"app": "d"}},
            "template": {"metadata": {"labels": {"app": "d"}}, "spec": {"containers": [{"name": "x", "image": "x", "ports": [{"containerPort": 80}]}]}}}}"#,
    ),
    (
        "6b3873000a130a027631120d5265736f7572636551756f746112230a110a017112001a0022002a00320038004200120c0a0a0a0363707512030a01311a001a002200",
        r#"{"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q"}, "spec": {"hard": {"cpu": "1"}}}"#,
    ),
];
