//! Namespaces: finalizers, termination, and creation in them.

use crate::common::*;
use serde_json::json;

const NAMESPACES: &str = "/api/v1/namespaces";

#[tokio::test]
async fn terminating_namespace_rejects_creates_until_finalized() {
    let api = TestApi::new().await;
    let object = json!({"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": "a"}});
    let active = json!({"metadata": {"labels": {"kubernetes.io/metadata.name": "a"}}, "spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Active"}});
    api.check(post(NAMESPACES, &object), 201, active).await;
    let path = format!("{NAMESPACES}/a");
    let inside = json!({"metadata": {"name": "c"}});
    api.check(post(format!("{path}/configmaps"), &inside), 201, json!({})).await;
    api.check(delete(&path), 200, json!({"kind": "Namespace", "status": {"phase": "Terminating"}})).await;
    api.check(get(&path), 200, json!({"status": {"phase": "Terminating"}})).await;
    api.check(
        post(format!("{path}/configmaps"), &json!({"metadata": {"name": "d"}})),
        403,
        json!({
            "reason": "Forbidden",
            "message": "configmaps \"d\" is forbidden: unable to create new content in namespace a because it is being terminated",
            "details": {"causes": [{"reason": "NamespaceTerminating", "message": "namespace a is being terminated", "field": "metadata.namespace"}]},
        }),
    )
    .await;
    // Existing objects can still be updated and deleted.
    api.check(merge_patch(format!("{path}/configmaps/c"), &json!({"data": {"k": "v"}})), 200, json!({})).await;
    api.check(delete(format!("{path}/configmaps/c")), 200, json!({})).await;
    api.check(
        merge_patch(&path, &json!({"spec": {"finalizers": null}})),
        200,
        json!({"spec": {"finalizers": ["kubernetes"]}}),
    )
    .await;
    let mut last = api.send(&get(&path)).await.body;
    last["spec"]["finalizers"] = json!([]);
    api.check(put(format!("{path}/finalize"), &last), 200, json!({})).await;
    api.check(get(&path), 404, json!({"message": "namespaces \"a\" not found"})).await;
    api.check(
        post(format!("{path}/configmaps"), &inside),
        404,
        json!({"message": "namespaces \"a\" not found", "details": {"name": "a", "kind": "namespaces"}}),
    )
    .await;
}

#[tokio::test]
async fn system_namespaces_cannot_be_deleted() {
    let api = TestApi::new().await;
    for name in ["default", "kube-system", "kube-public"] {
        let message = format!("namespaces \"{name}\" is forbidden: this namespace may not be deleted");
        api.check(delete(format!("{NAMESPACES}/{name}")), 403, json!({"reason": "Forbidden", "message": message}))
            .await;
    }
    api.check(delete(format!("{NAMESPACES}/kube-node-lease")), 200, json!({})).await;
}

#[tokio::test]
async fn namespaces_do_not_support_deletecollection() {
    let api = TestApi::new().await;
    let resources = api.check(get("/api/v1"), 200, json!({"kind": "APIResourceList"})).await.body["resources"].clone();
    for resource in resources.as_array().unwrap().iter().filter(|r| !r["name"].as_str().unwrap().contains('/')) {
        let named = resource["verbs"].as_array().unwrap().contains(&json!("deletecollection"));
        // Virtual resources do not support deletion.
        let without = ["namespaces", "bindings", "componentstatuses"].iter().any(|name| resource["name"] == *name);
        assert_eq!(named, !without, "{resource}");
    }
}

#[tokio::test]
async fn namespace_phase_follows_its_deletion() {
    let api = TestApi::new().await;
    api.check(
        merge_patch(format!("{NAMESPACES}/default/status"), &json!({"status": {"phase": "Terminating"}})),
        422,
        json!({"message": "Namespace \"default\" is invalid: status.Phase: Invalid value: \"Terminating\": may only be 'Active' if `deletionTimestamp` is empty"}),
    )
    .await;
    let object = json!({"metadata": {"name": "b", "namespace": "x"}, "spec": {"finalizers": ["odd"]}});
    api.check(
        post(NAMESPACES, &object),
        422,
        json!({"details": {"causes": [
            {"field": "metadata.namespace", "message": "Forbidden: not allowed on this type"},
            {"field": "spec.finalizers", "message": "Invalid value: \"odd\": name is neither a standard finalizer name nor is it fully qualified"},
        ]}}),
    )
    .await;
}

#[tokio::test]
async fn node_lease_namespace_is_recreated() {
    let api = TestApi::new().await;
    api.server.bootstrap().await;
    api.server.bootstrap_service("192.0.2.7:6443".parse().unwrap()).await;
    let path = format!("{NAMESPACES}/kube-node-lease");
    let first = api.check(delete(&path), 200, json!({})).await.body;
    let mut last = api.send(&get(&path)).await.body;
    last["spec"]["finalizers"] = json!([]);
    api.check(put(format!("{path}/finalize"), &last), 200, json!({})).await;
    let again = async {
        loop {
            let found = api.send(&get(&path)).await.body;
            if found["status"]["phase"] == "Active" && found["metadata"]["uid"] != first["metadata"]["uid"] {
                return;
            }
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(20), again).await.unwrap();
}
