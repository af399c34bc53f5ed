//! Validation of IngressClasses (`ValidateIngressClass`).

use crate::{
    FieldErrors, FieldPath,
    field_validation::{
        text as text_of, validate_dns_label, validate_dns_subdomain, validate_domain_prefixed_path,
        validate_path_segment,
    },
};
use serde_json::Value;

pub(super) fn validate(object: &Value, errors: &mut FieldErrors) {
    let (path, spec) = (FieldPath::new("spec"), &object["spec"]);
    let (controller, at) = (&spec["controller"], path.child("controller"));
    if controller.as_str().is_some_and(|text| text.len() > 250) {
        errors.too_long(&at, 250);
    }
    validate_domain_prefixed_path(controller, &at, errors);
    if !spec["parameters"].is_null() {
        validate_parameters(&spec["parameters"], &path.child("parameters"), errors);
    }
}

/// Validates the parameters (`validateIngressClassParametersReference`).
fn validate_parameters(parameters: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    validate_typed_reference(parameters, path, errors);
    let (namespace, at) = (&parameters["namespace"], path.child("namespace"));
    match text_of(parameters, "scope") {
        "" => errors.required(&path.child("scope"), ""),
        "Namespace" if namespace.is_null() => errors.required(&at, "`parameters.scope` is set to 'Namespace'"),
        "Namespace" => validate_dns_label(namespace, &at, errors),
        "Cluster" if !namespace.is_null() => errors.forbidden(&at, "`parameters.scope` is set to 'Cluster'"),
        "Cluster" => {}
        _ => errors.not_supported(&path.child("scope"), &parameters["scope"], &["Cluster", "Namespace"]),
    }
}

/// Validates a typed reference (`validateIngressTypedLocalObjectReference`).
pub(super) fn validate_typed_reference(reference: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    if !reference["apiGroup"].is_null() {
        validate_dns_subdomain(&reference["apiGroup"], &path.child("apiGroup"), errors);
    }
    validate_path_segment(&reference["kind"], &path.child("kind"), errors);
    validate_path_segment(&reference["name"], &path.child("name"), errors);
}
