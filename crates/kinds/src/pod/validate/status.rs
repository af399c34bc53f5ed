//! Validation of updates of a Pod's status (`ValidatePodStatusUpdate`).

use super::{items, text, validate_ip};
use crate::{FieldErrors, FieldPath, field_cursor::FieldCursor, field_validation::is_ipv6};
use serde_json::Value;
use std::collections::{HashMap, HashSet};

/// Types of conditions that the kubelet and scheduler own.
const SYSTEM_CONDITIONS: [&str; 3] = ["PodScheduled", "Ready", "Initialized"];

/// Validates an update of a Pod's status (`ValidatePodStatusUpdate`).
pub(crate) fn validate_status(object: &Value, old: &Value, errors: &mut FieldErrors) {
    let (object, before) = (FieldCursor::object(object), FieldCursor::object(old));
    let (status, spec, before) = (object.at("status"), object.at("spec"), before.at("status"));
    status.at("qosClass").validate_immutable(&before.at("qosClass"), errors);
    let node = status.at("nominatedNodeName");
    if node.value() != before.at("nominatedNodeName").value() && !node.text().is_empty() {
        node.validate_text(api::names::dns1123_subdomain, errors);
    }
    for condition in status.at("conditions").items() {
        let condition_type = condition.at("type");
        if !SYSTEM_CONDITIONS.contains(&condition_type.text()) {
            condition_type.shown_as("Type").validate_text(api::names::qualified_name, errors);
        }
    }
    validate_container_state_transitions(status.value(), old, &status.path(), errors);
    validate_claim_statuses(&status.at("resourceClaimStatuses"), &spec.at("resourceClaims"), errors);
    validate_addresses(&status.at("podIPs"), errors);
    let (host_ip, host_ips) = (status.at("hostIP"), status.at("hostIPs"));
    for first in host_ips.items().take(1) {
        let ip = first.at("ip");
        if ip.value() != host_ip.value() {
            ip.invalid("must be equal to `hostIP`", errors);
        }
    }
    validate_addresses(&host_ips, errors);
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
fn validate_claim_statuses(statuses: &FieldCursor<'_, '_>, claims: &FieldCursor<'_, '_>, errors: &mut FieldErrors) {
    let known: HashSet<&str> = claims.items().map(|claim| claim.at("name").text()).collect();
    for status in statuses.items() {
        let name = status.at("name");
        if !known.contains(name.text()) {
            name.invalid("must match the name of an entry in `spec.resourceClaims`", errors);
        }
    }
}

/// Validates IP addresses, at most one for each IP family.
fn validate_addresses(addresses: &FieldCursor<'_, '_>, errors: &mut FieldErrors) {
    let (mut seen, mut ipv6_count) = (HashSet::new(), 0);
    for address in addresses.items() {
        // Upstream's path lacks the field.
        let ip = address.with_value(address.at("ip").value());
        validate_ip(&ip, errors);
        if !seen.insert(ip.text()) {
            address.duplicate(errors);
        }
        ipv6_count += usize::from(is_ipv6(ip.value()));
    }
    if addresses.count() > 2 || addresses.count() == 2 && ipv6_count != 1 {
        addresses.invalid("may specify no more than one IP for each IP family", errors);
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
