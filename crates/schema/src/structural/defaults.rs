//! Validation of defaults (`structuraldefaulting.ValidateDefaults`).

use super::fields;
use crate::Schema;
use api::field::{FieldErrors, FieldPath};
use serde_json::Value;

pub(super) fn validate(schema: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    if let Some(default) = schema.get("default") {
        validate_default(&Schema::parse(schema), default, &path.child("default"), errors);
    }
    for (name, property) in fields(schema, "properties") {
        validate(property, &path.child("properties").key(name), errors);
    }
    for key in ["items", "additionalProperties"] {
        if schema[key].is_object() {
            validate(&schema[key], &path.child(key), errors);
        }
    }
}

fn validate_default(schema: &Schema, default: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    let mut pruned = default.clone();
    if !schema.prune_value(&mut pruned).is_empty() && !schema.embedded {
        errors.invalid(path, default, "must not have unknown fields");
    }
    schema.apply_defaults(&mut pruned);
    schema.validate_value(&pruned, &path.to_string(), errors);
}
