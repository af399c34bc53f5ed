//! Values of enum fields (`+enum`).

use super::message_name;
use serde_json::{Value, json};
use std::fmt::Write;

/// Adds the values to a schema such as `io.k8s.api.core.v1.PodSpec`.
pub(super) fn add(name: &str, schema: &mut Value) {
    let Some(message) = message_name(name) else { return };
    for (field, values) in wire::enums::fields(&message) {
        let Some(property) = schema.pointer_mut(&format!("/properties/{field}")) else { continue };
        // The items of a list or a map have the values.
        let inner = ["items", "additionalProperties"].into_iter().find(|inner| property[*inner].is_object());
        match inner {
            Some(inner) => property[inner]["enum"] = json!(values),
            None => {
                property["enum"] = json!(values);
                describe(property, values);
            }
        }
    }
}

/// Adds the values to the description, as upstream, but without their explanations.
fn describe(property: &mut Value, values: &[&str]) {
    let mut text = property["description"].as_str().unwrap_or("").to_owned();
    text.push_str("\n\nPossible enum values:");
    for value in values {
        let _ = write!(text, "\n - `{value:?}`");
    }
    property["description"] = json!(text.trim_start());
}
