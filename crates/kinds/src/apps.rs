//! Kinds of `apps/v1`.

mod controller_revision;
mod daemon_set;
mod deployment;
mod replica_set;
mod stateful_set;
mod status;

pub(super) use controller_revision::CONTROLLER_REVISION;
pub(super) use daemon_set::DAEMON_SET;
pub(super) use deployment::DEPLOYMENT;
pub(super) use replica_set::REPLICA_SET;
pub(super) use stateful_set::STATEFUL_SET;
pub(super) use status::ReplicaCounts;

use super::{FieldErrors, Subresource, field_cursor::FieldCursor, pod_template_spec, selector};
use serde_json::Value;

const GROUP: &str = "apps";

/// The `scale` subresource.
pub(super) const SCALE: Subresource = Subresource {
    name: "scale",
    group: "autoscaling",
    version: "v1",
    kind: "Scale",
    verbs: &["get", "patch", "update"],
};

/// Validates a selector, which must not be empty, and a Pod template that it must match. Errors of the selector have
/// `name`, errors of the template have `kind`.
fn validate_selector_and_template(spec: &FieldCursor<'_, '_>, name: &str, kind: &str, errors: &mut FieldErrors) {
    let (selector, template) = (spec.at("selector"), spec.at("template"));
    if selector.is_null() {
        selector.required("", errors);
    } else {
        selector::validate(&selector, errors);
        if selector::is_empty(selector.value()) {
            selector.invalid(&format!("empty selector is invalid for {name}"), errors);
        }
    }
    let Some(selected) = selector::matches(selector.value(), template.at("metadata").at("labels").value()) else {
        return selector.invalid("invalid label selector", errors);
    };
    pod_template_spec::validate_selector_matches(&template, selected, errors);
    pod_template_spec::validate_for_controller(&template, kind, errors);
}

/// Validates that the selector does not change.
fn validate_immutable_selector(object: &Value, old: &Value, errors: &mut FieldErrors) {
    let (object, old) = (FieldCursor::object(object), FieldCursor::object(old));
    object.at("spec").at("selector").validate_immutable(&old.at("spec").at("selector"), errors);
}
