//! `metadata.managedFields` after writes other than server-side apply.

use crate::common::{
    CONFIG_MAPS, PODS, TestApi, apply, get, managers, merge_patch, owned_fields, patch, pod, post, put,
    resource_version,
};
use serde_json::{Value, json};

#[tokio::test]
async fn pod_creator_owns_its_fields_and_defaults() {
    let api = TestApi::new().await;
    let mut object = pod("p");
    object["metadata"]["labels"] = json!({"run": "p"});
    let request = post(PODS, &object).header("user-agent", "kubectl-run/v1.35.0 (linux/amd64)");
    let body = api.check(request, 201, json!({})).await.body;
    assert_eq!(managers(&body), ["kubectl-run Update"]);
    let entry = &body["metadata"]["managedFields"][0];
    assert_eq!((&entry["apiVersion"], &entry["fieldsType"]), (&json!("v1"), &json!("FieldsV1")));
    assert_eq!(entry["time"], body["metadata"]["creationTimestamp"]);
    let expected = json!({
        "f:metadata": {"f:labels": {".": {}, "f:run": {}}},
        "f:spec": {
            "f:containers": {"k:{\"name\":\"c\"}": {
                ".": {}, "f:image": {}, "f:imagePullPolicy": {}, "f:name": {}, "f:resources": {},
                "f:terminationMessagePath": {}, "f:terminationMessagePolicy": {},
            }},
            "f:dnsPolicy": {}, "f:enableServiceLinks": {}, "f:restartPolicy": {}, "f:schedulerName": {},
            "f:securityContext": {}, "f:terminationGracePeriodSeconds": {},
        },
    });
    assert_eq!(entry["fieldsV1"], expected, "{:#}", entry["fieldsV1"]);
    // A binding has no field manager.
    let binding = json!({"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "n"}});
    api.check(post(format!("{PODS}/p/binding"), &binding), 201, json!({})).await;
    let status = json!({"status": {"phase": "Running", "podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.1"}]}});
    let request =
        patch("strategic-merge-patch", format!("{PODS}/p/status"), &status).header("user-agent", "kubelet/v1.35.0");
    let body = api.check(request, 200, json!({})).await.body;
    assert_eq!(managers(&body), ["kubectl-run Update", "kubelet Update status"]);
    let expected = json!({"f:status": {
        "f:phase": {}, "f:podIP": {}, "f:podIPs": {".": {}, "k:{\"ip\":\"10.0.0.1\"}": {".": {}, "f:ip": {}}},
    }});
    assert_eq!(owned_fields(&body, "kubelet"), expected);
}

#[tokio::test]
async fn manager_comes_from_query_or_user_agent() {
    let api = TestApi::new().await;
    let long = "a".repeat(200);
    for (i, (query, agent, expected)) in [
        ("?fieldManager=me", "kubectl/v1", "me"),
        ("", "kubectl/v1.35.0 (linux/amd64) kubernetes/abc", "kubectl"),
        ("", "plain", "plain"),
        ("", "", "unknown"),
        ("", "/x", "unknown"),
        ("", &long, &long[..128]),
    ]
    .into_iter()
    .enumerate()
    {
        let object = json!({"metadata": {"name": format!("c{i}")}, "data": {"k": "v"}});
        let request = post(format!("{CONFIG_MAPS}{query}"), &object).header("user-agent", agent);
        let body = api.check(request, 201, json!({})).await.body;
        assert_eq!(managers(&body), [format!("{expected} Update")], "{query:?} {agent:?}");
    }
    let error = "CreateOptions.meta.k8s.io \"\" is invalid: fieldManager: Too long: may not be more than 128 bytes";
    let request = post(format!("{CONFIG_MAPS}?fieldManager={long}"), &json!({"metadata": {"name": "c"}}));
    api.check(request, 422, json!({"message": error})).await;
    let error = "UpdateOptions.meta.k8s.io \"\" is invalid: fieldManager: Too long: may not be more than 128 bytes";
    let request = put(format!("{CONFIG_MAPS}/c0?fieldManager={long}"), &json!({"metadata": {"name": "c0"}}));
    api.check(request, 422, json!({"message": error})).await;
}

/// Creates a ConfigMap as the manager `a` and changes it as `b`.
async fn config_map_of_two_managers(api: &TestApi) -> Value {
    let object = json!({"metadata": {"name": "c"}, "data": {"k": "v", "l": "w"}});
    api.check(post(format!("{CONFIG_MAPS}?fieldManager=a"), &object), 201, json!({})).await;
    let change = merge_patch(format!("{CONFIG_MAPS}/c?fieldManager=b"), &json!({"data": {"l": "x", "m": "y"}}));
    api.check(change, 200, json!({})).await.body
}

