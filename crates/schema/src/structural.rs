//! Validation of structural schemas: the type of every field is specified exactly once
//! (`apiextensions-apiserver/pkg/apiserver/schema/validation.go`).

mod completeness;
mod defaults;
mod open_api_schema;

use crate::compile_pattern;
use api::field::{FieldErrors, FieldPath};
use serde_json::{Value, json};

/// Level of a schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Level {
    Root,
    Item,
    Field,
}

/// Validates the `openAPIV3Schema` of a custom resource.
pub fn validate_structural(schema: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    let mut structural_errors = FieldErrors::default();
    validate_invariants(schema, Level::Root, path, &mut structural_errors);
    completeness::validate(schema, path, &mut structural_errors);
    structural_errors.0.sort_by_key(ToString::to_string);
    let is_structural = structural_errors.is_empty();
    errors.extend(structural_errors);
    let mut open_api_errors = FieldErrors::default();
    open_api_schema::validate(schema, path, &open_api_schema::SchemaContext::root(), &mut open_api_errors);
    if is_structural && open_api_errors.is_empty() {
        defaults::validate(schema, path, errors);
    }
    errors.extend(open_api_errors);
}

/// Validates the invariants of a schema (`validateStructuralInvariants`).
fn validate_invariants(schema: &Value, level: Level, path: &FieldPath, errors: &mut FieldErrors) {
    let is = |key: &str| schema[key] == true;
    let kind = text(schema, "type");
    if kind == "array" && schema["items"].is_null() {
        errors.required(&path.child("items"), "must be specified");
    }
    if schema["items"].is_object() {
        validate_invariants(&schema["items"], Level::Item, &path.child("items"), errors);
    }
    for (name, property) in fields(schema, "properties") {
        validate_invariants(property, Level::Field, &path.child("properties").key(name), errors);
    }
    match &schema["additionalProperties"] {
        Value::Null => {}
        additional => {
            if level == Level::Root {
                errors.forbidden(&path.child("additionalProperties"), "must not be used at the root");
            }
            if is("x-kubernetes-embedded-resource") {
                let detail = "must not be used if x-kubernetes-embedded-resource is set";
                errors.forbidden(&path.child("additionalProperties"), detail);
            }
            if additional.is_object() {
                validate_invariants(additional, Level::Field, &path.child("additionalProperties"), errors);
            }
        }
    }
    if is("x-kubernetes-int-or-string") {
        for other in ["x-kubernetes-preserve-unknown-fields", "x-kubernetes-embedded-resource"] {
            if is(other) {
                errors.invalid(&path.child(other), &json!(true), "must be false if x-kubernetes-int-or-string is true");
            }
        }
    }
    let first_of_all = list(schema, "allOf").first().is_some_and(|first| is_int_or_string(&first["anyOf"]));
    validate_logical_junctors(schema, is_int_or_string(&schema["anyOf"]), first_of_all, path, errors);
    validate_type(schema, kind, level, path, errors);
    validate_resource_fields(schema, level, path, errors);
    let empty = schema["properties"].as_object().is_none_or(serde_json::Map::is_empty);
    if is("x-kubernetes-embedded-resource") && !is("x-kubernetes-preserve-unknown-fields") && empty {
        let detail =
            "must not be empty if x-kubernetes-embedded-resource is true without x-kubernetes-preserve-unknown-fields";
        errors.required(&path.child("properties"), detail);
    }
}

fn validate_type(schema: &Value, kind: &str, level: Level, path: &FieldPath, errors: &mut FieldErrors) {
    let is = |key: &str| schema[key] == true;
    let at = path.child("type");
    let detail = "must be object if x-kubernetes-embedded-resource is true";
    match kind {
        "" if is("x-kubernetes-embedded-resource") => errors.required(&at, detail),
        kind if is("x-kubernetes-embedded-resource") && kind != "object" => errors.invalid(&at, &json!(kind), detail),
        "" if !is("x-kubernetes-int-or-string") && !is("x-kubernetes-preserve-unknown-fields") => {
            let detail = match level {
                Level::Root => "must not be empty at the root",
                Level::Item => "must not be empty for specified array items",
                Level::Field => "must not be empty for specified object fields",
            };
            errors.required(&at, detail);
        }
        _ => {}
    }
    if level == Level::Root && !kind.is_empty() && kind != "object" {
        errors.invalid(&at, &json!(kind), "must be object at the root");
    }
}

