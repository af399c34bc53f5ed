//! Watches: where they begin, what they select, bookmarks, and their end.

use crate::common::*;
use serde_json::json;

#[tokio::test]
async fn a_watch_begins_with_what_there_is_or_behind_a_revision() {
    let api = Api::new().await;
    let first = api.create_config_map("a", json!({})).await;
    let list = api.ask(&get(CONFIG_MAPS)).await.body;
    let mut now = api.watch(&format!("{CONFIG_MAPS}?watch=true")).await;
    let mut zero = api.watch(&format!("{CONFIG_MAPS}?watch=1&resourceVersion=0")).await;
    let mut behind = api.watch(&format!("/api/v1/configmaps?watch=1&resourceVersion={}", version(&list))).await;
    let mut one = api
        .watch(&format!("{CONFIG_MAPS}?watch=1&fieldSelector=metadata.name%3Db&resourceVersion={}", version(&list)))
        .await;
    for events in [&mut now, &mut zero] {
        assert_eq!(events.check("ADDED", json!({})).await, first);
    }
    let made = api.create_config_map("b", json!({})).await;
    let changed = api.check(merge(format!("{CONFIG_MAPS}/b"), &json!({"data": {"k": "v"}})), 200, json!({})).await.body;
    api.check(delete(format!("{CONFIG_MAPS}/b")), 200, json!({})).await;
    for events in [&mut now, &mut zero, &mut behind, &mut one] {
        assert_eq!(events.check("ADDED", json!({})).await, made);
        assert_eq!(events.check("MODIFIED", json!({})).await, changed);
        let gone = events.check("DELETED", json!({"data": {"k": "v"}})).await;
        assert!(version(&gone).parse::<u64>().unwrap() > version(&changed).parse().unwrap());
    }
}

#[tokio::test]
async fn one_object_is_read_even_if_it_is_to_be_watched() {
    let api = Api::new().await;
    let made = api.create_config_map("a", json!({})).await;
    let path = format!("{CONFIG_MAPS}/a?watch=1");
    assert_eq!(api.check(get(&path), 200, json!({"kind": "ConfigMap"})).await.body, made);
    api.check(get(format!("{CONFIG_MAPS}/none?watch=1")), 404, json!({"reason": "NotFound"})).await;
    // It is the right to get that is asked for.
    let message = r#"configmaps "a" is forbidden: User "ann" cannot get resource "configmaps" in API group "" in the namespace "default""#;
    api.check(get(&path).by("ann", &[]), 403, json!({"message": message})).await;
}

#[tokio::test]
async fn what_enters_a_selection_is_added_and_what_leaves_it_is_deleted() {
    let api = Api::new().await;
    api.create_config_map("other", json!({"tier": "web"})).await;
    api.create_config_map("a", json!({"tier": "db"})).await;
    let path = format!("{CONFIG_MAPS}/a");
    let query = "labelSelector=tier%3Dweb&fieldSelector=metadata.name%3Da";
    let mut events = api.watch(&format!("{CONFIG_MAPS}?watch=1&{query}")).await;
    let tier =
        |tier: &str, data: &str| merge(&path, &json!({"metadata": {"labels": {"tier": tier}}, "data": {"k": data}}));
    let entered = api.check(tier("web", "1"), 200, json!({})).await.body;
    assert_eq!(events.check("ADDED", json!({})).await, entered);
    api.check(tier("web", "2"), 200, json!({})).await;
    events.check("MODIFIED", json!({"data": {"k": "2"}})).await;
    // It is shown as it last was in the selection, at the revision at which it left.
    let left = api.check(tier("db", "3"), 200, json!({})).await.body;
    events
        .check(
            "DELETED",
            json!({"data": {"k": "2"}, "metadata": {"labels": {"tier": "web"}, "resourceVersion": version(&left)}}),
        )
        .await;
    api.check(tier("db", "4"), 200, json!({})).await;
    api.check(tier("web", "5"), 200, json!({})).await;
    events.check("ADDED", json!({"data": {"k": "5"}})).await;
    api.check(delete(&path), 200, json!({})).await;
    events.check("DELETED", json!({"data": {"k": "5"}})).await;
}

#[tokio::test]
async fn initial_events_end_with_a_bookmark() {
    let api = Api::new().await;
    api.create_config_map("a", json!({"x": "1"})).await;
    api.create_config_map("b", json!({})).await;
    let query = "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
    let mut events = api.watch(&format!("{CONFIG_MAPS}?{query}&labelSelector=x")).await;
    events.check("ADDED", json!({"metadata": {"name": "a"}})).await;
    let revision = version(&api.ask(&get(CONFIG_MAPS)).await.body).to_owned();
    let end = events
        .check("BOOKMARK", json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"resourceVersion": revision, "annotations": {"k8s.io/initial-events-end": "true"}}}))
        .await;
    assert_eq!(end["metadata"]["annotations"].as_object().unwrap().len(), 1);
    api.create_config_map("c", json!({"x": "1"})).await;
    events.check("ADDED", json!({"metadata": {"name": "c"}})).await;
    // Nothing that is there, and no bookmark, when initial events are not wanted.
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
async fn a_watch_ends_in_time_and_bookmarks_say_how_far_it_came() {
    let api = Api::new().await;
    let first = api.create_config_map("a", json!({})).await;
    api.create_pod("p").await;
    let revision = version(&api.ask(&get(CONFIG_MAPS)).await.body).to_owned();
    let from = version(&first);
    tokio::time::pause();
    let began = tokio::time::Instant::now();
    let mut events = api
        .watch(&format!("{CONFIG_MAPS}?watch=1&resourceVersion={from}&allowWatchBookmarks=true&timeoutSeconds=90"))
        .await;
    let bookmark = json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"resourceVersion": revision}});
    for at in [60, 88] {
        let event = events.try_next().await.unwrap();
        let mut wrong = Vec::new();
        compare(&json!({"type": "BOOKMARK", "object": bookmark}), &event, "", &mut wrong);
        assert!(wrong.is_empty(), "{event}");
        assert_eq!(began.elapsed().as_secs(), at);
    }
    assert_eq!(events.try_next().await, None);
    assert_eq!(began.elapsed().as_secs(), 90);
    // Without bookmarks there is nothing but the end; 0 and nothing are 30 min.
    for (query, end) in [("timeoutSeconds=5", 5), ("timeoutSeconds=0", 1800), ("allowWatchBookmarks=false", 1800)] {
        let began = tokio::time::Instant::now();
        let mut events = api.watch(&format!("{CONFIG_MAPS}?watch=1&resourceVersion={revision}&{query}")).await;
        assert_eq!(events.try_next().await, None);
        assert_eq!(began.elapsed().as_secs(), end);
    }
    api.watch(&format!("{CONFIG_MAPS}?watch=1&timeoutSeconds=18446744073709551615")).await;
}

#[tokio::test]
async fn what_goes_at_once_is_shown_as_it_was() {
    let api = Api::new().await;
    let mut events = api.watch(&format!("{CONFIG_MAPS}?watch=1")).await;
    api.create_config_map("c", json!({})).await;
    let made = events.check("ADDED", json!({})).await;
    api.check(delete(format!("{CONFIG_MAPS}/c")), 200, json!({})).await;
    let gone = json!({"metadata": {"uid": made["metadata"]["uid"], "deletionTimestamp": null, "deletionGracePeriodSeconds": null}});
    events.check("DELETED", gone).await;
    // A Pod that was told to end shows that it was.
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
