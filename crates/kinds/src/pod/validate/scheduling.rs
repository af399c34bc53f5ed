//! Validation of scheduling constraints: tolerations, affinity, topology spread constraints and gates.

use super::{items, node_affinity, pod_affinity, text, topology_spread, validate_one_of, validate_qualified_name};
use crate::{FieldErrors, FieldPath, enums};
use serde_json::{Value, json};
use std::collections::BTreeSet;

pub(super) fn validate_scheduling(spec: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    validate_tolerations(spec, &path.child("tolerations"), errors);
    let affinity = path.child("affinity");
    node_affinity::validate_node_affinity(&spec["affinity"]["nodeAffinity"], &affinity.child("nodeAffinity"), errors);
    for kind in ["podAffinity", "podAntiAffinity"] {
        pod_affinity::validate_pod_affinity(&spec["affinity"][kind], &affinity.child(kind), errors);
    }
    for (i, gate) in items(spec, "readinessGates").enumerate() {
        let path = path.child("readinessGates").index(i).child("conditionType");
        validate_qualified_name(&gate["conditionType"], &path, errors);
    }
    let mut seen = BTreeSet::new();
    for (i, gate) in items(spec, "schedulingGates").enumerate() {
        let path = path.child("schedulingGates").index(i);
        validate_qualified_name(&gate["name"], &path, errors);
        if !seen.insert(text(gate, "name")) {
            errors.duplicate(&path, &gate["name"]);
        }
    }
    topology_spread::validate_topology_spread_constraints(spec, &path.child("topologySpreadConstraints"), errors);
}

pub(crate) fn validate_tolerations(spec: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    for (i, t) in items(spec, "tolerations").enumerate() {
        let path = path.index(i);
        let (key, operator, value, effect) = (text(t, "key"), text(t, "operator"), text(t, "value"), text(t, "effect"));
        if !key.is_empty() {
            validate_qualified_name(&t["key"], &path.child("key"), errors);
        } else if operator != "Exists" {
            let text = "operator must be Exists when `key` is empty, which means \"match all values and all keys\"";
            errors.invalid(&path.child("operator"), &json!(operator), text);
        }
        if t.get("tolerationSeconds").is_some() && effect != "NoExecute" {
            let text = "effect must be 'NoExecute' when `tolerationSeconds` is set";
            errors.invalid(&path.child("effect"), &json!(effect), text);
        }
        let at = path.child("operator");
        match operator {
            "" | "Equal" => {
                let wrong = api::names::label_value(value);
                if !wrong.is_empty() {
                    errors.invalid(&at, &t["value"], &wrong.join(";"));
                }
            }
            "Exists" if !value.is_empty() => {
                errors.invalid(&at, &t["value"], "value must be empty when `operator` is 'Exists'");
            }
            "Exists" => {}
            _ => errors.not_supported(&at, &t["operator"], enums::TOLERATION_OPERATORS),
        }
        if !effect.is_empty() {
            validate_one_of(t, "effect", enums::TAINT_EFFECTS, &path, errors);
        }
    }
}

pub(super) fn validate_weight(v: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    if !(1..=100).contains(&v["weight"].as_i64().unwrap_or(0)) {
        errors.invalid(&path.child("weight"), &json!(v["weight"].as_i64().unwrap_or(0)), "must be in the range 1-100");
    }
}
