//! Validation that classes, claims and slices share.

use crate::{FieldErrors, enums, field_cursor::FieldCursor, field_validation::validate_csi_driver_name};
use serde_json::{Value, json};
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
    list: &FieldCursor<'_, '_>,
    max: usize,
    errors: &mut FieldErrors,
    mut check: impl FnMut(&FieldCursor<'_, '_>, &mut FieldErrors),
) {
    if list.count() > max {
        return list.too_many(max, errors);
    }
    list.items().for_each(|item| check(&item, errors));
}

/// Validates a list whose items have unique keys (`validateSet`).
pub(super) fn validate_set(
    list: &FieldCursor<'_, '_>,
    max: usize,
    key: impl for<'v> Fn(&FieldCursor<'v, '_>) -> &'v Value,
    errors: &mut FieldErrors,
    check: impl FnMut(&FieldCursor<'_, '_>, &mut FieldErrors),
) {
    validate_list(list, max, errors, check);
    if list.count() > max {
        return;
    }
    let mut seen = BTreeSet::new();
    for item in list.items() {
        // Upstream's path lacks the field.
        let key = item.with_value(key(&item));
        if !seen.insert(key.text()) {
            key.duplicate(errors);
        }
    }
}

/// Validates a name such as `a` or `domain/a` (`validateQualifiedName`) of a field or entry. Like upstream, accepts more than
/// two parts.
pub(super) fn validate_qualified_name(name: &str, field: &FieldCursor<'_, '_>, errors: &mut FieldErrors) {
    let identifier = |id: &str, errors: &mut FieldErrors| {
        if id.len() > MAX_ID_LENGTH {
            field.too_long(MAX_ID_LENGTH, errors);
        }
        field.with_value(&json!(id)).validate_text(api::names::c_identifier, errors);
    };
    let no_part = json!("");
    match name.split('/').collect::<Vec<_>>()[..] {
        [id] => identifier(id, errors),
        [domain, id] => {
            match domain {
                "" => field.with_value(&no_part).invalid("the domain must not be empty", errors),
                _ => validate_csi_driver_name(&field.with_value(&json!(domain)), errors),
            }
            match id {
                "" => field.with_value(&no_part).invalid("the name must not be empty", errors),
                _ => identifier(id, errors),
            }
        }
        _ => {}
    }
}

/// Validates a name such as `domain/a` (`validateFullyQualifiedName`).
pub(super) fn validate_fully_qualified_name(name: &FieldCursor<'_, '_>, errors: &mut FieldErrors) {
    validate_qualified_name(name.text(), name, errors);
    if !name.text().contains('/') {
        name.invalid("a fully qualified name must be a domain and a name separated by a slash", errors);
    }
}

/// Validates selectors without compiling their expressions (`validateSelectorSlice`).
pub(super) fn validate_selectors(selectors: &FieldCursor<'_, '_>, errors: &mut FieldErrors) {
    validate_list(selectors, MAX_SELECTORS, errors, |selector, errors| {
        let cel = selector.at("cel");
        let expression = cel.at("expression");
        if cel.is_null() {
            cel.required("", errors);
        } else if expression.text().is_empty() {
            expression.required("", errors);
        } else if expression.text().len() > MAX_EXPRESSION_LENGTH {
            expression.too_long(MAX_EXPRESSION_LENGTH, errors);
        }
    });
}

/// Validates driver configurations. `validate_more` validates additional fields.
pub(super) fn validate_configs(
    configs: &FieldCursor<'_, '_>,
    errors: &mut FieldErrors,
    validate_more: impl Fn(&FieldCursor<'_, '_>, &mut FieldErrors),
) {
    validate_list(configs, MAX_CONFIGS, errors, |config, errors| {
        validate_more(config, errors);
        let opaque = config.at("opaque");
        if opaque.is_null() {
            return opaque.required("", errors);
        }
        validate_csi_driver_name(&opaque.at("driver"), errors);
        validate_raw_extension(&opaque.at("parameters"), errors);
    });
}

/// Validates opaque parameters, which must be a JSON object (`validateRawExtension`).
fn validate_raw_extension(parameters: &FieldCursor<'_, '_>, errors: &mut FieldErrors) {
    if parameters.is_null() {
        parameters.required("", errors);
    } else if parameters.value().to_string().len() > MAX_PARAMETERS_SIZE {
        parameters.too_long(MAX_PARAMETERS_SIZE, errors);
    } else if !parameters.value().is_object() {
        errors.invalid(&parameters.path(), &json!("<value omitted>"), "must be a valid JSON object");
    }
}

/// Validates a toleration (`validateDeviceToleration`).
pub(super) fn validate_toleration(toleration: &FieldCursor<'_, '_>, errors: &mut FieldErrors) {
    let (key, operator) = (toleration.at("key"), toleration.at("operator"));
    let (value, effect) = (toleration.at("value"), toleration.at("effect"));
    if !key.text().is_empty() {
        key.validate_text(api::names::qualified_name, errors);
    }
    match operator.text() {
        "Exists" if value.text().is_empty() => {}
        "Exists" => value.invalid("must be empty for operator `Exists`", errors),
        "Equal" => value.validate_text(api::names::label_value, errors),
        _ => operator.one_of(enums::DEVICE_TOLERATION_OPERATORS, errors),
    }
    if !effect.text().is_empty() {
        effect.supported(enums::DEVICE_TAINT_EFFECTS, errors);
    }
}

/// Validates a taint (`validateDeviceTaint`).
pub(super) fn validate_taint(taint: &FieldCursor<'_, '_>, errors: &mut FieldErrors) {
    taint.at("key").validate_text(api::names::qualified_name, errors);
    taint.at("value").validate_text(api::names::label_value, errors);
    taint.at("effect").one_of(enums::DEVICE_TAINT_EFFECTS, errors);
}

pub(super) fn validate_unset_or_true(field: &FieldCursor<'_, '_>, errors: &mut FieldErrors) {
    if field.is_false() {
        field.invalid("must be either unset or set to true", errors);
    }
}

/// Returns the fields that are set.
pub(super) fn set_fields(object: &Value, fields: &[&str]) -> Vec<String> {
    let is_set = |field: &&&str| !matches!(&object[**field], Value::Null | Value::Bool(false)) && object[**field] != "";
    fields.iter().filter(is_set).map(|field| format!("`{field}`")).collect()
}

/// Validates the counters of a set or of a device.
pub(super) fn validate_counters(counters: &FieldCursor<'_, '_>, errors: &mut FieldErrors) {
    let count = counters.entries().count();
    if count == 0 {
        counters.required("", errors);
    } else if count > MAX_COUNTERS {
        errors.too_many(&counters.path(), count, MAX_COUNTERS);
    } else {
        for (name, counter) in counters.entries() {
            let wrong = api::names::dns1123_label(name);
            wrong.iter().for_each(|detail| errors.invalid(&counter.path(), &json!(name), detail));
        }
    }
}
