//! Status updates: metadata, generation and validation.

use crate::common::*;
use serde_json::{Value, json};

const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";

fn deployment() -> Value {
    json!({"metadata": {"name": "d"}, "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": {
        "metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}}})
}

#[tokio::test]
async fn status_update_ignores_metadata_of_some_kinds() {
    let api = TestApi::new().await;
    let flows = "/apis/flowcontrol.apiserver.k8s.io/v1";
    let level = json!({"type": "Limited", "limited": {"limitResponse": {"type": "Reject"}}});
    let attacher = json!({"attacher": "a.io", "nodeName": "n", "source": {"persistentVolumeName": "v"}});
    let kept = json!({"labels": null, "annotations": null, "finalizers": null});
    let taken = json!({"labels": {"l": "x"}, "annotations": {"a": "x"}, "finalizers": ["x.io/f"]});
    for (path, object, expected) in [
        (format!("{flows}/flowschemas"), json!({"spec": {"priorityLevelConfiguration": {"name": "catch-all"}}}), &kept),
        (format!("{flows}/prioritylevelconfigurations"), json!({ "spec": level }), &kept),
        ("/apis/storage.k8s.io/v1/volumeattachments".to_owned(), json!({ "spec": attacher }), &kept),
        ("/apis/resource.k8s.io/v1/namespaces/default/resourceclaims".to_owned(), json!({"spec": {}}), &kept),
        ("/api/v1/namespaces/default/replicationcontrollers".to_owned(), controller(), &taken),
    ] {
        let mut object = object;
        object["metadata"] = json!({"name": "x"});
        api.check(post(&path, &object), 201, json!({})).await;
        let change = json!({"metadata": taken});
        let response =
            api.check(merge_patch(format!("{path}/x/status"), &change), 200, json!({"metadata": expected})).await;
        let apply_labels = json!({"apiVersion": response.body["apiVersion"], "kind": response.body["kind"],
            "metadata": {"name": "x", "labels": {"by": "apply"}}});
        let applied = api.send(&apply(format!("{path}/x/status"), "applier", &apply_labels)).await;
        assert_eq!(applied.status, 200, "{path}: {:?}", applied.body);
        let owns = owned_fields(&applied.body, "applier")["f:metadata"]["f:labels"].is_object();
        assert_eq!(
            (owns, applied.body["metadata"]["labels"]["by"] == "apply"),
            (*expected == taken, *expected == taken),
            "{path}"
        );
    }
}

fn controller() -> Value {
    json!({"spec": {"selector": {"a": "b"}, "template": deployment()["spec"]["template"]}})
}

#[tokio::test]
async fn deployment_annotation_change_increments_generation() {
    let api = TestApi::new().await;
    api.check(post(DEPLOYMENTS, &deployment()), 201, json!({"metadata": {"generation": 1}})).await;
    let one = format!("{DEPLOYMENTS}/d");
    let annotated = json!({"metadata": {"annotations": {"a": "x"}}});
    api.check(merge_patch(&one, &annotated), 200, json!({"metadata": {"generation": 2}})).await;
    api.check(merge_patch(&one, &annotated), 200, json!({"metadata": {"generation": 2}})).await;
    let labelled = json!({"metadata": {"labels": {"a": "x"}}});
    api.check(merge_patch(&one, &labelled), 200, json!({"metadata": {"generation": 2}})).await;
    // A status update may change annotations without a new generation, but not labels.
    let message =
        json!({"metadata": {"annotations": {"a": "y"}, "labels": {"a": "y"}}, "status": {"observedGeneration": 2}});
    let expected = json!({"metadata": {"generation": 2, "annotations": {"a": "y"}, "labels": {"a": "x"}}});
    api.check(merge_patch(format!("{one}/status"), &message), 200, expected).await;
}

#[tokio::test]
async fn status_updates_are_validated() {
    let api = TestApi::new().await;
    let set = |fields: Value| {
        let mut object = deployment();
        object["spec"].as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        object
    };
    let parts = "status.readyReplicas: Invalid value: 1: cannot be greater than status.replicas";
    let fields = json!({"replicas": 0, "readyReplicas": 1});
    let negative = "status.numberReady: Invalid value: -1: must be greater than or equal to 0";
    let timeless = json!({"conditions": [{"type": "A", "status": "True", "reason": "R", "message": ""}]});
    let untimed = "status.conditions[0].lastTransitionTime: Required value: must be set";
    let amount = "status.used[pods]: Invalid value: \"-1\": must be greater than or equal to 0";
    let apps = "/apis/apps/v1/namespaces/default";
    for (path, mut object, status, expected) in [
        (DEPLOYMENTS.to_owned(), set(json!({})), fields.clone(), parts),
        (format!("{apps}/replicasets"), set(json!({})), fields.clone(), parts),
        (format!("{apps}/statefulsets"), set(json!({"serviceName": "s"})), fields.clone(), parts),
        (format!("{apps}/daemonsets"), set(json!({})), json!({"numberReady": -1}), negative),
        ("/api/v1/namespaces/default/replicationcontrollers".to_owned(), controller(), fields, parts),
        (
            "/apis/policy/v1/namespaces/default/poddisruptionbudgets".to_owned(),
            json!({"spec": {"minAvailable": 1, "selector": {}}}),
            timeless,
            untimed,
        ),
        (
            "/api/v1/namespaces/default/resourcequotas".to_owned(),
            json!({"spec": {"hard": {"pods": "1"}}}),
            json!({"used": {"pods": "-1"}}),
            amount,
        ),
        (
            "/api/v1/namespaces/default/persistentvolumeclaims".to_owned(),
            json!({"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1"}}}}),
            json!({"capacity": {"storage": "-1"}}),
            "status.capacity[storage]: Invalid value: \"-1\": must be a valid resource quantity",
        ),
        (
            "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers".to_owned(),
            json!({"spec": {"maxReplicas": 1, "scaleTargetRef": {"kind": "A", "name": "a", "apiVersion": "a/v1"}}}),
            json!({"currentReplicas": -1, "desiredReplicas": 0}),
            "status.currentReplicas: Invalid value: -1: must be greater than or equal to 0",
        ),
        (
            "/api/v1/nodes".to_owned(),
            json!({}),
            json!({"capacity": {"example.com/x": "500m"}, "allocatable": {"cpu": "1"}}),
            "status.capacity.example.com/x: Invalid value: \"500m\": must be an integer",
        ),
        (
            "/api/v1/nodes".to_owned(),
            json!({}),
            json!({"addresses": [{"type": "InternalIP", "address": "192.0.2.1"}, {"type": "InternalIP", "address": "192.0.2.1"}]}),
            "status.addresses[1]: Duplicate value: {\"address\":\"192.0.2.1\",\"type\":\"InternalIP\"}",
        ),
    ] {
        object["metadata"] = json!({"name": "x"});
        // The node may exist, because there are two cases of nodes.
        api.send(&post(&path, &object)).await;
        let response = api.send(&merge_patch(format!("{path}/x/status"), &json!({"status": status}))).await;
        assert_eq!(response.status, 422, "{path}: {}", response.body);
        let message = response.body["message"].as_str().unwrap_or("");
        assert!(message.ends_with(&format!("is invalid: {expected}")), "{path}: {message}");
    }
}
