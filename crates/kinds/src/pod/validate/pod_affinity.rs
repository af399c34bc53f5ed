//! Validation of inter-pod affinity and anti-affinity (`validatePodAffinityTerm`).

use super::scheduling::validate_weight;
use crate::{FieldErrors, field_cursor::FieldCursor, selector};
use std::collections::HashSet;

pub(super) fn validate_pod_affinity(affinity: &FieldCursor<'_, '_>, errors: &mut FieldErrors) {
    for term in affinity.at("requiredDuringSchedulingIgnoredDuringExecution").items() {
        validate_term(&term, errors);
    }
    for preferred in affinity.at("preferredDuringSchedulingIgnoredDuringExecution").items() {
        validate_weight(&preferred.at("weight"), errors);
        validate_term(&preferred.at("podAffinityTerm"), errors);
    }
}

fn validate_term(term: &FieldCursor<'_, '_>, errors: &mut FieldErrors) {
    let (labels, topology_key) = (term.at("labelSelector"), term.at("topologyKey"));
    let (matched, mismatched) = (term.at("matchLabelKeys"), term.at("mismatchLabelKeys"));
    selector::validate(&labels, errors);
    selector::validate(&term.at("namespaceSelector"), errors);
    // Upstream's path is `namespace`, without an index.
    let namespaces = term.at("namespaces").shown_as("namespace");
    for name in namespaces.items() {
        namespaces.with_value(name.value()).validate_text(api::names::dns1123_label, errors);
    }
    for keys in [matched, mismatched] {
        if keys.count() > 0 && labels.is_null() {
            keys.forbidden("must not be specified when labelSelector is not set", errors);
        } else {
            keys.items().for_each(|key| key.validate_text(api::names::qualified_name, errors));
        }
    }
    let mismatched: HashSet<&str> = mismatched.items().map(|key| key.text()).collect();
    for key in matched.items().filter(|key| mismatched.contains(key.text())) {
        key.invalid("exists in both matchLabelKeys and mismatchLabelKeys", errors);
    }
    if topology_key.text().is_empty() {
        topology_key.required("can not be empty", errors);
    }
    topology_key.validate_text(api::names::qualified_name, errors);
}
