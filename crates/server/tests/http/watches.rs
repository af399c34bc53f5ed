//! Watches: start, selectors, bookmarks and end.

use crate::common::*;
use serde_json::json;

#[tokio::test]
async fn watch_starts_with_state_or_after_resource_version() {
    let api = TestApi::new().await;
    let first = api.create_config_map("a", json!({})).await;
    let list = api.send(&get(CONFIG_MAPS)).await.body;
    let mut now = api.watch(&format!("{CONFIG_MAPS}?watch=true")).await;
    let mut zero = api.watch(&format!("{CONFIG_MAPS}?watch=1&resourceVersion=0")).await;
    let mut behind =
        api.watch(&format!("/api/v1/configmaps?watch=1&resourceVersion={}", resource_version(&list))).await;
    let mut one = api
        .watch(&format!(
            "{CONFIG_MAPS}?watch=1&fieldSelector=metadata.name%3Db&resourceVersion={}",
            resource_version(&list)
        ))
        .await;
    for (case, events) in [("now", &mut now), ("zero", &mut zero)] {
        assert_eq!(events.check("ADDED", json!({})).await, first, "{case}");
    }
    let created = api.create_config_map("b", json!({})).await;
    let changed =
        api.check(merge_patch(format!("{CONFIG_MAPS}/b"), &json!({"data": {"k": "v"}})), 200, json!({})).await.body;
    api.check(delete(format!("{CONFIG_MAPS}/b")), 200, json!({})).await;
    for (case, events) in [("now", &mut now), ("zero", &mut zero), ("behind", &mut behind), ("one", &mut one)] {
        assert_eq!(events.check("ADDED", json!({})).await, created, "{case}");
        assert_eq!(events.check("MODIFIED", json!({})).await, changed, "{case}");
        let gone = events.check("DELETED", json!({"data": {"k": "v"}})).await;
        assert!(
            resource_version(&gone).parse::<u64>().unwrap() > resource_version(&changed).parse().unwrap(),
            "{case}"
        );
    }
}

#[tokio::test]
async fn watch_parameter_on_one_object_is_a_get() {
    let api = TestApi::new().await;
    let created = api.create_config_map("a", json!({})).await;
    let path = format!("{CONFIG_MAPS}/a?watch=1");
    assert_eq!(api.check(get(&path), 200, json!({"kind": "ConfigMap"})).await.body, created);
    api.check(get(format!("{CONFIG_MAPS}/none?watch=1")), 404, json!({"reason": "NotFound"})).await;
    // The authorizer checks the verb `get`.
    let message = r#"configmaps "a" is forbidden: User "ann" cannot get resource "configmaps" in API group "" in the namespace "default""#;
    api.check(get(&path).with_user("ann", &[]), 403, json!({"message": message})).await;
}

#[tokio::test]
async fn watch_sends_added_and_deleted_on_selector_changes() {
    let api = TestApi::new().await;
    api.create_config_map("other", json!({"tier": "web"})).await;
    api.create_config_map("a", json!({"tier": "db"})).await;
    let path = format!("{CONFIG_MAPS}/a");
    let query = "labelSelector=tier%3Dweb&fieldSelector=metadata.name%3Da";
    let mut events = api.watch(&format!("{CONFIG_MAPS}?watch=1&{query}")).await;
    let tier = |tier: &str, data: &str| {
        merge_patch(&path, &json!({"metadata": {"labels": {"tier": tier}}, "data": {"k": data}}))
    };
    let entered = api.check(tier("web", "1"), 200, json!({})).await.body;
    assert_eq!(events.check("ADDED", json!({})).await, entered);
    api.check(tier("web", "2"), 200, json!({})).await;
    events.check("MODIFIED", json!({"data": {"k": "2"}})).await;
    // A deleted event has the last state in the selection and the resource version of the change.
    let left = api.check(tier("db", "3"), 200, json!({})).await.body;
    events
        .check(
            "DELETED",
            json!({"data": {"k": "2"}, "metadata": {"labels": {"tier": "web"}, "resourceVersion": resource_version(&left)}}),
        )
        .await;
    api.check(tier("db", "4"), 200, json!({})).await;
    api.check(tier("web", "5"), 200, json!({})).await;
    events.check("ADDED", json!({"data": {"k": "5"}})).await;
    api.check(delete(&path), 200, json!({})).await;
    events.check("DELETED", json!({"data": {"k": "5"}})).await;
}

