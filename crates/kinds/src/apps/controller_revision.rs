//! ControllerRevision.

use super::GROUP;
use crate::{
    AGE, Cell, FieldErrors, KindInfo, NAME,
    field_cursor::FieldCursor,
    field_validation::{items, text as text_of},
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
    let object = FieldCursor::object(object);
    let data = object.at("data");
    if data.is_null() {
        data.required("data is mandatory", errors);
    }
    object.at("revision").nonnegative(errors);
}

fn validate_change(object: &Value, old: &Value, errors: &mut FieldErrors) {
    FieldCursor::object(object).at("data").validate_immutable(&FieldCursor::object(old).at("data"), errors);
}
