//! Validation of the names of a custom kind (`ValidateCustomResourceDefinitionNames`).

use crate::{FieldErrors, FieldPath};
use serde_json::Value;

pub(super) fn validate_names(names: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    let text = |key: &str| names[key].as_str().unwrap_or("");
    for key in ["plural", "singular", "kind", "listKind"] {
        let (name, at) = (text(key), path.child(key));
        if name.is_empty() {
            errors.required(&at, "");
        }
    }
    for key in ["plural", "singular"] {
        validate_label(&names[key], text(key), "", &path.child(key), errors);
    }
    for key in ["kind", "listKind"] {
        let may = "may have mixed case, but should otherwise match: ";
        validate_label(&names[key], &text(key).to_lowercase(), may, &path.child(key), errors);
    }
    validate_list(names, "shortNames", path, errors);
    if !text("kind").is_empty() && text("kind") == text("listKind") {
        errors.invalid(&path.child("listKind"), &names["listKind"], "kind and listKind may not be the same");
    }
    validate_list(names, "categories", path, errors);
}

fn validate_list(names: &Value, key: &str, path: &FieldPath, errors: &mut FieldErrors) {
    for (i, name) in names[key].as_array().into_iter().flatten().enumerate() {
        let wrong = api::names::dns1035_label(name.as_str().unwrap_or(""));
        if !wrong.is_empty() {
            errors.invalid(&path.child(key).index(i), name, &wrong.join(","));
        }
    }
}

fn validate_label(value: &Value, name: &str, may: &str, path: &FieldPath, errors: &mut FieldErrors) {
    let wrong = if name.is_empty() { Vec::new() } else { api::names::dns1035_label(name) };
    if !wrong.is_empty() {
        errors.invalid(path, value, &format!("{may}{}", wrong.join(",")));
    }
}
