//! Validation of selectors in access reviews (upstream's `pkg/apis/authorization/validation`).
//!
//! Unknown operators are allowed, since newer clients may know them.

use kinds::{FieldErrors, FieldPath, selector};
use serde_json::Value;

/// `validateResourceAttributes`.
pub(super) fn validate(resource: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    for field in ["fieldSelector", "labelSelector"] {
        let (selector, path) = (&resource[field], path.child(field));
        if selector.is_null() {
            continue;
        }
        let requirements = selector["requirements"].as_array().map_or(&[][..], Vec::as_slice);
        let raw = selector["rawSelector"].as_str().is_some_and(|raw| !raw.is_empty());
        if raw && !requirements.is_empty() {
            let message = "may not specified at the same time as requirements";
            errors.invalid(&path.child("rawSelector"), &selector["rawSelector"], message);
        }
        if !raw && requirements.is_empty() {
            let message = format!("when {path} is specified, requirements or rawSelector is required");
            errors.required(&path.child("requirements"), &message);
        }
        for (i, requirement) in requirements.iter().enumerate() {
            let path = path.child("requirements").index(i);
            if field == "fieldSelector" && requirement["key"].as_str().unwrap_or("").is_empty() {
                errors.required(&path.child("key"), "must be specified");
            }
            selector::validate_operator(requirement, &path, errors);
            if field == "labelSelector" {
                selector::validate_label_requirement(requirement, &path, errors);
            }
        }
    }
}
