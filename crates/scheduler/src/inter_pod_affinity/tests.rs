//! Table tests: assigned Pods and an incoming Pod in, a node or the reasons out.

use crate::test_cache::{NODES, cache, decide, pod, read, selector, with};
use serde_json::{Value, json};

const AFFINITY_MISMATCH: &str = "4 node(s) didn't match pod affinity rules | 4 no help";

/// Returns an affinity with required terms, by zone unless they have a topology key; `kind` is `podAffinity` or
/// `podAntiAffinity`.
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

fn affinity(term: Value) -> Value {
    required("podAffinity", &[term])
}

fn anti_affinity(term: Value) -> Value {
    required("podAntiAffinity", &[term])
}

#[track_caller]
fn check(assigned: &[(&str, Value)], pod: Value, expected: &str) {
    assert_eq!(decide(&cache(&NODES, assigned), pod), expected);
}

#[test]
fn required_affinity_selects_the_matching_domain() {
    let web = || [("b1", pod("web", json!({})))];
    let needs = |term: Value| pod("me", affinity(term));
    check(&web(), needs(json!({ "labelSelector": selector("web") })), "b1");
    check(&[], needs(json!({ "labelSelector": selector("web") })), AFFINITY_MISMATCH);
    check(&web(), needs(json!({ "labelSelector": selector("db") })), AFFINITY_MISMATCH);
    // The topology key decides: the zone, the node, or nothing where nodes lack the label.
    let a2 = [("a2", pod("web", json!({})))];
    check(&a2, needs(json!({ "labelSelector": selector("web") })), "a1");
    check(&a2, needs(json!({ "labelSelector": selector("web"), "topologyKey": "host" })), "a2");
    check(&a2, needs(json!({ "labelSelector": selector("web"), "topologyKey": "rack" })), AFFINITY_MISMATCH);
    // A missing selector matches no Pod, an empty one all.
    check(&web(), needs(json!({})), AFFINITY_MISMATCH);
    check(&web(), needs(json!({ "labelSelector": {} })), "b1");
    // Pods on unknown nodes are in no domain.
    check(&[("gone", pod("web", json!({})))], needs(json!({ "labelSelector": selector("web") })), AFFINITY_MISMATCH);
}

#[test]
fn affinity_requires_one_pod_to_match_all_terms() {
    let term = |app: &str| json!({ "labelSelector": { "matchExpressions": [{ "key": app, "operator": "Exists" }] } });
    let both = || pod("me", required("podAffinity", &[term("x"), term("y")]));
    let labelled = |labels: Value| with(pod("web", json!({})), &json!({ "labels": labels }));
    check(&[("b1", labelled(json!({ "x": "" }))), ("b1", labelled(json!({ "y": "" })))], both(), AFFINITY_MISMATCH);
    check(&[("b1", labelled(json!({ "x": "", "y": "" })))], both(), "b1");
}

#[test]
fn affinity_term_matches_only_pods_of_its_namespaces() {
    let assigned = |namespace: &str| [("b1", with(pod("web", json!({})), &json!({ "namespace": namespace })))];
    let needs = |change: Value| {
        let mut term = json!({ "labelSelector": selector("web") });
        for (field, value) in change.as_object().into_iter().flatten() {
            term[field] = value.clone();
        }
        pod("me", affinity(term))
    };
    let red = || json!({ "namespaceSelector": { "matchLabels": { "team": "red" } } });
    for (namespace, change, expected) in [
        ("shop", json!({}), "b1"),
        ("other", json!({}), AFFINITY_MISMATCH),
        ("other", json!({ "namespaces": ["other"] }), "b1"),
        ("shop", json!({ "namespaces": ["other"] }), AFFINITY_MISMATCH),
        ("other", json!({ "namespaceSelector": {} }), "b1"),
        ("red-team", red(), "b1"),
        ("blue-team", red(), AFFINITY_MISMATCH),
        ("shop", red(), AFFINITY_MISMATCH),
        ("shop", json!({ "namespaces": ["shop"], "namespaceSelector": red()["namespaceSelector"] }), "b1"),
    ] {
        check(&assigned(namespace), needs(change), expected);
    }
}

#[test]
fn first_pod_of_self_affine_group_is_schedulable() {
    let one = || pod("web", affinity(json!({ "labelSelector": selector("web") })));
    check(&[], one(), "a1");
    assert_eq!(
        decide(&cache(&["bare"], &[]), one()),
        "1 node(s) didn't match pod affinity rules | 1 no help",
        "a node without the label is in no domain"
    );
    check(&[("b1", one())], one(), "b1");
    // The exception needs that no Pod matches yet, and that the Pod matches its own terms.
    check(&[("b1", pod("web", json!({})))], one(), "b1");
    check(&[], pod("db", affinity(json!({ "labelSelector": selector("web") }))), AFFINITY_MISMATCH);
}

#[test]
fn required_anti_affinity_avoids_matching_domains() {
    let repelled = || pod("me", anti_affinity(json!({ "labelSelector": selector("web") })));
    check(&[("a2", pod("web", json!({})))], repelled(), "b1");
    check(&[("a2", pod("web", json!({}))), ("b1", pod("web", json!({})))], repelled(), "bare");
    let busy = [("a2", pod("web", json!({}))), ("b1", pod("web", json!({})))];
    assert_eq!(
        decide(&cache(&["a2", "b1"], &busy), repelled()),
        "2 node(s) didn't match pod anti-affinity rules | 2 no victims"
    );
    check(&[("a1", with(pod("web", json!({})), &json!({ "namespace": "other" })))], repelled(), "a2");
}

