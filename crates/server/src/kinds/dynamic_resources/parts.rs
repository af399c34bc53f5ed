//! What classes, claims and slices have in common.

use crate::kinds::{
    FieldErrors, FieldPath,
    checks::{csi_driver_name, dns_label, items, text as text_of},
};
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;

/// How long the name of what is in a domain may be.
const LONGEST_ID: usize = 32;
/// How much a driver may be told, in bytes of JSON.
const MOST_PARAMETERS: usize = 10 * 1024;
/// How long an expression may be.
const LONGEST_EXPRESSION: usize = 10 * 1024;
/// How many selectors and configurations there may be.
const MOST_SELECTORS: usize = 32;
const MOST_CONFIGS: usize = 32;
/// How many counters there may be in a set of them.
const MOST_COUNTERS: usize = 32;
const EFFECTS: [&str; 3] = ["NoExecute", "NoSchedule", "None"];

/// Looks at each element of a list, if there are not too many (`validateSlice`).
pub(super) fn list(
    holder: &Value,
    field: &str,
    most: usize,
    path: &FieldPath,
    errors: &mut FieldErrors,
    mut check: impl FnMut(&Value, &FieldPath, &mut FieldErrors),
) {
    let (path, count) = (path.child(field), items(holder, field).count());
    if count > most {
        return errors.too_many(&path, count, most);
    }
    for (i, item) in items(holder, field).enumerate() {
        check(item, &path.index(i), errors);
    }
}

/// The same of a list in which none stands twice; `key` says what tells them apart (`validateSet`).
pub(super) fn set(
    holder: &Value,
    (field, most): (&str, usize),
    key: impl Fn(&Value) -> &Value,
    path: &FieldPath,
    errors: &mut FieldErrors,
    check: impl FnMut(&Value, &FieldPath, &mut FieldErrors),
) {
    list(holder, field, most, path, errors, check);
    if items(holder, field).count() > most {
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

/// `a` or `domain/a` (`validateQualifiedName`). More parts than two are upstream's to find fault with.
pub(super) fn qualified_name(name: &str, path: &FieldPath, errors: &mut FieldErrors) {
    let identifier = |id: &str, errors: &mut FieldErrors| {
        if id.len() > LONGEST_ID {
            errors.too_long(path, LONGEST_ID);
        }
        api::names::c_identifier(id).iter().for_each(|e| errors.invalid(path, &json!(id), e));
    };
    match name.split('/').collect::<Vec<_>>()[..] {
        [id] => identifier(id, errors),
        [domain, id] => {
            match domain {
                "" => errors.invalid(path, &json!(""), "the domain must not be empty"),
                _ => csi_driver_name(&json!(domain), path, errors),
            }
            match id {
                "" => errors.invalid(path, &json!(""), "the name must not be empty"),
                _ => identifier(id, errors),
            }
        }
        _ => {}
    }
}

/// `domain/a` (`validateFullyQualifiedName`).
pub(super) fn fully_qualified_name(name: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    let text = name.as_str().unwrap_or("");
    qualified_name(text, path, errors);
    if !text.contains('/') {
        errors.invalid(path, name, "a fully qualified name must be a domain and a name separated by a slash");
    }
}

/// The name of a request, a device or a counter.
pub(super) fn label(name: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    dns_label(&json!(name.as_str().unwrap_or("")), path, errors);
}

/// `validateSelectorSlice`, without compiling what it says.
pub(super) fn selectors(holder: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    list(holder, "selectors", MOST_SELECTORS, path, errors, |selector, path, errors| {
        let (cel, at) = (&selector["cel"], path.child("cel"));
        match text_of(cel, "expression") {
            _ if cel.is_null() => errors.required(&at, ""),
            "" => errors.required(&at.child("expression"), ""),
            text if text.len() > LONGEST_EXPRESSION => errors.too_long(&at.child("expression"), LONGEST_EXPRESSION),
            _ => {}
        }
    });
}

/// What drivers are told; `more` looks at what stands beside that.
pub(super) fn configs(
    holder: &Value,
    path: &FieldPath,
    errors: &mut FieldErrors,
    more: impl Fn(&Value, &FieldPath, &mut FieldErrors),
) {
    list(holder, "config", MOST_CONFIGS, path, errors, |config, path, errors| {
        more(config, path, errors);
        let (opaque, at) = (&config["opaque"], path.child("opaque"));
        if opaque.is_null() {
            return errors.required(&at, "");
        }
        csi_driver_name(&opaque["driver"], &at.child("driver"), errors);
        object(&opaque["parameters"], &at.child("parameters"), errors);
    });
}

/// A JSON object that only a driver understands (`validateRawExtension`).
fn object(value: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    if value.is_null() {
        errors.required(path, "");
    } else if value.to_string().len() > MOST_PARAMETERS {
        errors.too_long(path, MOST_PARAMETERS);
    } else if !value.is_object() {
        errors.invalid(path, &json!("<value omitted>"), "must be a valid JSON object");
    }
}

/// What devices a request takes though they are tainted (`validateDeviceToleration`).
pub(super) fn toleration(toleration: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    if !text_of(toleration, "key").is_empty() {
        label_key(&toleration["key"], &path.child("key"), errors);
    }
    match text_of(toleration, "operator") {
        "" => errors.required(&path.child("operator"), ""),
        "Exists" if text_of(toleration, "value").is_empty() => {}
        "Exists" => errors.invalid(&path.child("value"), &toleration["value"], "must be empty for operator `Exists`"),
        "Equal" => label_value(&toleration["value"], &path.child("value"), errors),
        _ => errors.not_supported(&path.child("operator"), &toleration["operator"], &["Equal", "Exists"]),
    }
    if !text_of(toleration, "effect").is_empty() {
        effect(&toleration["effect"], &path.child("effect"), errors);
    }
}

/// `validateDeviceTaint`.
pub(super) fn taint(taint: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    label_key(&taint["key"], &path.child("key"), errors);
    label_value(&taint["value"], &path.child("value"), errors);
    match text_of(taint, "effect") {
        "" => errors.required(&path.child("effect"), ""),
        _ => effect(&taint["effect"], &path.child("effect"), errors),
    }
}

fn effect(effect: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    if !EFFECTS.iter().any(|known| effect == known) {
        errors.not_supported(path, effect, &EFFECTS);
    }
}

pub(super) fn label_key(key: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    let text = key.as_str().unwrap_or("");
    api::names::qualified_name(text).iter().for_each(|e| errors.invalid(path, &json!(text), e));
}

fn label_value(value: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    let wrong = api::names::label_value(value.as_str().unwrap_or(""));
    wrong.iter().for_each(|e| errors.invalid(path, value, e));
}

pub(super) fn only_true(value: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    if *value == false {
        errors.invalid(path, value, "must be either unset or set to true");
    }
}

/// Which of these fields say something.
pub(super) fn said(of: &Value, fields: &[&str]) -> Vec<String> {
    let is_set = |field: &&&str| !matches!(&of[**field], Value::Null | Value::Bool(false)) && of[**field] != "";
    fields.iter().filter(is_set).map(|field| format!("`{field}`")).collect()
}

/// The counters of a set, or what a device takes of them.
pub(super) fn counters(of: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    let (empty, at) = (Map::new(), path.child("counters"));
    let all = of["counters"].as_object().unwrap_or(&empty);
    if all.is_empty() {
        errors.required(&at, "");
    } else if all.len() > MOST_COUNTERS {
        errors.too_many(&at, all.len(), MOST_COUNTERS);
    } else {
        all.keys().for_each(|name| label(&json!(name), &at.key(name), errors));
    }
}
