//! JSON with the fields in upstream's order: that of Go's structs where a kind has one, and of the alphabet where it has none,
//! as custom kinds and the maps within others.

use crate::protobuf::table::{Kind, Message, Shape, TABLE};
use serde::{
    Serialize, Serializer,
    ser::{SerializeMap, SerializeSeq},
};
use serde_json::Value;
use std::sync::LazyLock;

/// What decides about the order of an object's fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Type {
    /// The alphabet.
    Untyped,
    /// What it names as its kind (`runtime.RawExtension`).
    Named,
    /// The struct behind a message, by the message's place in the table.
    Struct(usize),
    /// The alphabet, and the values are such structs.
    MapOf(usize),
}

impl Type {
    /// What an object names as its kind.
    pub(crate) fn of(object: &Value) -> Self {
        let text = |field: &str| object.get(field).and_then(Value::as_str).unwrap_or_default();
        TABLE.place_of_type(text("apiVersion"), text("kind")).map_or(Self::Untyped, Self::Struct)
    }

    /// Where a field stands among the others, and what its values are.
    fn field(self, name: &str) -> (u16, Self) {
        let place = match self {
            Self::Untyped | Self::Named => return (0, Self::Untyped),
            Self::MapOf(place) => return (0, Self::Struct(place)),
            Self::Struct(place) => place,
        };
        let slots = SLOTS.get(place).map_or(&[][..], |slots| slots);
        match slots.binary_search_by(|slot| slot.name.cmp(name)) {
            Ok(at) => (slots[at].rank, slots[at].of),
            // `TypeMeta`, which no message has.
            Err(_) if name == "kind" => (0, Self::Untyped),
            Err(_) if name == "apiVersion" => (1, Self::Untyped),
            Err(_) => (u16::MAX, Self::Untyped),
        }
    }
}

/// The fields of an object of this type in their order, each with the type of its value.
pub(crate) fn sorted<'a, T>(of: Type, fields: impl Iterator<Item = (&'a str, T)>) -> Vec<(&'a str, Type, T)> {
    let mut all: Vec<_> = fields.map(|(name, value)| (of.field(name), name, value)).collect();
    all.sort_unstable_by(|a, b| (a.0.0, a.1).cmp(&(b.0.0, b.1)));
    all.into_iter().map(|((_, of), name, value)| (name, of, value)).collect()
}

/// A field of a struct.
struct Slot {
    name: &'static str,
    rank: u16,
    of: Type,
}

/// The fields of each message's struct, by name.
static SLOTS: LazyLock<Vec<Box<[Slot]>>> = LazyLock::new(|| {
    let slots = |message| {
        let mut all = Vec::new();
        flatten(message, &mut all);
        all.sort_unstable_by_key(|slot: &Slot| slot.name);
        all.into_boxed_slice()
    };
    TABLE.messages.iter().map(slots).collect()
});

fn flatten(message: &'static Message, all: &mut Vec<Slot>) {
    const TYPE_META: usize = 2;
    let mut fields: Vec<_> = message.fields.iter().collect();
    fields.sort_unstable_by_key(|field| field.place);
    for field in fields {
        let of = match (field.shape, field.kind) {
            (Shape::Inline, Kind::Message(place)) => {
                flatten(&TABLE.messages[place], all);
                continue;
            }
            (Shape::Map, Kind::Message(place) | Kind::ListOr(place)) => Type::MapOf(place),
            (_, Kind::Message(place) | Kind::BoolOr(place) | Kind::ListOr(place)) => Type::Struct(place),
            (_, Kind::Raw) => Type::Named,
            _ => Type::Untyped,
        };
        let rank = u16::try_from(all.len() + TYPE_META).unwrap_or(u16::MAX);
        all.push(Slot { name: field.name, rank, of });
    }
}

/// A value of this type, to be written in order.
pub(crate) struct InOrder<'a> {
    pub(crate) value: &'a Value,
    pub(crate) of: Type,
}

impl Serialize for InOrder<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match (self.value, self.of) {
            (value, Type::Untyped) => value.serialize(serializer),
            (Value::Array(items), of) => {
                let mut all = serializer.serialize_seq(Some(items.len()))?;
                for value in items {
                    all.serialize_element(&InOrder { value, of })?;
                }
                all.end()
            }
            (value @ Value::Object(_), Type::Named) => InOrder { value, of: Type::of(value) }.serialize(serializer),
            (Value::Object(fields), of) => {
                let mut all = serializer.serialize_map(Some(fields.len()))?;
                for (name, of, value) in sorted(of, fields.iter().map(|(name, value)| (name.as_str(), value))) {
                    all.serialize_entry(name, &InOrder { value, of })?;
                }
                all.end()
            }
            (value, _) => value.serialize(serializer),
        }
    }
}