#[test]
fn existing_anti_affinity_rejects_incoming_pod() {
    let with_anti_affinity = |app: &str| pod(app, anti_affinity(json!({ "labelSelector": selector("web") })));
    check(&[("a1", with_anti_affinity("db"))], pod("web", json!({})), "b1");
    check(&[("a1", with_anti_affinity("db"))], pod("me", json!({})), "a2");
    let other = json!({ "namespace": "other" });
    check(&[("a1", with(with_anti_affinity("db"), &other))], pod("web", json!({})), "a2");
    assert_eq!(
        decide(&cache(&["a1", "a2"], &[("a1", with_anti_affinity("db"))]), pod("web", json!({}))),
        "2 node(s) didn't satisfy existing pods anti-affinity rules | 2 no victims"
    );
    // A `namespaceSelector` matches labels of the incoming Pod's namespace.
    let red = anti_affinity(json!({ "labelSelector": {}, "namespaceSelector": { "matchLabels": { "team": "red" } } }));
    let incoming = |namespace: &str| with(pod("web", json!({})), &json!({ "namespace": namespace }));
    check(&[("a1", pod("db", red.clone()))], incoming("red-team"), "b1");
    check(&[("a1", pod("db", red))], incoming("blue-team"), "a2");
}

#[test]
fn required_affinity_is_reported_before_anti_affinity() {
    let mut both = affinity(json!({ "labelSelector": selector("web") }));
    both["affinity"]["podAntiAffinity"] =
        anti_affinity(json!({ "labelSelector": selector("web") }))["affinity"]["podAntiAffinity"].clone();
    let assigned = [("a1", pod("web", anti_affinity(json!({ "labelSelector": {} }))))];
    assert_eq!(
        decide(&cache(&["a1", "b1"], &assigned), pod("me", both)),
        "1 node(s) didn't match pod affinity rules, 1 node(s) didn't match pod anti-affinity rules | 1 no victims, 1 no help"
    );
}

#[test]
fn match_label_keys_use_the_pods_own_values() {
    let version =
        |version: &str, spec: Value| with(pod("web", spec), &json!({ "labels": { "app": "web", "version": version } }));
    let alike = |keys: &str| json!({ "labelSelector": selector("web"), keys: ["version", "absent"] });
    let assigned =
        || [("a1", version("1", json!({}))), ("b1", version("2", json!({}))), ("bare", pod("db", json!({})))];
    check(&assigned(), version("2", affinity(alike("matchLabelKeys"))), "b1");
    check(&assigned(), version("1", anti_affinity(alike("matchLabelKeys"))), "b1");
    check(&assigned(), version("2", anti_affinity(alike("mismatchLabelKeys"))), "b1");
    // For an assigned Pod, its own labels are used.
    check(&[("a1", version("1", anti_affinity(alike("matchLabelKeys"))))], version("1", json!({})), "b1");
    check(&[("a1", version("1", anti_affinity(alike("matchLabelKeys"))))], version("2", json!({})), "a2");
}

#[test]
fn preferred_affinity_selects_the_highest_score() {
    let web = |node: &'static str| (node, pod("web", json!({})));
    check(&[web("b1")], pod("me", preferred("podAffinity", 1, "zone", "web")), "b1");
    check(&[web("a1")], pod("me", preferred("podAntiAffinity", 1, "zone", "web")), "b1");
    check(&[web("a1"), web("b1"), web("b1")], pod("me", preferred("podAffinity", 1, "host", "web")), "b1");
    // Preferred terms of assigned Pods count, and their required affinity, too.
    check(&[("b1", pod("db", preferred("podAffinity", 1, "zone", "me")))], pod("me", json!({})), "b1");
    check(&[("a1", pod("db", preferred("podAntiAffinity", 1, "zone", "me")))], pod("me", json!({})), "b1");
    check(&[("b1", pod("me", affinity(json!({ "labelSelector": selector("me") }))))], pod("me", json!({})), "b1");
    check(&[("b1", pod("db", preferred("podAffinity", 1, "zone", "web")))], pod("me", json!({})), "a1");
}

#[test]
fn assigned_pod_update_affects_affinity_at_once() {
    let needs = || pod("me", affinity(json!({ "labelSelector": selector("web") })));
    let mut cache = cache(&NODES, &[("b1", pod("db", json!({})))]);
    assert!(cache.take_pods_changed() && !cache.take_pods_changed());
    let mut assigned = with(pod("web", json!({})), &json!({ "uid": "placed-0" }));
    assigned["spec"]["nodeName"] = "b1".into();
    assert!(!cache.set_pod(&read(assigned.clone())), "new labels release no resources");
    assert!(cache.take_pods_changed());
    assert_eq!(decide(&cache, needs()), "b1");
    assert!(!cache.set_pod(&read(assigned.clone())) && !cache.take_pods_changed(), "the same again");
    assert!(cache.remove_pod("placed-0"));
    assert_eq!(decide(&cache, needs()), AFFINITY_MISMATCH);
}
