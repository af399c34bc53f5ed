//! Validation of IngressClasses (`ValidateIngressClass`).

use crate::{
    FieldErrors, field_cursor::FieldCursor, field_validation::validate_domain_prefixed_path, validate_path_segment_name,
};
use serde_json::Value;

pub(super) fn validate(object: &Value, errors: &mut FieldErrors) {
    let object = FieldCursor::object(object);
    let spec = object.at("spec");
    let (controller, parameters) = (spec.at("controller"), spec.at("parameters"));
    if controller.text().len() > 250 {
        controller.too_long(250, errors);
    }
    validate_domain_prefixed_path(&controller, errors);
    if parameters.is_set() {
        validate_parameters(&parameters, errors);
    }
}

/// Validates the parameters (`validateIngressClassParametersReference`).
fn validate_parameters(parameters: &FieldCursor<'_, '_>, errors: &mut FieldErrors) {
    validate_typed_reference(parameters, errors);
    let (scope, namespace) = (parameters.at("scope"), parameters.at("namespace"));
    match scope.text() {
        "Namespace" if namespace.is_null() => namespace.required("`parameters.scope` is set to 'Namespace'", errors),
        "Namespace" => namespace.validate_text(api::names::dns1123_label, errors),
        "Cluster" if namespace.is_set() => namespace.forbidden("`parameters.scope` is set to 'Cluster'", errors),
        _ => scope.one_of(&["Cluster", "Namespace"], errors),
    }
}

/// Validates a typed reference (`validateIngressTypedLocalObjectReference`).
pub(super) fn validate_typed_reference(reference: &FieldCursor<'_, '_>, errors: &mut FieldErrors) {
    let group = reference.at("apiGroup");
    if group.is_set() {
        group.validate_text(api::names::dns1123_subdomain, errors);
    }
    reference.at("kind").validate_required_text(validate_path_segment_name, errors);
    reference.at("name").validate_required_text(validate_path_segment_name, errors);
}
