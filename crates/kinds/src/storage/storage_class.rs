//! Validation of StorageClasses and VolumeAttributesClasses (`pkg/apis/storage/validation`).

use crate::{
    FieldErrors, FieldPath, enums,
    field_cursor::FieldCursor,
    field_validation::{items, text as text_of},
    node_labels,
};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// Maximum number and total size of parameters (`maxProvisionerParameterLen`, `maxProvisionerParameterSize`).
const MAX_PARAMETERS: usize = 512;
const MAX_PARAMETERS_SIZE: usize = 256 << 10;

/// Validates a StorageClass (`ValidateStorageClass`).
pub(super) fn validate_storage_class(object: &Value, errors: &mut FieldErrors) {
    let object = FieldCursor::object(object);
    validate_provisioner(&object.at("provisioner"), errors);
    validate_parameters(&object.at("parameters"), errors);
    object.at("reclaimPolicy").supported(enums::CLASS_RECLAIM_POLICIES, errors);
    object.at("volumeBindingMode").supported(enums::VOLUME_BINDING_MODES, errors);
    validate_allowed_topologies(&object.at("allowedTopologies"), errors);
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
    let object = FieldCursor::object(object);
    let parameters = object.at("parameters");
    validate_provisioner(&object.at("driverName"), errors);
    validate_parameters(&parameters, errors);
    if parameters.entries().next().is_none() {
        parameters.required("must contain at least one key/value pair", errors);
    }
}

fn validate_provisioner(provisioner: &FieldCursor<'_, '_>, errors: &mut FieldErrors) {
    if provisioner.text().is_empty() {
        return provisioner.required("", errors);
    }
    let name = provisioner.text().to_lowercase();
    let wrong = api::names::qualified_name(&name);
    wrong.iter().for_each(|detail| errors.invalid(&provisioner.path(), &json!(name), detail));
}

fn validate_parameters(parameters: &FieldCursor<'_, '_>, errors: &mut FieldErrors) {
    if parameters.entries().count() > MAX_PARAMETERS {
        return parameters.too_long(MAX_PARAMETERS, errors);
    }
    if parameters.key("").is_set() {
        errors.invalid(&parameters.path(), &json!(""), "field can not be empty.");
    }
    let size: usize = parameters.entries().map(|(key, value)| key.len() + value.text().len()).sum();
    if size > MAX_PARAMETERS_SIZE {
        parameters.too_long(MAX_PARAMETERS_SIZE, errors);
    }
}

/// Validates the allowed topologies (`validateAllowedTopologies`).
fn validate_allowed_topologies(topologies: &FieldCursor<'_, '_>, errors: &mut FieldErrors) {
    // Upstream's list starts with as many empty terms, so an empty term is a duplicate.
    let mut before = vec![BTreeMap::new(); topologies.count()];
    for term in topologies.items() {
        let expressions = term.at("matchLabelExpressions");
        let label_values = self::validate_topology_term(&expressions, errors);
        for _ in before.iter().filter(|other| **other == label_values) {
            errors.duplicate(&expressions.path(), &json!(""));
        }
        before.push(label_values);
    }
}

/// Validates a topology selector term. Returns the values of each label (`ValidateTopologySelectorTerm`).
fn validate_topology_term<'v>(
    expressions: &FieldCursor<'v, '_>,
    errors: &mut FieldErrors,
) -> BTreeMap<&'v str, BTreeSet<&'v str>> {
    let mut label_values = BTreeMap::new();
    for expression in expressions.items() {
        let (key, values) = (expression.at("key"), expression.at("values"));
        if values.count() == 0 {
            values.required("", errors);
        }
        let mut found = BTreeSet::new();
        for value in values.items() {
            if !found.insert(value.text()) {
                value.duplicate(errors);
            }
        }
        key.validate_text(api::names::qualified_name, errors);
        if label_values.insert(key.text(), found).is_some() {
            key.duplicate(errors);
        }
    }
    label_values
}
