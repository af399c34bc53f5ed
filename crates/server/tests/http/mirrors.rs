//! Mirror Pods: what a kubelet shows of its static Pods.

use crate::common::*;
use serde_json::{Value, json};

const MIRROR: &str = "kubernetes.io/config.mirror";

fn mirror(name: &str) -> Value {
    let mut object = pod(name);
    object["metadata"]["annotations"] = json!({MIRROR: "hash", "kubernetes.io/config.source": "file"});
    object["spec"]["nodeName"] = json!("n");
    object
}

#[tokio::test]
async fn a_mirror_is_a_nodes_and_has_no_account() {
    let api = Api::new().await;
    let created = api.check(post(PODS, &mirror("m")), 201, json!({"spec": {"nodeName": "n"}})).await.body;
    assert_eq!(created["spec"].get("serviceAccountName"), None);
    let mut nowhere = mirror("nowhere");
    nowhere["spec"].as_object_mut().unwrap().remove("nodeName");
    let cause = json!({"field": format!("metadata.annotations[{MIRROR}]"), "reason": "FieldValueInvalid",
        "message": "Invalid value: \"hash\": must set spec.nodeName if mirror pod annotation is set"});
    api.check(post(PODS, &nowhere), 422, json!({"details": {"causes": [cause]}})).await;
}

#[tokio::test]
async fn what_is_a_mirror_stays_one_and_nothing_becomes_one() {
    let api = Api::new().await;
    api.check(post(PODS, &mirror("m")), 201, json!({})).await;
    api.create_pod("p").await;
    for (name, value, words) in [
        ("m", json!("other"), "may not remove or update mirror pod annotation"),
        ("m", Value::Null, "may not remove or update mirror pod annotation"),
        ("p", json!("hash"), "may not add mirror pod annotation"),
    ] {
        let change = json!({"metadata": {"annotations": {MIRROR: value}}});
        let cause = json!({"field": format!("metadata.annotations[{MIRROR}]"), "reason": "FieldValueForbidden",
            "message": format!("Forbidden: {words}")});
        api.check(merge(format!("{PODS}/{name}"), &change), 422, json!({"details": {"causes": [cause]}})).await;
    }
    let labels = json!({"metadata": {"labels": {"a": "b"}}});
    api.check(merge(format!("{PODS}/m"), &labels), 200, json!({"metadata": {"annotations": {MIRROR: "hash"}}})).await;
}
