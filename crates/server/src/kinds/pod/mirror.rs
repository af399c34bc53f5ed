//! Mirror Pods, which show the static Pods of nodes (`ValidatePodSpecificAnnotations`).

use crate::kinds::{FieldErrors, FieldPath};
use api::static_pod::CONFIG_MIRROR;
use serde_json::Value;

/// Whether this is a mirror Pod.
pub(crate) fn is_one(object: &Value) -> bool {
    object["metadata"]["annotations"].get(CONFIG_MIRROR).is_some()
}

fn path() -> FieldPath {
    FieldPath::new("metadata").child("annotations").key(CONFIG_MIRROR)
}

/// A mirror is a node's.
pub(super) fn create(object: &Value, errors: &mut FieldErrors) {
    if is_one(object) && object["spec"]["nodeName"].as_str().unwrap_or("").is_empty() {
        let text = "must set spec.nodeName if mirror pod annotation is set";
        errors.invalid(&path(), &object["metadata"]["annotations"][CONFIG_MIRROR], text);
    }
}

/// What is a mirror stays that of its static Pod, and nothing else becomes one.
pub(super) fn update(object: &Value, old: &Value, errors: &mut FieldErrors) {
    let (new, before) =
        (&object["metadata"]["annotations"][CONFIG_MIRROR], &old["metadata"]["annotations"][CONFIG_MIRROR]);
    if !before.is_null() && new != before {
        errors.forbidden(&path(), "may not remove or update mirror pod annotation");
    } else if before.is_null() && !new.is_null() {
        errors.forbidden(&path(), "may not add mirror pod annotation");
    }
}
