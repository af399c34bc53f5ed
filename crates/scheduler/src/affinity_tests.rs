//! Tables: placed Pods and one that is to be placed in, a node or the reasons out.

use crate::test_cluster::{NODES, cluster, decide, pod, read, selector, with};
use serde_json::{Value, json};

const NOT_NEAR: &str = "4 node(s) didn't match pod affinity rules | 4 no help";

/// One required term by zone; `kind` is `podAffinity` or `podAntiAffinity`.
fn required(kind: &str, terms: &[Value]) -> Value {
    let mut terms = terms.to_vec();
    for term in &mut terms {
        if term["topologyKey"].is_null() {
            term["topologyKey"] = "zone".into();
        }
    }
    json!({ "affinity": { kind: { "requiredDuringSchedulingIgnoredDuringExecution": terms } } })
}

fn preferred(kind: &str, weight: i32, key: &str, app: &str) -> Value {
    let term = json!({ "topologyKey": key, "labelSelector": selector(app) });
    json!({ "affinity": { kind: { "preferredDuringSchedulingIgnoredDuringExecution": [
        { "weight": weight, "podAffinityTerm": term } ] } } })
}

fn near(term: Value) -> Value {
    required("podAffinity", &[term])
}

fn far(term: Value) -> Value {
    required("podAntiAffinity", &[term])
}

#[track_caller]
fn check(placed: &[(&str, Value)], pod: Value, expected: &str) {
    assert_eq!(decide(&cluster(&NODES, placed), pod), expected);
}

#[test]
fn a_pod_goes_where_those_are_that_it_needs() {
    let web = || [("b1", pod("web", json!({})))];
    let needs = |term: Value| pod("me", near(term));
    check(&web(), needs(json!({ "labelSelector": selector("web") })), "b1");
    check(&[], needs(json!({ "labelSelector": selector("web") })), NOT_NEAR);
    check(&web(), needs(json!({ "labelSelector": selector("db") })), NOT_NEAR);
    // The whole zone is near; by another key it is the node alone; without the key nothing is.
    let a2 = [("a2", pod("web", json!({})))];
    check(&a2, needs(json!({ "labelSelector": selector("web") })), "a1");
    check(&a2, needs(json!({ "labelSelector": selector("web"), "topologyKey": "host" })), "a2");
    check(&a2, needs(json!({ "labelSelector": selector("web"), "topologyKey": "rack" })), NOT_NEAR);
    // No selector means nobody, an empty one everybody.
    check(&web(), needs(json!({})), NOT_NEAR);
    check(&web(), needs(json!({ "labelSelector": {} })), "b1");
    // Pods of nodes that nobody knows are nowhere.
    check(&[("gone", pod("web", json!({})))], needs(json!({ "labelSelector": selector("web") })), NOT_NEAR);
}

#[test]
fn one_pod_must_be_all_that_is_needed() {
    let term = |app: &str| json!({ "labelSelector": { "matchExpressions": [{ "key": app, "operator": "Exists" }] } });
    let both = || pod("me", required("podAffinity", &[term("x"), term("y")]));
    let labelled = |labels: Value| with(pod("web", json!({})), &json!({ "labels": labels }));
    check(&[("b1", labelled(json!({ "x": "" }))), ("b1", labelled(json!({ "y": "" })))], both(), NOT_NEAR);
    check(&[("b1", labelled(json!({ "x": "", "y": "" })))], both(), "b1");
}

#[test]
fn only_those_of_the_namespaces_are_meant() {
    let placed = |namespace: &str| [("b1", with(pod("web", json!({})), &json!({ "namespace": namespace })))];
    let needs = |change: Value| {
        let mut term = json!({ "labelSelector": selector("web") });
        for (field, value) in change.as_object().into_iter().flatten() {
            term[field] = value.clone();
        }
        pod("me", near(term))
    };
    let red = || json!({ "namespaceSelector": { "matchLabels": { "team": "red" } } });
    for (namespace, change, expected) in [
        ("shop", json!({}), "b1"),
        ("other", json!({}), NOT_NEAR),
        ("other", json!({ "namespaces": ["other"] }), "b1"),
        ("shop", json!({ "namespaces": ["other"] }), NOT_NEAR),
        ("other", json!({ "namespaceSelector": {} }), "b1"),
        ("red-team", red(), "b1"),
        ("blue-team", red(), NOT_NEAR),
        ("shop", red(), NOT_NEAR),
        ("shop", json!({ "namespaces": ["shop"], "namespaceSelector": red()["namespaceSelector"] }), "b1"),
    ] {
        check(&placed(namespace), needs(change), expected);
    }
}

#[test]
fn the_first_of_a_group_goes_anywhere_near_something() {
    let one = || pod("web", near(json!({ "labelSelector": selector("web") })));
    check(&[], one(), "a1");
    assert_eq!(
        decide(&cluster(&["bare"], &[]), one()),
        "1 node(s) didn't match pod affinity rules | 1 no help",
        "a node without the label is near to nothing"
    );
    check(&[("b1", one())], one(), "b1");
    // It is not the first where somebody else is, and its terms must mean itself.
    check(&[("b1", pod("web", json!({})))], one(), "b1");
    check(&[], pod("db", near(json!({ "labelSelector": selector("web") }))), NOT_NEAR);
}

