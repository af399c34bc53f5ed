//! What an IngressClass may say (`ValidateIngressClass`).

use crate::kinds::{
    FieldErrors, FieldPath,
    checks::{dns_label, domain_prefixed_path, path_part, subdomain, text as text_of},
};
use serde_json::Value;

pub(super) fn validate(object: &Value, errors: &mut FieldErrors) {
    let (path, spec) = (FieldPath::new("spec"), &object["spec"]);
    let (controller, at) = (&spec["controller"], path.child("controller"));
    if controller.as_str().is_some_and(|text| text.len() > 250) {
        errors.too_long(&at, 250);
    }
    domain_prefixed_path(controller, &at, errors);
    if !spec["parameters"].is_null() {
        parameters(&spec["parameters"], &path.child("parameters"), errors);
    }
}

/// `validateIngressClassParametersReference`.
fn parameters(parameters: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    reference(parameters, path, errors);
    let (namespace, at) = (&parameters["namespace"], path.child("namespace"));
    match text_of(parameters, "scope") {
        "" => errors.required(&path.child("scope"), ""),
        "Namespace" if namespace.is_null() => errors.required(&at, "`parameters.scope` is set to 'Namespace'"),
        "Namespace" => dns_label(namespace, &at, errors),
        "Cluster" if !namespace.is_null() => errors.forbidden(&at, "`parameters.scope` is set to 'Cluster'"),
        "Cluster" => {}
        _ => errors.not_supported(&path.child("scope"), &parameters["scope"], &["Cluster", "Namespace"]),
    }
}

/// An object of some group and kind (`validateIngressTypedLocalObjectReference`).
pub(super) fn reference(reference: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    if !reference["apiGroup"].is_null() {
        subdomain(&reference["apiGroup"], &path.child("apiGroup"), errors);
    }
    path_part(&reference["kind"], &path.child("kind"), errors);
    path_part(&reference["name"], &path.child("name"), errors);
}
