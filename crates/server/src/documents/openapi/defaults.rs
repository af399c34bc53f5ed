//! The `default` of fields in version 3, as upstream's generator (`kube-openapi`, `mustEnforceDefault`): the zero value of fields
//! without `omitempty`, and declared defaults (`+default`).

use super::message_name;
use serde_json::{Value, json};
use wire::protobuf::message_table::{Cardinality, Field, Message, TABLE, ValueType};

/// Adds the defaults to a schema such as `io.k8s.api.core.v1.PodSpec`.
pub(super) fn add(name: &str, schema: &mut Value) {
    if let Some(message) = message_name(name).and_then(|name| TABLE.message(&name)) {
        fill(message, schema);
    }
}

fn fill(message: &Message, schema: &mut Value) {
    for field in &message.fields {
        if let (Cardinality::Inline, ValueType::Message(index)) = (field.cardinality, field.value_type) {
            fill(&TABLE.messages[index], schema);
        }
        let Some(property) = schema.pointer_mut(&format!("/properties/{}", field.name)) else { continue };
        let (at, default) = match (field.cardinality, field.declared_default()) {
            (_, Some(default)) => ("", Some(default)),
            (Cardinality::Plain, None) => ("", plain(field)),
            (Cardinality::List, None) => ("/items", zero(field.value_type)),
            (Cardinality::Map, None) => ("/additionalProperties", zero(field.value_type)),
            _ => continue,
        };
        if let (Some(default), Some(target)) = (default, property.pointer_mut(at).filter(|p| p.is_object())) {
            // Siblings of a `$ref` are ignored, so it is wrapped in `allOf`, as upstream.
            if let Some(reference) = target.as_object_mut().and_then(|p| p.remove("$ref")) {
                target["allOf"] = json!([{"$ref": reference}]);
            }
            target["default"] = default;
        }
    }
}

/// Returns the default of a plain field: a struct is always encoded.
fn plain(field: &Field) -> Option<Value> {
    zero(field.value_type).filter(|zero| field.always_encoded || zero.is_object())
}

/// Returns the zero value of a type; none for types with their own encoding, for example times and quantities.
fn zero(value_type: ValueType) -> Option<Value> {
    match value_type {
        ValueType::Message(_) => Some(json!({})),
        ValueType::String => Some(json!("")),
        ValueType::Bool => Some(json!(false)),
        ValueType::Int32 | ValueType::Int64 => Some(json!(0)),
        _ => None,
    }
}
