//! What StorageClasses and VolumeAttributesClasses may say (`pkg/apis/storage/validation`).

use crate::kinds::{
    FieldErrors, FieldPath,
    checks::{items, qualified, text as text_of},
    node_labels,
};
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// How many parameters there may be, and how much they may say.
const MOST_PARAMETERS: usize = 512;
const LONGEST_PARAMETERS: usize = 256 << 10;

/// `ValidateStorageClass`.
pub(super) fn storage(object: &Value, errors: &mut FieldErrors) {
    provisioner(object, "provisioner", errors);
    parameters(object, errors);
    for (field, supported) in
        [("reclaimPolicy", ["Delete", "Retain"]), ("volumeBindingMode", ["Immediate", "WaitForFirstConsumer"])]
    {
        if !supported.contains(&text_of(object, field)) {
            errors.not_supported(&FieldPath::new(field), &object[field], &supported);
        }
    }
    topologies(object, errors);
}

/// `GetWarningsForStorageClass`.
pub(super) fn warnings(object: &Value) -> Vec<String> {
    let mut all = Vec::new();
    for (i, topology) in items(object, "allowedTopologies").enumerate() {
        for (j, expression) in items(topology, "matchLabelExpressions").enumerate() {
            let path = || FieldPath::new("allowedTopologies").index(i).child("matchLabelExpressions").index(j);
            let why = node_labels::warning(text_of(expression, "key"));
            all.extend(why.map(|why| format!("{}: {why}", path())));
        }
    }
    all
}

/// `ValidateVolumeAttributesClass`.
pub(super) fn attributes(object: &Value, errors: &mut FieldErrors) {
    provisioner(object, "driverName", errors);
    parameters(object, errors);
    if object["parameters"].as_object().is_none_or(Map::is_empty) {
        errors.required(&FieldPath::new("parameters"), "must contain at least one key/value pair");
    }
}

fn provisioner(object: &Value, field: &str, errors: &mut FieldErrors) {
    let path = FieldPath::new(field);
    match text_of(object, field) {
        "" => errors.required(&path, ""),
        text => qualified(&json!(text.to_lowercase()), &path, errors),
    }
}

fn parameters(object: &Value, errors: &mut FieldErrors) {
    let (path, none) = (FieldPath::new("parameters"), Map::new());
    let all = object["parameters"].as_object().unwrap_or(&none);
    if all.len() > MOST_PARAMETERS {
        return errors.too_long(&path, MOST_PARAMETERS);
    }
    if all.contains_key("") {
        errors.invalid(&path, &json!(""), "field can not be empty.");
    }
    if all.iter().map(|(key, value)| key.len() + value.as_str().map_or(0, str::len)).sum::<usize>() > LONGEST_PARAMETERS
    {
        errors.too_long(&path, LONGEST_PARAMETERS);
    }
}

/// `validateAllowedTopologies`.
fn topologies(object: &Value, errors: &mut FieldErrors) {
    let path = FieldPath::new("allowedTopologies");
    // Upstream begins with as many empty ones: a term that says nothing stands twice.
    let mut before = vec![BTreeMap::new(); items(object, "allowedTopologies").count()];
    for (i, term) in items(object, "allowedTopologies").enumerate() {
        let at = path.index(i).child("matchLabelExpressions");
        let said = self::term(term, &at, errors);
        before.iter().filter(|other| **other == said).for_each(|_| errors.duplicate(&at, &json!("")));
        before.push(said);
    }
}

/// `ValidateTopologySelectorTerm`: which values each label may have.
fn term<'a>(term: &'a Value, path: &FieldPath, errors: &mut FieldErrors) -> BTreeMap<&'a str, BTreeSet<&'a str>> {
    let mut said = BTreeMap::new();
    for (i, expression) in items(term, "matchLabelExpressions").enumerate() {
        let path = path.index(i);
        let (at, mut values) = (path.child("values"), BTreeSet::new());
        if items(expression, "values").next().is_none() {
            errors.required(&at, "");
        }
        for (j, value) in items(expression, "values").enumerate() {
            if !values.insert(value.as_str().unwrap_or("")) {
                errors.duplicate(&at.index(j), value);
            }
        }
        let (key, at) = (text_of(expression, "key"), path.child("key"));
        qualified(&json!(key), &at, errors);
        if said.insert(key, values).is_some() {
            errors.duplicate(&at, &json!(key));
        }
    }
    said
}
