//! Validation of scheduling constraints: tolerations, affinity, topology spread constraints and gates.

use super::{node_affinity, pod_affinity, topology_spread};
use crate::{FieldErrors, enums, field_cursor::FieldCursor};
use serde_json::json;
use std::collections::BTreeSet;

pub(super) fn validate_scheduling(spec: &FieldCursor<'_, '_>, errors: &mut FieldErrors) {
    validate_tolerations(&spec.at("tolerations"), errors);
    let affinity = spec.at("affinity");
    node_affinity::validate_node_affinity(&affinity.at("nodeAffinity"), errors);
    pod_affinity::validate_pod_affinity(&affinity.at("podAffinity"), errors);
    pod_affinity::validate_pod_affinity(&affinity.at("podAntiAffinity"), errors);
    for gate in spec.at("readinessGates").items() {
        gate.at("conditionType").validate_text(api::names::qualified_name, errors);
    }
    let mut seen = BTreeSet::new();
    for gate in spec.at("schedulingGates").items() {
        let name = gate.at("name");
        // Upstream's path lacks the field.
        let shown = gate.with_value(name.value());
        shown.validate_text(api::names::qualified_name, errors);
        if !seen.insert(name.text()) {
            shown.duplicate(errors);
        }
    }
    topology_spread::validate_topology_spread_constraints(&spec.at("topologySpreadConstraints"), errors);
}

pub(crate) fn validate_tolerations(tolerations: &FieldCursor<'_, '_>, errors: &mut FieldErrors) {
    for toleration in tolerations.items() {
        let (key, operator) = (toleration.at("key"), toleration.at("operator"));
        let (value, effect) = (toleration.at("value"), toleration.at("effect"));
        if !key.text().is_empty() {
            key.validate_text(api::names::qualified_name, errors);
        } else if operator.text() != "Exists" {
            let detail = "operator must be Exists when `key` is empty, which means \"match all values and all keys\"";
            errors.invalid(&operator.path(), &json!(operator.text()), detail);
        }
        if toleration.at("tolerationSeconds").is_set() && effect.text() != "NoExecute" {
            let detail = "effect must be 'NoExecute' when `tolerationSeconds` is set";
            errors.invalid(&effect.path(), &json!(effect.text()), detail);
        }
        match operator.text() {
            "" | "Equal" => {
                let wrong = api::names::label_value(value.text());
                if !wrong.is_empty() {
                    operator.with_value(value.value()).invalid(&wrong.join(";"), errors);
                }
            }
            "Exists" if !value.text().is_empty() => {
                let shown = operator.with_value(value.value());
                shown.invalid("value must be empty when `operator` is 'Exists'", errors);
            }
            "Exists" => {}
            _ => operator.not_supported(enums::TOLERATION_OPERATORS, errors),
        }
        if !effect.text().is_empty() {
            effect.supported(enums::TAINT_EFFECTS, errors);
        }
    }
}

pub(super) fn validate_weight(weight: &FieldCursor<'_, '_>, errors: &mut FieldErrors) {
    if !(1..=100).contains(&weight.integer().unwrap_or(0)) {
        weight.invalid("must be in the range 1-100", errors);
    }
}
