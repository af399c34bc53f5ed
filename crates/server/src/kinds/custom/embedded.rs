//! Resources within objects of custom kinds are held to what every resource is held to
//! (`apiextensions-apiserver/pkg/apiserver/schema/objectmeta`).

use crate::{
    kinds::{FieldErrors, FieldPath},
    object_meta, typed,
};
use schema::Schema;
use serde_json::{Value, json};

/// Makes of the metadata of each what all objects have of it; gives what was unknown.
///
/// # Errors
/// When a value is of the wrong type: the words of Go's decoder.
pub(super) fn read(schema: &Schema, object: &mut Value) -> Result<Vec<String>, String> {
    let mut unknown = Vec::new();
    for place in schema.embedded_in(object) {
        let at = format!("{}/metadata", place.pointer);
        if let Some(found) = object.pointer_mut(&at).filter(|metadata| !metadata.is_null()) {
            unknown.extend(typed::metadata(found, &place.path.child("metadata").to_string())?);
        }
    }
    Ok(unknown)
}

/// Checks what each says of itself.
pub(super) fn validate(schema: &Schema, object: &Value, errors: &mut FieldErrors) {
    for place in schema.embedded_in(object) {
        let Some(resource) = object.pointer(&place.pointer) else { continue };
        for field in ["apiVersion", "kind"] {
            names_its_type(&resource[field], field, &place.path.child(field), errors);
        }
        if resource["metadata"].is_object() {
            object_meta::validate_embedded(&resource["metadata"], &place.path.child("metadata"), errors);
        }
    }
}

fn names_its_type(value: &Value, field: &str, path: &FieldPath, errors: &mut FieldErrors) {
    match value {
        Value::Null => errors.required(path, "must not be empty"),
        Value::String(text) if text.is_empty() => errors.invalid(path, value, "must not be empty"),
        Value::String(text) if field == "kind" => {
            let wrong = api::names::dns1035_label(&text.to_lowercase());
            if !wrong.is_empty() {
                let why = format!("may have mixed case, but should otherwise match: {}", wrong.join(","));
                errors.invalid(path, value, &why);
            }
        }
        Value::String(text) if text.matches('/').count() > 1 => {
            errors.invalid(path, value, &format!("unexpected GroupVersion string: {text}"));
        }
        Value::String(_) => {}
        other => errors.invalid(path, &json!(other), "must be a string"),
    }
}
