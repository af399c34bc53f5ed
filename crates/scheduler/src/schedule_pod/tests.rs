//! Table tests of `schedule_pod`: nodes and a Pod in, a node or upstream's message out.
#![expect(clippy::needless_pass_by_value, reason = "rows of a table read better without references")]

use super::*;
use k8s_openapi::api::core::v1::Node;
use serde_json::{Value, json};

/// Returns a node with 4 CPUs, 8 GiB and capacity for 10 Pods; `change` is merged over it.
fn node(name: &str, change: Value) -> Node {
    let mut node = json!({
        "metadata": { "name": name, "labels": { "kubernetes.io/hostname": name } },
        "spec": {},
        "status": { "allocatable": { "cpu": "4", "memory": "8Gi", "ephemeral-storage": "10Gi", "pods": "10" } },
    });
    merge(&mut node, change);
    serde_json::from_value(node).expect("a node")
}

/// Returns a Pod with one container without requests; `change` is merged over its spec.
fn pod(change: Value) -> Pod {
    let mut spec = json!({ "containers": [{ "name": "c" }] });
    merge(&mut spec, change);
    serde_json::from_value(json!({ "metadata": { "name": "p", "uid": "p" }, "spec": spec })).expect("a Pod")
}

fn merge(into: &mut Value, change: Value) {
    match (into, change) {
        (Value::Object(into), Value::Object(change)) => {
            for (key, value) in change {
                merge(into.entry(key).or_insert(Value::Null), value);
            }
        }
        (into, change) => *into = change,
    }
}

fn requesting(resources: Value) -> Value {
    json!({ "containers": [{ "name": "c", "resources": { "requests": resources } }] })
}

fn cache(nodes: Vec<Node>, assigned: Vec<(&str, Value)>) -> Cache {
    let mut cache = Cache::default();
    for node in &nodes {
        cache.set_node(node);
    }
    for (i, (node, spec)) in assigned.into_iter().enumerate() {
        cache.assume(&format!("placed-{i}"), &pod(spec), node);
    }
    cache
}

/// Checks the decision; `expected` is a node's name or a message.
#[track_caller]
fn check(cache: &Cache, spec: Value, expected: &str) {
    let got = match schedule_pod(&pod(spec), cache) {
        Decision::Bind(text) | Decision::Unschedulable(text) | Decision::UnschedulableKeepingNomination(text) => text,
        other => panic!("{other:?}"),
    };
    assert_eq!(got, expected);
}

#[test]
fn pod_without_nodes_is_unschedulable() {
    check(&cache(vec![], vec![]), json!({}), "no nodes available to schedule pods");
}

#[test]
fn requests_must_fit_free_resources() {
    let two_used = || cache(vec![node("a", json!({}))], vec![("a", requesting(json!({ "cpu": "2" })))]);
    check(&two_used(), requesting(json!({ "cpu": "2", "memory": "8Gi" })), "a");
    check(
        &two_used(),
        requesting(json!({ "cpu": "2500m" })),
        "0/1 nodes are available: 1 Insufficient cpu. no new claims to deallocate, preemption: 0/1 nodes are available: \
         1 No preemption victims found for incoming pod.",
    );
    check(
        &two_used(),
        requesting(json!({ "cpu": "100", "memory": "9Gi", "nvidia.com/gpu": "1" })),
        "0/1 nodes are available: 1 Insufficient cpu, 1 Insufficient memory, 1 Insufficient nvidia.com/gpu. \
         no new claims to deallocate, preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling.",
    );
    check(&two_used(), requesting(json!({ "nvidia.com/gpu": "0" })), "a");
}

#[test]
fn node_at_pod_capacity_is_rejected() {
    let full = node("a", json!({ "status": { "allocatable": { "pods": "1" } } }));
    check(
        &cache(vec![full], vec![("a", json!({}))]),
        json!({}),
        "0/1 nodes are available: 1 Too many pods. no new claims to deallocate, preemption: 0/1 nodes are available: \
         1 No preemption victims found for incoming pod.",
    );
}

#[test]
fn cordoned_node_requires_a_toleration() {
    let cordoned = || cache(vec![node("a", json!({ "spec": { "unschedulable": true } }))], vec![]);
    check(
        &cordoned(),
        json!({}),
        "0/1 nodes are available: 1 node(s) were unschedulable. no new claims to deallocate, preemption: 0/1 nodes are available: \
         1 Preemption is not helpful for scheduling.",
    );
    let tolerant = json!({ "tolerations": [{ "key": "node.kubernetes.io/unschedulable", "operator": "Exists" }] });
    check(&cordoned(), tolerant, "a");
}

#[test]
fn untolerated_taint_rejects_node() {
    let taint = |key: &str, value: &str, effect: &str| json!({ "spec": { "taints": [{ "key": key, "value": value, "effect": effect }] } });
    let tainted = || {
        let nodes = vec![
            node("a", taint("disk", "slow", "NoSchedule")),
            node("b", taint("node.kubernetes.io/not-ready", "", "NoExecute")),
            node("c", taint("disk", "slow", "NoSchedule")),
        ];
        cache(nodes, vec![])
    };
    check(
        &tainted(),
        json!({}),
        "0/3 nodes are available: 3 node(s) had untolerated taint(s). no new claims to deallocate, preemption: 0/3 nodes are available: \
         3 Preemption is not helpful for scheduling.",
    );
    check(&tainted(), json!({ "tolerations": [{ "key": "disk", "value": "slow" }] }), "a");
    check(&tainted(), json!({ "tolerations": [{ "operator": "Exists", "effect": "NoExecute" }] }), "b");
}

