use super::*;
use serde_json::json;

fn pod(nominated: Option<&str>) -> Pod {
    let pod = json!({
        "metadata": { "name": "p", "uid": "p" },
        "spec": { "containers": [{ "name": "c", "resources": { "requests": { "cpu": "1" } } }] },
        "status": { "nominatedNodeName": nominated },
    });
    serde_json::from_value(pod).expect("a Pod")
}

/// The API says one after the other; `expected` is where a place is kept then, and whether the last one gave up another.
#[track_caller]
fn check(decided: Option<&str>, told: &[Option<&str>], expected: (Option<&str>, bool)) {
    let mut cluster = Cluster::default();
    if let Some(node) = decided {
        cluster.nominate("p", &pod(None), node);
    }
    let gave_up = told.iter().map(|told| cluster.observe_nomination("p", &pod(*told))).last();
    assert_eq!((cluster.nominated_node("p"), gave_up.unwrap_or_default()), expected);
}

#[test]
fn what_is_decided_counts_until_the_api_has_shown_it_and_then_what_the_api_says() {
    check(None, &[None], (None, false));
    check(None, &[Some("a")], (Some("a"), false));
    check(None, &[Some("")], (None, false));
    check(None, &[Some("a"), None], (None, true));
    check(None, &[Some("a"), Some("b")], (Some("b"), true));
    // Both are older than the decision.
    check(Some("a"), &[None], (Some("a"), false));
    check(Some("a"), &[Some("b")], (Some("a"), false));
    check(Some("a"), &[Some("a")], (Some("a"), false));
    check(Some("a"), &[Some("a"), None], (None, true));
}

#[test]
fn a_place_is_kept_from_others_of_at_most_the_same_priority() {
    let mut cluster = Cluster::default();
    cluster.nominate("p", &pod(None), "a");
    let kept = |uid: &str, priority| cluster.kept_from(uid, priority).get("a").map(Vec::len);
    assert_eq!([kept("q", -1), kept("q", 0), kept("q", 1), kept("p", 0)], [Some(1), Some(1), None, None]);
    assert_eq!(cluster.outranked("a", 1).len(), 1);
    assert!(cluster.outranked("a", 0).is_empty() && cluster.outranked("b", 1).is_empty());
    assert!(!cluster.retain_nominations(|uid| uid == "p") && cluster.retain_nominations(|uid| uid != "p"));
}
