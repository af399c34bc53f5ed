//! Validation of inter-pod affinity and anti-affinity (`validatePodAffinityTerm`).

use super::{items, text, validate_dns_label, validate_qualified_name};
use crate::{FieldErrors, FieldPath, selector};
use serde_json::{Value, json};
use std::collections::HashSet;

pub(super) fn validate_pod_affinity(affinity: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    let list = "requiredDuringSchedulingIgnoredDuringExecution";
    for (i, one) in items(affinity, list).enumerate() {
        validate_term(one, &path.child(list).index(i), errors);
    }
    let list = "preferredDuringSchedulingIgnoredDuringExecution";
    for (i, preferred) in items(affinity, list).enumerate() {
        let path = path.child(list).index(i);
        super::scheduling::validate_weight(preferred, &path, errors);
        validate_term(&preferred["podAffinityTerm"], &path.child("podAffinityTerm"), errors);
    }
}

fn validate_term(term: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    for field in ["labelSelector", "namespaceSelector"] {
        selector::validate(&term[field], &path.child(field), errors);
    }
    for name in items(term, "namespaces") {
        // Upstream's path is `namespace`, without an index.
        validate_dns_label(name, &path.child("namespace"), errors);
    }
    for field in ["matchLabelKeys", "mismatchLabelKeys"] {
        validate_label_keys(term, field, &path.child(field), errors);
    }
    let mismatched: HashSet<&Value> = items(term, "mismatchLabelKeys").collect();
    for (i, key) in items(term, "matchLabelKeys").enumerate() {
        if mismatched.contains(key) {
            let detail = "exists in both matchLabelKeys and mismatchLabelKeys";
            errors.invalid(&path.child("matchLabelKeys").index(i), key, detail);
        }
    }
    let at = path.child("topologyKey");
    if text(term, "topologyKey").is_empty() {
        errors.required(&at, "can not be empty");
    }
    validate_qualified_name(&json!(text(term, "topologyKey")), &at, errors);
}

fn validate_label_keys(term: &Value, field: &str, path: &FieldPath, errors: &mut FieldErrors) {
    if items(term, field).next().is_some() && term["labelSelector"].is_null() {
        return errors.forbidden(path, "must not be specified when labelSelector is not set");
    }
    for (i, key) in items(term, field).enumerate() {
        validate_qualified_name(key, &path.index(i), errors);
    }
}