#[test]
fn a_pod_keeps_away_from_those_that_it_shuns() {
    let shuns = || pod("me", far(json!({ "labelSelector": selector("web") })));
    check(&[("a2", pod("web", json!({})))], shuns(), "b1");
    check(&[("a2", pod("web", json!({}))), ("b1", pod("web", json!({})))], shuns(), "bare");
    let busy = [("a2", pod("web", json!({}))), ("b1", pod("web", json!({})))];
    assert_eq!(
        decide(&cluster(&["a2", "b1"], &busy), shuns()),
        "2 node(s) didn't match pod anti-affinity rules | 2 no victims"
    );
    check(&[("a1", with(pod("web", json!({})), &json!({ "namespace": "other" })))], shuns(), "a2");
}

#[test]
fn those_that_are_placed_keep_others_away() {
    let shunning = |app: &str| pod(app, far(json!({ "labelSelector": selector("web") })));
    check(&[("a1", shunning("db"))], pod("web", json!({})), "b1");
    check(&[("a1", shunning("db"))], pod("me", json!({})), "a2");
    let other = json!({ "namespace": "other" });
    check(&[("a1", with(shunning("db"), &other))], pod("web", json!({})), "a2");
    assert_eq!(
        decide(&cluster(&["a1", "a2"], &[("a1", shunning("db"))]), pod("web", json!({}))),
        "2 node(s) didn't satisfy existing pods anti-affinity rules | 2 no victims"
    );
    // By labels of the namespace of the one that comes.
    let red = far(json!({ "labelSelector": {}, "namespaceSelector": { "matchLabels": { "team": "red" } } }));
    let come = |namespace: &str| with(pod("web", json!({})), &json!({ "namespace": namespace }));
    check(&[("a1", pod("db", red.clone()))], come("red-team"), "b1");
    check(&[("a1", pod("db", red))], come("blue-team"), "a2");
}

#[test]
fn what_is_needed_speaks_before_what_is_shunned_and_the_pods_own_words_before_those_of_others() {
    let mut both = near(json!({ "labelSelector": selector("web") }));
    both["affinity"]["podAntiAffinity"] =
        far(json!({ "labelSelector": selector("web") }))["affinity"]["podAntiAffinity"].clone();
    let placed = [("a1", pod("web", far(json!({ "labelSelector": {} }))))];
    assert_eq!(
        decide(&cluster(&["a1", "b1"], &placed), pod("me", both)),
        "1 node(s) didn't match pod affinity rules, 1 node(s) didn't match pod anti-affinity rules | 1 no victims, 1 no help"
    );
}

#[test]
fn label_keys_stand_for_the_pods_own_values() {
    let version =
        |version: &str, spec: Value| with(pod("web", spec), &json!({ "labels": { "app": "web", "version": version } }));
    let alike = |keys: &str| json!({ "labelSelector": selector("web"), keys: ["version", "absent"] });
    let placed = || [("a1", version("1", json!({}))), ("b1", version("2", json!({}))), ("bare", pod("db", json!({})))];
    check(&placed(), version("2", near(alike("matchLabelKeys"))), "b1");
    check(&placed(), version("1", far(alike("matchLabelKeys"))), "b1");
    check(&placed(), version("2", far(alike("mismatchLabelKeys"))), "b1");
    // Of a placed Pod its own labels count.
    check(&[("a1", version("1", far(alike("matchLabelKeys"))))], version("1", json!({})), "b1");
    check(&[("a1", version("1", far(alike("matchLabelKeys"))))], version("2", json!({})), "a2");
}

#[test]
fn of_those_that_fit_the_one_with_the_best_company_is_taken() {
    let web = |node: &'static str| (node, pod("web", json!({})));
    check(&[web("b1")], pod("me", preferred("podAffinity", 1, "zone", "web")), "b1");
    check(&[web("a1")], pod("me", preferred("podAntiAffinity", 1, "zone", "web")), "b1");
    check(&[web("a1"), web("b1"), web("b1")], pod("me", preferred("podAffinity", 1, "host", "web")), "b1");
    // What the placed ones like counts as well, and so does what they need.
    check(&[("b1", pod("db", preferred("podAffinity", 1, "zone", "me")))], pod("me", json!({})), "b1");
    check(&[("a1", pod("db", preferred("podAntiAffinity", 1, "zone", "me")))], pod("me", json!({})), "b1");
    check(&[("b1", pod("me", near(json!({ "labelSelector": selector("me") }))))], pod("me", json!({})), "b1");
    check(&[("b1", pod("db", preferred("podAffinity", 1, "zone", "web")))], pod("me", json!({})), "a1");
}

#[test]
fn what_becomes_of_a_placed_pod_counts_at_once() {
    let needs = || pod("me", near(json!({ "labelSelector": selector("web") })));
    let mut cluster = cluster(&NODES, &[("b1", pod("db", json!({})))]);
    assert!(cluster.take_moved() && !cluster.take_moved());
    let mut placed = with(pod("web", json!({})), &json!({ "uid": "placed-0" }));
    placed["spec"]["nodeName"] = "b1".into();
    assert!(!cluster.set_pod(&read(placed.clone())), "new labels free nothing");
    assert!(cluster.take_moved());
    assert_eq!(decide(&cluster, needs()), "b1");
    assert!(!cluster.set_pod(&read(placed.clone())) && !cluster.take_moved(), "the same again");
    assert!(cluster.remove_pod("placed-0"));
    assert_eq!(decide(&cluster, needs()), NOT_NEAR);
}
