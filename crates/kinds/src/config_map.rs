//! ConfigMap.

use super::{AGE, Cell, Column, FieldErrors, FieldPath, Kind, KindInfo, NAME, WriteContext, secret_validation, text};
use serde_json::{Value, json};

pub(super) struct ConfigMap;

static INFO: KindInfo = KindInfo { short_names: &["cm"], ..KindInfo::core("ConfigMap", "configmaps", "configmap") };

const COLUMNS: &[Column] =
    &[NAME, text("Data", Cell::Computed(|map, _| json!(count(map, "data") + count(map, "binaryData")))), AGE];

fn count(object: &Value, list: &str) -> usize {
    object[list].as_object().map_or(0, serde_json::Map::len)
}

impl Kind for ConfigMap {
    fn info(&self) -> &'static KindInfo {
        &INFO
    }

    fn validate_create(&self, object: &Value, _ctx: &WriteContext, errors: &mut FieldErrors) {
        for list in ["data", "binaryData"] {
            validate_keys(object, list, errors);
        }
        let mut size = 0;
        for (list, other) in [("data", "binaryData"), ("binaryData", "data")] {
            for (key, value) in object[list].as_object().into_iter().flatten() {
                size += value.as_str().map_or(0, |v| if list == "data" { v.len() } else { v.len() / 4 * 3 });
                if object[other].get(key).is_some() {
                    let text = format!("duplicate of key present in {other}");
                    errors.invalid(&FieldPath::new(list).key(key), &json!(key), &text);
                }
            }
        }
        if size > secret_validation::MAX_SECRET_SIZE {
            // Upstream formats an empty path as `[]`.
            errors.too_long(&FieldPath::new("[]"), secret_validation::MAX_SECRET_SIZE);
        }
    }

    fn validate_update(&self, object: &Value, old: &Value, ctx: &WriteContext, errors: &mut FieldErrors) {
        validate_immutable_data(object, old, &["data", "binaryData"], errors);
        self.validate_create(object, ctx, errors);
    }

    fn columns(&self) -> &'static [Column] {
        COLUMNS
    }
}

/// Validates keys, which must be valid file names.
pub(super) fn validate_keys(object: &Value, list: &str, errors: &mut FieldErrors) {
    let path = FieldPath::new(list);
    for key in object[list].as_object().into_iter().flat_map(|m| m.keys()) {
        for message in api::names::config_map_key(key) {
            errors.invalid(&path.key(key), &json!(key), &message);
        }
    }
}

/// Validates that the fields of an immutable object do not change.
pub(super) fn validate_immutable_data(object: &Value, old: &Value, fields: &[&str], errors: &mut FieldErrors) {
    if old["immutable"] != json!(true) {
        return;
    }
    for field in ["immutable"].iter().chain(fields) {
        if object[field] != old[field] {
            errors.forbidden(&FieldPath::new(field), "field is immutable when `immutable` is set");
        }
    }
}
