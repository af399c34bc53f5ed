//! Pod lifecycle in the API: binding, status, graceful deletion, eviction.

use crate::common::*;
use api::feature_gates::FeatureGates;
use jiff::Timestamp;
use serde_json::{Value, json};

fn seconds_left(pod: &Value) -> i64 {
    let end: Timestamp = pod["metadata"]["deletionTimestamp"].as_str().unwrap().parse().unwrap();
    end.duration_since(Timestamp::now()).as_secs()
}

#[tokio::test]
async fn pod_can_be_bound_only_once() {
    let api = TestApi::new().await;
    api.create_pod("p").await;
    let path = format!("{PODS}/p/binding");
    let to = |node: &str| json!({"kind": "Binding", "apiVersion": "v1", "metadata": {"name": "p", "annotations": {"x.io/why": "because"}}, "target": {"kind": "Node", "name": node}});
    for (body, code, expected) in [
        (
            json!({"metadata": {"name": "p"}, "target": {}}),
            422,
            json!({"message": "Binding \"p\" is invalid: target.name: Required value"}),
        ),
        (
            json!({"metadata": {"name": "p"}, "target": {"kind": "Pod", "name": "n"}}),
            422,
            json!({"message": "Binding \"p\" is invalid: target.kind: Unsupported value: \"Pod\": supported values: \"Node\", \"<empty>\""}),
        ),
        (
            json!({"metadata": {"name": "q"}, "target": {"name": "n"}}),
            400,
            json!({"message": "name in URL does not match name in Binding object"}),
        ),
        (
            json!({"target": {"name": "n"}}),
            400,
            json!({"message": "name in URL does not match name in Binding object"}),
        ),
        (
            json!({"metadata": {"name": "p", "uid": "other"}, "target": {"name": "n"}}),
            409,
            json!({"reason": "Conflict"}),
        ),
        (
            json!({"metadata": {"name": "p", "namespace": "other"}, "target": {"name": "n"}}),
            400,
            json!({"message": "the namespace of the provided object does not match the namespace sent on the request"}),
        ),
        (json!({"kind": "Pod"}), 400, json!({"reason": "BadRequest"})),
        (json!({"metadata": 1}), 400, json!({"reason": "BadRequest"})),
        (json!([]), 400, json!({"reason": "BadRequest"})),
    ] {
        api.check(post(&path, &body), code, expected).await;
    }
    let nominated = json!({"status": {"nominatedNodeName": "n"}});
    api.check(merge_patch(format!("{PODS}/p/status"), &nominated), 200, nominated.clone()).await;
    api.check(post(&path, &to("n")), 201, json!({"kind": "Status", "status": "Success", "code": 201})).await;
    // Binding clears the nominated node name.
    api.check(get(format!("{PODS}/p")), 200, json!({"status": {"nominatedNodeName": null}})).await;
    let conditions = json!([{"type": "PodScheduled", "status": "True", "observedGeneration": 1}]);
    api.check(
        get(format!("{PODS}/p")),
        200,
        json!({"spec": {"nodeName": "n"}, "status": {"conditions": conditions}, "metadata": {"generation": 1, "annotations": {"x.io/why": "because"}}}),
    )
    .await;
    api.check(
        post(&path, &to("m")),
        409,
        json!({"reason": "Conflict", "message": "Operation cannot be fulfilled on pods/binding \"p\": pod p is already assigned to node \"n\"", "details": {"name": "p", "kind": "pods/binding"}}),
    )
    .await;
    let mut gated = pod("g");
    gated["spec"]["schedulingGates"] = json!([{"name": "x.io/wait"}]);
    let waiting = json!([{"type": "PodScheduled", "status": "False", "reason": "SchedulingGated", "message": "Scheduling is blocked due to non-empty scheduling gates"}]);
    api.check(post(PODS, &gated), 201, json!({"status": {"conditions": waiting}})).await;
    let message = "Operation cannot be fulfilled on pods/binding \"g\": pod g has non-empty .spec.schedulingGates";
    api.check(
        post(format!("{PODS}/g/binding"), &json!({"metadata": {"name": "g"}, "target": {"name": "n"}})),
        409,
        json!({"message": message}),
    )
    .await;
    api.check(
        merge_patch(format!("{PODS}/g"), &json!({"spec": {"schedulingGates": null, "nodeSelector": {"a": "b"}}})),
        200,
        json!({"spec": {"schedulingGates": null, "nodeSelector": {"a": "b"}}}),
    )
    .await;
    api.check(
        post(format!("{PODS}/g/binding"), &json!({"metadata": {"name": "g"}, "target": {"name": "n"}})),
        201,
        json!({}),
    )
    .await;
    api.check(
        post(format!("{PODS}/none/binding"), &json!({"metadata": {"name": "none"}, "target": {"name": "n"}})),
        404,
        json!({"message": "pods \"none\" not found"}),
    )
    .await;
}

