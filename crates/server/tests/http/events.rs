//! Events: the core API, `events.k8s.io`, and expiration.

use crate::common::*;
use jiff::{SignedDuration, Timestamp};
use serde_json::json;
use std::time::Duration;

const CORE: &str = "/api/v1/namespaces/default/events";
const NEW: &str = "/apis/events.k8s.io/v1/namespaces/default/events";

#[tokio::test]
async fn event_is_served_by_core_and_events_api() {
    let api = TestApi::new().await;
    let about = json!({"kind": "Pod", "namespace": "default", "name": "p"});
    let core = json!({"metadata": {"name": "a"}, "involvedObject": about, "message": "m", "reason": "R", "type": "Normal", "count": 2});
    api.check(post(CORE, &core), 201, json!({"apiVersion": "v1", "message": "m"})).await;
    api.check(get(format!("{NEW}/a")), 200, json!({"apiVersion": "events.k8s.io/v1", "note": "m", "regarding": about, "deprecatedCount": 2, "message": null})).await;
    let new = json!({"metadata": {"name": "b"}, "regarding": about, "note": "n", "reason": "R", "action": "A", "type": "Normal",
        "reportingController": "x.io/y", "reportingInstance": "z", "eventTime": "2026-01-01T00:00:00.000000Z"});
    api.check(post(NEW, &new), 201, json!({"apiVersion": "events.k8s.io/v1", "note": "n"})).await;
    api.check(
        get(format!("{CORE}/b")),
        200,
        json!({"apiVersion": "v1", "message": "n", "involvedObject": about, "reportingComponent": "x.io/y"}),
    )
    .await;
    let query = "?fieldSelector=involvedObject.name%3Dp,reason%3DR,type!%3DWarning";
    api.check(
        get(format!("{CORE}{query}")),
        200,
        json!({"items": [{"metadata": {"name": "a"}}, {"metadata": {"name": "b"}}]}),
    )
    .await;
    // `reportingComponent` stands for an empty source; each API has its own field names.
    for (path, fields, name) in [
        (CORE, "source%3Dx.io/y,reportingComponent%3Dx.io/y", "b"),
        (NEW, "regarding.kind%3DPod,reportingController%3Dx.io/y", "b"),
    ] {
        let expected = json!({"items": [{"metadata": {"name": name}}]});
        api.check(get(format!("{path}?fieldSelector={fields}")), 200, expected).await;
    }
    for (path, field) in [(CORE, "regarding.kind"), (NEW, "involvedObject.kind"), (NEW, "source")] {
        let rejected = json!({"message": format!("field label not supported: {field}")});
        api.check(get(format!("{path}?fieldSelector={field}%3Dx")), 400, rejected).await;
    }
    let elsewhere =
        json!({"metadata": {"name": "c"}, "involvedObject": {"kind": "Pod", "namespace": "kube-system", "name": "p"}});
    api.check(
        post(CORE, &elsewhere),
        422,
        json!({"message": "Event \"c\" is invalid: involvedObject.namespace: Invalid value: \"kube-system\": does not match event.namespace"}),
    )
    .await;
}

#[tokio::test]
async fn events_expire_an_hour_after_last_seen() {
    let api = TestApi::new().await;
    let now = Timestamp::now();
    let ago = |minutes: i64| json!(now - SignedDuration::from_mins(minutes));
    let about = json!({"kind": "Node", "name": "n"});
    for (name, last) in [("old", 200), ("fresh", 10)] {
        let object = json!({"metadata": {"name": name}, "involvedObject": about, "lastTimestamp": ago(last)});
        api.check(post(CORE, &object), 201, json!({})).await;
    }
    // Each Event was created a moment ago.
    let wait = api.server.delete_expired_events(now).await.unwrap();
    assert!(wait > Duration::from_secs(3500), "{wait:?}");
    api.check(get(CORE), 200, json!({"items": [{}, {}]})).await;
    let seen = json!({"lastTimestamp": now + SignedDuration::from_mins(30)});
    api.check(merge_patch(format!("{CORE}/fresh"), &seen), 200, json!({})).await;
    let mut events = api
        .watch(&format!("{CORE}?watch=1&resourceVersion={}", resource_version(&api.send(&get(CORE)).await.body)))
        .await;
    let wait = api.server.delete_expired_events(now + SignedDuration::from_mins(61)).await.unwrap();
    assert!(wait > Duration::from_secs(28 * 60) && wait <= Duration::from_secs(30 * 60), "{wait:?}");
    api.check(get(CORE), 200, json!({"items": [{"metadata": {"name": "fresh"}}]})).await;
    events.check("DELETED", json!({"metadata": {"name": "old"}})).await;
}