#[tokio::test]
async fn patched_fields_change_ownership() {
    let api = TestApi::new().await;
    let body = config_map_of_two_managers(&api).await;
    assert_eq!(owned_fields(&body, "a"), json!({"f:data": {".": {}, "f:k": {}}}));
    assert_eq!(owned_fields(&body, "b"), json!({"f:data": {"f:l": {}, "f:m": {}}}));
    for kind in ["merge-patch", "strategic-merge-patch"] {
        let same = patch(kind, format!("{CONFIG_MAPS}/c?fieldManager=d"), &json!({"data": {"l": "x"}}));
        assert_eq!(api.check(same, 200, json!({})).await.body, body, "{kind}: an unchanged patch keeps the managers");
    }
    let remove = json!([{"op": "remove", "path": "/data/m"}, {"op": "remove", "path": "/data/l"}]);
    let body =
        api.check(patch("json-patch", format!("{CONFIG_MAPS}/c?fieldManager=d"), &remove), 200, json!({})).await.body;
    assert_eq!(managers(&body), ["a Update"]);
}

#[tokio::test]
async fn update_keeps_or_resets_managed_fields() {
    let api = TestApi::new().await;
    let mut object = config_map_of_two_managers(&api).await;
    let path = format!("{CONFIG_MAPS}/c?fieldManager=a");
    object["data"]["k"] = json!("z");
    object["metadata"].as_object_mut().unwrap().remove("managedFields");
    let body = api.check(put(&path, &object), 200, json!({})).await;
    assert_eq!(managers(&body.body), ["a Update", "b Update"]);
    // Invalid managed fields are ignored.
    object["metadata"]["managedFields"] = json!([{"manager": "x", "operation": "Guess"}]);
    object["metadata"]["resourceVersion"] = json!(null);
    let body = api.check(put(&path, &object), 200, json!({})).await.body;
    assert_eq!(managers(&body), ["a Update", "b Update"]);
    let entries = body["metadata"]["managedFields"].as_array().unwrap();
    object["metadata"]["managedFields"] = json!([entries[1]]);
    let body = api.check(put(&path, &object), 200, json!({})).await.body;
    assert_eq!(managers(&body), ["b Update"]);
    for reset in [json!([]), json!([{}])] {
        let api = TestApi::new().await;
        let mut object = config_map_of_two_managers(&api).await;
        object["metadata"]["managedFields"] = reset.clone();
        let body = api.check(put(&path, &object), 200, json!({"metadata": {"managedFields": null}})).await.body;
        // Managers are not tracked any more, until the first apply.
        let change = merge_patch(&path, &json!({"data": {"n": "1"}}));
        let after = api.check(change, 200, json!({"metadata": {"managedFields": null}})).await.body;
        assert_ne!(resource_version(&after), resource_version(&body), "{reset}");
        let config = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"n": "1"}});
        let body = api.check(apply(format!("{CONFIG_MAPS}/c"), "z", &config), 200, json!({})).await.body;
        assert_eq!(managers(&body), ["before-first-apply Update", "z Apply"], "{reset}");
        let expected = json!({"f:data": {".": {}, "f:k": {}, "f:l": {}, "f:m": {}, "f:n": {}}});
        assert_eq!(owned_fields(&body, "before-first-apply"), expected, "{reset}");
        let patch = merge_patch(format!("{CONFIG_MAPS}/c"), &json!({"metadata": {"managedFields": reset}}));
        api.check(patch, 200, json!({"metadata": {"managedFields": null}})).await;
    }
}

#[tokio::test]
async fn subresource_cannot_reset_managed_fields() {
    let api = TestApi::new().await;
    api.check(post(format!("{PODS}?fieldManager=a"), &pod("p")), 201, json!({})).await;
    let status = json!({"metadata": {"managedFields": []}, "status": {"message": "m"}});
    let request = merge_patch(format!("{PODS}/p/status?fieldManager=s"), &status);
    assert_eq!(managers(&api.check(request, 200, json!({})).await.body), ["a Update", "s Update status"]);
    let ephemeral = json!({"spec": {"ephemeralContainers": [{"name": "e", "image": "busybox:1"}]}});
    let path = format!("{PODS}/p/ephemeralcontainers?fieldManager=e");
    let body = api.check(patch("strategic-merge-patch", path, &ephemeral), 200, json!({})).await.body;
    assert_eq!(managers(&body), ["a Update", "e Update ephemeralcontainers", "s Update status"]);
    assert_eq!(owned_fields(&body, "e")["f:spec"].as_object().unwrap().len(), 1);
}

#[tokio::test]
async fn managers_sent_with_a_new_object_are_replaced() {
    let api = TestApi::new().await;
    let mut object = config_map_of_two_managers(&api).await;
    object["metadata"]["name"] = json!("d");
    object["metadata"]["resourceVersion"] = json!(null);
    let body = api.check(post(format!("{CONFIG_MAPS}?fieldManager=n"), &object), 201, json!({})).await.body;
    assert_eq!(managers(&body), ["n Update"]);
    let seen = api.send(&get(format!("{CONFIG_MAPS}/d"))).await.body;
    assert_eq!(seen, body);
}
