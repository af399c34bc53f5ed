//! Label selectors (`ValidateLabelSelector`).

use super::{items, qualified, text};
use crate::{
    kinds::{FieldErrors, FieldPath},
    metadata,
};
use serde_json::Value;

pub(super) fn selector(selector: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    metadata::labels(&selector["matchLabels"], &path.child("matchLabels"), errors);
    for (i, r) in items(selector, "matchExpressions").enumerate() {
        let path = path.child("matchExpressions").index(i);
        let at = path.child("values");
        let values = items(r, "values").count();
        match text(r, "operator") {
            "In" | "NotIn" if values == 0 => {
                errors.required(&at, "must be specified when `operator` is 'In' or 'NotIn'");
            }
            "Exists" | "DoesNotExist" if values > 0 => {
                errors.forbidden(&at, "may not be specified when `operator` is 'Exists' or 'DoesNotExist'");
            }
            "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
            _ => errors.invalid(&path.child("operator"), &r["operator"], "not a valid selector operator"),
        }
        qualified(&r["key"], &path.child("key"), errors);
        for (j, value) in items(r, "values").enumerate() {
            let wrong = api::names::label_value(value.as_str().unwrap_or(""));
            wrong.iter().for_each(|e| errors.invalid(&at.index(j), value, e));
        }
    }
}

/// Whether the selector speaks of this label.
pub(super) fn names(selector: &Value, key: &Value) -> bool {
    let label = key.as_str().is_some_and(|key| selector["matchLabels"].get(key).is_some());
    label || items(selector, "matchExpressions").any(|r| &r["key"] == key)
}