/// Validates the schemas of `apiVersion`, `kind` and `metadata` of a resource.
fn validate_resource_fields(schema: &Value, level: Level, path: &FieldPath, errors: &mut FieldErrors) {
    if level != Level::Root && schema["x-kubernetes-embedded-resource"] != true {
        return;
    }
    for (name, expected) in [("kind", "string"), ("apiVersion", "string"), ("metadata", "object")] {
        let property = &schema["properties"][name];
        if !property.is_null() && text(property, "type") != expected {
            let at = path.child("properties").key(name).child("type");
            errors.invalid(&at, &json!(text(property, "type")), &format!("must be {expected}"));
        }
    }
    let metadata = &schema["properties"]["metadata"];
    let Some(specified) = metadata.as_object().filter(|_| level == Level::Root) else { return };
    let names = |v: &Value| v.as_object().is_none_or(|p| p.keys().all(|k| k == "name" || k == "generateName"));
    let allowed = |(key, value): (&String, &Value)| match key.as_str() {
        "type" | "default" | "description" | "title" => true,
        "properties" => names(value),
        _ => false,
    };
    // Upstream also rejects a description, which is accepted here because generators of third parties emit it.
    if !specified.iter().all(allowed) || specified.contains_key("title") {
        let detail = "must not specify anything other than name and generateName, but metadata is implicitly specified";
        errors.forbidden(&path.child("properties").key("metadata"), detail);
    }
}

fn validate_logical_junctors(
    schema: &Value,
    skip_any: bool,
    skip_first: bool,
    path: &FieldPath,
    errors: &mut FieldErrors,
) {
    for key in ["anyOf", "allOf", "oneOf"] {
        for (i, part) in list(schema, key).iter().enumerate().filter(|_| key != "anyOf" || !skip_any) {
            validate_nested(part, key == "allOf" && i == 0 && skip_first, &path.child(key).index(i), errors);
        }
    }
    if schema["not"].is_object() {
        validate_nested(&schema["not"], false, &path.child("not"), errors);
    }
    let pattern = text(schema, "pattern");
    if let Err(error) = compile_pattern(pattern) {
        let error = format!("must be a valid regular expression, but isn't: error parsing regexp: {error}");
        errors.invalid(&path.child("pattern"), &json!(pattern), &error);
    }
}

/// Validates a schema within a logical junctor, which may only validate values (`validateNestedValueValidation`).
fn validate_nested(schema: &Value, skip_any: bool, path: &FieldPath, errors: &mut FieldErrors) {
    validate_logical_junctors(schema, skip_any, false, path, errors);
    if schema["items"].is_object() {
        validate_nested(&schema["items"], false, &path.child("items"), errors);
    }
    for (name, property) in fields(schema, "properties") {
        validate_nested(property, false, &path.child("properties").key(name), errors);
    }
    for (key, must) in [
        ("type", "must be empty"),
        ("additionalProperties", "must be undefined"),
        ("default", "must be undefined"),
        ("title", "must be empty"),
        ("description", "must be empty"),
        ("nullable", "must be false"),
        ("x-kubernetes-preserve-unknown-fields", "must be false"),
        ("x-kubernetes-embedded-resource", "must be false"),
        ("x-kubernetes-int-or-string", "must be false"),
        ("x-kubernetes-list-map-keys", "must be empty"),
        ("x-kubernetes-list-type", "must be undefined"),
        ("x-kubernetes-map-type", "must be undefined"),
        ("x-kubernetes-validations", "must be empty"),
    ] {
        let specified = match schema.get(key) {
            None | Some(Value::Null) => false,
            Some(Value::Bool(flag)) => *flag || must == "must be undefined",
            Some(Value::String(text)) => !text.is_empty(),
            Some(_) => true,
        };
        if specified {
            errors.forbidden(&path.child(key), &format!("{must} to be structural"));
        }
    }
    if !schema["properties"]["metadata"].is_null() {
        errors.forbidden(&path.child("properties").key("metadata"), "must not be specified in a nested context");
    }
}

/// Returns whether this is the only logical junctor in which types are allowed: int-or-string.
fn is_int_or_string(any_of: &Value) -> bool {
    *any_of == json!([{"type": "integer"}, {"type": "string"}])
}

fn text<'a>(schema: &'a Value, key: &str) -> &'a str {
    schema[key].as_str().unwrap_or("")
}

fn fields<'a>(schema: &'a Value, key: &str) -> impl Iterator<Item = (&'a String, &'a Value)> + use<'a> {
    schema[key].as_object().into_iter().flatten()
}

fn list<'a>(schema: &'a Value, key: &str) -> &'a [Value] {
    schema[key].as_array().map(Vec::as_slice).unwrap_or_default()
}
