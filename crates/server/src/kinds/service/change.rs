//! What a change of a Service takes over from before, and what it drops since the new type has no use for it
//! (`patchAllocatedValues`, `normalizeClusterIPs`, `dropTypeDependentFields`).

use super::{can_be_reached_from_outside, needs_cluster_ip, needs_health_check, needs_node_ports};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// Whether a Service of this spec needs something.
type Needs = fn(&Value) -> bool;

pub(super) fn take_over(object: &mut Value, old: &Value) {
    let old = &old["spec"];
    let spec = &mut object["spec"];
    keep_allocated(spec, old);
    first_address(spec, old);
    drop_what_has_no_use(spec, old);
    // Whoever made the balancer takes it down in his own time, of which nobody else needs to know.
    if object["spec"]["type"] != "LoadBalancer" {
        object["status"]["loadBalancer"] = json!({});
    }
}

/// One address is a list of one, wherever a client says only half of it.
pub(super) fn first_address(spec: &mut Value, old: &Value) {
    let has = |spec: &Value| spec["clusterIP"].as_str().is_some_and(|ip| !ip.is_empty());
    let (new, same) = (has(spec), spec["clusterIPs"] == old["clusterIPs"]);
    if spec["clusterIP"] == old["clusterIP"] && !old.is_null() || !same && !spec["clusterIPs"].is_null() {
        return;
    }
    if new {
        spec["clusterIPs"] = json!([spec["clusterIP"]]);
    } else {
        remove(spec, "clusterIPs");
    }
}

fn keep_allocated(spec: &mut Value, old: &Value) {
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
        keep_node_ports(spec, old);
    }
    let (field, both) = ("healthCheckNodePort", needs_health_check(spec) && needs_health_check(old));
    if both && is_unset(&spec[field]) && !old[field].is_null() {
        spec[field] = old[field].clone();
    }
}

/// A port keeps its port of the node by its name, whatever else of it changes, unless another one says that it has that.
fn keep_node_ports(spec: &mut Value, old: &Value) {
    let ports = |spec: &Value| spec["ports"].as_array().cloned().unwrap_or_default();
    let node_port = |port: &Value| port["nodePort"].as_i64().filter(|port| *port != 0);
    let said: BTreeSet<i64> = ports(spec).iter().filter_map(node_port).collect();
    let before: BTreeMap<String, i64> = ports(old)
        .iter()
        .filter_map(|port| Some((port["name"].as_str().unwrap_or("").to_owned(), node_port(port)?)))
        .collect();
    for port in spec.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten() {
        let known = before.get(port["name"].as_str().unwrap_or("")).filter(|known| !said.contains(known));
        if let Some(known) = known.filter(|_| node_port(port).is_none()) {
            port["nodePort"] = json!(known);
        }
    }
}

/// A field goes when the old type needed it, the new one does not, and the client did not change it as well: then it is
/// refused.
fn drop_what_has_no_use(spec: &mut Value, old: &Value) {
    let is_balanced = |spec: &Value| spec["type"] == "LoadBalancer";
    let rules: [(Needs, &[&str]); 4] = [
        (needs_cluster_ip, &["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy", "internalTrafficPolicy"]),
        (needs_health_check, &["healthCheckNodePort"]),
        (can_be_reached_from_outside, &["externalTrafficPolicy"]),
        (is_balanced, &["allocateLoadBalancerNodePorts", "loadBalancerClass"]),
    ];
    // What one rule drops another may look at.
    let new = spec.clone();
    for (_, fields) in rules.iter().filter(|(needs, _)| needs(old) && !needs(&new)) {
        for field in fields.iter().filter(|f| new[**f] == old[**f]) {
            remove(spec, field);
        }
    }
    let ports = |spec: &Value| -> Vec<Value> {
        spec["ports"].as_array().into_iter().flatten().map(|p| p["nodePort"].clone()).collect()
    };
    if needs_node_ports(old) && !needs_node_ports(&new) && ports(old) == ports(&new) {
        spec.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten().for_each(|p| remove(p, "nodePort"));
    }
}

fn remove(object: &mut Value, field: &str) {
    drop(object.as_object_mut().map(|o| o.remove(field)));
}
