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

use super::{
    FieldErrors, FieldPath, Subresource,
    field_validation::{validate_immutable, validate_nonnegative},
    pod_template_spec, selector,
};
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
fn validate_selector_and_template(spec: &Value, name: &str, kind: &str, path: &FieldPath, errors: &mut FieldErrors) {
    let (at, template_path, selector) = (path.child("selector"), path.child("template"), &spec["selector"]);
    if selector.is_null() {
        errors.required(&at, "");
    } else {
        selector::validate(selector, &at, errors);
        if selector::is_empty(selector) {
            errors.invalid(&at, selector, &format!("empty selector is invalid for {name}"));
        }
    }
    let Some(selected) = selector::matches(selector, &spec["template"]["metadata"]["labels"]) else {
        return errors.invalid(&at, selector, "invalid label selector");
    };
    pod_template_spec::validate_selector_matches(&spec["template"], selected, &template_path, errors);
    pod_template_spec::validate_for_controller(&spec["template"], &template_path, kind, errors);
}

fn validate_nonnegative_fields(spec: &Value, fields: &[&str], path: &FieldPath, errors: &mut FieldErrors) {
    fields.iter().for_each(|field| validate_nonnegative(spec, field, path, errors));
}

/// Validates that the selector does not change.
fn validate_immutable_selector(object: &Value, old: &Value, errors: &mut FieldErrors) {
    let path = FieldPath::new("spec").child("selector");
    validate_immutable(&object["spec"]["selector"], &old["spec"]["selector"], &path, errors);
}
