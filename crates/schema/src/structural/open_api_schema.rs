//! Supported fields of a schema and their combinations
//! (`ValidateCustomResourceDefinitionOpenAPISchema`, `specStandardValidatorV3`).

use super::{fields, list, text};
use crate::{RESOURCE_FIELDS, validation_rules};
use api::field::{FieldErrors, FieldPath};
use serde_json::{Value, json};
use std::collections::HashSet;

const TYPES: [&str; 6] = ["array", "boolean", "integer", "number", "object", "string"];

/// Context of a schema.
#[derive(Debug, Clone)]
pub(super) struct SchemaContext {
    root: bool,
    /// Whether the schema is within `apiVersion`, `kind` or `metadata` of a resource.
    in_metadata: bool,
    /// Reason why defaults are forbidden.
    no_default: Option<String>,
    /// Path of the schema within which old values cannot be correlated.
    uncorrelatable: Option<String>,
}

impl SchemaContext {
    pub(super) fn root() -> Self {
        Self { root: true, in_metadata: false, no_default: None, uncorrelatable: None }
    }

    fn nested(&self) -> Self {
        Self { root: false, ..self.clone() }
    }
}

pub(super) fn validate(schema: &Value, path: &FieldPath, context: &SchemaContext, errors: &mut FieldErrors) {
    validate_supported_fields(schema, path, context, errors);
    if schema["uniqueItems"] == true {
        let detail = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic";
        errors.forbidden(&path.child("uniqueItems"), detail);
    }
    validate_nested_schemas(schema, path, context, errors);
    if schema["x-kubernetes-preserve-unknown-fields"] == false {
        let at = path.child("x-kubernetes-preserve-unknown-fields");
        errors.invalid(&at, &json!(false), "must be true or undefined");
    }
    let kind = text(schema, "type");
    for (key, expected, allowed) in [
        ("x-kubernetes-map-type", "object", &["atomic", "granular"][..]),
        ("x-kubernetes-list-type", "array", &["atomic", "set", "map"][..]),
    ] {
        let Some(specified) = schema[key].as_str() else { continue };
        let detail = format!("must be {expected} if {key} is specified");
        match kind {
            "" => errors.required(&path.child("type"), &detail),
            kind if kind != expected => errors.invalid(&path.child("type"), &json!(kind), &detail),
            _ => {}
        }
        if !allowed.contains(&specified) {
            errors.not_supported(&path.child(key), &json!(specified), allowed);
        }
    }
    validate_list_type(schema, path, errors);
    // Rules need valid types.
    if errors.is_empty() {
        validation_rules::validate_rules(schema, context.root, context.uncorrelatable.as_deref(), path, errors);
    }
}

fn validate_supported_fields(schema: &Value, path: &FieldPath, context: &SchemaContext, errors: &mut FieldErrors) {
    match text(schema, "type") {
        "" => {}
        "null" => {
            errors.not_supported(&path.child("type"), &json!("null"), &TYPES);
            let detail = "type cannot be set to null, use nullable as an alternative";
            errors.forbidden(&path.child("type"), detail);
        }
        kind if !TYPES.contains(&kind) => errors.not_supported(&path.child("type"), &json!(kind), &TYPES),
        _ => {}
    }
    if let Some(detail) = context.no_default.as_ref().filter(|_| schema.get("default").is_some()) {
        errors.forbidden(&path.child("default"), &format!("must not be set {detail}"));
    }
    for key in ["id", "additionalItems", "patternProperties", "definitions", "dependencies", "$ref"] {
        if schema.get(key).is_some_and(|v| !v.is_null() && v != "") {
            errors.forbidden(&path.child(key), &format!("{key} is not supported"));
        }
    }
    if schema["items"].is_array() {
        errors.forbidden(&path.child("items"), "items must be a schema object and not an array");
    }
    if context.in_metadata && schema["x-kubernetes-embedded-resource"] == true {
        let at = path.child("x-kubernetes-embedded-resource");
        errors.forbidden(&at, "must not be used inside of resource meta");
    }
}

