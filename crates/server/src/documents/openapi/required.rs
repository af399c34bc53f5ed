//! The `required` fields of a schema, as upstream's generator (`hasOptionalTag`). Those of k8s-openapi are not upstream's.

use super::message_name;
use serde_json::{Value, json};
use wire::protobuf::message_table::{Cardinality, Message, TABLE, ValueType};

/// Replaces the required fields of a schema such as `io.k8s.api.core.v1.PodSpec` by those of the message table.
pub(super) fn replace(name: &str, schema: &mut Value) {
    let Some(message) = message_name(name).and_then(|name| TABLE.message(&name)) else { return };
    let mut required = Vec::new();
    collect(message, &mut required);
    required.sort_unstable();
    if required.is_empty() {
        schema.as_object_mut().map(|schema| schema.remove("required"));
    } else {
        schema["required"] = json!(required);
    }
}

fn collect(message: &Message, required: &mut Vec<&'static str>) {
    for field in &message.fields {
        match (field.cardinality, field.value_type) {
            (Cardinality::Inline, ValueType::Message(index)) => collect(&TABLE.messages[index], required),
            _ if field.required => required.push(field.name),
            _ => {}
        }
    }
}
