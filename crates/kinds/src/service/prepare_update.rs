//! Preparation of Service updates: keeps allocated values and drops fields that the new type does not use
//! (`patchAllocatedValues`, `normalizeClusterIPs`, `dropTypeDependentFields`).

use super::{is_externally_accessible, needs_cluster_ip, needs_health_check, needs_node_ports};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// Whether a Service with a spec needs a field.
type Needs = fn(&Value) -> bool;

pub(super) fn prepare_update(object: &mut Value, old: &Value) {
    let old = &old["spec"];
    let spec = &mut object["spec"];
    patch_allocated_values(spec, old);
    normalize_cluster_ips(spec, old);
    drop_type_dependent_fields(spec, old);
    // The cloud controller removes the load balancer asynchronously; its status is obsolete.
    if object["spec"]["type"] != "LoadBalancer" {
        object["status"]["loadBalancer"] = json!({});
    }
}

/// Syncs `clusterIPs` with `clusterIP` if the client set only one of them (`normalizeClusterIPs`).
pub(super) fn normalize_cluster_ips(spec: &mut Value, old: &Value) {
    let has_cluster_ip = |spec: &Value| spec["clusterIP"].as_str().is_some_and(|ip| !ip.is_empty());
    let (new, same) = (has_cluster_ip(spec), spec["clusterIPs"] == old["clusterIPs"]);
    if spec["clusterIP"] == old["clusterIP"] && !old.is_null() || !same && !spec["clusterIPs"].is_null() {
        return;
    }
    if new {
        spec["clusterIPs"] = json!([spec["clusterIP"]]);
    } else {
        remove_field(spec, "clusterIPs");
    }
}

fn patch_allocated_values(spec: &mut Value, old: &Value) {
    let is_unset = |v: &Value| v.is_null() || v == "" || v == &json!(0) || v == &json!([]);
    if needs_cluster_ip(spec) && needs_cluster_ip(old) {
        for field in ["clusterIP", "ipFamilies", "ipFamilyPolicy"] {
            if is_unset(&spec[field]) && !old[field].is_null() {
                spec[field] = old[field].clone();
            }
        }
        if is_unset(&spec["clusterIPs"]) && spec["clusterIP"] == old["clusterIP"] && !old["clusterIPs"].is_null() {
            spec["clusterIPs"] = old["clusterIPs"].clone();
        }
    }
    if needs_node_ports(spec) && needs_node_ports(old) {
        patch_node_ports(spec, old);
    }
    let (field, both_need) = ("healthCheckNodePort", needs_health_check(spec) && needs_health_check(old));
    if both_need && is_unset(&spec[field]) && !old[field].is_null() {
        spec[field] = old[field].clone();
    }
}

/// Keeps the node port of each port by its name, unless another port requests it (`patchAllocatedValues`).
fn patch_node_ports(spec: &mut Value, old: &Value) {
    let ports = |spec: &Value| spec["ports"].as_array().cloned().unwrap_or_default();
    let node_port = |port: &Value| port["nodePort"].as_i64().filter(|port| *port != 0);
    let requested: BTreeSet<i64> = ports(spec).iter().filter_map(node_port).collect();
    let old_ports: BTreeMap<String, i64> = ports(old)
        .iter()
        .filter_map(|port| Some((port["name"].as_str().unwrap_or("").to_owned(), node_port(port)?)))
        .collect();
    for port in spec.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten() {
        let known = old_ports.get(port["name"].as_str().unwrap_or("")).filter(|known| !requested.contains(known));
        if let Some(known) = known.filter(|_| node_port(port).is_none()) {
            port["nodePort"] = json!(known);
        }
    }
}

/// Drops fields that the old type needs and the new one does not (`dropTypeDependentFields`). A field that the client also
/// changed stays, and validation rejects it.
fn drop_type_dependent_fields(spec: &mut Value, old: &Value) {
    let is_load_balancer = |spec: &Value| spec["type"] == "LoadBalancer";
    let rules: [(Needs, &[&str]); 4] = [
        (needs_cluster_ip, &["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy", "internalTrafficPolicy"]),
        (needs_health_check, &["healthCheckNodePort"]),
        (is_externally_accessible, &["externalTrafficPolicy"]),
        (is_load_balancer, &["allocateLoadBalancerNodePorts", "loadBalancerClass"]),
    ];
    // Rules use the spec before any field is dropped.
    let new = spec.clone();
    for (_, fields) in rules.iter().filter(|(needs, _)| needs(old) && !needs(&new)) {
        for field in fields.iter().filter(|f| new[**f] == old[**f]) {
            remove_field(spec, field);
        }
    }
    let ports = |spec: &Value| -> Vec<Value> {
        spec["ports"].as_array().into_iter().flatten().map(|p| p["nodePort"].clone()).collect()
    };
    if needs_node_ports(old) && !needs_node_ports(&new) && ports(old) == ports(&new) {
        spec.get_mut("ports")
            .and_then(Value::as_array_mut)
            .into_iter()
            .flatten()
            .for_each(|p| remove_field(p, "nodePort"));
    }
}

fn remove_field(object: &mut Value, field: &str) {
    drop(object.as_object_mut().map(|o| o.remove(field)));
}
