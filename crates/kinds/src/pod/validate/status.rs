//! Validation of updates of a Pod's status (`ValidatePodStatusUpdate`).

use super::{items, text, validate_dns_subdomain, validate_ip, validate_qualified_name};
use crate::{FieldErrors, FieldPath, field_validation::is_ipv6};
use serde_json::Value;
use std::collections::{HashMap, HashSet};

/// Types of conditions that the kubelet and scheduler own.
const SYSTEM_CONDITIONS: [&str; 3] = ["PodScheduled", "Ready", "Initialized"];

/// Validates an update of a Pod's status (`ValidatePodStatusUpdate`).
pub(crate) fn validate_status(object: &Value, old: &Value, errors: &mut FieldErrors) {
    let (path, new, before) = (FieldPath::new("status"), &object["status"], &old["status"]);
    if new["qosClass"] != before["qosClass"] {
        errors.invalid(&path.child("qosClass"), &new["qosClass"], "field is immutable");
    }
    if new["nominatedNodeName"] != before["nominatedNodeName"] && !text(new, "nominatedNodeName").is_empty() {
        validate_dns_subdomain(&new["nominatedNodeName"], &path.child("nominatedNodeName"), errors);
    }
    for (i, condition) in
        items(new, "conditions").enumerate().filter(|(_, c)| !SYSTEM_CONDITIONS.contains(&text(c, "type")))
    {
        validate_qualified_name(&condition["type"], &path.child("conditions").index(i).child("Type"), errors);
    }
    validate_container_state_transitions(new, old, &path, errors);
    validate_claim_statuses(new, &object["spec"], &path.child("resourceClaimStatuses"), errors);
    validate_addresses(new, "podIPs", &path, errors);
    if let Some(first) = items(new, "hostIPs").next().filter(|first| first["ip"] != new["hostIP"]) {
        errors.invalid(&path.child("hostIPs").index(0).child("ip"), &first["ip"], "must be equal to `hostIP`");
    }
    validate_addresses(new, "hostIPs", &path, errors);
}

/// Validates that terminated containers that must not restart stay terminated (`ValidateContainerStateTransition`).
fn validate_container_state_transitions(new: &Value, old: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    let (policy, all) = (text(&old["spec"], "restartPolicy"), super::restart_policy::has_restart_all_rule(old));
    for (list, specs) in [
        ("containerStatuses", "containers"),
        ("initContainerStatuses", "initContainers"),
        ("ephemeralContainerStatuses", "ephemeralContainers"),
    ] {
        let mut old_by_name: HashMap<&Value, &Value> = HashMap::new();
        for c in items(&old["spec"], specs) {
            old_by_name.entry(&c["name"]).or_insert(c);
        }
        let runs = |s: &&Value| s["state"].get("terminated").is_none();
        let running: HashSet<&Value> = items(new, list).filter(runs).map(|s| &s["name"]).collect();
        for (i, last) in items(&old["status"], list).enumerate() {
            let Some(exit) = last["state"].get("terminated") else { continue };
            let old_by_name = old_by_name.get(&last["name"]);
            // A container with its own restart policy may restart: the kubelet evaluates its rules.
            let has_restart_policy = old_by_name.is_some_and(|c| c.get("restartPolicy").is_some());
            let retried = policy == "OnFailure" && exit["exitCode"] != 0;
            if specs != "ephemeralContainers" && (has_restart_policy || policy == "Always" || retried || all) {
                continue;
            }
            if running.contains(&last["name"]) {
                let path = path.child(list).index(i).child("state");
                errors.forbidden(&path, "may not be transitioned to non-terminated state");
            }
        }
    }
}

/// Validates that each claim status belongs to a claim of the Pod.
fn validate_claim_statuses(new: &Value, spec: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    let known: HashSet<&Value> = items(spec, "resourceClaims").map(|claim| &claim["name"]).collect();
    let is_known = |status: &Value| known.contains(&status["name"]);
    for (i, status) in items(new, "resourceClaimStatuses").enumerate().filter(|(_, status)| !is_known(status)) {
        let detail = "must match the name of an entry in `spec.resourceClaims`";
        errors.invalid(&path.index(i).child("name"), &status["name"], detail);
    }
}

/// Validates IP addresses, at most one for each IP family.
fn validate_addresses(new: &Value, field: &str, path: &FieldPath, errors: &mut FieldErrors) {
    let (path, addresses) = (path.child(field), || items(new, field).map(|address| &address["ip"]));
    let mut seen = HashSet::new();
    for (i, address) in addresses().enumerate() {
        validate_ip(address, &path.index(i), errors);
        if !seen.insert(address) {
            errors.duplicate(&path.index(i), &new[field][i]);
        }
    }
    let (count, ipv6_count) = (addresses().count(), addresses().filter(|ip| is_ipv6(ip)).count());
    if count > 2 || count == 2 && ipv6_count != 1 {
        errors.invalid(&path, &new[field], "may specify no more than one IP for each IP family");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[track_caller]
    fn check(change: &Value, expected: &[&str]) {
        let old = json!({"spec": {"restartPolicy": "OnFailure", "containers": [{"name": "c"}]},
            "status": {"containerStatuses": [{"name": "c", "state": {"terminated": {"exitCode": 0}}}]}});
        let mut new = old.clone();
        new["status"].as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        let mut errors = FieldErrors::default();
        validate_status(&new, &old, &mut errors);
        let got: Vec<String> = errors.0.iter().map(ToString::to_string).collect();
        assert_eq!(got, expected, "{change}");
    }

    #[test]
    fn pod_status_update_is_validated() {
        let ips = |all: &[&str]| -> Value { all.iter().map(|ip| json!({"ip": ip})).collect() };
        let families = "may specify no more than one IP for each IP family";
        check(
            &json!({"podIPs": ips(&["10.0.0.1", "fd00::1"]), "hostIP": "192.0.2.1", "hostIPs": ips(&["192.0.2.1"])}),
            &[],
        );
        let two = ips(&["10.0.0.1", "10.0.0.2"]);
        check(&json!({"podIPs": two}), &[&format!("status.podIPs: Invalid value: {two}: {families}")]);
        check(
            &json!({"hostIPs": ips(&["192.0.2.1"])}),
            &["status.hostIPs[0].ip: Invalid value: \"192.0.2.1\": must be equal to `hostIP`"],
        );
        check(&json!({"conditions": [{"type": "example.com/up"}, {"type": "Ready"}]}), &[]);
        check(
            &json!({"resourceClaimStatuses": [{"name": "q"}]}),
            &[
                "status.resourceClaimStatuses[0].name: Invalid value: \"q\": must match the name of an entry in `spec.resourceClaims`",
            ],
        );
        check(
            &json!({"containerStatuses": [{"name": "c", "state": {"running": {}}}]}),
            &["status.containerStatuses[0].state: Forbidden: may not be transitioned to non-terminated state"],
        );
    }
}
