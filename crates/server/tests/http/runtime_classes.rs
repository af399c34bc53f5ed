//! RuntimeClasses and their admission of Pods.

use crate::common::*;
use serde_json::{Value, json};

const CLASSES: &str = "/apis/node.k8s.io/v1/runtimeclasses";

fn runtime_class(name: &str, fields: Value) -> Value {
    let mut class =
        json!({"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": name}, "handler": "runc"});
    for (key, value) in fields.as_object().unwrap() {
        class[key] = value.clone();
    }
    class
}

fn pod_with_class(name: &str, class: &str) -> Value {
    let mut pod = pod(name);
    pod["spec"]["runtimeClassName"] = json!(class);
    pod
}

#[tokio::test]
async fn runtime_class_handler_is_validated_and_immutable() {
    let api = TestApi::new().await;
    let invalid = |message: &str| json!({"code": 422, "message": format!("RuntimeClass.node.k8s.io \"c\" is invalid: {message}")});
    for (fields, message) in [
        (
            json!({"handler": "A_b"}),
            "handler: Invalid value: \"A_b\": a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')",
        ),
        (
            json!({"overhead": {"podFixed": {"cpu": "-1"}}}),
            "overhead.limits[cpu]: Invalid value: \"-1\": must be greater than or equal to 0",
        ),
        (
            json!({"scheduling": {"tolerations": [{"key": "a", "operator": "Like"}]}}),
            "scheduling.tolerations[0].operator: Unsupported value: \"Like\": supported values: \"Equal\", \"Exists\"",
        ),
        (
            json!({"scheduling": {"tolerations": [{"operator": "Exists"}, {"operator": "Exists"}]}}),
            "scheduling.tolerations[1]: Duplicate value: {\"operator\":\"Exists\"}",
        ),
    ] {
        api.check(post(CLASSES, &runtime_class("c", fields)), 422, invalid(message)).await;
    }
    api.check(
        post(CLASSES, &runtime_class("c", json!({"overhead": {"podFixed": {"cpu": "1000m"}}}))),
        201,
        json!({"overhead": {"podFixed": {"cpu": "1"}}}),
    )
    .await;
    let changed = merge_patch(format!("{CLASSES}/c"), &json!({"handler": "other"}));
    api.check(changed, 422, invalid("handler: Invalid value: \"other\": field is immutable")).await;
    let rows = api.check(get_table(CLASSES), 200, json!({})).await.body;
    assert_eq!(rows["rows"][0]["cells"].as_array().unwrap()[..2], [json!("c"), json!("runc")]);
    api.check(
        get("/apis/node.k8s.io/v1"),
        200,
        json!({"resources": [{"name": "runtimeclasses", "singularName": "runtimeclass", "namespaced": false, "kind": "RuntimeClass"}]}),
    )
    .await;
}

#[tokio::test]
async fn pod_gets_overhead_and_scheduling_of_runtime_class() {
    let api = TestApi::new().await;
    let fields = json!({"overhead": {"podFixed": {"cpu": "0.25", "memory": "64Mi"}},
        "scheduling": {"nodeSelector": {"vm": "yes"}, "tolerations": [{"key": "vm", "operator": "Exists"}]}});
    api.check(post(CLASSES, &runtime_class("vm", fields)), 201, json!({})).await;
    let created = api
        .check(
            post(PODS, &pod_with_class("p", "vm")),
            201,
            json!({"spec": {"runtimeClassName": "vm", "overhead": {"cpu": "250m", "memory": "64Mi"}, "nodeSelector": {"vm": "yes"}},
                "status": {"qosClass": "BestEffort"}}),
        )
        .await
        .body;
    let keys: Vec<&Value> = created["spec"]["tolerations"].as_array().unwrap().iter().map(|t| &t["key"]).collect();
    assert_eq!(keys, ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable", "vm"]);
    let forbidden =
        |reason: &str| json!({"reason": "Forbidden", "message": format!("pods \"q\" is forbidden: {reason}")});
    for (change, reason) in [
        (
            json!({"overhead": {"cpu": "1"}}),
            "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead",
        ),
        (
            json!({"runtimeClassName": null, "overhead": {"cpu": "1"}}),
            "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead",
        ),
        (
            json!({"nodeSelector": {"vm": "no"}}),
            "conflict: runtimeClass.scheduling.nodeSelector[vm] = yes; pod.spec.nodeSelector[vm] = no",
        ),
        (json!({"runtimeClassName": "none"}), "pod rejected: RuntimeClass \"none\" not found"),
    ] {
        let mut pod = pod_with_class("q", "vm");
        for (key, value) in change.as_object().unwrap() {
            pod["spec"][key] = value.clone();
        }
        api.check(post(PODS, &pod), 403, forbidden(reason)).await;
    }
}
