//! Affinity to other Pods (`validatePodAffinityTerm`).

use super::{dns_label, items, qualified, text};
use crate::kinds::{FieldErrors, FieldPath, selector};
use serde_json::{Value, json};
use std::collections::HashSet;

pub(super) fn all(affinity: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    let list = "requiredDuringSchedulingIgnoredDuringExecution";
    for (i, one) in items(affinity, list).enumerate() {
        term(one, &path.child(list).index(i), errors);
    }
    let list = "preferredDuringSchedulingIgnoredDuringExecution";
    for (i, preferred) in items(affinity, list).enumerate() {
        let path = path.child(list).index(i);
        super::scheduling::weight(preferred, &path, errors);
        term(&preferred["podAffinityTerm"], &path.child("podAffinityTerm"), errors);
    }
}

fn term(term: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    for field in ["labelSelector", "namespaceSelector"] {
        selector::validate(&term[field], &path.child(field), errors);
    }
    for name in items(term, "namespaces") {
        // The path is upstream's, without the list's own name and the index.
        dns_label(name, &path.child("namespace"), errors);
    }
    for field in ["matchLabelKeys", "mismatchLabelKeys"] {
        label_keys(term, field, &path.child(field), errors);
    }
    let mismatched: HashSet<&Value> = items(term, "mismatchLabelKeys").collect();
    for (i, key) in items(term, "matchLabelKeys").enumerate() {
        if mismatched.contains(key) {
            let why = "exists in both matchLabelKeys and mismatchLabelKeys";
            errors.invalid(&path.child("matchLabelKeys").index(i), key, why);
        }
    }
    let at = path.child("topologyKey");
    if text(term, "topologyKey").is_empty() {
        errors.required(&at, "can not be empty");
    }
    qualified(&json!(text(term, "topologyKey")), &at, errors);
}

fn label_keys(term: &Value, field: &str, path: &FieldPath, errors: &mut FieldErrors) {
    if items(term, field).next().is_some() && term["labelSelector"].is_null() {
        return errors.forbidden(path, "must not be specified when labelSelector is not set");
    }
    for (i, key) in items(term, field).enumerate() {
        qualified(key, &path.index(i), errors);
    }
}