#[test]
fn node_selector_and_affinity_filter_nodes() {
    let zones = || {
        let zone = |z: &str| json!({ "metadata": { "labels": { "zone": z } } });
        cache(vec![node("a", zone("x")), node("b", zone("y"))], vec![])
    };
    let required = |term: Value| {
        json!({ "affinity": { "nodeAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [term] } } } })
    };
    let none = "0/2 nodes are available: 2 node(s) didn't match Pod's node affinity/selector. \
                no new claims to deallocate, preemption: 0/2 nodes are available: 2 Preemption is not helpful for scheduling.";
    check(&zones(), json!({ "nodeSelector": { "zone": "y" } }), "b");
    check(&zones(), json!({ "nodeSelector": { "zone": "z" } }), none);
    let expression = |op: &str, values: &[&str]| {
        required(json!({ "matchExpressions": [{ "key": "zone", "operator": op, "values": values }] }))
    };
    check(&zones(), expression("In", &["y", "z"]), "b");
    check(&zones(), expression("NotIn", &["x", "y"]), none);
    let named = |name: &str| {
        required(json!({ "matchFields": [{ "key": "metadata.name", "operator": "In", "values": [name] }] }))
    };
    check(&zones(), named("b"), "b");
    check(
        &zones(),
        named("c"),
        "0/2 nodes are available: 2 node(s) didn't satisfy plugin(s) [NodeAffinity]. \
         no new claims to deallocate, preemption: 0/2 nodes are available: 2 Preemption is not helpful for scheduling.",
    );
}

#[test]
fn host_port_conflicts_per_address() {
    let port = |port: i32, ip: &str, protocol: &str| {
        json!({ "containers": [{ "name": "c", "ports": [
            { "containerPort": 80, "hostPort": port, "hostIP": ip, "protocol": protocol },
        ] }] })
    };
    let held = || cache(vec![node("a", json!({}))], vec![("a", port(80, "127.0.0.1", "TCP"))]);
    check(&held(), port(81, "127.0.0.1", "TCP"), "a");
    check(&held(), port(80, "127.0.0.2", "TCP"), "a");
    check(&held(), port(80, "127.0.0.1", "UDP"), "a");
    let taken = "0/1 nodes are available: 1 node(s) didn't have free ports for the requested pod ports. \
                 no new claims to deallocate, preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod.";
    check(&held(), port(80, "127.0.0.1", "TCP"), taken);
    check(&held(), port(80, "", ""), taken);
}

#[test]
fn fit_error_counts_and_sorts_node_reasons() {
    let nodes = vec![
        node("a", json!({ "spec": { "unschedulable": true } })),
        node("b", json!({})),
        node("c", json!({ "spec": { "taints": [{ "key": "k", "value": "v", "effect": "NoSchedule" }] } })),
    ];
    check(
        &cache(nodes, vec![("b", requesting(json!({ "cpu": "4" })))]),
        requesting(json!({ "cpu": "1" })),
        "0/3 nodes are available: 1 Insufficient cpu, 1 node(s) had untolerated taint(s), \
         1 node(s) were unschedulable. no new claims to deallocate, preemption: 0/3 nodes are available: \
         1 No preemption victims found for incoming pod, 2 Preemption is not helpful for scheduling.",
    );
}

#[test]
fn preemption_policy_never_is_reported() {
    let mut spec = requesting(json!({ "cpu": "5" }));
    spec["preemptionPolicy"] = "Never".into();
    check(
        &cache(vec![node("a", json!({}))], vec![]),
        spec,
        "0/1 nodes are available: 1 Insufficient cpu. no new claims to deallocate, preemption: not eligible due to preemptionPolicy=Never.",
    );
}

#[test]
fn feasible_node_with_highest_score_is_selected() {
    let tainted = json!({ "spec": { "taints": [{ "key": "k", "effect": "PreferNoSchedule" }] } });
    let busy = || vec![("a", requesting(json!({ "cpu": "1" })))];
    // Equal scores: the first by name. Less allocated: preferred. `PreferNoSchedule`: only without alternative.
    check(&cache(vec![node("b", json!({})), node("a", json!({}))], vec![]), json!({}), "a");
    check(&cache(vec![node("a", json!({})), node("b", json!({}))], busy()), json!({}), "b");
    check(&cache(vec![node("a", json!({})), node("b", tainted.clone())], busy()), json!({}), "a");
    check(&cache(vec![node("b", tainted)], vec![]), json!({}), "b");
    let preferred = json!({ "affinity": { "nodeAffinity": { "preferredDuringSchedulingIgnoredDuringExecution": [
        { "weight": 5, "preference": { "matchExpressions": [
            { "key": "kubernetes.io/hostname", "operator": "In", "values": ["a"] } ] } },
    ] } } });
    check(&cache(vec![node("a", json!({})), node("b", json!({}))], busy()), preferred, "a");
}

#[test]
fn pod_with_resource_claims_is_unschedulable() {
    let one = || cache(vec![node("a", json!({}))], vec![]);
    let claim = |source: Value| {
        let mut claim = json!({ "name": "gpu" });
        merge(&mut claim, source);
        json!({ "resourceClaims": [claim] })
    };
    check(
        &one(),
        claim(json!({ "resourceClaimName": "mine" })),
        "0/1 nodes are available: resourceclaim.resource.k8s.io \"mine\" not found.",
    );
    check(
        &one(),
        claim(json!({ "resourceClaimTemplateName": "all" })),
        "0/1 nodes are available: resourceclaimtemplate.resource.k8s.io \"all\" not found.",
    );
}
