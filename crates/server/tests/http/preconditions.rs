//! Optimistic concurrency and preconditions.

use crate::common::*;
use serde_json::json;

const MODIFIED: &str = "Operation cannot be fulfilled on configmaps \"a\": the object has been modified; please apply your changes to the latest version and try again";

#[tokio::test]
async fn update_with_stale_resource_version_conflicts() {
    let api = TestApi::new().await;
    let first = api.create_config_map("a", json!({})).await;
    let path = format!("{CONFIG_MAPS}/a");
    let second = api.check(merge_patch(&path, &json!({"data": {"k": "1"}})), 200, json!({})).await.body;
    let with = |rv: &str| json!({"metadata": {"name": "a", "resourceVersion": rv}, "data": {"k": "2"}});
    let conflict =
        json!({"reason": "Conflict", "code": 409, "message": MODIFIED, "details": {"name": "a", "kind": "configmaps"}});
    api.check(put(&path, &with(resource_version(&first))), 409, conflict.clone()).await;
    api.check(merge_patch(&path, &with(resource_version(&first))), 409, conflict).await;
    api.check(put(&path, &with(resource_version(&second))), 200, json!({"data": {"k": "2"}})).await;
    api.check(
        put(&path, &with("soon")),
        422,
        json!({"message": "ConfigMap \"a\" is invalid: metadata.resourceVersion: Invalid value: \"soon\": strconv.ParseUint: parsing \"soon\": invalid syntax"}),
    )
    .await;
}

#[tokio::test]
async fn update_with_another_uid_is_rejected() {
    let api = TestApi::new().await;
    let created = api.create_config_map("a", json!({})).await;
    let path = format!("{CONFIG_MAPS}/a");
    let uid = created["metadata"]["uid"].as_str().unwrap();
    let reason = format!(
        "Operation cannot be fulfilled on configmaps \"a\": StorageError: invalid object, Code: 4, Key: /registry/configmaps/default/a, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: UID in precondition: other, UID in object meta: {uid}"
    );
    let other = json!({"metadata": {"name": "a", "uid": "other"}});
    api.check(put(&path, &other), 409, json!({"reason": "Conflict", "message": reason})).await;
    let reason = "ConfigMap \"a\" is invalid: metadata.uid: Invalid value: \"other\": field is immutable";
    api.check(merge_patch(&path, &other), 422, json!({"reason": "Invalid", "message": reason})).await;
    api.check(merge_patch(&path, &json!({"metadata": {"uid": uid}})), 200, json!({})).await;
}

#[tokio::test]
async fn delete_checks_preconditions_and_propagation() {
    let api = TestApi::new().await;
    let created = api.create_pod("p").await;
    let path = format!("{PODS}/p");
    let (uid, rv) = (created["metadata"]["uid"].as_str().unwrap(), resource_version(&created));
    let only = |field: &str, value: &str| json!({"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": {field: value}});
    api.check(
        delete_with_options(&path, &only("uid", "other")),
        409,
        json!({"message": format!("Operation cannot be fulfilled on Pod \"p\": the UID in the precondition (other) does not match the UID in record ({uid}). The object might have been deleted and then recreated")}),
    )
    .await;
    api.check(
        delete_with_options(&path, &only("resourceVersion", "1")),
        409,
        json!({"message": format!("Operation cannot be fulfilled on Pod \"p\": the ResourceVersion in the precondition (1) does not match the ResourceVersion in record ({rv}). The object might have been modified")}),
    )
    .await;
    for invalid in [json!([]), json!({"gracePeriodSeconds": "x"}), json!({"kind": "Pod"}), json!("x")] {
        api.check(delete_with_options(&path, &invalid), 400, json!({"reason": "BadRequest"})).await;
    }
    api.check(
        delete_with_options(&path, &json!({"propagationPolicy": "Sideways"})),
        422,
        json!({"message": "DeleteOptions.meta.k8s.io \"\" is invalid: propagationPolicy: Unsupported value: \"Sideways\": supported values: \"Foreground\", \"Background\", \"Orphan\", \"nil\""}),
    )
    .await;
    let first = json!({"preconditions": {"uid": uid, "resourceVersion": rv}, "propagationPolicy": "Foreground"});
    let waits = json!({"metadata": {"finalizers": ["foregroundDeletion"]}});
    let waiting = api.check(delete_with_options(&path, &first), 200, waits.clone()).await.body;
    assert!(waiting["metadata"]["deletionTimestamp"].is_string());
    // A repeated deletion without a policy keeps the finalizer; one with another policy changes it.
    api.check(delete_with_options(&path, &json!({})), 200, waits).await;
    let orphan = json!({"metadata": {"finalizers": ["orphan"]}});
    api.check(delete_with_options(&path, &json!({"orphanDependents": true})), 200, orphan).await;
    api.check(delete_with_options(&path, &json!({"propagationPolicy": "Background"})), 200, json!({"kind": "Pod"}))
        .await;
    api.check(get(&path), 404, json!({})).await;
}

#[tokio::test]
async fn concurrent_patches_without_version_are_all_kept() {
    let api = TestApi::new().await;
    api.create_config_map("a", json!({})).await;
    let path = format!("{CONFIG_MAPS}/a");
    let all = (0..16).map(|i| {
        let request = merge_patch(&path, &json!({"data": {format!("k{i}"): "v"}}));
        let api = &api;
        async move { api.check(request, 200, json!({})).await }
    });
    futures::future::join_all(all).await;
    let read = api.check(get(&path), 200, json!({})).await.body;
    assert_eq!(read["data"].as_object().unwrap().len(), 16);
}
