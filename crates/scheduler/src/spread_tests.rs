//! Tables: placed Pods and one with constraints in, a node or the reasons out.

use crate::test_cluster::{NODES, cluster, decide, pod, read, selector, with};
use serde_json::{Value, json};

/// The nodes that have a zone.
const ZONES: [&str; 3] = ["a1", "a2", "b1"];

/// A Pod `web` with one constraint by zone, and another spec beside it.
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
fn check(nodes: &[&str], placed: &[(&str, Value)], pod: Value, expected: &str) {
    assert_eq!(decide(&cluster(nodes, placed), pod), expected);
}

#[test]
fn no_domain_gets_more_ahead_than_it_may() {
    let one = || spread(&json!({}), json!({}));
    check(&ZONES, &[], one(), "a1");
    check(&ZONES, &[web("a1")], one(), "b1");
    check(&ZONES, &[web("a1"), web("b1"), web("b1")], one(), "a2");
    check(&ZONES, &[web("a1")], spread(&json!({ "maxSkew": 2 }), json!({})), "a2");
    check(&ZONES, &[web("a1")], spread(&json!({ "topologyKey": "host" }), json!({})), "a2");
    // Where it cannot go it still counts.
    let elsewhere = json!({ "nodeSelector": { "host": "a1" } });
    let whole = json!({ "nodeAffinityPolicy": "Ignore" });
    let reasons = "1 node(s) didn't match pod topology spread constraints, \
                   2 node(s) didn't match Pod's node affinity/selector | 1 no victims, 2 no help";
    check(&ZONES, &[web("a2")], spread(&whole, elsewhere), reasons);
}

#[test]
fn a_node_without_the_label_is_no_choice() {
    check(
        &["bare"],
        &[],
        spread(&json!({}), json!({})),
        "1 node(s) didn't match pod topology spread constraints (missing required label) | 1 no help",
    );
    // Nor are its Pods counted, or those of a node that lacks another constraint's.
    check(&NODES, &[web("bare")], spread(&json!({}), json!({})), "a1");
    let mut two = spread(&json!({}), json!({}));
    let mut rack = two["spec"]["topologySpreadConstraints"][0].clone();
    rack["topologyKey"] = "rack".into();
    two["spec"]["topologySpreadConstraints"].as_array_mut().expect("constraints").push(rack);
    let reason = "3 node(s) didn't match pod topology spread constraints (missing required label) | 3 no help";
    check(&ZONES, &[web("a1")], two, reason);
}

#[test]
fn only_pods_that_stay_in_the_same_namespace_and_are_selected_count() {
    let one = || spread(&json!({}), json!({}));
    for metadata in [json!({ "namespace": "other" }), json!({ "deletionTimestamp": "2026-01-01T00:00:00Z" })] {
        check(&ZONES, &[("a1", with(pod("web", json!({})), &metadata))], one(), "a2");
    }
    check(&ZONES, &[("a1", pod("db", json!({})))], one(), "a2");
    // One that is not selected itself does not make it worse.
    let db = json!({ "labelSelector": selector("db") });
    check(&ZONES, &[("a1", pod("db", json!({})))], spread(&db, json!({})), "a2");
    let two = [("a1", pod("db", json!({}))), ("a1", pod("db", json!({})))];
    check(&ZONES, &two, spread(&db, json!({})), "b1");
    // Without a selector none counts.
    check(&ZONES, &[web("a1"), web("a1")], spread(&json!({ "labelSelector": null }), json!({})), "a2");
}

#[test]
fn one_that_begins_to_leave_is_counted_no_more() {
    let mut cluster = cluster(&ZONES, &[web("a1")]);
    assert_eq!(decide(&cluster, spread(&json!({}), json!({}))), "b1");
    let leaving = json!({ "uid": "placed-0", "deletionTimestamp": "2026-01-01T00:00:00Z" });
    let mut leaving = with(pod("web", json!({})), &leaving);
    leaving["spec"]["nodeName"] = "a1".into();
    cluster.set_pod(&read(leaving));
    assert_eq!(decide(&cluster, spread(&json!({}), json!({}))), "a2");
}

#[test]
fn with_too_few_domains_the_emptiest_is_one_that_is_not_there() {
    let few = |least: i32| spread(&json!({ "minDomains": least }), json!({}));
    let placed = || [web("a1"), web("b1")];
    check(&ZONES, &placed(), few(2), "a2");
    check(&ZONES, &placed(), few(3), "3 node(s) didn't match pod topology spread constraints | 3 no victims");
}

#[test]
fn the_nodes_that_count_are_those_of_the_policies() {
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
fn label_keys_stand_for_the_pods_own_values() {
    let version = |pod: Value, version: &str| with(pod, &json!({ "labels": { "app": "web", "version": version } }));
    let keys = json!({ "matchLabelKeys": ["version", "absent"] });
    let placed = || [("a1", version(pod("web", json!({})), "1"))];
    check(&ZONES, &placed(), version(spread(&keys, json!({})), "1"), "b1");
    check(&ZONES, &placed(), version(spread(&keys, json!({})), "2"), "a2");
}

#[test]
fn a_preference_takes_the_emptier_domain_and_refuses_none() {
    let anyway = || spread(&json!({ "whenUnsatisfiable": "ScheduleAnyway" }), json!({}));
    check(&ZONES, &[web("a1"), web("a2"), web("b1")], anyway(), "b1");
    check(&["a1", "a2"], &[web("a1"), web("a1")], anyway(), "a2");
    check(&["a1", "bare"], &[web("a1"), web("a1")], anyway(), "a1");
    check(&["bare"], &[], anyway(), "bare");
}

#[test]
fn spread_speaks_before_company() {
    let mut one = spread(&json!({}), json!({}));
    one["spec"]["affinity"] = json!({ "podAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": [
        { "topologyKey": "zone", "labelSelector": selector("db") } ] } });
    let reasons = "1 node(s) didn't match pod affinity rules, \
                   2 node(s) didn't match pod topology spread constraints | 1 no help, 2 no victims";
    check(&ZONES, &[web("a1")], one, reasons);
}
