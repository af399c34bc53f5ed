//! The `scale` subresource.

use super::*;

const PATH: &str = "/apis/apps/v1/namespaces/default/deployments";

async fn api_with_deployment() -> TestApi {
    let api = TestApi::new().await;
    let object = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
        "spec": {"replicas": 2, "selector": {"matchLabels": {"app": "web"}, "matchExpressions": [{"key": "app", "operator": "Exists"}]}, "template": pod_template("web")}});
    api.check(post(PATH, &object), 201, json!({})).await;
    api
}

#[tokio::test]
async fn scale_is_read_and_written() {
    let api = api_with_deployment().await;
    let scale = format!("{PATH}/web/scale");
    let shape = json!({"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "web", "namespace": "default"},
        "spec": {"replicas": 2}, "status": {"replicas": 0, "selector": "app,app=web"}});
    let read = api.check(get(&scale), 200, shape).await.body;
    let mut scaled_up = read.clone();
    scaled_up["spec"]["replicas"] = json!(5);
    api.check(put(&scale, &scaled_up), 200, json!({"kind": "Scale", "spec": {"replicas": 5}})).await;
    api.check(get(format!("{PATH}/web")), 200, json!({"metadata": {"generation": 2}, "spec": {"replicas": 5}})).await;
    // The Scale has a stale resource version.
    api.check(put(&scale, &scaled_up), 409, json!({"reason": "Conflict"})).await;
    api.check(merge_patch(&scale, &json!({"spec": {"replicas": 0}})), 200, json!({"spec": {"replicas": null}})).await;
    let dry = merge_patch(format!("{scale}?dryRun=All"), &json!({"spec": {"replicas": 9}}));
    api.check(dry, 200, json!({"spec": {"replicas": 9}})).await;
    let object = api.check(get(format!("{PATH}/web")), 200, json!({"spec": {"replicas": 0}})).await.body;
    assert!(managers(&object).contains(&"unknown Update scale".to_owned()), "{:?}", managers(&object));
    let message =
        "Scale.autoscaling \"web\" is invalid: spec.replicas: Invalid value: -1: must be greater than or equal to 0";
    api.check(merge_patch(&scale, &json!({"spec": {"replicas": -1}})), 422, json!({"message": message})).await;
    api.check(get(format!("{PATH}/none/scale")), 404, json!({"reason": "NotFound"})).await;
    api.check(delete(&scale), 405, json!({})).await;
}

#[tokio::test]
async fn missing_scale_error_names_upstreams_resource() {
    let api = TestApi::new().await;
    for (path, read, written) in [
        ("/apis/apps/v1/namespaces/default/deployments", "deployments/scale.apps", "deployments/scale.apps"),
        ("/apis/apps/v1/namespaces/default/replicasets", "replicasets/scale.apps", "replicasets/scale.apps"),
        ("/apis/apps/v1/namespaces/default/statefulsets", "statefulsets.apps", "statefulsets/scale.apps"),
        (
            "/api/v1/namespaces/default/replicationcontrollers",
            "replicationcontrollers/scale.autoscaling",
            "replicationcontrollers/scale",
        ),
    ] {
        let scale = format!("{path}/none/scale");
        let missing =
            |resource: &str| json!({"reason": "NotFound", "message": format!("{resource} \"none\" not found")});
        api.check(get(&scale), 404, missing(read)).await;
        let object = json!({"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "none"}, "spec": {"replicas": 1}});
        api.check(put(&scale, &object), 404, missing(written)).await;
        api.check(merge_patch(&scale, &json!({"spec": {"replicas": 1}})), 404, missing(written)).await;
    }
}

/// Returns the managers of `spec.replicas` of a Deployment, with their operations.
fn replicas_managers(object: &Value) -> Vec<String> {
    let entries = object["metadata"]["managedFields"].as_array().unwrap().iter();
    let owns = |e: &&Value| e["fieldsV1"]["f:spec"].get("f:replicas").is_some();
    let text = |e: &Value, field: &str| e[field].as_str().unwrap_or("").to_owned();
    entries
        .filter(owns)
        .map(|e| ["manager", "operation", "apiVersion", "subresource"].map(|f| text(e, f)).join(" "))
        .collect()
}

#[tokio::test]
async fn scale_apply_owns_replicas_in_the_object() {
    let api = api_with_deployment().await;
    let scale = format!("{PATH}/web/scale");
    let config = |replicas: i64| json!({"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "web"}, "spec": {"replicas": replicas}});
    let conflict = json!({"reason": "Conflict", "details": {"causes": [{"field": ".spec.replicas", "reason": "FieldManagerConflict"}]}});
    api.check(apply(&scale, "m", &config(5)), 409, conflict).await;
    // A manager that applies the same value becomes a co-owner.
    api.check(apply(&scale, "m", &config(2)), 200, json!({"kind": "Scale", "spec": {"replicas": 2}})).await;
    let object = api.check(get(format!("{PATH}/web")), 200, json!({})).await.body;
    assert_eq!(replicas_managers(&object), ["m Apply apps/v1 scale", "unknown Update apps/v1 "]);
    api.check(apply(format!("{scale}?force=true"), "m", &config(5)), 200, json!({"spec": {"replicas": 5}})).await;
    let object = api.check(get(format!("{PATH}/web")), 200, json!({"spec": {"replicas": 5}})).await.body;
    assert_eq!(replicas_managers(&object), ["m Apply apps/v1 scale"]);
    // The previous owner keeps the other fields.
    assert!(managers(&object).contains(&"unknown Update".to_owned()), "{:?}", managers(&object));
    let other =
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": {"replicas": 7}});
    api.check(apply(format!("{PATH}/web"), "n", &other), 409, json!({"reason": "Conflict"})).await;
    let invalid = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}});
    let message = "invalid object type: apps/v1, Kind=Deployment";
    api.check(apply(&scale, "m", &invalid), 400, json!({"message": message})).await;
    let unknown =
        json!({"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "web"}, "spec": {"replicaz": 1}});
    let message = "failed to create typed patch object (/web; autoscaling/v1, Kind=Scale): .spec.replicaz: field not declared in schema";
    api.check(apply(&scale, "m", &unknown), 400, json!({"message": message})).await;
    api.check(apply(format!("{PATH}/none/scale"), "m", &config(1)), 404, json!({})).await;
}

#[tokio::test]
async fn only_kinds_with_replicas_have_a_scale() {
    let api = api_with_deployment().await;
    let has = |list: &Value, name: &str| list["resources"].as_array().unwrap().iter().any(|r| r["name"] == name);
    let apps = api.check(get("/apis/apps/v1"), 200, json!({})).await.body;
    for (name, expected) in [
        ("deployments/scale", true),
        ("replicasets/scale", true),
        ("statefulsets/scale", true),
        ("daemonsets/scale", false),
    ] {
        assert_eq!(has(&apps, name), expected, "{name}");
    }
    let core = api.check(get("/api/v1"), 200, json!({})).await.body;
    assert!(has(&core, "replicationcontrollers/scale"));
    api.check(get("/apis/apps/v1/namespaces/default/daemonsets/web/scale"), 404, json!({})).await;
}
