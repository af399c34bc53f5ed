//! Table tests: assigned Pods and an incoming Pod with constraints in, a node or the reasons out.

use crate::test_cache::{NODES, cache, decide, pod, read, selector, with};
use serde_json::{Value, json};

/// Nodes that have the zone label.
const ZONES: [&str; 3] = ["a1", "a2", "b1"];

/// Returns a Pod `web` with one constraint by zone; `spec` is merged into its spec.
fn spread(change: &Value, spec: Value) -> Value {
    let mut constraint = json!({ "maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": selector("web") });
    for (field, value) in change.as_object().into_iter().flatten() {
        constraint[field] = value.clone();
    }
    let mut spec = spec;
    spec["topologySpreadConstraints"] = json!([constraint]);
    pod("web", spec)
}

fn web(node: &str) -> (&str, Value) {
    (node, pod("web", json!({})))
}

#[track_caller]
fn check(nodes: &[&str], assigned: &[(&str, Value)], pod: Value, expected: &str) {
    assert_eq!(decide(&cache(nodes, assigned), pod), expected);
}

#[test]
fn max_skew_limits_each_domain() {
    let one = || spread(&json!({}), json!({}));
    check(&ZONES, &[], one(), "a1");
    check(&ZONES, &[web("a1")], one(), "b1");
    check(&ZONES, &[web("a1"), web("b1"), web("b1")], one(), "a2");
    check(&ZONES, &[web("a1")], spread(&json!({ "maxSkew": 2 }), json!({})), "a2");
    check(&ZONES, &[web("a1")], spread(&json!({ "topologyKey": "host" }), json!({})), "a2");
    // Domains of rejected nodes still count.
    let elsewhere = json!({ "nodeSelector": { "host": "a1" } });
    let whole = json!({ "nodeAffinityPolicy": "Ignore" });
    let reasons = "1 node(s) didn't match pod topology spread constraints, \
                   2 node(s) didn't match Pod's node affinity/selector | 1 no victims, 2 no help";
    check(&ZONES, &[web("a2")], spread(&whole, elsewhere), reasons);
}

#[test]
fn node_without_topology_key_is_rejected() {
    check(
        &["bare"],
        &[],
        spread(&json!({}), json!({})),
        "1 node(s) didn't match pod topology spread constraints (missing required label) | 1 no help",
    );
    // Its Pods are not counted, nor those of a node without another constraint's key.
    check(&NODES, &[web("bare")], spread(&json!({}), json!({})), "a1");
    let mut two = spread(&json!({}), json!({}));
    let mut rack = two["spec"]["topologySpreadConstraints"][0].clone();
    rack["topologyKey"] = "rack".into();
    two["spec"]["topologySpreadConstraints"].as_array_mut().expect("constraints").push(rack);
    let reason = "3 node(s) didn't match pod topology spread constraints (missing required label) | 3 no help";
    check(&ZONES, &[web("a1")], two, reason);
}

#[test]
fn spread_counts_selected_running_pods_of_namespace() {
    let one = || spread(&json!({}), json!({}));
    for metadata in [json!({ "namespace": "other" }), json!({ "deletionTimestamp": "2026-01-01T00:00:00Z" })] {
        check(&ZONES, &[("a1", with(pod("web", json!({})), &metadata))], one(), "a2");
    }
    check(&ZONES, &[("a1", pod("db", json!({})))], one(), "a2");
    // A Pod that its own selector does not match does not raise the skew.
    let db = json!({ "labelSelector": selector("db") });
    check(&ZONES, &[("a1", pod("db", json!({})))], spread(&db, json!({})), "a2");
    let two = [("a1", pod("db", json!({}))), ("a1", pod("db", json!({})))];
    check(&ZONES, &two, spread(&db, json!({})), "b1");
    // Without a selector no Pod counts.
    check(&ZONES, &[web("a1"), web("a1")], spread(&json!({ "labelSelector": null }), json!({})), "a2");
}

#[test]
fn terminating_pod_is_not_counted_in_spread() {
    let mut cache = cache(&ZONES, &[web("a1")]);
    assert_eq!(decide(&cache, spread(&json!({}), json!({}))), "b1");
    let termination = json!({ "uid": "placed-0", "deletionTimestamp": "2026-01-01T00:00:00Z" });
    let mut termination = with(pod("web", json!({})), &termination);
    termination["spec"]["nodeName"] = "a1".into();
    cache.set_pod(&read(termination));
    assert_eq!(decide(&cache, spread(&json!({}), json!({}))), "a2");
}

#[test]
fn too_few_domains_make_global_minimum_zero() {
    let few = |min_domains: i32| spread(&json!({ "minDomains": min_domains }), json!({}));
    let assigned = || [web("a1"), web("b1")];
    check(&ZONES, &assigned(), few(2), "a2");
    check(&ZONES, &assigned(), few(3), "3 node(s) didn't match pod topology spread constraints | 3 no victims");
}

#[test]
fn node_inclusion_policies_select_counted_nodes() {
    let in_a = || json!({ "nodeSelector": { "zone": "a" } });
    check(&ZONES, &[web("a1")], spread(&json!({}), in_a()), "a2");
    let refused = "1 node(s) didn't match Pod's node affinity/selector, \
                   2 node(s) didn't match pod topology spread constraints | 1 no help, 2 no victims";
    check(&ZONES, &[web("a1")], spread(&json!({ "nodeAffinityPolicy": "Ignore" }), in_a()), refused);
    // A tainted node is a domain, unless taints are honored and not tolerated.
    let nodes = ["a1", "old"];
    let refused = "1 node(s) didn't match pod topology spread constraints, \
                   1 node(s) had untolerated taint(s) | 1 no victims, 1 no help";
    let honor = json!({ "nodeTaintsPolicy": "Honor" });
    check(&nodes, &[web("a1")], spread(&json!({}), json!({})), refused);
    check(&nodes, &[web("a1")], spread(&honor, json!({})), "a1");
    let tolerant = json!({ "tolerations": [{ "key": "old", "operator": "Exists" }] });
    check(&nodes, &[web("a1")], spread(&honor, tolerant), "old");
}

#[test]
fn match_label_keys_use_the_pods_own_values() {
    let version = |pod: Value, version: &str| with(pod, &json!({ "labels": { "app": "web", "version": version } }));
    let keys = json!({ "matchLabelKeys": ["version", "absent"] });
    let assigned = || [("a1", version(pod("web", json!({})), "1"))];
    check(&ZONES, &assigned(), version(spread(&keys, json!({})), "1"), "b1");
    check(&ZONES, &assigned(), version(spread(&keys, json!({})), "2"), "a2");
}

#[test]
fn schedule_anyway_prefers_emptier_domain() {
    let anyway = || spread(&json!({ "whenUnsatisfiable": "ScheduleAnyway" }), json!({}));
    check(&ZONES, &[web("a1"), web("a2"), web("b1")], anyway(), "b1");
    check(&["a1", "a2"], &[web("a1"), web("a1")], anyway(), "a2");
    check(&["a1", "bare"], &[web("a1"), web("a1")], anyway(), "a1");
    check(&["bare"], &[], anyway(), "bare");
}

#[test]
fn topology_spread_is_reported_before_affinity() {
    let mut one = spread(&json!({}), json!({}));
    one["spec"]["affinity"] = json!({ "podAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": [
        { "topologyKey": "zone", "labelSelector": selector("db") } ] } });
    let reasons = "1 node(s) didn't match pod affinity rules, \
                   2 node(s) didn't match pod topology spread constraints | 1 no help, 2 no victims";
    check(&ZONES, &[web("a1")], one, reasons);
}
