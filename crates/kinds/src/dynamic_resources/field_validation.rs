//! Validation that classes, claims and slices share.

use crate::{
    FieldErrors, FieldPath, enums,
    field_validation::{items, text as text_of, validate_csi_driver_name, validate_dns_label},
};
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;

/// Maximum length of a C identifier (`DeviceMaxIDLength`).
const MAX_ID_LENGTH: usize = 32;
/// Maximum size of opaque parameters in bytes (`OpaqueParametersMaxLength`).
const MAX_PARAMETERS_SIZE: usize = 10 * 1024;
/// Maximum length of a CEL expression in bytes (`CELSelectorExpressionMaxLength`).
const MAX_EXPRESSION_LENGTH: usize = 10 * 1024;
/// Maximum number of selectors and of configurations.
const MAX_SELECTORS: usize = 32;
const MAX_CONFIGS: usize = 32;
/// Maximum number of counters in a set.
const MAX_COUNTERS: usize = 32;

/// Validates the length of a list and each item (`validateSlice`).
pub(super) fn validate_list(
    holder: &Value,
    field: &str,
    max: usize,
    path: &FieldPath,
    errors: &mut FieldErrors,
    mut check: impl FnMut(&Value, &FieldPath, &mut FieldErrors),
) {
    let (path, count) = (path.child(field), items(holder, field).count());
    if count > max {
        return errors.too_many(&path, count, max);
    }
    for (i, item) in items(holder, field).enumerate() {
        check(item, &path.index(i), errors);
    }
}

/// Validates a list whose items have unique keys (`validateSet`).
pub(super) fn validate_set(
    holder: &Value,
    (field, max): (&str, usize),
    key: impl Fn(&Value) -> &Value,
    path: &FieldPath,
    errors: &mut FieldErrors,
    check: impl FnMut(&Value, &FieldPath, &mut FieldErrors),
) {
    validate_list(holder, field, max, path, errors, check);
    if items(holder, field).count() > max {
        return;
    }
    let mut seen = BTreeSet::new();
    for (i, item) in items(holder, field).enumerate() {
        let key = key(item);
        if !seen.insert(key.as_str().unwrap_or("")) {
            errors.duplicate(&path.child(field).index(i), key);
        }
    }
}

/// Validates a name such as `a` or `domain/a` (`validateQualifiedName`). Like upstream, accepts more than two parts.
pub(super) fn validate_qualified_name(name: &str, path: &FieldPath, errors: &mut FieldErrors) {
    let identifier = |id: &str, errors: &mut FieldErrors| {
        if id.len() > MAX_ID_LENGTH {
            errors.too_long(path, MAX_ID_LENGTH);
        }
        api::names::c_identifier(id).iter().for_each(|e| errors.invalid(path, &json!(id), e));
    };
    match name.split('/').collect::<Vec<_>>()[..] {
        [id] => identifier(id, errors),
        [domain, id] => {
            match domain {
                "" => errors.invalid(path, &json!(""), "the domain must not be empty"),
                _ => validate_csi_driver_name(&json!(domain), path, errors),
            }
            match id {
                "" => errors.invalid(path, &json!(""), "the name must not be empty"),
                _ => identifier(id, errors),
            }
        }
        _ => {}
    }
}

/// Validates a name such as `domain/a` (`validateFullyQualifiedName`).
pub(super) fn validate_fully_qualified_name(name: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    let text = name.as_str().unwrap_or("");
    validate_qualified_name(text, path, errors);
    if !text.contains('/') {
        errors.invalid(path, name, "a fully qualified name must be a domain and a name separated by a slash");
    }
}

/// Validates the name of a request, device or counter.
pub(super) fn validate_label(name: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    validate_dns_label(&json!(name.as_str().unwrap_or("")), path, errors);
}

/// Validates selectors without compiling their expressions (`validateSelectorSlice`).
pub(super) fn validate_selectors(holder: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    validate_list(holder, "selectors", MAX_SELECTORS, path, errors, |selector, path, errors| {
        let (cel, at) = (&selector["cel"], path.child("cel"));
        match text_of(cel, "expression") {
            _ if cel.is_null() => errors.required(&at, ""),
            "" => errors.required(&at.child("expression"), ""),
            text if text.len() > MAX_EXPRESSION_LENGTH => {
                errors.too_long(&at.child("expression"), MAX_EXPRESSION_LENGTH);
            }
            _ => {}
        }
    });
}

