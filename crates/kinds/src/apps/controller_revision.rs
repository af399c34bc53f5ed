//! ControllerRevision.

use super::GROUP;
use crate::{
    AGE, Cell, FieldErrors, FieldPath, KindInfo, NAME,
    field_validation::{items, text as text_of, validate_immutable},
    generic_kind::GenericKind,
    text,
};
use serde_json::{Value, json};

pub(crate) static CONTROLLER_REVISION: GenericKind = GenericKind {
    columns: &[
        NAME,
        text("Controller", Cell::Computed(|r, _| json!(controller(r)))),
        text("Revision", Cell::Computed(|r, _| json!(r["revision"].as_i64().unwrap_or(0)))),
        AGE,
    ],
    validate,
    validate_change,
    ..GenericKind::new(&KindInfo::namespaced(GROUP, "ControllerRevision", "controllerrevisions", "controllerrevision"))
};

/// Returns the controlling owner, for example `daemonset.apps/name`.
fn controller(object: &Value) -> String {
    let owner = items(&object["metadata"], "ownerReferences").find(|o| o["controller"] == json!(true));
    owner.map_or_else(
        || "<none>".to_owned(),
        |o| {
            let group = text_of(o, "apiVersion").split_once('/').map_or(String::new(), |(g, _)| format!(".{g}"));
            format!("{}{group}/{}", text_of(o, "kind").to_lowercase(), text_of(o, "name"))
        },
    )
}

/// Validates a ControllerRevision (`ValidateControllerRevision`).
fn validate(object: &Value, errors: &mut FieldErrors) {
    if object["data"].is_null() {
        errors.required(&FieldPath::new("data"), "data is mandatory");
    }
    if object["revision"].as_i64().is_some_and(|r| r < 0) {
        errors.invalid(&FieldPath::new("revision"), &object["revision"], "must be greater than or equal to 0");
    }
}

fn validate_change(object: &Value, old: &Value, errors: &mut FieldErrors) {
    validate_immutable(&object["data"], &old["data"], &FieldPath::new("data"), errors);
}
