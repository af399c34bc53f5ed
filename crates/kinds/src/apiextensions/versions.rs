//! Validation of versions (`validateCustomResourceDefinitionVersion`).
//!
//! Upstream's internal type has fields that are equal in all versions at the top level, and errors have that path:
//! `spec.validation` instead of `spec.versions[0].schema`.

use crate::{FieldErrors, FieldPath, field_validation::text};
use schema::{JsonType, Schema, validate_structural};
use serde_json::{Map, Value, json};

/// Maximum number of selectable fields (`MaxSelectableFields`).
const MAX_SELECTABLE: usize = 8;
const TYPES: [&str; 5] = ["boolean", "date", "integer", "number", "string"];
const FORMATS: [&str; 9] = ["byte", "date", "date-time", "double", "float", "int32", "int64", "password", "string"];

pub(super) fn validate_versions(versions: &[Value], path: &FieldPath, errors: &mut FieldErrors) {
    let at = |i: usize| path.child("versions").index(i);
    for (i, version) in versions.iter().enumerate() {
        let wrong = api::names::dns1035_label(text(version, "name"));
        if !wrong.is_empty() {
            errors.invalid(&at(i).child("name"), &version["name"], &wrong.join(","));
        }
        if version["schema"]["openAPIV3Schema"].is_null() {
            let at = at(i).child("schema").child("openAPIV3Schema");
            errors.required(&at, "schemas are required");
        }
        validate_deprecation(version, &at(i), errors);
    }
    let any_status = versions.iter().any(|v| v["subresources"]["status"].is_object());
    for_each_value(versions, path, "schema", "validation", |version, at| {
        let status = version["subresources"]["status"].is_object() || any_status && all_equal(versions, "schema");
        validate_schema(&version["schema"]["openAPIV3Schema"], status, &at.child("openAPIV3Schema"), errors);
    });
    for_each_value(versions, path, "subresources", "subresources", |version, at| {
        validate_scale(&version["subresources"]["scale"], at, errors);
    });
    for_each_value(versions, path, "additionalPrinterColumns", "additionalPrinterColumns", |version, at| {
        let columns = version["additionalPrinterColumns"].as_array().into_iter().flatten();
        columns.enumerate().for_each(|(i, column)| self::validate_column(column, &at.index(i), errors));
    });
    for_each_value(versions, path, "selectableFields", "selectableFields", |version, at| {
        validate_selectable_fields(version, at, errors);
    });
}

/// Whether a field is equal in all versions.
fn all_equal(versions: &[Value], key: &str) -> bool {
    versions.windows(2).all(|w| w[0][key] == w[1][key])
}

/// Visits the field of each version, or the common one with its top-level path.
fn for_each_value(
    versions: &[Value],
    path: &FieldPath,
    key: &str,
    top_level_name: &str,
    mut visit: impl FnMut(&Value, &FieldPath),
) {
    let equal = all_equal(versions, key);
    for (i, version) in versions.iter().enumerate().filter(|(i, v)| !v[key].is_null() && (!equal || *i == 0)) {
        let at = if equal { path.child(top_level_name) } else { path.child("versions").index(i).child(key) };
        visit(version, &at);
    }
}

fn validate_schema(schema: &Value, status: bool, path: &FieldPath, errors: &mut FieldErrors) {
    const ROOT_FIELDS: [&str; 15] = [
        "description",
        "type",
        "format",
        "title",
        "maximum",
        "exclusiveMaximum",
        "minimum",
        "exclusiveMinimum",
        "maxLength",
        "minLength",
        "pattern",
        "properties",
        "required",
        "x-kubernetes-preserve-unknown-fields",
        "x-kubernetes-validations",
    ];
    let Some(fields) = schema.as_object() else { return };
    if status && text(schema, "type") != "object" && schema.get("type").is_some() {
        let detail =
            "only \"object\" is allowed as the type at the root of the schema if the status subresource is enabled";
        errors.invalid(&path.child("type"), &schema["type"], detail);
    }
    if status && !fields.keys().all(|key| ROOT_FIELDS.contains(&key.as_str()) || is_allowed_at_root(key)) {
        let detail = "only [Description Type Format Title Maximum ExclusiveMaximum Minimum ExclusiveMinimum MaxLength MinLength Pattern MaxItems MinItems UniqueItems MultipleOf Required Items Properties ExternalDocs Example XPreserveUnknownFields XValidations] fields are allowed at the root of the schema if the status subresource is enabled";
        errors.invalid(path, schema, detail);
    }
    if schema["nullable"] == true {
        errors.forbidden(&path.child("nullable"), "nullable cannot be true at the root");
    }
    validate_structural(schema, path, errors);
}

fn is_allowed_at_root(key: &str) -> bool {
    matches!(key, "maxItems" | "minItems" | "uniqueItems" | "multipleOf" | "items" | "externalDocs" | "example")
}

