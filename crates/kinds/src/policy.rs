//! PodDisruptionBudget (`policy/v1`).

use super::{
    AGE, Cell, FieldErrors, FieldPath, KindInfo, NAME, conditions, enums,
    field_validation::{parse_percent, validate_int_or_percent, validate_nonnegative},
    generic_kind::GenericKind,
    integer, selector, text,
};
use serde_json::{Value, json};

pub(super) static POD_DISRUPTION_BUDGET: GenericKind = GenericKind {
    columns: &[
        NAME,
        text("Min Available", Cell::Computed(|b, _| int_or_percent_cell(&b["spec"]["minAvailable"]))),
        text("Max Unavailable", Cell::Computed(|b, _| int_or_percent_cell(&b["spec"]["maxUnavailable"]))),
        integer("Allowed Disruptions", Cell::Pointer("/status/disruptionsAllowed")),
        AGE,
    ],
    validate,
    validate_status,
    ..GenericKind::new(&KindInfo {
        requires_resource_version: true,
        short_names: &["pdb"],
        status: true,
        generation: true,
        ..KindInfo::namespaced("policy", "PodDisruptionBudget", "poddisruptionbudgets", "poddisruptionbudget")
    })
};

fn int_or_percent_cell(amount: &Value) -> Value {
    match amount {
        Value::Null => json!("N/A"),
        Value::String(text) => json!(text),
        number => json!(number.to_string()),
    }
}

/// Validates a PodDisruptionBudget (`ValidatePodDisruptionBudgetSpec`).
fn validate(object: &Value, errors: &mut FieldErrors) {
    let (path, spec) = (FieldPath::new("spec"), &object["spec"]);
    let fields = ["minAvailable", "maxUnavailable"];
    if fields.iter().all(|field| !spec[field].is_null()) {
        errors.invalid(&path, spec, "minAvailable and maxUnavailable cannot be both set");
    }
    for field in fields.into_iter().filter(|f| !spec[f].is_null()) {
        validate_int_or_percent(&spec[field], &path.child(field), errors);
        if parse_percent(&spec[field]).is_some_and(|p| p > 100) {
            errors.invalid(&path.child(field), &spec[field], "must not be greater than 100%");
        }
    }
    selector::validate(&spec["selector"], &path.child("selector"), errors);
    let policy = &spec["unhealthyPodEvictionPolicy"];
    let known = enums::UNHEALTHY_POD_EVICTION_POLICIES;
    if policy.as_str().is_some_and(|policy| !known.contains(&policy)) {
        errors.not_supported(&path.child("unhealthyPodEvictionPolicy"), policy, known);
    }
}

/// Validates an update of the status (`ValidatePodDisruptionBudgetStatusUpdate`).
fn validate_status(object: &Value, _: &Value, errors: &mut FieldErrors) {
    let (path, status) = (FieldPath::new("status"), &object["status"]);
    conditions::validate(status, &path, errors);
    for field in ["disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods"] {
        validate_nonnegative(status, field, &path, errors);
    }
}
