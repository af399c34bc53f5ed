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

/// Applies the reported nominations in order; `expected` is the nominated node, and whether the last one freed
/// another.
#[track_caller]
fn check(assumed: Option<&str>, reported: &[Option<&str>], expected: (Option<&str>, bool)) {
    let mut cache = Cache::default();
    if let Some(node) = assumed {
        cache.add_nominated_pod("p", &pod(None), node);
    }
    let freed = reported.iter().map(|reported| cache.update_nominated_pod("p", &pod(*reported))).last();
    assert_eq!((cache.nominated_node("p"), freed.unwrap_or_default()), expected);
}

#[test]
fn nomination_follows_the_api_once_it_is_reported() {
    check(None, &[None], (None, false));
    check(None, &[Some("a")], (Some("a"), false));
    check(None, &[Some("")], (None, false));
    check(None, &[Some("a"), None], (None, true));
    check(None, &[Some("a"), Some("b")], (Some("b"), true));
    // Both reports are older than the assumed nomination.
    check(Some("a"), &[None], (Some("a"), false));
    check(Some("a"), &[Some("b")], (Some("a"), false));
    check(Some("a"), &[Some("a")], (Some("a"), false));
    check(Some("a"), &[Some("a"), None], (None, true));
}

#[test]
fn nominated_pods_apply_to_equal_or_lower_priority() {
    let mut cache = Cache::default();
    cache.add_nominated_pod("p", &pod(None), "a");
    let by_node = |uid: &str, priority| cache.nominated_pods_by_node(uid, priority).get("a").map(Vec::len);
    assert_eq!([by_node("q", -1), by_node("q", 0), by_node("q", 1), by_node("p", 0)], [Some(1), Some(1), None, None]);
    assert_eq!(cache.lower_priority_nominated_pods("a", 1).len(), 1);
    assert!(
        cache.lower_priority_nominated_pods("a", 0).is_empty()
            && cache.lower_priority_nominated_pods("b", 1).is_empty()
    );
    assert!(!cache.retain_nominated_pods(|uid| uid == "p") && cache.retain_nominated_pods(|uid| uid != "p"));
}
