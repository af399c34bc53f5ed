//! Objects with fields by chance, or with all of them, made from the table.

use crate::protobuf::table::{Field, Kind, Message, Shape, TABLE};
use serde_json::{Map, Value, json};

/// Makes objects; the same seed makes the same one.
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

    /// A xorshift: enough for a choice.
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
            if let (Shape::Inline, Kind::Message(place)) = (field.shape, field.kind) {
                object.extend(self.message(&TABLE.messages[place], depth + 1));
                continue;
            }
            // Schemas hold schemas without end.
            let again = matches!(field.kind, Kind::Message(place) if TABLE.messages[place].name == message.name);
            if again && depth > 0 {
                continue;
            }
            // What stands in the JSON always has to be there for both ways to agree.
            let wanted = self.choose() && (depth < 12) || field.always && field.shape == Shape::Plain;
            if !wanted {
                continue;
            }
            let held = self.field(field, depth);
            let nothing = field.shape == Shape::Plain && !field.always && held.as_object().is_some_and(Map::is_empty);
            if !nothing {
                object.insert(field.name.to_owned(), held);
            }
        }
        object
    }

    fn field(&mut self, field: &Field, depth: usize) -> Value {
        match field.shape {
            Shape::List => json!([self.value(field.kind, depth), self.value(field.kind, depth)]),
            Shape::Map => json!({"a": self.value(field.kind, depth), "b/c.d": self.value(field.kind, depth)}),
            _ => self.value(field.kind, depth),
        }
    }

    fn value(&mut self, kind: Kind, depth: usize) -> Value {
        match kind {
            Kind::String => json!("ü x"),
            Kind::Bool => json!(true),
            Kind::Int32 => json!(if self.choose() { -7 } else { 2_147_483_647 }),
            Kind::Int64 => json!(if self.choose() { i64::MIN } else { 300 }),
            Kind::Bytes => json!("/wAB"),
            Kind::Time => json!("2026-01-02T03:04:05Z"),
            Kind::MicroTime => json!("1969-01-02T03:04:05.000006Z"),
            Kind::Quantity => json!("1500m"),
            Kind::Duration => json!("1m0.5s"),
            Kind::IntOrString => {
                if self.choose() {
                    json!("25%")
                } else {
                    json!(8080)
                }
            }
            Kind::Raw => json!({"apiVersion": "example.org/v1", "kind": "Any", "held": [1, {}]}),
            Kind::Json => json!({"f:metadata": {"f:labels": {}}}),
            Kind::Strings => json!(["get", "list"]),
            Kind::Double => json!(if self.choose() { json!(0.5) } else { json!(-3) }),
            Kind::BoolOr(_) => json!(self.choose()),
            Kind::ListOr(_) => json!({"type": "string"}),
            Kind::Message(place) => Value::Object(self.message(&TABLE.messages[place], depth + 1)),
        }
    }
}

/// The API version of a package, as `messages.txt` has it.
pub(super) fn api_version(package: &str) -> Option<&'static str> {
    let heads = include_str!("../messages.txt").lines().filter_map(|l| l.strip_prefix('[')?.strip_suffix(']'));
    heads.filter_map(|h| h.split_once(' ')).find(|(p, _)| *p == package).map(|(_, version)| version)
}
