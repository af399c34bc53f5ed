//! Mirror Pods of static Pods.

use crate::common::*;
use serde_json::{Value, json};

const MIRROR: &str = "kubernetes.io/config.mirror";

fn mirror_pod(name: &str) -> Value {
    let mut object = pod(name);
    object["metadata"]["annotations"] = json!({MIRROR: "hash", "kubernetes.io/config.source": "file"});
    object["spec"]["nodeName"] = json!("n");
    object
}

#[tokio::test]
async fn mirror_pod_requires_node_and_no_service_account() {
    let api = TestApi::new().await;
    let created = api.check(post(PODS, &mirror_pod("m")), 201, json!({"spec": {"nodeName": "n"}})).await.body;
    assert_eq!(created["spec"].get("serviceAccountName"), None);
    let mut nowhere = mirror_pod("nowhere");
    nowhere["spec"].as_object_mut().unwrap().remove("nodeName");
    let cause = json!({"field": format!("metadata.annotations[{MIRROR}]"), "reason": "FieldValueInvalid",
        "message": "Invalid value: \"hash\": must set spec.nodeName if mirror pod annotation is set"});
    api.check(post(PODS, &nowhere), 422, json!({"details": {"causes": [cause]}})).await;
}

#[tokio::test]
async fn mirror_annotation_is_immutable() {
    let api = TestApi::new().await;
    api.check(post(PODS, &mirror_pod("m")), 201, json!({})).await;
    api.create_pod("p").await;
    for (name, value, message) in [
        ("m", json!("other"), "may not remove or update mirror pod annotation"),
        ("m", Value::Null, "may not remove or update mirror pod annotation"),
        ("p", json!("hash"), "may not add mirror pod annotation"),
    ] {
        let change = json!({"metadata": {"annotations": {MIRROR: value}}});
        let cause = json!({"field": format!("metadata.annotations[{MIRROR}]"), "reason": "FieldValueForbidden",
            "message": format!("Forbidden: {message}")});
        api.check(merge_patch(format!("{PODS}/{name}"), &change), 422, json!({"details": {"causes": [cause]}})).await;
    }
    let labels = json!({"metadata": {"labels": {"a": "b"}}});
    api.check(merge_patch(format!("{PODS}/m"), &labels), 200, json!({"metadata": {"annotations": {MIRROR: "hash"}}}))
        .await;
}

#[tokio::test]
async fn mirror_pod_may_not_reference_api_objects() {
    let api = TestApi::new().await;
    let secret = "a mirror pod may not reference secrets";
    let volume = |source: Value| {
        let mut volume = source;
        volume["name"] = json!("v");
        json!({"volumes": [volume]})
    };
    let container = |fields: Value| {
        let mut container = fields;
        container["name"] = json!("other");
        container["image"] = json!("i");
        json!([container])
    };
    let env = json!({"env": [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}]});
    for (fields, expected) in [
        (json!({"serviceAccountName": "app"}), "a mirror pod may not reference service accounts"),
        (json!({"imagePullSecrets": [{"name": "s"}]}), secret),
        (json!({"containers": container(json!({"envFrom": [{"secretRef": {"name": "s"}}]}))}), secret),
        (json!({"initContainers": container(env)}), secret),
        (volume(json!({"secret": {"secretName": "s"}})), secret),
        (volume(json!({"projected": {"sources": [{"secret": {"name": "s"}}]}})), secret),
        (volume(json!({"csi": {"driver": "d", "nodePublishSecretRef": {"name": "s"}}})), secret),
        (
            volume(json!({"projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}})),
            "a mirror pod may not use ServiceAccountToken volume projections",
        ),
    ] {
        let mut object = mirror_pod("m");
        fields.as_object().unwrap().iter().for_each(|(key, value)| object["spec"][key] = value.clone());
        let message = format!("pods \"m\" is forbidden: {expected}");
        api.check(post(PODS, &object), 403, json!({"reason": "Forbidden", "message": message})).await;
    }
    let mut allowed = mirror_pod("m");
    allowed["spec"]["volumes"] =
        json!([{"name": "c", "configMap": {"name": "c"}}, {"name": "h", "hostPath": {"path": "/x"}}]);
    api.check(post(PODS, &allowed), 201, json!({})).await;
}

#[tokio::test]
async fn subresources_cannot_change_the_mirror_annotation() {
    let api = TestApi::new().await;
    api.check(post(PODS, &mirror_pod("m")), 201, json!({})).await;
    api.create_pod("p").await;
    let cause = |message: &str| {
        let field = format!("metadata.annotations[{MIRROR}]");
        json!({"details": {"causes": [{"field": field, "message": format!("Forbidden: {message}")}]}})
    };
    let change = |value: Value| json!({"metadata": {"annotations": {MIRROR: value}}});
    let removed = "may not remove or update mirror pod annotation";
    api.check(merge_patch(format!("{PODS}/m/status"), &change(Value::Null)), 422, cause(removed)).await;
    let added = "may not add mirror pod annotation";
    api.check(merge_patch(format!("{PODS}/p/status"), &change(json!("hash"))), 422, cause(added)).await;
    for part in ["ephemeralcontainers", "resize", "status"] {
        let change = change(Value::Null);
        api.send(&merge_patch(format!("{PODS}/m/{part}"), &change)).await;
        let kept = json!({"metadata": {"annotations": {MIRROR: "hash"}}});
        api.check(get(format!("{PODS}/m")), 200, kept).await;
    }
}
