//! Validation of node affinity (`validateNodeAffinity`).

use super::{items, scheduling::validate_weight, text, validate_qualified_name};
use crate::{FieldErrors, FieldPath};
use serde_json::{Value, json};

pub(super) fn validate_node_affinity(affinity: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    if let Some(required) = affinity.get("requiredDuringSchedulingIgnoredDuringExecution") {
        validate_node_selector(required, &path.child("requiredDuringSchedulingIgnoredDuringExecution"), errors);
    }
    let list = "preferredDuringSchedulingIgnoredDuringExecution";
    for (i, preferred) in items(affinity, list).enumerate() {
        let path = path.child(list).index(i);
        validate_weight(preferred, &path, errors);
        validate_term(&preferred["preference"], false, &path.child("preference"), errors);
    }
}

/// Validates a node selector (`ValidateNodeSelector`).
pub(crate) fn validate_node_selector(selector: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    let path = path.child("nodeSelectorTerms");
    if items(selector, "nodeSelectorTerms").next().is_none() {
        errors.required(&path, "must have at least one node selector term");
    }
    for (i, one) in items(selector, "nodeSelectorTerms").enumerate() {
        validate_term(one, true, &path.index(i), errors);
    }
}

/// Validates an update of a gated Pod's node affinity, which may only become narrower (`validateNodeAffinityMutation`).
pub(super) fn validate_mutation(new: &Value, old: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
    let path = path.child(REQUIRED).child("nodeSelectorTerms");
    let terms = |affinity: &Value| items(&affinity[REQUIRED], "nodeSelectorTerms").cloned().collect::<Vec<Value>>();
    let (new, old) = (terms(new), terms(old));
    if old.is_empty() {
        return;
    }
    if new.len() != old.len() {
        let detail = "no additions/deletions to non-empty NodeSelectorTerms list are allowed";
        return errors.invalid(&path, &json!(new), detail);
    }
    for (i, new) in new.iter().enumerate().filter(|(i, new)| !only_adds_requirements(new, &old[*i])) {
        errors.invalid(&path.index(i), new, "only additions are allowed (no mutations or deletions)");
    }
}

/// Whether a term keeps its requirements as a prefix. An empty term matches nothing and cannot become narrower.
fn only_adds_requirements(new: &Value, old: &Value) -> bool {
    let list = |term: &Value, name: &str| term[name].as_array().cloned().unwrap_or_default();
    let (expressions, fields) = (list(old, "matchExpressions"), list(old, "matchFields"));
    if expressions.is_empty() && fields.is_empty() {
        return list(new, "matchExpressions").is_empty() && list(new, "matchFields").is_empty();
    }
    list(new, "matchExpressions").starts_with(&expressions) && list(new, "matchFields").starts_with(&fields)
}

/// Validates a node selector term. Label values are validated for required terms only.
fn validate_term(term: &Value, is_required: bool, path: &FieldPath, errors: &mut FieldErrors) {
    for (i, r) in items(term, "matchExpressions").enumerate() {
        let path = path.child("matchExpressions").index(i);
        validate_expression(r, &path, errors);
        validate_qualified_name(&r["key"], &path.child("key"), errors);
        for (j, value) in items(r, "values").enumerate().filter(|_| is_required) {
            let wrong = api::names::label_value(value.as_str().unwrap_or(""));
            wrong.iter().for_each(|e| errors.invalid(&path.child("values").index(j), value, e));
        }
    }
    for (i, r) in items(term, "matchFields").enumerate() {
        validate_field(r, &path.child("matchFields").index(i), errors);
    }
}

fn validate_expression(r: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    let (values, at) = (items(r, "values").count(), path.child("values"));
    match text(r, "operator") {
        "In" | "NotIn" if values == 0 => {
            errors.required(&at, "must be specified when `operator` is 'In' or 'NotIn'");
        }
        "Exists" | "DoesNotExist" if values > 0 => {
            errors.forbidden(&at, "may not be specified when `operator` is 'Exists' or 'DoesNotExist'");
        }
        "Gt" | "Lt" if values != 1 => {
            errors.required(&at, "must be specified single value when `operator` is 'Lt' or 'Gt'");
        }
        "In" | "NotIn" | "Exists" | "DoesNotExist" | "Gt" | "Lt" => {}
        other => errors.invalid(&path.child("operator"), &json!(other), "not a valid selector operator"),
    }
}

/// Validates a field requirement; only `metadata.name` is supported (`ValidateNodeFieldSelectorRequirement`).
fn validate_field(r: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    match text(r, "operator") {
        "In" | "NotIn" if items(r, "values").count() == 1 => {}
        "In" | "NotIn" => {
            let detail = "must be only one value when `operator` is 'In' or 'NotIn' for node field selector";
            errors.required(&path.child("values"), detail);
        }
        other => errors.invalid(&path.child("operator"), &json!(other), "not a valid selector operator"),
    }
    if r["key"] != "metadata.name" {
        return errors.invalid(&path.child("key"), &r["key"], "not a valid field selector key");
    }
    for (i, name) in items(r, "values").enumerate() {
        super::validate_dns_subdomain(name, &path.child("values").index(i), errors);
    }
}
