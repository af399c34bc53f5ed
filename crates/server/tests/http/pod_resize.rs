//! The `resize` subresource and Pod-level resources.

use crate::common::*;
use serde_json::{Value, json};

fn resources(cpu: &str, memory: &str) -> Value {
    json!({"requests": {"cpu": cpu, "memory": memory}, "limits": {"cpu": "1", "memory": "1Gi"}})
}

fn strategic_merge_patch(path: &str, body: &Value) -> TestRequest {
    patch("strategic-merge-patch", path, body)
}

fn container_resources(resources: &Value) -> Value {
    json!({"spec": {"containers": [{"name": "c", "resources": resources}]}})
}

#[tokio::test]
async fn resize_changes_only_cpu_and_memory() {
    let api = TestApi::new().await;
    let mut object = pod("p");
    object["spec"]["containers"][0]["resources"] = resources("100m", "10Mi");
    api.check(post(PODS, &object), 201, json!({"status": {"qosClass": "Burstable"}})).await;
    let path = format!("{PODS}/p/resize");
    let got = api.check(get(&path), 200, json!({"kind": "Pod", "metadata": {"name": "p", "generation": 1}})).await.body;
    // A PUT with the whole Pod: only its resources are updated.
    let mut changed = got.clone();
    changed["spec"]["containers"][0]["resources"]["requests"]["cpu"] = json!("150m");
    changed["spec"]["containers"][0]["image"] = json!("other");
    changed["metadata"]["labels"] = json!({"a": "b"});
    let expected = json!({"metadata": {"generation": 2, "labels": null},
        "spec": {"containers": [{"image": "busybox:1", "resources": {"requests": {"cpu": "150m"}}}]}});
    api.check(put(&path, &changed), 200, expected).await;
    // A PUT with a stale resource version.
    changed["metadata"]["resourceVersion"] = got["metadata"]["resourceVersion"].clone();
    api.check(put(&path, &changed), 409, json!({"reason": "Conflict"})).await;
    let patch = container_resources(&json!({"requests": {"memory": "20Mi"}}));
    let patched =
        json!({"metadata": {"generation": 3}, "spec": {"containers": [{"resources": resources("150m", "20Mi")}]}});
    api.check(strategic_merge_patch(&path, &patch), 200, patched).await;
    for (patch, message) in [
        (
            json!({"requests": {"cpu": "1", "memory": "1Gi"}}),
            "spec: Invalid value: \"Burstable\": Pod QOS Class may not change as a result of resizing",
        ),
        (
            json!({"requests": {"cpu": "2"}}),
            "spec.containers[0].resources.requests: Invalid value: \"2\": must be less than or equal to cpu limit of 1",
        ),
        (
            json!({"limits": {"memory": null}}),
            "spec.containers[0].resources.limits: Forbidden: resource limits cannot be removed",
        ),
    ] {
        let reported = json!({"code": 422, "message": format!("Pod \"p\" is invalid: {message}")});
        api.check(strategic_merge_patch(&path, &container_resources(&patch)), 422, reported).await;
    }
    api.check(post(&path, &changed), 405, json!({"reason": "MethodNotAllowed"})).await;
    let listed = json!({"resources": [{"name": "pods/resize", "kind": "Pod", "verbs": ["get", "patch", "update"]}]});
    let all = api.check(get("/api/v1"), 200, json!({})).await.body;
    let found = all["resources"].as_array().unwrap().iter().find(|r| r["name"] == "pods/resize");
    assert_eq!(found.unwrap()["verbs"], listed["resources"][0]["verbs"]);
}

#[tokio::test]
async fn pod_level_resources_are_defaulted_and_validated() {
    let api = TestApi::new().await;
    let object = |container: Value, whole: Value| {
        let mut object = pod("p");
        object["spec"]["containers"][0]["resources"] = container;
        object["spec"]["resources"] = whole;
        object
    };
    let dry = format!("{PODS}?dryRun=All");
    for (container, whole, requests, class) in [
        // A missing Pod-level request defaults to the sum of container requests, then to the Pod-level limit.
        (
            json!({"requests": {"memory": "10Mi"}}),
            json!({"limits": {"cpu": "1", "memory": "1Gi"}}),
            json!({"cpu": "1", "memory": "10Mi"}),
            "Burstable",
        ),
        (
            json!({}),
            json!({"limits": {"cpu": "1", "memory": "1Gi"}}),
            json!({"cpu": "1", "memory": "1Gi"}),
            "Guaranteed",
        ),
        (json!({}), json!({"requests": {"cpu": "1"}}), json!({"cpu": "1"}), "Burstable"),
    ] {
        let expected = json!({"spec": {"resources": {"requests": requests}}, "status": {"qosClass": class}});
        api.check(post(&dry, &object(container, whole)), 201, expected).await;
    }
    for (container, whole, message) in [
        (
            json!({"requests": {"cpu": "2"}}),
            json!({"requests": {"cpu": "1"}}),
            "spec.resources.requests[cpu]: Invalid value: \"1\": must be greater than or equal to aggregate container requests of 2",
        ),
        (
            json!({"limits": {"memory": "2Gi"}, "requests": {"memory": "1Mi"}}),
            json!({"limits": {"memory": "1Gi"}}),
            "spec.resources.containers[0][memory].limits: Invalid value: \"2Gi\": must be less than or equal to pod limits of 1Gi",
        ),
        (
            json!({}),
            json!({"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}),
            "spec.resources.requests: Invalid value: \"2\": must be less than or equal to cpu limit of 1",
        ),
        (
            json!({}),
            json!({"requests": {"ephemeral-storage": "1Gi"}}),
            "spec.resources.requests[ephemeral-storage]: Unsupported value: \"ephemeral-storage\": supported values: \"cpu\", \"hugepages-\", \"memory\"",
        ),
    ] {
        let reported = json!({"message": format!("Pod \"p\" is invalid: {message}")});
        api.check(post(&dry, &object(container, whole)), 422, reported).await;
    }
}