/// A document as an answer: in the order of what it names as its kind, with a newline at the end.
pub(crate) fn document(value: &Value) -> Vec<u8> {
    let mut text = part(value, Type::of(value));
    text.push(b'\n');
    text
}

/// A value of this type, to be put into a document.
pub(crate) fn part(value: &Value, of: Type) -> Vec<u8> {
    serde_json::to_vec(&InOrder { value, of }).unwrap_or_default()
}

/// A document without its end, to be put into another.
pub(crate) fn without_newline(document: &[u8]) -> &[u8] {
    document.strip_suffix(b"\n").unwrap_or(document)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[track_caller]
    fn check(value: &Value, expected: &str) {
        assert_eq!(String::from_utf8(document(value)).unwrap(), format!("{expected}\n"));
    }

    #[test]
    fn fields_stand_as_in_go_structs() {
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "status": {"phase": "Running", "observedGeneration": 1},
            "metadata": {"labels": {"b": "2", "a": "1"}, "uid": "u", "name": "p", "namespace": "n"},
            "spec": {"restartPolicy": "Always", "containers": [{"image": "i", "args": ["x"], "name": "c"}], "volumes": []}});
        check(
            &pod,
            concat!(
                r#"{"kind":"Pod","apiVersion":"v1","metadata":{"name":"p","namespace":"n","uid":"u","labels":{"a":"1","b":"2"}},"#,
                r#""spec":{"volumes":[],"containers":[{"name":"c","image":"i","args":["x"]}],"restartPolicy":"Always"},"#,
                r#""status":{"observedGeneration":1,"phase":"Running"}}"#
            ),
        );
        let status = json!({"apiVersion": "v1", "kind": "Status", "code": 404, "details": {"kind": "pods", "name": "x"},
            "message": "m", "metadata": {}, "reason": "NotFound", "status": "Failure"});
        check(
            &status,
            r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"m","reason":"NotFound","details":{"name":"x","kind":"pods"},"code":404}"#,
        );
    }

    #[test]
    fn inline_structs_and_references_have_their_own_places() {
        let volumes = json!({"kind": "Pod", "apiVersion": "v1", "spec": {"volumes": [{"emptyDir": {}, "name": "v"}]},
            "metadata": {"ownerReferences": [{"uid": "u", "name": "o", "kind": "Job", "apiVersion": "batch/v1"}]}});
        check(
            &volumes,
            concat!(
                r#"{"kind":"Pod","apiVersion":"v1","metadata":{"ownerReferences":[{"apiVersion":"batch/v1","kind":"Job","name":"o","uid":"u"}]},"#,
                r#""spec":{"volumes":[{"name":"v","emptyDir":{}}]}}"#
            ),
        );
    }

    #[test]
    fn custom_kinds_are_sorted_whatever_they_are_called() {
        for kind in ["Widget", "Status", "Condition"] {
            let custom =
                json!({"kind": kind, "apiVersion": "example.com/v1", "metadata": {"name": "a", "labels": {}}, "a": 1});
            check(
                &custom,
                &format!(
                    r#"{{"a":1,"apiVersion":"example.com/v1","kind":"{kind}","metadata":{{"labels":{{}},"name":"a"}}}}"#
                ),
            );
        }
    }

    #[test]
    fn tables_have_their_objects_in_order() {
        let object = json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": {"uid": "u", "name": "a"}});
        for version in ["v1", "v1beta1"] {
            let table = json!({"kind": "Table", "apiVersion": format!("meta.k8s.io/{version}"), "metadata": {},
                "rows": [{"object": object, "cells": [1], "conditions": [{"status": "True", "type": "Completed"}]}],
                "columnDefinitions": [{"priority": 0, "name": "Name", "type": "string", "format": "name", "description": "d"}]});
            check(
                &table,
                &[
                    r#"{"kind":"Table","apiVersion":"meta.k8s.io/"#,
                    version,
                    r#"","metadata":{},"columnDefinitions":[{"name":"Name","type":"string","format":"name","description":"d","priority":0}],"#,
                    r#""rows":[{"cells":[1],"conditions":[{"type":"Completed","status":"True"}],"#,
                    r#""object":{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{"name":"a","uid":"u"}}}]}"#,
                ]
                .concat(),
            );
        }
    }
}
