//! Validation of container restart policies and rules (KEP-5307, KEP-5532).

use super::items;
use crate::{FieldErrors, enums, field_cursor::FieldCursor};
use api::feature_gates::{FeatureGates, Gate};
use serde_json::Value;

const RESTART_ALL_CONTAINERS: &str = "RestartAllContainers";

/// Validates a container's restart policy and rules (`validateContainerRestartPolicy`).
pub(super) fn validate_restart_policy(container: &FieldCursor<'_, '_>, errors: &mut FieldErrors) {
    let (policy, rules) = (container.at("restartPolicy"), container.at("restartPolicyRules"));
    if policy.is_set() {
        policy.supported(enums::CONTAINER_RESTART_POLICIES, errors);
    }
    if rules.count() > 0 && policy.is_null() {
        policy.required("must specify restartPolicy when restart rules are used", errors);
    }
    if rules.count() > 20 {
        rules.too_many(20, errors);
    }
    for rule in rules.items() {
        let codes = rule.at("exitCodes");
        if codes.is_null() {
            codes.required("must be specified", errors);
            continue;
        }
        validate_supported(&codes.at("operator"), enums::RESTART_RULE_OPERATORS, errors);
        let values = codes.at("values");
        if values.count() > 255 {
            values.too_many(255, errors);
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
    let object = FieldCursor::object(object);
    let spec = object.at("spec");
    for list in ["containers", "initContainers"] {
        for container in spec.at(list).items() {
            let policy = container.at("restartPolicy");
            if !rules && policy.is_set() {
                policy.supported(&["Always"], errors);
            }
            for rule in container.at("restartPolicyRules").items() {
                validate_supported(&rule.at("action"), actions, errors);
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

/// Validates an enumeration. Its error shows an absent value as an empty string.
fn validate_supported(field: &FieldCursor<'_, '_>, allowed: &[&str], errors: &mut FieldErrors) {
    if !allowed.contains(&field.text()) {
        errors.not_supported(&field.path(), &Value::from(field.text()), allowed);
    }
}