/// Validates driver configurations. `validate_more` validates additional fields.
pub(super) fn validate_configs(
    holder: &Value,
    path: &FieldPath,
    errors: &mut FieldErrors,
    validate_more: impl Fn(&Value, &FieldPath, &mut FieldErrors),
) {
    validate_list(holder, "config", MAX_CONFIGS, path, errors, |config, path, errors| {
        validate_more(config, path, errors);
        let (opaque, at) = (&config["opaque"], path.child("opaque"));
        if opaque.is_null() {
            return errors.required(&at, "");
        }
        validate_csi_driver_name(&opaque["driver"], &at.child("driver"), errors);
        validate_raw_extension(&opaque["parameters"], &at.child("parameters"), errors);
    });
}

/// Validates opaque parameters, which must be a JSON object (`validateRawExtension`).
fn validate_raw_extension(value: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    if value.is_null() {
        errors.required(path, "");
    } else if value.to_string().len() > MAX_PARAMETERS_SIZE {
        errors.too_long(path, MAX_PARAMETERS_SIZE);
    } else if !value.is_object() {
        errors.invalid(path, &json!("<value omitted>"), "must be a valid JSON object");
    }
}

/// Validates a toleration (`validateDeviceToleration`).
pub(super) fn validate_toleration(toleration: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    if !text_of(toleration, "key").is_empty() {
        validate_label_key(&toleration["key"], &path.child("key"), errors);
    }
    match text_of(toleration, "operator") {
        "" => errors.required(&path.child("operator"), ""),
        "Exists" if text_of(toleration, "value").is_empty() => {}
        "Exists" => errors.invalid(&path.child("value"), &toleration["value"], "must be empty for operator `Exists`"),
        "Equal" => validate_label_value(&toleration["value"], &path.child("value"), errors),
        _ => errors.not_supported(&path.child("operator"), &toleration["operator"], enums::DEVICE_TOLERATION_OPERATORS),
    }
    if !text_of(toleration, "effect").is_empty() {
        validate_effect(&toleration["effect"], &path.child("effect"), errors);
    }
}

/// Validates a taint (`validateDeviceTaint`).
pub(super) fn validate_taint(taint: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    validate_label_key(&taint["key"], &path.child("key"), errors);
    validate_label_value(&taint["value"], &path.child("value"), errors);
    match text_of(taint, "effect") {
        "" => errors.required(&path.child("effect"), ""),
        _ => validate_effect(&taint["effect"], &path.child("effect"), errors),
    }
}

fn validate_effect(effect: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    if !enums::DEVICE_TAINT_EFFECTS.iter().any(|known| effect == known) {
        errors.not_supported(path, effect, enums::DEVICE_TAINT_EFFECTS);
    }
}

pub(super) fn validate_label_key(key: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    let text = key.as_str().unwrap_or("");
    api::names::qualified_name(text).iter().for_each(|e| errors.invalid(path, &json!(text), e));
}

fn validate_label_value(value: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    let wrong = api::names::label_value(value.as_str().unwrap_or(""));
    wrong.iter().for_each(|e| errors.invalid(path, value, e));
}

pub(super) fn validate_unset_or_true(value: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    if *value == false {
        errors.invalid(path, value, "must be either unset or set to true");
    }
}

/// Returns the fields that are set.
pub(super) fn set_fields(object: &Value, fields: &[&str]) -> Vec<String> {
    let is_set = |field: &&&str| !matches!(&object[**field], Value::Null | Value::Bool(false)) && object[**field] != "";
    fields.iter().filter(is_set).map(|field| format!("`{field}`")).collect()
}

/// Validates the counters of a set or of a device.
pub(super) fn validate_counters(object: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    let (empty, at) = (Map::new(), path.child("counters"));
    let all = object["counters"].as_object().unwrap_or(&empty);
    if all.is_empty() {
        errors.required(&at, "");
    } else if all.len() > MAX_COUNTERS {
        errors.too_many(&at, all.len(), MAX_COUNTERS);
    } else {
        all.keys().for_each(|name| validate_label(&json!(name), &at.key(name), errors));
    }
}