fn validate_deprecation(version: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    let (Some(warning), at) = (version["deprecationWarning"].as_str(), path.child("deprecationWarning")) else {
        return;
    };
    let mut wrong = Vec::new();
    if version["deprecated"] != true {
        wrong.push("can only be set for deprecated versions".to_owned());
    } else {
        if warning.len() > 256 {
            wrong.push("must be <= 256 characters long".to_owned());
        }
        if warning.is_empty() {
            wrong.push("must not be an empty string".to_owned());
        }
        if let Some((i, _)) = warning.char_indices().find(|(_, c)| c.is_control()) {
            wrong.push(format!(
                "must only contain printable UTF-8 characters; non-printable character found at index {i}"
            ));
        }
    }
    wrong.iter().for_each(|detail| errors.invalid(&at, &json!(warning), detail));
}

/// Validates the `scale` subresource (`ValidateCustomResourceDefinitionSubresources`).
fn validate_scale(scale: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    if !scale.is_object() {
        return;
    }
    for (key, prefixes) in [
        ("specReplicasPath", &[".spec."][..]),
        ("statusReplicasPath", &[".status."]),
        ("labelSelectorPath", &[".spec.", ".status."]),
    ] {
        let (json_path, at) = (text(scale, key), path.child("scale").child(key));
        match json_path {
            "" if key == "labelSelectorPath" => {}
            "" => errors.required(&at, ""),
            json_path
                if validate_simple_json_path(json_path, &at, errors)
                    && !prefixes.iter().any(|prefix| json_path.starts_with(prefix)) =>
            {
                let places: Vec<&str> = prefixes.iter().map(|p| p.trim_end_matches('.')).collect();
                let detail = match places.as_slice() {
                    [one] => format!("should be a json path under {one}"),
                    _ => format!("should be a json path under either {}", places.join(" or ")),
                };
                errors.invalid(&at, &json!(json_path), &detail);
            }
            _ => {}
        }
    }
}

/// Validates a simple JSONPath (`validateSimpleJSONPath`). Returns whether it is valid.
fn validate_simple_json_path(json_path: &str, path: &FieldPath, errors: &mut FieldErrors) -> bool {
    let is_valid = json_path.starts_with('.');
    if !is_valid {
        errors.invalid(path, &json!(json_path), "must be a simple json path starting with .");
    }
    is_valid
}

/// Validates a printer column (`ValidateCustomResourceColumnDefinition`).
fn validate_column(column: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    if text(column, "name").is_empty() {
        errors.required(&path.child("name"), "");
    }
    let detail = format!("must be one of {}", TYPES.join(","));
    match text(column, "type") {
        "" => errors.required(&path.child("type"), &detail),
        kind if !TYPES.contains(&kind) => errors.invalid(&path.child("type"), &json!(kind), &detail),
        _ => {}
    }
    let format = text(column, "format");
    if !format.is_empty() && !FORMATS.contains(&format) {
        let detail = format!("must be one of {}", FORMATS.join(","));
        errors.invalid(&path.child("format"), &json!(format), &detail);
    }
    let (json_path, at) = (text(column, "jsonPath"), path.child("JSONPath"));
    if json_path.is_empty() {
        errors.required(&at, "");
    } else {
        validate_simple_json_path(json_path, &at, errors);
    }
}

/// Validates the selectable fields (`ValidateCustomResourceSelectableFields`).
fn validate_selectable_fields(version: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    let all = version["selectableFields"].as_array().map(Vec::as_slice).unwrap_or_default();
    let schema = Schema::parse(&version["schema"]["openAPIV3Schema"]);
    let mut seen: Map<String, Value> = Map::new();
    for (i, field) in all.iter().enumerate() {
        let (json_path, at) = (text(field, "jsonPath"), path.index(i).child("jsonPath"));
        if json_path.is_empty() {
            errors.required(&at, "");
            continue;
        }
        let found = match schema.resolve_field_path(json_path, false) {
            Ok(found) => found,
            Err(error) => {
                errors.invalid(&at, &json!(json_path), &format!("is an invalid path: {error}"));
                continue;
            }
        };
        if found.first == "metadata" {
            errors.invalid(&at, &json!(json_path), "must not point to fields in metadata");
        }
        let kind = found.schema.and_then(|schema| schema.kind);
        if !matches!(kind, Some(JsonType::String | JsonType::Boolean | JsonType::Integer)) {
            let detail = "must point to a field of type string, boolean or integer. Enum string fields and strings with formats are allowed.";
            errors.invalid(&at, &json!(json_path), detail);
        }
        if seen.insert(found.path.to_string(), Value::Null).is_some() {
            errors.duplicate(&at, &json!(json_path));
        }
    }
    if seen.len() > MAX_SELECTABLE {
        errors.too_many(path, seen.len(), MAX_SELECTABLE);
    }
}
