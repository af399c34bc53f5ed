//! Validation of node affinity (`validateNodeAffinity`).

use super::{items, scheduling::validate_weight};
use crate::{FieldErrors, FieldPath, field_cursor::FieldCursor};
use serde_json::{Value, json};

pub(super) fn validate_node_affinity(affinity: &FieldCursor<'_, '_>, errors: &mut FieldErrors) {
    let required = affinity.at("requiredDuringSchedulingIgnoredDuringExecution");
    if required.is_set() {
        validate_node_selector(&required, errors);
    }
    for preferred in affinity.at("preferredDuringSchedulingIgnoredDuringExecution").items() {
        validate_weight(&preferred.at("weight"), errors);
        validate_term(&preferred.at("preference"), false, errors);
    }
}

/// Validates a node selector (`ValidateNodeSelector`).
pub(crate) fn validate_node_selector(selector: &FieldCursor<'_, '_>, errors: &mut FieldErrors) {
    let terms = selector.at("nodeSelectorTerms");
    if terms.count() == 0 {
        terms.required("must have at least one node selector term", errors);
    }
    terms.items().for_each(|term| validate_term(&term, true, errors));
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
fn validate_term(term: &FieldCursor<'_, '_>, is_required: bool, errors: &mut FieldErrors) {
    for requirement in term.at("matchExpressions").items() {
        validate_expression(&requirement, errors);
        requirement.at("key").validate_text(api::names::qualified_name, errors);
        for value in requirement.at("values").items().filter(|_| is_required) {
            value.validate_text(api::names::label_value, errors);
        }
    }
    term.at("matchFields").items().for_each(|requirement| validate_field(&requirement, errors));
}

fn validate_expression(requirement: &FieldCursor<'_, '_>, errors: &mut FieldErrors) {
    let (operator, values) = (requirement.at("operator"), requirement.at("values"));
    match operator.text() {
        "In" | "NotIn" if values.count() == 0 => {
            values.required("must be specified when `operator` is 'In' or 'NotIn'", errors);
        }
        "Exists" | "DoesNotExist" if values.count() > 0 => {
            values.forbidden("may not be specified when `operator` is 'Exists' or 'DoesNotExist'", errors);
        }
        "Gt" | "Lt" if values.count() != 1 => {
            values.required("must be specified single value when `operator` is 'Lt' or 'Gt'", errors);
        }
        "In" | "NotIn" | "Exists" | "DoesNotExist" | "Gt" | "Lt" => {}
        _ => operator.invalid("not a valid selector operator", errors),
    }
}

/// Validates a field requirement; only `metadata.name` is supported (`ValidateNodeFieldSelectorRequirement`).
fn validate_field(requirement: &FieldCursor<'_, '_>, errors: &mut FieldErrors) {
    let (key, operator, values) = (requirement.at("key"), requirement.at("operator"), requirement.at("values"));
    match operator.text() {
        "In" | "NotIn" if values.count() == 1 => {}
        "In" | "NotIn" => {
            let detail = "must be only one value when `operator` is 'In' or 'NotIn' for node field selector";
            values.required(detail, errors);
        }
        _ => operator.invalid("not a valid selector operator", errors),
    }
    if key.text() != "metadata.name" {
        return key.invalid("not a valid field selector key", errors);
    }
    values.items().for_each(|name| name.validate_text(api::names::dns1123_subdomain, errors));
}
