//! Restart policies and rules of containers, and what their features let them say (KEP-5307, KEP-5532; LIFECYCLE.md 3.5).

use super::{items, text};
use crate::kinds::{FieldErrors, FieldPath};
use api::feature_gates::{FeatureGates, Gate};
use serde_json::{Value, json};

const RESTART_ALL: &str = "RestartAllContainers";

/// A container's own policy, and the rules that need one (`validateContainerRestartPolicy`).
pub(super) fn policy(c: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    if !c["restartPolicy"].is_null() {
        supported(c, "restartPolicy", &["Always", "Never", "OnFailure"], path, errors);
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
        supported(codes, "operator", &["In", "NotIn"], &path, errors);
        let count = items(codes, "values").count();
        if count > 255 {
            errors.too_many(&path.child("values"), count, 255);
        }
    }
}

/// What is said by features that may be off; what a Pod said before it may say again.
pub(in crate::kinds::pod) fn features(
    object: &Value,
    old: Option<&Value>,
    gates: &FeatureGates,
    errors: &mut FieldErrors,
) {
    let rules = gates.enabled(Gate::ContainerRestartRules) || old.is_some_and(uses_rules);
    let all = gates.enabled(Gate::RestartAllContainersOnContainerExits) || old.is_some_and(restarts_all);
    let actions: &[&str] = if all { &["Restart", RESTART_ALL] } else { &["Restart"] };
    for list in ["containers", "initContainers"] {
        let path = FieldPath::new("spec").child(list);
        for (i, c) in items(&object["spec"], list).enumerate() {
            let path = path.index(i);
            if !rules && !c["restartPolicy"].is_null() {
                supported(c, "restartPolicy", &["Always"], &path, errors);
            }
            for (j, rule) in items(c, "restartPolicyRules").enumerate() {
                supported(rule, "action", actions, &path.child("restartPolicyRules").index(j), errors);
            }
        }
    }
}

/// Whether containers of this Pod have policies or rules that came with them.
pub(in crate::kinds::pod) fn uses_rules(object: &Value) -> bool {
    let spec = &object["spec"];
    let own = |c: &Value| !c["restartPolicy"].is_null();
    items(spec, "containers").any(own)
        || items(spec, "initContainers").any(|c| own(c) && c["restartPolicy"] != "Always")
        || items(spec, "initContainers").any(|c| items(c, "restartPolicyRules").next().is_some())
}

/// Whether an exit of one of its containers may restart all of them: none has ended for good then.
pub(super) fn restarts_all(object: &Value) -> bool {
    let rules = |c: &Value| items(c, "restartPolicyRules").any(|rule| rule["action"] == RESTART_ALL);
    ["containers", "initContainers"].iter().any(|list| items(&object["spec"], list).any(rules))
}

fn supported(v: &Value, key: &str, allowed: &[&str], path: &FieldPath, errors: &mut FieldErrors) {
    let value = text(v, key);
    if !allowed.contains(&value) {
        errors.not_supported(&path.child(key), &json!(value), allowed);
    }
}