#[tokio::test]
async fn pod_status_and_spec_are_updated_separately() {
    let api = TestApi::new().await;
    let created = api.create_pod("p").await;
    let (path, status) = (format!("{PODS}/p"), format!("{PODS}/p/status"));
    api.check(
        merge_patch(&path, &json!({"status": {"phase": "Failed"}})),
        200,
        json!({"status": {"phase": "Pending"}}),
    )
    .await;
    let both = json!({"spec": {"nodeName": "n"}, "status": {"phase": "Running"}, "metadata": {"labels": {"a": "b"}, "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "u"}]}});
    let after = api.check(merge_patch(&status, &both), 200, json!({"spec": {"nodeName": null}, "status": {"phase": "Running"}, "metadata": {"labels": {"a": "b"}, "ownerReferences": null}})).await.body;
    assert_eq!(after["spec"], created["spec"]);
    let mut changed = after.clone();
    changed["status"] = json!({});
    changed["metadata"]["labels"] = json!({"a": "c"});
    api.check(put(&path, &changed), 200, json!({"status": {"phase": "Running"}, "metadata": {"labels": {"a": "c"}}}))
        .await;
    api.check(get(&status), 200, json!({"kind": "Pod", "status": {"phase": "Running"}})).await;
    api.check(post(&status, &changed), 405, json!({"reason": "MethodNotAllowed"})).await;
}

#[tokio::test]
async fn terminated_container_status_cannot_become_running() {
    let api = TestApi::new().await;
    let mut object = pod("p");
    object["spec"]["restartPolicy"] = json!("Never");
    api.check(post(PODS, &object), 201, json!({})).await;
    let status = |state: Value| {
        merge_patch(
            format!("{PODS}/p/status"),
            &json!({"status": {"containerStatuses": [{"name": "c", "image": "", "imageID": "", "ready": false, "restartCount": 0, "state": state}]}}),
        )
    };
    api.check(status(json!({"terminated": {"exitCode": 1}, "running": null})), 200, json!({})).await;
    api.check(
        status(json!({"running": {}, "terminated": null})),
        422,
        json!({"message": "Pod \"p\" is invalid: status.containerStatuses[0].state: Forbidden: may not be transitioned to non-terminated state"}),
    )
    .await;
}

#[tokio::test]
async fn unbound_pod_is_deleted_immediately() {
    let api = TestApi::new().await;
    api.create_pod("p").await;
    let mut events = api.watch(&format!("{PODS}?watch=1")).await;
    events.check("ADDED", json!({})).await;
    api.check(delete(format!("{PODS}/p")), 200, json!({"kind": "Pod", "metadata": {"deletionGracePeriodSeconds": 0}}))
        .await;
    events.check("DELETED", json!({"metadata": {"name": "p"}})).await;
    api.check(get(format!("{PODS}/p")), 404, json!({})).await;
}

#[tokio::test]
async fn bound_pod_grace_period_can_only_be_shortened() {
    let api = TestApi::new().await;
    let before = api.bound_pod("p").await;
    let path = format!("{PODS}/p");
    let marked = api
        .check(delete(&path), 200, json!({"kind": "Pod", "metadata": {"deletionGracePeriodSeconds": 30}}))
        .await
        .body;
    assert!((28..=30).contains(&seconds_left(&marked)), "{marked}");
    assert_ne!(resource_version(&marked), resource_version(&before));
    for longer in ["", "?gracePeriodSeconds=30", "?gracePeriodSeconds=100"] {
        let same = api.check(delete(format!("{path}{longer}")), 200, json!({})).await.body;
        assert_eq!(same, marked, "{longer}");
    }
    let shorter = api
        .check(
            delete_with_options(&path, &json!({"gracePeriodSeconds": 5})),
            200,
            json!({"metadata": {"deletionGracePeriodSeconds": 5}}),
        )
        .await
        .body;
    // The grace period counts from the first deletion.
    assert!((2..=5).contains(&seconds_left(&shorter)), "{shorter}");
    // A deletion cannot be undone.
    api.check(
        merge_patch(&path, &json!({"metadata": {"labels": {"a": "b"}, "deletionTimestamp": null}})),
        200,
        json!({"metadata": {"deletionTimestamp": shorter["metadata"]["deletionTimestamp"]}}),
    )
    .await;
    api.check(
        merge_patch(&path, &json!({"metadata": {"deletionGracePeriodSeconds": 50}})),
        422,
        json!({"message": "Pod \"p\" is invalid: metadata.deletionGracePeriodSeconds: Invalid value: 50: field is immutable"}),
    )
    .await;
    api.check(
        delete_with_options(
            &path,
            &json!({"gracePeriodSeconds": 0, "preconditions": {"uid": before["metadata"]["uid"]}}),
        ),
        200,
        json!({}),
    )
    .await;
    api.check(get(&path), 404, json!({})).await;
}

#[tokio::test]
async fn grace_period_comes_from_options_or_spec() {
    for (own, phase, query, expected) in [
        (7, "Running", "", 7),
        (7, "Running", "?gracePeriodSeconds=100", 100),
        (7, "Running", "?gracePeriodSeconds=-1", 1),
        (-5, "Running", "", 1),
        (7, "Failed", "", 0),
        (7, "Succeeded", "?gracePeriodSeconds=9", 0),
        (7, "Running", "?gracePeriodSeconds=0", 0),
    ] {
        let api = TestApi::new().await;
        let mut object = pod("p");
        object["spec"]["terminationGracePeriodSeconds"] = json!(own);
        object["spec"]["nodeName"] = json!("n");
        api.check(post(PODS, &object), 201, json!({})).await;
        api.check(merge_patch(format!("{PODS}/p/status"), &json!({"status": {"phase": phase}})), 200, json!({})).await;
        api.check(
            delete(format!("{PODS}/p{query}")),
            200,
            json!({"metadata": {"deletionGracePeriodSeconds": expected}}),
        )
        .await;
        api.check(get(format!("{PODS}/p")), if expected == 0 { 404 } else { 200 }, json!({})).await;
    }
}

#[tokio::test]
async fn pod_finalizers_outlast_the_grace_period() {
    let api = TestApi::new().await;
    let mut object = pod("p");
    object["metadata"]["finalizers"] = json!(["x.io/a"]);
    object["spec"]["nodeName"] = json!("n");
    api.check(post(PODS, &object), 201, json!({})).await;
    let path = format!("{PODS}/p");
    api.check(delete(&path), 200, json!({"metadata": {"deletionGracePeriodSeconds": 30}})).await;
    api.check(merge_patch(&path, &json!({"metadata": {"finalizers": null}})), 200, json!({})).await;
    // The kubelet still has to stop the containers.
    api.check(get(&path), 200, json!({})).await;
    api.check(delete(format!("{path}?gracePeriodSeconds=0")), 200, json!({})).await;
    api.check(get(&path), 404, json!({})).await;
    api.check(post(PODS, &object), 201, json!({})).await;
    api.check(
        delete(format!("{path}?gracePeriodSeconds=0")),
        200,
        json!({"metadata": {"deletionGracePeriodSeconds": 0, "generation": 2}}),
    )
    .await;
    api.check(get(&path), 200, json!({})).await;
    api.check(merge_patch(&path, &json!({"metadata": {"finalizers": []}})), 200, json!({})).await;
    api.check(get(&path), 404, json!({})).await;
}

#[tokio::test]
async fn terminating_pod_rejects_new_finalizers() {
    let api = TestApi::new().await;
    let mut object = pod("p");
    object["metadata"]["finalizers"] = json!(["x.io/a", "x.io/b"]);
    api.check(post(PODS, &object), 201, json!({})).await;
    let path = format!("{PODS}/p");
    let finalizers = |all: &[&str]| merge_patch(&path, &json!({"metadata": {"finalizers": all}}));
    api.check(finalizers(&["x.io/a", "x.io/b", "x.io/c"]), 200, json!({})).await;
    api.check(delete(&path), 200, json!({})).await;
    let cause = json!({"field": "metadata.finalizers", "reason": "FieldValueForbidden",
        "message": "Forbidden: no new finalizers can be added if the object is being deleted, found new finalizers []string{\"x.io/d\"}"});
    api.check(finalizers(&["x.io/a", "x.io/d"]), 422, json!({"details": {"causes": [cause]}})).await;
    api.check(finalizers(&["x.io/b"]), 200, json!({})).await;
    api.check(finalizers(&[]), 200, json!({})).await;
    api.check(get(&path), 404, json!({})).await;
}

#[tokio::test]
async fn eviction_deletes_the_pod_with_a_condition() {
    let api = TestApi::new().await;
    let created = api.bound_pod("p").await;
    let path = format!("{PODS}/p/eviction");
    let eviction = |options: Value| json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"}, "deleteOptions": options});
    api.check(post(&path, &eviction(json!({"preconditions": {"uid": "other"}}))), 409, json!({"reason": "Conflict"}))
        .await;
    for other in [json!({"metadata": {"name": "q"}}), json!({})] {
        let message = "name in URL does not match name in Eviction object";
        api.check(post(&path, &other), 400, json!({"message": message})).await;
    }
    let message = "the namespace of the provided object does not match the namespace sent on the request";
    api.check(post(&path, &json!({"metadata": {"namespace": "other"}})), 400, json!({"message": message})).await;
    let pod = api.check(get(format!("{PODS}/p")), 200, json!({"metadata": {"deletionTimestamp": null}})).await.body;
    assert_eq!(resource_version(&pod), resource_version(&created));
    api.check(
        post(
            &path,
            &eviction(
                json!({"gracePeriodSeconds": 3, "preconditions": {"resourceVersion": resource_version(&created)}}),
            ),
        ),
        201,
        json!({"kind": "Status", "status": "Success"}),
    )
    .await;
    let target = json!({"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI", "message": "Eviction API: evicting"});
    api.check(
        get(format!("{PODS}/p")),
        200,
        json!({"metadata": {"deletionGracePeriodSeconds": 3}, "status": {"conditions": [{"type": "PodScheduled"}, target]}}),
    )
    .await;
    api.check(
        post(format!("{PODS}/none/eviction"), &json!({"metadata": {"name": "none"}})),
        404,
        json!({"message": "pods \"none\" not found"}),
    )
    .await;
}

const BUDGETS: &str = "/apis/policy/v1/namespaces/default/poddisruptionbudgets";

#[tokio::test]
async fn eviction_respects_the_pod_disruption_budget() {
    let api = TestApi::new().await;
    let evict = |name: &str| post(format!("{PODS}/{name}/eviction"), &json!({"metadata": {"name": name}}));
    let running =
        |ready: &str| json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": ready}]}});
    for (name, ready) in [("a", "True"), ("b", "True"), ("c", "False")] {
        api.bound_pod(name).await;
        api.check(
            merge_patch(format!("{PODS}/{name}"), &json!({"metadata": {"labels": {"app": "web"}}})),
            200,
            json!({}),
        )
        .await;
        api.check(merge_patch(format!("{PODS}/{name}/status"), &running(ready)), 200, json!({})).await;
    }
    let budget = |name: &str| json!({"metadata": {"name": name}, "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}}});
    api.check(post(BUDGETS, &budget("b")), 201, json!({})).await;
    let rejected = |reason: &str| {
        json!({"status": "Failure", "reason": "TooManyRequests", "code": 429,
        "message": "Cannot evict pod as it would violate the pod's disruption budget.",
        "details": {"causes": [{"reason": "DisruptionBudget", "message": reason}]}})
    };
    api.check(evict("a"), 429, rejected("The disruption budget b is still being processed by the server.")).await;
    let status = |current: i32, allowed: i32| {
        json!({"status": {"observedGeneration": 1, "expectedPods": 3,
        "currentHealthy": current, "desiredHealthy": 1, "disruptionsAllowed": allowed}})
    };
    api.check(merge_patch(format!("{BUDGETS}/b/status"), &status(2, 1)), 200, json!({})).await;
    // An unhealthy Pod does not use the disruption budget.
    api.check(evict("c"), 201, json!({})).await;
    api.check(get(format!("{BUDGETS}/b")), 200, json!({"status": {"disruptionsAllowed": 1}})).await;
    api.check(post(format!("{PODS}/a/eviction?dryRun=All"), &json!({"metadata": {"name": "a"}})), 201, json!({})).await;
    api.check(evict("a"), 201, json!({"status": "Success"})).await;
    let taken = api.check(get(format!("{BUDGETS}/b")), 200, json!({"status": {"disruptionsAllowed": 0}})).await.body;
    assert!(taken["status"]["disruptedPods"]["a"].is_string(), "{taken}");
    api.check(merge_patch(format!("{BUDGETS}/b/status"), &status(1, 0)), 200, json!({})).await;
    api.check(evict("b"), 429, rejected("The disruption budget b needs 1 healthy pods and has 1 currently")).await;
    // An eviction of a terminating Pod does not use the disruption budget.
    api.check(evict("a"), 201, json!({})).await;
    api.check(post(BUDGETS, &budget("other")), 201, json!({})).await;
    let several = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.";
    api.check(evict("b"), 500, json!({"message": several})).await;
}

#[tokio::test]
async fn negative_grace_period_is_one_second() {
    let api = TestApi::new().await;
    let mut object = pod("p");
    object["spec"]["terminationGracePeriodSeconds"] = json!(-1);
    let a_second = json!({"spec": {"terminationGracePeriodSeconds": 1}});
    api.check(post(PODS, &object), 201, a_second.clone()).await;
    let again = json!({"spec": {"terminationGracePeriodSeconds": -2}});
    api.check(merge_patch(format!("{PODS}/p"), &again), 200, a_second).await;
}

#[tokio::test]
async fn binding_copies_topology_labels_of_the_node() {
    let api = TestApi::new().await;
    let labels = json!({"topology.kubernetes.io/zone": "z", "topology.kubernetes.io/region": "r", "other": "o"});
    api.check(post("/api/v1/nodes", &json!({"metadata": {"name": "n", "labels": labels}})), 201, json!({})).await;
    let with = |labels: Value| json!({"metadata": {"labels": labels}});
    let of_node = json!({"topology.kubernetes.io/zone": "z", "topology.kubernetes.io/region": "r", "other": null});
    let mut bound = pod("bound");
    bound["metadata"]["labels"] = json!({"topology.kubernetes.io/zone": "elsewhere"});
    api.check(post(PODS, &bound), 201, with(json!({"topology.kubernetes.io/zone": "elsewhere"}))).await;
    let binding = json!({"metadata": {"name": "bound"}, "target": {"kind": "Node", "name": "n"}});
    api.check(post(format!("{PODS}/bound/binding"), &binding), 201, json!({})).await;
    api.check(get(format!("{PODS}/bound")), 200, with(of_node.clone())).await;
    let mut named = pod("named");
    named["spec"]["nodeName"] = json!("n");
    api.check(post(PODS, &named), 201, with(of_node)).await;
    let off = TestApi {
        server: api.server.clone().with_gates(FeatureGates::parse("PodTopologyLabelsAdmission=false").unwrap()),
        engine: api.engine.clone(),
    };
    named["metadata"]["name"] = json!("off");
    off.check(post(PODS, &named), 201, with(Value::Null)).await;
}

#[tokio::test]
async fn create_only_subresources_reject_other_methods() {
    let api = TestApi::new().await;
    api.create_pod("p").await;
    for part in ["binding", "eviction"] {
        api.check(get(format!("{PODS}/p/{part}")), 405, json!({"reason": "MethodNotAllowed"})).await;
    }
    api.check(get(format!("{PODS}/p/nothing")), 404, json!({})).await;
}
