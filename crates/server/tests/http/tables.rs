//! Tables and PartialObjectMetadata.

use crate::common::*;
use serde_json::{Value, json};

const PARTIAL: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
const PARTIAL_LIST: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json";

#[tokio::test]
async fn pod_table_has_upstream_columns() {
    let api = TestApi::new().await;
    api.create_pod("p").await;
    let list = api
        .check(
            get_table(PODS),
            200,
            json!({"kind": "Table", "apiVersion": "meta.k8s.io/v1", "rows": [{"object": {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": {"name": "p"}}}]}),
        )
        .await
        .body;
    let columns: Vec<&Value> = list["columnDefinitions"].as_array().unwrap().iter().map(|c| &c["name"]).collect();
    assert_eq!(
        columns,
        ["Name", "Ready", "Status", "Restarts", "Age", "IP", "Node", "Nominated Node", "Readiness Gates"]
    );
    let cells = list["rows"][0]["cells"].as_array().unwrap();
    assert_eq!(cells[..4], [json!("p"), json!("0/1"), json!("Pending"), json!("0")]);
    assert_eq!(cells[5..], [json!("<none>"), json!("<none>"), json!("<none>"), json!("<none>")]);
    for (query, object) in [
        ("includeObject=None", Value::Null),
        ("includeObject=Metadata", json!({"kind": "PartialObjectMetadata", "spec": null})),
        ("includeObject=Object", json!({"kind": "Pod", "spec": {"restartPolicy": "Always"}})),
    ] {
        api.check(get_table(format!("{PODS}?{query}")), 200, json!({"rows": [{"object": object}]})).await;
        api.check(get_table(format!("{PODS}/p?{query}")), 200, json!({"kind": "Table", "rows": [{"object": object}]}))
            .await;
    }
    api.check(
        get_table(format!("{PODS}?includeObject=All")),
        400,
        json!({"message": "Unable to convert to Table as requested: includeObject: Invalid value: \"All\": must be 'Metadata', 'Object', 'None', or empty"}),
    )
    .await;
    let page = api.create_pod("q").await;
    assert_eq!(page["metadata"]["name"], "q");
    api.check(get_table(format!("{PODS}?limit=1")), 200, json!({"metadata": {"remainingItemCount": 1}, "rows": [{}]}))
        .await;
    let create =
        post(format!("{PODS}?dryRun=All"), &pod("r")).header("accept", "application/json;as=Table;v=v1;g=meta.k8s.io");
    api.check(create, 201, json!({"kind": "Table", "rows": [{"object": {"metadata": {"name": "r"}}}]})).await;
}

#[tokio::test]
async fn table_watch_sends_columns_once() {
    let api = TestApi::new().await;
    api.create_pod("p").await;
    let mut events = api.watch_with(&get_table(format!("{PODS}?watch=1"))).await;
    let first =
        events.check("ADDED", json!({"kind": "Table", "rows": [{"object": {"metadata": {"name": "p"}}}]})).await;
    assert!(first["columnDefinitions"].is_array());
    api.check(merge_patch(format!("{PODS}/p/status"), &json!({"status": {"reason": "Odd"}})), 200, json!({})).await;
    let second = events.check("MODIFIED", json!({"columnDefinitions": null, "rows": [{}]})).await;
    assert_eq!(second["rows"][0]["cells"][2], "Odd");
    api.check(delete(format!("{PODS}/p")), 200, json!({})).await;
    events.check("DELETED", json!({"kind": "Table", "rows": [{}]})).await;
}

#[tokio::test]
async fn table_bookmark_has_one_row_with_its_version() {
    let api = TestApi::new().await;
    let revision = api.send(&get(CONFIG_MAPS)).await.body["metadata"]["resourceVersion"].clone();
    tokio::time::pause();
    let query = "watch=1&allowWatchBookmarks=true&timeoutSeconds=90";
    let mut events = api.watch_with(&get_table(format!("{CONFIG_MAPS}?{query}"))).await;
    let event = events.try_next().await.unwrap();
    let row = json!({"cells": ["", 0, "<unknown>"], "object": {"metadata": {"resourceVersion": revision}}});
    let bookmark = json!({"kind": "Table", "columnDefinitions": [{}, {}, {}], "rows": [row]});
    let mut mismatches = Vec::new();
    compare(&json!({"type": "BOOKMARK", "object": bookmark}), &event, "", &mut mismatches);
    assert!(mismatches.is_empty(), "{mismatches:?}");
}

#[tokio::test]
async fn watch_list_is_not_served_as_table() {
    let api = TestApi::new().await;
    let query = "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
    let path = format!("{CONFIG_MAPS}?{query}");
    let rejected = json!({"reason": "NotAcceptable"});
    let only = "application/json;as=Table;v=v1;g=meta.k8s.io";
    api.check(get(&path).header("accept", only), 406, rejected).await;
    // The next accepted media type is used.
    let any = format!("{only},application/json");
    let mut events = api.watch_with(&get(&path).header("accept", &any)).await;
    let annotations = json!({"k8s.io/initial-events-end": "true"});
    events.check("BOOKMARK", json!({"kind": "ConfigMap", "metadata": {"annotations": annotations}})).await;
}

#[tokio::test]
async fn partial_object_metadata_has_only_metadata() {
    let api = TestApi::new().await;
    let created = api.create_config_map("a", json!({"l": "1"})).await;
    let path = format!("{CONFIG_MAPS}/a");
    let partial =
        json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": created["metadata"]});
    assert_eq!(api.check(get(&path).header("accept", PARTIAL), 200, json!({})).await.body, partial);
    let list = json!({"kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1", "items": [partial]});
    api.check(get(CONFIG_MAPS).header("accept", PARTIAL_LIST), 200, list).await;
    let mut events = api.watch_with(&get(format!("{CONFIG_MAPS}?watch=1")).header("accept", PARTIAL)).await;
    assert_eq!(events.check("ADDED", json!({})).await, partial);
}

#[tokio::test]
async fn accept_header_selects_object_or_list_shape() {
    let api = TestApi::new().await;
    api.create_pod("p").await;
    let one = format!("{PODS}/p");
    let shape = |kind: &str, version: &str| format!("application/json;as={kind};v={version};g=meta.k8s.io");
    let (object, list) = (shape("PartialObjectMetadata", "v1"), shape("PartialObjectMetadataList", "v1"));
    api.check(get(&one).header("accept", &object), 200, json!({"kind": "PartialObjectMetadata"})).await;
    api.check(get(PODS).header("accept", &list), 200, json!({"kind": "PartialObjectMetadataList"})).await;
    let message = "you requested PartialObjectMetadata, but the requested object is a list (*v1.PodList)";
    api.check(get(PODS).header("accept", &object), 406, json!({"reason": "NotAcceptable", "message": message})).await;
    let message = "you requested PartialObjectMetadataList, but the requested object is not a list (*v1.Pod)";
    api.check(get(&one).header("accept", &list), 406, json!({"message": message})).await;
    // An unsupported version of a shape is skipped.
    let other = shape("Table", "v2");
    api.check(get(PODS).header("accept", &other), 406, json!({"reason": "NotAcceptable"})).await;
    let else_whole = format!("{other},application/json");
    api.check(get(PODS).header("accept", &else_whole), 200, json!({"kind": "PodList"})).await;
    let (content_type, _) = api.text(&get(&one).header("accept", "*/*;q=0.1, application/yaml")).await;
    assert_eq!(content_type, "application/yaml");
}

#[tokio::test]
async fn meta_v1beta1_shapes_are_served() {
    let api = TestApi::new().await;
    api.create_pod("p").await;
    let (one, version) = (format!("{PODS}/p"), "meta.k8s.io/v1beta1");
    let shape = |kind: &str| format!("application/json;as={kind};v=v1beta1;g=meta.k8s.io,application/json");
    let partial = json!({"kind": "PartialObjectMetadata", "apiVersion": version, "metadata": {"name": "p"}});
    let table = json!({"kind": "Table", "apiVersion": version, "rows": [{"object": partial}]});
    for path in [PODS, &one] {
        api.check(get(path).header("accept", &shape("Table")), 200, table.clone()).await;
    }
    api.check(get(&one).header("accept", &shape("PartialObjectMetadata")), 200, partial.clone()).await;
    let list = json!({"kind": "PartialObjectMetadataList", "apiVersion": version, "items": [partial]});
    api.check(get(PODS).header("accept", &shape("PartialObjectMetadataList")), 200, list).await;
    let watch = get(format!("{PODS}?watch=1"));
    let mut events = api.watch_with(&watch.clone().header("accept", &shape("Table"))).await;
    events.check("ADDED", table).await;
    let mut events = api.watch_with(&watch.header("accept", &shape("PartialObjectMetadata"))).await;
    events.check("ADDED", partial).await;
}

#[tokio::test]
async fn scale_table_has_its_own_columns() {
    let api = TestApi::new().await;
    let deployment = json!({"metadata": {"name": "d"}, "spec": {"replicas": 2, "selector": {"matchLabels": {"a": "b"}}, "template": {
        "metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}}});
    let path = "/apis/apps/v1/namespaces/default/deployments";
    api.check(post(path, &deployment), 201, json!({})).await;
    let table = api.check(get_table(format!("{path}/d/scale")), 200, json!({"kind": "Table"})).await.body;
    let columns: Vec<&Value> = table["columnDefinitions"].as_array().unwrap().iter().map(|c| &c["name"]).collect();
    assert_eq!(columns, ["Name", "Desired", "Available", "Age"]);
    assert_eq!(table["rows"][0]["cells"].as_array().unwrap()[..3], [json!("d"), json!(2), json!(0)]);
}
