//! Every field that a junctor judges is declared outside of it (`validateStructuralCompleteness`).

use super::{fields, list};
use api::field::{FieldErrors, FieldPath};
use serde_json::Value;

pub(super) fn check(schema: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    parts(schema, Some(schema), path, path, errors);
    for (name, property) in fields(schema, "properties") {
        check(property, &path.child("properties").key(name), errors);
    }
    for key in ["items", "additionalProperties"] {
        if schema[key].is_object() {
            check(&schema[key], &path.child(key), errors);
        }
    }
}

/// The junctors of a schema, which speak of what is declared at `at`.
fn parts(schema: &Value, declared: Option<&Value>, path: &FieldPath, at: &FieldPath, errors: &mut FieldErrors) {
    for key in ["allOf", "anyOf", "oneOf"] {
        for (i, part) in list(schema, key).iter().enumerate() {
            nested(part, declared, &path.child(key).index(i), at, errors);
        }
    }
    if schema["not"].is_object() {
        nested(&schema["not"], declared, &path.child("not"), at, errors);
    }
}

fn nested(part: &Value, declared: Option<&Value>, path: &FieldPath, at: &FieldPath, errors: &mut FieldErrors) {
    let Some(declared) = declared else {
        return errors.required(at, &format!("because it is defined in {path}"));
    };
    parts(part, Some(declared), path, at, errors);
    if part["items"].is_object() {
        let items = declared.get("items").filter(|i| i.is_object());
        nested(&part["items"], items, &path.child("items"), &at.child("items"), errors);
    }
    for (name, property) in fields(part, "properties") {
        let path = path.child("properties").key(name);
        let own = declared["properties"].get(name);
        let like = declared.get("additionalProperties").filter(|a| a.is_object());
        match (own, like) {
            (None, Some(like)) => nested(property, Some(like), &path, &at.child("additionalProperties"), errors),
            (own, _) => nested(property, own, &path, &at.child("properties").key(name), errors),
        }
    }
}
