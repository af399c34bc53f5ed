//! Completeness: every field in a logical junctor is also declared outside of it (`validateStructuralCompleteness`).

use super::{fields, list};
use api::field::{FieldErrors, FieldPath};
use serde_json::Value;

pub(super) fn validate(schema: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    validate_junctors(schema, Some(schema), path, path, errors);
    for (name, property) in fields(schema, "properties") {
        validate(property, &path.child("properties").key(name), errors);
    }
    for key in ["items", "additionalProperties"] {
        if schema[key].is_object() {
            validate(&schema[key], &path.child(key), errors);
        }
    }
}

/// Validates the logical junctors of a schema; their fields must be declared at `at`.
fn validate_junctors(
    schema: &Value,
    declared: Option<&Value>,
    path: &FieldPath,
    at: &FieldPath,
    errors: &mut FieldErrors,
) {
    for key in ["allOf", "anyOf", "oneOf"] {
        for (i, part) in list(schema, key).iter().enumerate() {
            validate_nested(part, declared, &path.child(key).index(i), at, errors);
        }
    }
    if schema["not"].is_object() {
        validate_nested(&schema["not"], declared, &path.child("not"), at, errors);
    }
}

fn validate_nested(part: &Value, declared: Option<&Value>, path: &FieldPath, at: &FieldPath, errors: &mut FieldErrors) {
    let Some(declared) = declared else {
        return errors.required(at, &format!("because it is defined in {path}"));
    };
    validate_junctors(part, Some(declared), path, at, errors);
    if part["items"].is_object() {
        let items = declared.get("items").filter(|i| i.is_object());
        validate_nested(&part["items"], items, &path.child("items"), &at.child("items"), errors);
    }
    for (name, property) in fields(part, "properties") {
        let path = path.child("properties").key(name);
        let declared_property = declared["properties"].get(name);
        let like = declared.get("additionalProperties").filter(|a| a.is_object());
        match (declared_property, like) {
            (None, Some(like)) => {
                validate_nested(property, Some(like), &path, &at.child("additionalProperties"), errors);
            }
            (declared_property, _) => {
                validate_nested(property, declared_property, &path, &at.child("properties").key(name), errors);
            }
        }
    }
}
