//! Validation of StorageClasses and VolumeAttributesClasses (`pkg/apis/storage/validation`).

use crate::{
    FieldErrors, FieldPath, enums,
    field_validation::{items, text as text_of, validate_qualified_name},
    node_labels,
};
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// Maximum number and total size of parameters (`maxProvisionerParameterLen`, `maxProvisionerParameterSize`).
const MAX_PARAMETERS: usize = 512;
const MAX_PARAMETERS_SIZE: usize = 256 << 10;

/// Validates a StorageClass (`ValidateStorageClass`).
pub(super) fn validate_storage_class(object: &Value, errors: &mut FieldErrors) {
    validate_provisioner(object, "provisioner", errors);
    validate_parameters(object, errors);
    for (field, supported) in
        [("reclaimPolicy", enums::CLASS_RECLAIM_POLICIES), ("volumeBindingMode", enums::VOLUME_BINDING_MODES)]
    {
        if !supported.contains(&text_of(object, field)) {
            errors.not_supported(&FieldPath::new(field), &object[field], supported);
        }
    }
    validate_allowed_topologies(object, errors);
}

/// Returns the warnings of a StorageClass (`GetWarningsForStorageClass`).
pub(super) fn warnings(object: &Value) -> Vec<String> {
    let mut all = Vec::new();
    for (i, topology) in items(object, "allowedTopologies").enumerate() {
        for (j, expression) in items(topology, "matchLabelExpressions").enumerate() {
            let path = || FieldPath::new("allowedTopologies").index(i).child("matchLabelExpressions").index(j);
            let detail = node_labels::deprecation_warning(text_of(expression, "key"));
            all.extend(detail.map(|detail| format!("{}: {detail}", path())));
        }
    }
    all
}

/// Validates a VolumeAttributesClass (`ValidateVolumeAttributesClass`).
pub(super) fn validate_volume_attributes_class(object: &Value, errors: &mut FieldErrors) {
    validate_provisioner(object, "driverName", errors);
    validate_parameters(object, errors);
    if object["parameters"].as_object().is_none_or(Map::is_empty) {
        errors.required(&FieldPath::new("parameters"), "must contain at least one key/value pair");
    }
}

fn validate_provisioner(object: &Value, field: &str, errors: &mut FieldErrors) {
    let path = FieldPath::new(field);
    match text_of(object, field) {
        "" => errors.required(&path, ""),
        text => validate_qualified_name(&json!(text.to_lowercase()), &path, errors),
    }
}

fn validate_parameters(object: &Value, errors: &mut FieldErrors) {
    let (path, none) = (FieldPath::new("parameters"), Map::new());
    let all = object["parameters"].as_object().unwrap_or(&none);
    if all.len() > MAX_PARAMETERS {
        return errors.too_long(&path, MAX_PARAMETERS);
    }
    if all.contains_key("") {
        errors.invalid(&path, &json!(""), "field can not be empty.");
    }
    if all.iter().map(|(key, value)| key.len() + value.as_str().map_or(0, str::len)).sum::<usize>()
        > MAX_PARAMETERS_SIZE
    {
        errors.too_long(&path, MAX_PARAMETERS_SIZE);
    }
}

/// Validates the allowed topologies (`validateAllowedTopologies`).
fn validate_allowed_topologies(object: &Value, errors: &mut FieldErrors) {
    let path = FieldPath::new("allowedTopologies");
    // Upstream's list starts with as many empty terms, so an empty term is a duplicate.
    let mut before = vec![BTreeMap::new(); items(object, "allowedTopologies").count()];
    for (i, term) in items(object, "allowedTopologies").enumerate() {
        let at = path.index(i).child("matchLabelExpressions");
        let label_values = self::validate_topology_term(term, &at, errors);
        before.iter().filter(|other| **other == label_values).for_each(|_| errors.duplicate(&at, &json!("")));
        before.push(label_values);
    }
}

/// Validates a topology selector term. Returns the values of each label (`ValidateTopologySelectorTerm`).
fn validate_topology_term<'a>(
    term: &'a Value,
    path: &FieldPath,
    errors: &mut FieldErrors,
) -> BTreeMap<&'a str, BTreeSet<&'a str>> {
    let mut label_values = BTreeMap::new();
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
        validate_qualified_name(&json!(key), &at, errors);
        if label_values.insert(key, values).is_some() {
            errors.duplicate(&at, &json!(key));
        }
    }
    label_values
}
