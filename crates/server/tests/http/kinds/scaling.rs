//! The `scale` subresource.

use super::*;

const PATH: &str = "/apis/apps/v1/namespaces/default/deployments";

async fn deployed() -> Api {
    let api = Api::new().await;
    let object = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
        "spec": {"replicas": 2, "selector": {"matchLabels": {"app": "web"}, "matchExpressions": [{"key": "app", "operator": "Exists"}]}, "template": template("web")}});
    api.check(post(PATH, &object), 201, json!({})).await;
    api
}

#[tokio::test]
async fn a_scale_is_read_and_written() {
    let api = deployed().await;
    let scale = format!("{PATH}/web/scale");
    let shape = json!({"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "web", "namespace": "default"},
        "spec": {"replicas": 2}, "status": {"replicas": 0, "selector": "app,app=web"}});
    let read = api.check(get(&scale), 200, shape).await.body;
    let mut more = read.clone();
    more["spec"]["replicas"] = json!(5);
    api.check(put(&scale, &more), 200, json!({"kind": "Scale", "spec": {"replicas": 5}})).await;
    api.check(get(format!("{PATH}/web")), 200, json!({"metadata": {"generation": 2}, "spec": {"replicas": 5}})).await;
    // The version that it was read in has passed.
    api.check(put(&scale, &more), 409, json!({"reason": "Conflict"})).await;
    api.check(merge(&scale, &json!({"spec": {"replicas": 0}})), 200, json!({"spec": {"replicas": null}})).await;
    let dry = merge(format!("{scale}?dryRun=All"), &json!({"spec": {"replicas": 9}}));
    api.check(dry, 200, json!({"spec": {"replicas": 9}})).await;
    let object = api.check(get(format!("{PATH}/web")), 200, json!({"spec": {"replicas": 0}})).await.body;
    assert!(managers(&object).contains(&"unknown Update scale".to_owned()), "{:?}", managers(&object));
    let message =
        "Scale.autoscaling \"web\" is invalid: spec.replicas: Invalid value: -1: must be greater than or equal to 0";
    api.check(merge(&scale, &json!({"spec": {"replicas": -1}})), 422, json!({"message": message})).await;
    api.check(get(format!("{PATH}/none/scale")), 404, json!({"reason": "NotFound"})).await;
    api.check(delete(&scale), 405, json!({})).await;
}

#[tokio::test]
async fn a_scale_is_not_applied_yet() {
    let api = deployed().await;
    let config =
        json!({"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "web"}, "spec": {"replicas": 1}});
    api.check(apply(format!("{PATH}/web/scale"), "m", &config), 415, json!({"reason": "UnsupportedMediaType"})).await;
}

#[tokio::test]
async fn kinds_that_have_replicas_have_a_scale_and_others_do_not() {
    let api = deployed().await;
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
