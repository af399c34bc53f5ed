//! Validation of container restart policies and rules (KEP-5307, KEP-5532).

use super::{items, text};
use crate::{FieldErrors, FieldPath, enums};
use api::feature_gates::{FeatureGates, Gate};
use serde_json::{Value, json};

const RESTART_ALL_CONTAINERS: &str = "RestartAllContainers";

/// Validates a container's restart policy and rules (`validateContainerRestartPolicy`).
pub(super) fn validate_restart_policy(c: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    if !c["restartPolicy"].is_null() {
        validate_supported(c, "restartPolicy", enums::CONTAINER_RESTART_POLICIES, path, errors);
    }
    let count = items(c, "restartPolicyRules").count();
    if count > 0 && c["restartPolicy"].is_null() {
        errors.required(&path.child("restartPolicy"), "must specify restartPolicy when restart rules are used");
    }
    let path = path.child("restartPolicyRules");
    if count > 20 {
        errors.too_many(&path, count, 20);
    }
    for (i, rule) in items(c, "restartPolicyRules").enumerate() {
        let (codes, path) = (&rule["exitCodes"], path.index(i).child("exitCodes"));
        if codes.is_null() {
            errors.required(&path, "must be specified");
            continue;
        }
        validate_supported(codes, "operator", enums::RESTART_RULE_OPERATORS, &path, errors);
        let count = items(codes, "values").count();
        if count > 255 {
            errors.too_many(&path.child("values"), count, 255);
        }
    }
}

/// Validates values that need feature gates. A value that the old Pod uses stays valid.
pub(in crate::pod) fn validate_gated_values(
    object: &Value,
    old: Option<&Value>,
    gates: &FeatureGates,
    errors: &mut FieldErrors,
) {
    let rules = gates.enabled(Gate::ContainerRestartRules) || old.is_some_and(uses_restart_rules);
    let all = gates.enabled(Gate::RestartAllContainersOnContainerExits) || old.is_some_and(has_restart_all_rule);
    let actions: &[&str] = if all { &["Restart", RESTART_ALL_CONTAINERS] } else { &["Restart"] };
    for list in ["containers", "initContainers"] {
        let path = FieldPath::new("spec").child(list);
        for (i, c) in items(&object["spec"], list).enumerate() {
            let path = path.index(i);
            if !rules && !c["restartPolicy"].is_null() {
                validate_supported(c, "restartPolicy", &["Always"], &path, errors);
            }
            for (j, rule) in items(c, "restartPolicyRules").enumerate() {
                validate_supported(rule, "action", actions, &path.child("restartPolicyRules").index(j), errors);
            }
        }
    }
}

/// Whether containers of the Pod use restart policies or rules of the gate `ContainerRestartRules`.
pub(in crate::pod) fn uses_restart_rules(object: &Value) -> bool {
    let spec = &object["spec"];
    let has_policy = |c: &Value| !c["restartPolicy"].is_null();
    items(spec, "containers").any(has_policy)
        || items(spec, "initContainers").any(|c| has_policy(c) && c["restartPolicy"] != "Always")
        || items(spec, "initContainers").any(|c| items(c, "restartPolicyRules").next().is_some())
}

/// Whether a container has a `RestartAllContainers` rule, so that terminated containers can run again.
pub(super) fn has_restart_all_rule(object: &Value) -> bool {
    let rules = |c: &Value| items(c, "restartPolicyRules").any(|rule| rule["action"] == RESTART_ALL_CONTAINERS);
    ["containers", "initContainers"].iter().any(|list| items(&object["spec"], list).any(rules))
}

fn validate_supported(v: &Value, key: &str, allowed: &[&str], path: &FieldPath, errors: &mut FieldErrors) {
    let value = text(v, key);
    if !allowed.contains(&value) {
        errors.not_supported(&path.child(key), &json!(value), allowed);
    }
}
