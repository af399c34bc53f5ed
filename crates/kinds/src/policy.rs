//! PodDisruptionBudget (`policy/v1`).

use super::{
    AGE, Cell, FieldErrors, KindInfo, NAME, conditions, enums,
    field_cursor::FieldCursor,
    field_validation::{parse_percent, validate_int_or_percent},
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
    let object = FieldCursor::object(object);
    let spec = object.at("spec");
    let (available, unavailable) = (spec.at("minAvailable"), spec.at("maxUnavailable"));
    if available.is_set() && unavailable.is_set() {
        spec.invalid("minAvailable and maxUnavailable cannot be both set", errors);
    }
    for amount in [available, unavailable].iter().filter(|amount| amount.is_set()) {
        validate_int_or_percent(amount, errors);
        if parse_percent(amount.value()).is_some_and(|p| p > 100) {
            amount.invalid("must not be greater than 100%", errors);
        }
    }
    selector::validate(&spec.at("selector"), errors);
    let policy = spec.at("unhealthyPodEvictionPolicy");
    if policy.is_set() {
        policy.supported(enums::UNHEALTHY_POD_EVICTION_POLICIES, errors);
    }
}

/// Validates an update of the status (`ValidatePodDisruptionBudgetStatusUpdate`).
fn validate_status(object: &Value, _: &Value, errors: &mut FieldErrors) {
    let object = FieldCursor::object(object);
    let status = object.at("status");
    conditions::validate(&status.at("conditions"), errors);
    for name in ["disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods"] {
        status.at(name).nonnegative(errors);
    }
}