#[tokio::test]
async fn watch_list_initial_events_end_with_a_bookmark() {
    let api = TestApi::new().await;
    api.create_config_map("a", json!({"x": "1"})).await;
    api.create_config_map("b", json!({})).await;
    let query = "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
    let mut events = api.watch(&format!("{CONFIG_MAPS}?{query}&labelSelector=x")).await;
    events.check("ADDED", json!({"metadata": {"name": "a"}})).await;
    let revision = resource_version(&api.send(&get(CONFIG_MAPS)).await.body).to_owned();
    let end = events
        .check("BOOKMARK", json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"resourceVersion": revision, "annotations": {"k8s.io/initial-events-end": "true"}}}))
        .await;
    assert_eq!(end["metadata"]["annotations"].as_object().unwrap().len(), 1);
    api.create_config_map("c", json!({"x": "1"})).await;
    events.check("ADDED", json!({"metadata": {"name": "c"}})).await;
    // Without initial events there are no existing objects, and no bookmark at once.
    let query = "watch=1&sendInitialEvents=false&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
    let mut events = api.watch(&format!("{CONFIG_MAPS}?{query}")).await;
    api.create_config_map("d", json!({})).await;
    events.check("ADDED", json!({"metadata": {"name": "d"}})).await;
    let ahead = "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&resourceVersion=1000";
    let mut events = api.watch(&format!("{CONFIG_MAPS}?{ahead}")).await;
    events.check("ERROR", json!({"kind": "Status", "code": 504, "reason": "Timeout"})).await;
    for (query, message) in [
        ("sendInitialEvents=true", "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"),
        (
            "resourceVersion=1&resourceVersionMatch=NotOlderThan",
            "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
        ),
    ] {
        let message = format!("ListOptions.meta.k8s.io \"\" is invalid: resourceVersionMatch: Forbidden: {message}");
        api.check(get(format!("{CONFIG_MAPS}?watch=1&{query}")), 422, json!({"reason": "Invalid", "message": message}))
            .await;
    }
}

#[tokio::test]
async fn watch_times_out_and_sends_bookmarks() {
    let api = TestApi::new().await;
    let first = api.create_config_map("a", json!({})).await;
    api.create_pod("p").await;
    let revision = resource_version(&api.send(&get(CONFIG_MAPS)).await.body).to_owned();
    let from = resource_version(&first);
    tokio::time::pause();
    let began = tokio::time::Instant::now();
    let mut events = api
        .watch(&format!("{CONFIG_MAPS}?watch=1&resourceVersion={from}&allowWatchBookmarks=true&timeoutSeconds=90"))
        .await;
    let bookmark = json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"resourceVersion": revision}});
    for at in [60, 88] {
        let event = events.try_next().await.unwrap();
        let mut mismatches = Vec::new();
        compare(&json!({"type": "BOOKMARK", "object": bookmark}), &event, "", &mut mismatches);
        assert!(mismatches.is_empty(), "after {at} s: {event}");
        assert_eq!(began.elapsed().as_secs(), at, "after {at} s");
    }
    assert_eq!(events.try_next().await, None);
    assert_eq!(began.elapsed().as_secs(), 90);
    // Without bookmarks the watch sends nothing; 0 and no timeout mean 30 min.
    for (query, end) in [("timeoutSeconds=5", 5), ("timeoutSeconds=0", 1800), ("allowWatchBookmarks=false", 1800)] {
        let began = tokio::time::Instant::now();
        let mut events = api.watch(&format!("{CONFIG_MAPS}?watch=1&resourceVersion={revision}&{query}")).await;
        assert_eq!(events.try_next().await, None, "{query}");
        assert_eq!(began.elapsed().as_secs(), end, "{query}");
    }
    api.watch(&format!("{CONFIG_MAPS}?watch=1&timeoutSeconds=18446744073709551615")).await;
}

#[tokio::test]
async fn immediate_delete_event_has_the_last_state() {
    let api = TestApi::new().await;
    let mut events = api.watch(&format!("{CONFIG_MAPS}?watch=1")).await;
    api.create_config_map("c", json!({})).await;
    let created = events.check("ADDED", json!({})).await;
    api.check(delete(format!("{CONFIG_MAPS}/c")), 200, json!({})).await;
    let gone = json!({"metadata": {"uid": created["metadata"]["uid"], "deletionTimestamp": null, "deletionGracePeriodSeconds": null}});
    events.check("DELETED", gone).await;
    // The event of a terminated Pod shows its termination.
    api.bound_pod("p").await;
    let mut events = api.watch(&format!("{PODS}?watch=1&fieldSelector=metadata.name%3Dp")).await;
    events.check("ADDED", json!({})).await;
    let ending = api.check(delete(format!("{PODS}/p")), 200, json!({})).await.body;
    let time = ending["metadata"]["deletionTimestamp"].clone();
    events.check("MODIFIED", json!({"metadata": {"deletionTimestamp": time}})).await;
    api.check(delete(format!("{PODS}/p?gracePeriodSeconds=0")), 200, json!({})).await;
    let gone = events.check("DELETED", json!({"metadata": {"deletionGracePeriodSeconds": 0}})).await;
    assert!(gone["metadata"]["deletionTimestamp"].is_string(), "{gone}");
}
