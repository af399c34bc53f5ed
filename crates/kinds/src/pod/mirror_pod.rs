//! Validation of mirror Pods, which represent static Pods in the API (`ValidatePodSpecificAnnotations`).

use crate::{FieldErrors, FieldPath};
use api::static_pod::CONFIG_MIRROR;
use serde_json::Value;

/// Whether an object is a mirror Pod.
pub fn is_mirror_pod(object: &Value) -> bool {
    object["metadata"]["annotations"].get(CONFIG_MIRROR).is_some()
}

fn annotation_path() -> FieldPath {
    FieldPath::new("metadata").child("annotations").key(CONFIG_MIRROR)
}

/// Validates that a new mirror Pod has a node name.
pub(super) fn validate_create(object: &Value, errors: &mut FieldErrors) {
    if is_mirror_pod(object) && object["spec"]["nodeName"].as_str().unwrap_or("").is_empty() {
        let text = "must set spec.nodeName if mirror pod annotation is set";
        errors.invalid(&annotation_path(), &object["metadata"]["annotations"][CONFIG_MIRROR], text);
    }
}

/// Validates that the mirror annotation is not added, changed or removed (`ValidatePodSpecificAnnotationUpdates`).
pub(super) fn validate_update(object: &Value, old: &Value, errors: &mut FieldErrors) {
    let (new, before) =
        (&object["metadata"]["annotations"][CONFIG_MIRROR], &old["metadata"]["annotations"][CONFIG_MIRROR]);
    if !before.is_null() && new != before {
        errors.forbidden(&annotation_path(), "may not remove or update mirror pod annotation");
    } else if before.is_null() && !new.is_null() {
        errors.forbidden(&annotation_path(), "may not add mirror pod annotation");
    }
}