/// Validates nested schemas.
fn validate_nested_schemas(schema: &Value, path: &FieldPath, context: &SchemaContext, errors: &mut FieldErrors) {
    let additional = &schema["additionalProperties"];
    let has_properties = schema["properties"].as_object().is_some_and(|p| !p.is_empty());
    if has_properties && (additional.is_object() || *additional == false) {
        let detail = "additionalProperties and properties are mutual exclusive";
        errors.forbidden(&path.child("additionalProperties"), detail);
    }
    if additional.is_object() {
        let mut inner = context.nested();
        if context.in_metadata {
            inner.no_default = Some("inside additionalProperties applying to object metadata".to_owned());
        }
        validate(additional, &path.child("additionalProperties"), &inner, errors);
    }
    let resource = context.root || schema["x-kubernetes-embedded-resource"] == true;
    for (name, property) in fields(schema, "properties") {
        let mut inner = context.nested();
        if resource && RESOURCE_FIELDS.contains(&name.as_str()) {
            inner.in_metadata = true;
            if context.root {
                inner.no_default = Some(format!("in top-level {name}"));
            }
        }
        validate(property, &path.child("properties").key(name), &inner, errors);
    }
    if schema["not"].is_object() {
        validate(&schema["not"], &path.child("not"), &context.nested(), errors);
    }
    if schema["items"].is_object() {
        let mut inner = context.nested();
        if schema["x-kubernetes-list-type"] != "map" {
            inner.uncorrelatable = inner.uncorrelatable.or_else(|| Some(path.to_string()));
        }
        validate(&schema["items"], &path.child("items"), &inner, errors);
    }
    for key in ["allOf", "oneOf", "anyOf"] {
        for (i, part) in list(schema, key).iter().enumerate() {
            validate(part, &path.child(key).index(i), &context.nested(), errors);
        }
    }
}

/// Validates `x-kubernetes-list-type` and `x-kubernetes-list-map-keys`.
fn validate_list_type(schema: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    let list_type = schema["x-kubernetes-list-type"].as_str();
    let (items, at) = (&schema["items"], path.child("items"));
    if list_type == Some("set") && items.is_object() && schema["type"] == "array" {
        let detail = "must be atomic as item of a list with x-kubernetes-list-type=set";
        for (kind, key, implied) in
            [("array", "x-kubernetes-list-type", true), ("object", "x-kubernetes-map-type", false)]
        {
            let specified = items[key].as_str();
            if items["type"] == kind && specified.map_or(!implied, |specified| specified != "atomic") {
                errors.invalid(&at.child(key), &items[key], detail);
            }
        }
    }
    let keys = list(schema, "x-kubernetes-list-map-keys");
    if !keys.is_empty() && list_type != Some("map") {
        let (at, detail) =
            (path.child("x-kubernetes-list-type"), "must be map if x-kubernetes-list-map-keys is non-empty");
        match list_type {
            None => errors.required(&at, detail),
            Some(other) => errors.invalid(&at, &json!(other), detail),
        }
    }
    if list_type == Some("map") {
        validate_map_keys(schema, keys, path, errors);
    }
    if let Some(list_type) = list_type.filter(|t| matches!(*t, "set" | "map"))
        && items["nullable"] == true
    {
        let detail = format!("cannot be nullable when x-kubernetes-list-type is {list_type}");
        errors.forbidden(&at.child("nullable"), &detail);
    }
}

fn validate_map_keys(schema: &Value, keys: &[Value], path: &FieldPath, errors: &mut FieldErrors) {
    let (items, at) = (&schema["items"], path.child("items"));
    let keys_at = path.child("x-kubernetes-list-map-keys");
    if keys.is_empty() {
        errors.required(&keys_at, "must not be empty if x-kubernetes-list-type is map");
    }
    match items {
        Value::Null => return errors.required(&at, "must have a schema if x-kubernetes-list-type is map"),
        Value::Object(_) => {}
        other => return errors.invalid(&at, other, "must only have a single schema if x-kubernetes-list-type is map"),
    }
    if items["type"] != "object" {
        let detail = "must be object if parent array's x-kubernetes-list-type is map";
        return errors.invalid(&at.child("type"), &json!(text(items, "type")), detail);
    }
    let mut seen = HashSet::new();
    for key in keys.iter().filter_map(Value::as_str) {
        let property = &items["properties"][key];
        let key_at = at.child("properties").key(key);
        if property.is_null() {
            let all = &schema["x-kubernetes-list-map-keys"];
            errors.invalid(&keys_at, all, "entries must all be names of item properties");
        } else if matches!(text(property, "type"), "array" | "object") {
            let detail = "must be a scalar type if parent array's x-kubernetes-list-type is map";
            errors.invalid(&key_at.child("type"), &items["type"], detail);
        }
        if !seen.insert(key) {
            errors.invalid(&keys_at, &schema["x-kubernetes-list-map-keys"], "must not contain duplicate entries");
        }
        let required = list(items, "required").iter().any(|r| r == key);
        if !property.is_null() && !required && property.get("default").is_none() {
            let detail =
                "this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property";
            errors.required(&key_at.child("default"), detail);
        }
        if property["nullable"] == true {
            let detail = "this property is in x-kubernetes-list-map-keys, so it cannot be nullable";
            errors.forbidden(&key_at.child("nullable"), detail);
        }
    }
}
