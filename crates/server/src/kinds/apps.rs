//! `apps/v1`: kinds that keep Pods running.

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
pub(super) use status::Counts;

use super::{
    FieldErrors, FieldPath, Subresource,
    checks::{immutable, not_negative},
    selector, template,
};
use serde_json::Value;

const GROUP: &str = "apps";

/// How many there should be, as an object of its own.
pub(super) const SCALE: Subresource = Subresource {
    name: "scale",
    group: "autoscaling",
    version: "v1",
    kind: "Scale",
    verbs: &["get", "patch", "update"],
};

/// What all these kinds have: a selector that says something, and a template of Pods that it selects. `name` is how
/// upstream calls the kind where the selector is empty, `kind` how it does where the template is wrong.
fn selector_and_template(spec: &Value, name: &str, kind: &str, path: &FieldPath, errors: &mut FieldErrors) {
    let (at, template_path, selector) = (path.child("selector"), path.child("template"), &spec["selector"]);
    if selector.is_null() {
        errors.required(&at, "");
    } else {
        selector::validate(selector, &at, errors);
        if selector::is_empty(selector) {
            errors.invalid(&at, selector, &format!("empty selector is invalid for {name}"));
        }
    }
    let Some(selected) = selector::selects(selector, &spec["template"]["metadata"]["labels"]) else {
        return errors.invalid(&at, selector, "invalid label selector");
    };
    template::validate_selected(&spec["template"], selected, &template_path, errors);
    template::validate_lasting(&spec["template"], &template_path, kind, errors);
}

fn not_negatives(spec: &Value, fields: &[&str], path: &FieldPath, errors: &mut FieldErrors) {
    fields.iter().for_each(|field| not_negative(spec, field, path, errors));
}

/// Pods that were selected once are selected for good.
fn same_selector(object: &Value, old: &Value, errors: &mut FieldErrors) {
    let path = FieldPath::new("spec").child("selector");
    immutable(&object["spec"]["selector"], &old["spec"]["selector"], &path, errors);
}
