//! Decoding and validation of embedded resources (`x-kubernetes-embedded-resource`) in custom objects
//! (`apiextensions-apiserver/pkg/apiserver/schema/objectmeta`).

use crate::{FieldErrors, FieldPath, field_cursor::FieldCursor, object_meta};
use schema::Schema;
use serde_json::{Value, json};
use wire::typed::{self, DecodeFieldError};

/// Decodes the metadata of embedded resources. Returns the unknown fields.
///
/// # Errors
/// If a value has the wrong type.
pub(super) fn decode_metadata(schema: &Schema, object: &mut Value) -> Result<Vec<String>, DecodeFieldError> {
    let mut unknown = Vec::new();
    for resource_path in schema.embedded_resources(object) {
        let at = format!("{}/metadata", resource_path.pointer);
        if let Some(found) = object.pointer_mut(&at).filter(|metadata| !metadata.is_null()) {
            unknown.extend(typed::decode_metadata(found, &resource_path.path.child("metadata").to_string())?);
        }
    }
    Ok(unknown)
}

/// Validates `apiVersion`, `kind` and metadata of embedded resources.
pub(super) fn validate(schema: &Schema, object: &Value, errors: &mut FieldErrors) {
    for resource_path in schema.embedded_resources(object) {
        let Some(resource) = object.pointer(&resource_path.pointer) else { continue };
        for field in ["apiVersion", "kind"] {
            validate_type_field(&resource[field], field, &resource_path.path.child(field), errors);
        }
        if resource["metadata"].is_object() {
            let resource = FieldCursor::new(resource, &resource_path.path);
            object_meta::validate_embedded(&resource.at("metadata"), errors);
        }
    }
}

fn validate_type_field(value: &Value, field: &str, path: &FieldPath, errors: &mut FieldErrors) {
    match value {
        Value::Null => errors.required(path, "must not be empty"),
        Value::String(text) if text.is_empty() => errors.invalid(path, value, "must not be empty"),
        Value::String(text) if field == "kind" => {
            let wrong = api::names::dns1035_label(&text.to_lowercase());
            if !wrong.is_empty() {
                let detail = format!("may have mixed case, but should otherwise match: {}", wrong.join(","));
                errors.invalid(path, value, &detail);
            }
        }
        Value::String(text) if text.matches('/').count() > 1 => {
            errors.invalid(path, value, &format!("unexpected GroupVersion string: {text}"));
        }
        Value::String(_) => {}
        other => errors.invalid(path, &json!(other), "must be a string"),
    }
}
