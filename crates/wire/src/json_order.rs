//! JSON with fields in upstream's order: that of Go's structs for built-in kinds, alphabetical for custom resources and maps.

use crate::protobuf::message_table::{Cardinality, Message, TABLE, ValueType};
use serde::{
    Serialize, Serializer,
    ser::{SerializeMap, SerializeSeq},
};
use serde_json::Value;
use std::sync::LazyLock;

/// Type that determines the order of an object's fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Type {
    /// Alphabetical order.
    Untyped,
    /// The type of the object's own `apiVersion` and `kind` (`runtime.RawExtension`).
    Embedded,
    /// The struct of a message, by the message's index in the table.
    Struct(usize),
    /// A map in alphabetical order, whose values are structs.
    MapOf(usize),
}

impl Type {
    /// The type of an object's `apiVersion` and `kind`.
    pub fn of(object: &Value) -> Self {
        let text = |field: &str| object.get(field).and_then(Value::as_str).unwrap_or_default();
        TABLE.index_of_type(text("apiVersion"), text("kind")).map_or(Self::Untyped, Self::Struct)
    }

    /// Returns the rank of a field, and the type of its value.
    fn field(self, name: &str) -> (u16, Self) {
        let index = match self {
            Self::Untyped | Self::Embedded => return (0, Self::Untyped),
            Self::MapOf(index) => return (0, Self::Struct(index)),
            Self::Struct(index) => index,
        };
        let orders = FIELD_ORDERS.get(index).map_or(&[][..], |orders| orders);
        match orders.binary_search_by(|order| order.name.cmp(name)) {
            Ok(at) => (orders[at].rank, orders[at].value_type),
            // `TypeMeta`, which no message has.
            Err(_) if name == "kind" => (0, Self::Untyped),
            Err(_) if name == "apiVersion" => (1, Self::Untyped),
            Err(_) => (u16::MAX, Self::Untyped),
        }
    }
}

/// Sorts the fields of an object of this type; returns each with the type of its value.
pub fn sorted<'a, T>(message_type: Type, fields: impl Iterator<Item = (&'a str, T)>) -> Vec<(&'a str, Type, T)> {
    let mut all: Vec<_> = fields.map(|(name, value)| (message_type.field(name), name, value)).collect();
    all.sort_unstable_by(|a, b| (a.0.0, a.1).cmp(&(b.0.0, b.1)));
    all.into_iter().map(|((_, message_type), name, value)| (name, message_type, value)).collect()
}

/// Rank and type of a struct's field.
struct FieldOrder {
    name: &'static str,
    rank: u16,
    value_type: Type,
}

/// The fields of each message's struct, sorted by name.
static FIELD_ORDERS: LazyLock<Vec<Box<[FieldOrder]>>> = LazyLock::new(|| {
    let orders = |message| {
        let mut all = Vec::new();
        flatten(message, &mut all);
        all.sort_unstable_by_key(|order: &FieldOrder| order.name);
        all.into_boxed_slice()
    };
    TABLE.messages.iter().map(orders).collect()
});

fn flatten(message: &'static Message, all: &mut Vec<FieldOrder>) {
    const TYPE_META: usize = 2;
    let mut fields: Vec<_> = message.fields.iter().collect();
    fields.sort_unstable_by_key(|field| field.go_index);
    for field in fields {
        let value_type = match (field.cardinality, field.value_type) {
            (Cardinality::Inline, ValueType::Message(index)) => {
                flatten(&TABLE.messages[index], all);
                continue;
            }
            (Cardinality::Map, ValueType::Message(index) | ValueType::ListOr(index)) => Type::MapOf(index),
            (_, ValueType::Message(index) | ValueType::BoolOr(index) | ValueType::ListOr(index)) => Type::Struct(index),
            (_, ValueType::Raw) => Type::Embedded,
            _ => Type::Untyped,
        };
        let rank = u16::try_from(all.len() + TYPE_META).unwrap_or(u16::MAX);
        all.push(FieldOrder { name: field.name, rank, value_type });
    }
}

/// Serializes a value of this type in order.
pub struct InOrder<'a> {
    /// The value.
    pub value: &'a Value,
    /// Its type.
    pub value_type: Type,
}

impl Serialize for InOrder<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match (self.value, self.value_type) {
            (value, Type::Untyped) => value.serialize(serializer),
            (Value::Array(items), value_type) => {
                let mut all = serializer.serialize_seq(Some(items.len()))?;
                for value in items {
                    all.serialize_element(&InOrder { value, value_type })?;
                }
                all.end()
            }
            (value @ Value::Object(_), Type::Embedded) => {
                InOrder { value, value_type: Type::of(value) }.serialize(serializer)
            }
            (Value::Object(fields), value_type) => {
                let mut all = serializer.serialize_map(Some(fields.len()))?;
                for (name, value_type, value) in
                    sorted(value_type, fields.iter().map(|(name, value)| (name.as_str(), value)))
                {
                    all.serialize_entry(name, &InOrder { value, value_type })?;
                }
                all.end()
            }
            (value, _) => value.serialize(serializer),
        }
    }
}

/// Encodes an object in the order of its kind, with a final newline.
pub fn encode_document(value: &Value) -> Vec<u8> {
    let mut text = encode_value(value, Type::of(value));
    text.push(b'\n');
    text
}

/// Encodes a value of this type, without a final newline.
pub fn encode_value(value: &Value, value_type: Type) -> Vec<u8> {
    serde_json::to_vec(&InOrder { value, value_type }).unwrap_or_default()
}

/// Removes the final newline of a document, to embed it in another.
pub fn without_newline(document: &[u8]) -> &[u8] {
    document.strip_suffix(b"\n").unwrap_or(document)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[track_caller]
    fn check(value: &Value, expected: &str) {
        assert_eq!(String::from_utf8(encode_document(value)).unwrap(), format!("{expected}\n"));
    }

    #[test]
    fn fields_are_in_order_of_go_structs() {
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
    fn inlined_and_reference_fields_are_ordered() {
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
    fn custom_kinds_are_sorted_despite_built_in_names() {
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
    fn objects_in_tables_are_ordered() {
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
