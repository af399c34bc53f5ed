//! The Node authorizer and the NodeRestriction plugin.

use crate::common::*;
use auth::pki::Pki;
use serde_json::{Value, json};

/// Starts a server with upstream's roles, and a Pod on the node `n` that references a Secret.
async fn api() -> TestApi {
    let mut api = TestApi::new().await;
    let dir = tempfile::tempdir().unwrap();
    api.server = api.server.with_signing_key(Pki::load_or_create(dir.path(), &[], &[]).unwrap().signing_key().unwrap());
    api.server.bootstrap_rbac().await;
    for name in ["mine", "other"] {
        let secret = json!({"metadata": {"name": name}});
        api.check(post("/api/v1/namespaces/default/secrets", &secret), 201, json!({})).await;
    }
    let mut object = pod("p");
    let tokens = ["", "vault"].map(|to| json!({"serviceAccountToken": {"path": format!("t{to}"), "audience": to}}));
    object["spec"]["volumes"] =
        json!([{"name": "s", "secret": {"secretName": "mine"}}, {"name": "t", "projected": {"sources": tokens}}]);
    object["spec"]["nodeName"] = json!("n");
    api.check(post(PODS, &object), 201, json!({})).await;
    let mut elsewhere = pod("q");
    elsewhere["spec"]["nodeName"] = json!("m");
    api.check(post(PODS, &elsewhere), 201, json!({})).await;
    api
}

fn as_node(request: TestRequest) -> TestRequest {
    request.with_user("system:node:n", &["system:nodes"])
}

fn forbidden(message: &str) -> Value {
    json!({"reason": "Forbidden", "message": message})
}

#[tokio::test]
async fn node_reads_its_node_and_objects_of_its_pods() {
    let api = api().await;
    let secrets = "/api/v1/namespaces/default/secrets";
    api.check(as_node(get(format!("{secrets}/mine"))), 200, json!({})).await;
    let message = r#"secrets "other" is forbidden: User "system:node:n" cannot get resource "secrets" in API group "" in the namespace "default": no relationship found between node 'n' and this object"#;
    api.check(as_node(get(format!("{secrets}/other"))), 403, forbidden(message)).await;
    api.check(as_node(get(secrets)), 403, json!({})).await;
    api.check(as_node(get(format!("{secrets}?fieldSelector=metadata.name=mine"))), 200, json!({"items": [{}]})).await;
    api.check(get(format!("{secrets}/mine")).with_user("system:node:m", &["system:nodes"]), 403, json!({})).await;
    api.check(as_node(get("/api/v1/pods?fieldSelector=spec.nodeName=n")), 200, json!({"items": [{}]})).await;
    api.check(as_node(get("/api/v1/pods?fieldSelector=spec.nodeName=m")), 403, json!({})).await;
    api.check(as_node(get(format!("{PODS}/p"))), 200, json!({})).await;
    api.check(as_node(get(format!("{PODS}/q"))), 403, json!({})).await;
    api.check(as_node(get("/api/v1/services")), 200, json!({})).await;
    // The user name without the group `system:nodes` is not a node.
    api.check(get("/api/v1/services").with_user("system:node:n", &[]), 403, json!({})).await;
    let rules =
        post("/apis/authorization.k8s.io/v1/selfsubjectrulesreviews", &json!({"spec": {"namespace": "default"}}));
    let error = "node authorizer does not support user rule resolution";
    api.check(as_node(rules), 201, json!({"status": {"incomplete": true, "evaluationError": error}})).await;
}

#[tokio::test]
async fn node_writes_only_its_node_and_lease() {
    let api = api().await;
    let nodes = "/api/v1/nodes";
    let node = |name: &str, labels: Value| json!({"metadata": {"name": name, "labels": labels}});
    let label = json!({"node-role.kubernetes.io/control-plane": ""});
    let message = r#"nodes "n" is forbidden: node "n" is not allowed to set the following labels: node-role.kubernetes.io/control-plane"#;
    api.check(as_node(post(nodes, &node("n", label))), 403, forbidden(message)).await;
    api.check(as_node(post(nodes, &node("n", json!({"kubernetes.io/hostname": "n", "own": "x"})))), 201, json!({}))
        .await;
    let message = r#"nodes "m" is forbidden: node "n" is not allowed to modify node "m""#;
    api.check(as_node(post(nodes, &node("m", json!({})))), 403, forbidden(message)).await;
    let taints = json!({"spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]}});
    let message = r#"nodes "n" is forbidden: node "n" is not allowed to modify taints"#;
    api.check(as_node(merge_patch(format!("{nodes}/n"), &taints)), 403, forbidden(message)).await;
    let labels = json!({"metadata": {"labels": {"node-restriction.kubernetes.io/a": "b"}}});
    let message = r#"nodes "n" is forbidden: is not allowed to modify labels: node-restriction.kubernetes.io/a"#;
    api.check(as_node(merge_patch(format!("{nodes}/n"), &labels)), 403, forbidden(message)).await;
    let owner = json!([{"apiVersion": "v1", "kind": "Namespace", "name": "nope", "uid": "1"}]);
    let message = r#"nodes "n" is forbidden: node "n" is not allowed to modify ownerReferences"#;
    let owned = json!({"metadata": {"ownerReferences": owner}});
    api.check(as_node(merge_patch(format!("{nodes}/n"), &owned)), 403, forbidden(message)).await;
    api.check(as_node(merge_patch(format!("{nodes}/n/status"), &owned)), 403, forbidden(message)).await;
    let source =
        json!({"spec": {"configSource": {"configMap": {"name": "c", "namespace": "d", "kubeletConfigKey": "k"}}}});
    let message =
        r#"nodes "n" is forbidden: node "n" is not allowed to update configSource to a new non-nil configSource"#;
    api.check(as_node(merge_patch(format!("{nodes}/n"), &source)), 403, forbidden(message)).await;
    let ready = json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}});
    api.check(as_node(merge_patch(format!("{nodes}/n/status"), &ready)), 200, json!({})).await;
    let leases = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";
    api.check(as_node(post(leases, &json!({"metadata": {"name": "n"}}))), 201, json!({})).await;
    let message = r#"leases.coordination.k8s.io "m" is forbidden: can only access node lease with the same name as the requesting node"#;
    api.check(as_node(post(leases, &json!({"metadata": {"name": "m"}}))), 403, forbidden(message)).await;
}

#[tokio::test]
async fn node_creates_mirror_pods_and_updates_own_pod_status() {
    let api = api().await;
    let phase = json!({"status": {"phase": "Running"}});
    api.check(as_node(merge_patch(format!("{PODS}/p/status"), &phase)), 200, json!({})).await;
    let message =
        r#"pods "q" is forbidden: node "n" can only update pod status for pods with spec.nodeName set to itself"#;
    api.check(as_node(merge_patch(format!("{PODS}/q/status"), &phase)), 403, forbidden(message)).await;
    let labels = json!({"metadata": {"labels": {"a": "b"}}});
    let message = r#"pods "p" is forbidden: node "n" cannot update labels through pod status"#;
    api.check(as_node(merge_patch(format!("{PODS}/p/status"), &labels)), 403, forbidden(message)).await;
    let message = r#"pods "q" is forbidden: node "n" can only delete pods with spec.nodeName set to itself"#;
    api.check(as_node(delete(format!("{PODS}/q"))), 403, forbidden(message)).await;
    let eviction = json!({"metadata": {"name": "q"}});
    let message = r#"pods "q" is forbidden: node n can only evict pods with spec.nodeName set to itself"#;
    api.check(as_node(post(format!("{PODS}/q/eviction"), &eviction)), 403, forbidden(message)).await;
    let message = r#"pods "x" is forbidden: pod does not have "kubernetes.io/config.mirror" annotation, node "n" can only create mirror pods"#;
    api.check(as_node(post(PODS, &pod("x"))), 403, forbidden(message)).await;
    let uid = api.check(post("/api/v1/nodes", &json!({"metadata": {"name": "n"}})), 201, json!({})).await.body["metadata"]["uid"].clone();
    let mut mirror = pod("m");
    mirror["metadata"]["annotations"] = json!({"kubernetes.io/config.mirror": "1"});
    mirror["spec"]["nodeName"] = json!("n");
    let message = r#"pods "m" is forbidden: node "n" can only create pods with an owner reference set to itself"#;
    api.check(as_node(post(PODS, &mirror)), 403, forbidden(message)).await;
    mirror["metadata"]["ownerReferences"] =
        json!([{"apiVersion": "v1", "kind": "Node", "name": "n", "uid": uid, "controller": true}]);
    let mut reads = mirror.clone();
    reads["spec"]["containers"][0]["envFrom"] = json!([{"secretRef": {"name": "other"}}]);
    let message = r#"pods "m" is forbidden: node "n" can not create pods that reference secrets"#;
    api.check(as_node(post(PODS, &reads)), 403, forbidden(message)).await;
    api.check(as_node(post(PODS, &mirror)), 201, json!({})).await;
    api.check(as_node(delete(format!("{PODS}/m?gracePeriodSeconds=0"))), 200, json!({})).await;
    api.check(as_node(delete(format!("{PODS}/p"))), 200, json!({})).await;
}

/// A node must not get access to an object by creating a mirror Pod that references it.
#[tokio::test]
async fn mirror_pod_gives_its_node_no_access() {
    let api = api().await;
    let node = json!({"metadata": {"name": "n"}});
    let uid = api.check(post("/api/v1/nodes", &node), 201, json!({})).await.body["metadata"]["uid"].clone();
    let mirror = |volume: &Value| {
        let mut mirror = pod("m");
        mirror["metadata"]["annotations"] = json!({"kubernetes.io/config.mirror": "1"});
        let owner = json!({"apiVersion": "v1", "kind": "Node", "name": "n", "uid": uid, "controller": true});
        mirror["metadata"]["ownerReferences"] = json!([owner]);
        mirror["spec"]["nodeName"] = json!("n");
        mirror["spec"]["volumes"] = json!([volume]);
        mirror
    };
    let secret = "/api/v1/namespaces/default/secrets/other";
    let projected = |source: Value| json!({"name": "v", "projected": {"sources": [source]}});
    for (volume, expected) in [
        (json!({"name": "v", "secret": {"secretName": "other"}}), "secrets"),
        (json!({"name": "v", "configMap": {"name": "other"}}), "configmaps"),
        (json!({"name": "v", "persistentVolumeClaim": {"claimName": "other"}}), "persistentvolumeclaims"),
        (
            json!({"name": "v", "ephemeral": {"volumeClaimTemplate": {"spec": {"accessModes": ["ReadWriteOnce"],
                "resources": {"requests": {"storage": "1Gi"}}}}}}),
            "persistentvolumeclaims (via ephemeral volumes)",
        ),
        (json!({"name": "v", "csi": {"driver": "d"}}), "csidrivers (via CSI volumes)"),
        (projected(json!({"serviceAccountToken": {"path": "t"}})), "serviceaccounts (via projected volumes)"),
    ] {
        let message = format!("pods \"m\" is forbidden: node \"n\" can not create pods that reference {expected}");
        api.check(as_node(post(PODS, &mirror(&volume))), 403, forbidden(&message)).await;
    }
    let mut named = mirror(&json!({"name": "v", "emptyDir": {}}));
    named["spec"]["serviceAccountName"] = json!("app");
    let message = r#"pods "m" is forbidden: node "n" can not create pods that reference serviceaccounts"#;
    api.check(as_node(post(PODS, &named)), 403, forbidden(message)).await;
    api.check(as_node(get(secret)), 403, json!({})).await;
    // An allowed mirror Pod cannot be changed into a Pod that references other objects.
    api.check(as_node(post(PODS, &mirror(&json!({"name": "v", "emptyDir": {}})))), 201, json!({})).await;
    let plain = json!({"metadata": {"annotations": {"kubernetes.io/config.mirror": null}},
        "spec": {"volumes": [{"name": "v", "secret": {"secretName": "other"}}]}});
    for path in [format!("{PODS}/m"), format!("{PODS}/m/status")] {
        let response = api.send(&as_node(merge_patch(&path, &plain))).await;
        assert!(response.status >= 400, "{path}: {:#}", response.body);
    }
    api.check(as_node(get(secret)), 403, json!({})).await;
}

#[tokio::test]
async fn node_requests_tokens_only_for_its_pods() {
    let api = api().await;
    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    api.check(post(accounts, &json!({"metadata": {"name": "default"}})), 201, json!({})).await;
    let uid = |name: &'static str| {
        let api = &api;
        async move { api.send(&get(format!("{PODS}/{name}"))).await.body["metadata"]["uid"].clone() }
    };
    let request =
        |bound: Value| as_node(post(format!("{accounts}/default/token"), &json!({"spec": {"boundObjectRef": bound}})));
    let pod = |name: &str, uid: Value| json!({"apiVersion": "v1", "kind": "Pod", "name": name, "uid": uid});
    api.check(request(pod("p", uid("p").await)), 201, json!({})).await;
    let rejected = |reason: &str| forbidden(&format!("serviceaccounts \"default\" is forbidden: {reason}"));
    api.check(request(Value::Null), 403, rejected("node requested token not bound to a pod")).await;
    let message = "node requested token with a pod binding without a uid";
    api.check(request(pod("p", Value::Null)), 403, rejected(message)).await;
    let message = "node requested token bound to a pod scheduled on a different node";
    api.check(request(pod("q", uid("q").await)), 403, rejected(message)).await;
    api.check(post(accounts, &json!({"metadata": {"name": "unused"}})), 201, json!({})).await;
    let missing = json!({"reason": "NotFound", "message": "pod \"nope\" not found"});
    api.check(request(pod("nope", json!("x"))), 404, missing).await;
    let unused = as_node(post(format!("{accounts}/unused/token"), &json!({})));
    api.check(unused, 403, json!({"reason": "Forbidden"})).await;
}

#[tokio::test]
async fn node_token_audiences_are_restricted() {
    let api = api().await;
    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    api.check(post(accounts, &json!({"metadata": {"name": "default"}})), 201, json!({})).await;
    let driver = json!({"metadata": {"name": "d.example.com"}, "spec": {"tokenRequests": [{"audience": "of-driver"}]}});
    api.check(post("/apis/storage.k8s.io/v1/csidrivers", &driver), 201, json!({})).await;
    let volume = json!({"metadata": {"name": "v"}, "spec": {"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"},
        "csi": {"driver": "d.example.com", "volumeHandle": "h"}}});
    api.check(post("/api/v1/persistentvolumes", &volume), 201, json!({})).await;
    let claim = json!({"metadata": {"name": "c"}, "spec": {"accessModes": ["ReadWriteOnce"], "volumeName": "v",
        "resources": {"requests": {"storage": "1Gi"}}}});
    api.check(post("/api/v1/namespaces/default/persistentvolumeclaims", &claim), 201, json!({})).await;
    let mut stores = pod("stores");
    stores["spec"]["nodeName"] = json!("n");
    stores["spec"]["volumes"] = json!([{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]);
    api.check(post(PODS, &stores), 201, json!({})).await;
    let request = async |pod: &str, audiences: Value| {
        let uid = api.send(&get(format!("{PODS}/{pod}"))).await.body["metadata"]["uid"].clone();
        let bound = json!({"apiVersion": "v1", "kind": "Pod", "name": pod, "uid": uid});
        let spec = json!({"audiences": audiences, "boundObjectRef": bound});
        as_node(post(format!("{accounts}/default/token"), &json!({"spec": spec})))
    };
    let rejected = |reason: &str| forbidden(&format!("serviceaccounts \"default\" is forbidden: {reason}"));
    for audiences in [json!([]), json!([""]), json!(["vault"])] {
        api.check(request("p", audiences).await, 201, json!({})).await;
    }
    api.check(request("stores", json!(["of-driver"])).await, 201, json!({})).await;
    let two = rejected("node may only request 0 or 1 audiences");
    api.check(request("p", json!(["vault", "other"])).await, 403, two).await;
    let reason = "audience \"of-driver\" not found in pod spec volume, system:node:n is not authorized to request tokens for this audience";
    api.check(request("p", json!(["of-driver"])).await, 403, rejected(reason)).await;
    // RBAC can allow further audiences, for credential providers of images.
    let rules =
        json!([{"apiGroups": [""], "resources": ["of-driver"], "verbs": ["request-serviceaccounts-token-audience"]}]);
    api.grant_cluster_role("audiences", json!([{"kind": "Group", "name": "system:nodes"}]), rules).await;
    api.check(request("p", json!(["of-driver"])).await, 201, json!({})).await;
}

#[tokio::test]
async fn node_requests_only_its_own_certificates() {
    let api = api().await;
    let requests = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
    let send_request = |signer: &str, request: &str| {
        as_node(post(
            requests,
            &json!({"metadata": {"generateName": "r"}, "spec": {"signerName": signer,
            "request": request, "usages": ["digital signature", "client auth"]}}),
        ))
    };
    let two_names = certificate_request(&["system:node:n", "system:node:m"]);
    for signer in ["kubernetes.io/kube-apiserver-client-kubelet", "kubernetes.io/kubelet-serving"] {
        for (request, reason) in [
            (CERTIFICATE_REQUEST, "can only create a node CSR with CN=system:node:n"),
            (&two_names, "subject has more than one common name"),
        ] {
            let response = api.send(&send_request(signer, request)).await;
            let message = response.body["message"].as_str().unwrap_or("").to_owned();
            assert_eq!(response.status, 403, "{signer}, {reason}: {message}");
            assert!(message.contains(" is forbidden: ") && message.ends_with(reason), "{signer}, {reason}: {message}");
        }
        api.check(send_request(signer, &certificate_request(&["system:node:n"])), 201, json!({})).await;
    }
    api.check(send_request("example.com/other", CERTIFICATE_REQUEST), 201, json!({})).await;
}

#[tokio::test]
async fn node_updates_only_the_capacity_of_pvc_status() {
    let api = api().await;
    let claims = "/api/v1/namespaces/default/persistentvolumeclaims";
    let spec = json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}});
    api.check(post(claims, &json!({"metadata": {"name": "c"}, "spec": spec})), 201, json!({})).await;
    let mut uses = pod("uses");
    uses["spec"]["volumes"] = json!([{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]);
    uses["spec"]["nodeName"] = json!("n");
    api.check(post(PODS, &uses), 201, json!({})).await;
    let status = format!("{claims}/c/status");
    api.check(as_node(merge_patch(&status, &json!({"status": {"capacity": {"storage": "2Gi"}}}))), 200, json!({}))
        .await;
    let message = r#"persistentvolumeclaims "c" is forbidden: node "n" is not allowed to update fields other than status.capacity and status.conditions"#;
    api.check(as_node(merge_patch(&status, &json!({"status": {"phase": "Bound"}}))), 403, forbidden(message)).await;
    api.check(as_node(merge_patch(&status, &json!({"metadata": {"labels": {"a": "b"}}}))), 403, forbidden(message))
        .await;
}

#[tokio::test]
async fn node_pod_cidrs_and_provider_id_are_immutable() {
    let api = TestApi::new().await;
    let node = |spec: Value| json!({"metadata": {"name": "n"}, "spec": spec});
    let check = async |request: TestRequest, expected_message: &str| {
        let message = format!("Node \"n\" is invalid: {expected_message}");
        api.check(request, 422, json!({"message": message})).await;
    };
    let path = "/api/v1/nodes";
    let expected_message = "spec.podCIDRs[0]: Invalid value: \"10.0.0.0\": must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)";
    check(post(path, &node(json!({"podCIDR": "10.0.0.0"}))), expected_message).await;
    let expected_message = "spec.podCIDRs: Invalid value: [\"10.0.0.0/24\",\"10.0.1.0/24\"]: may specify no more than one CIDR for each IP family";
    check(post(path, &node(json!({"podCIDRs": ["10.0.0.0/24", "10.0.1.0/24"]}))), expected_message).await;
    api.check(post(path, &node(json!({}))), 201, json!({})).await;
    let one = format!("{path}/n");
    let given = json!({"podCIDR": "10.0.0.0/24", "podCIDRs": ["10.0.0.0/24"], "providerID": "a://1"});
    api.check(merge_patch(&one, &json!({"spec": given})), 200, json!({})).await;
    let expected_message = "spec.podCIDRs: Forbidden: node updates may not change podCIDR except from \"\" to valid";
    check(merge_patch(&one, &json!({"spec": {"podCIDR": "10.0.1.0/24"}})), expected_message).await;
    check(
        merge_patch(&one, &json!({"spec": {"podCIDR": "10.0.1.0/24", "podCIDRs": ["10.0.1.0/24"]}})),
        expected_message,
    )
    .await;
    let expected_message =
        "spec.providerID: Forbidden: node updates may not change providerID except from \"\" to valid";
    check(merge_patch(&one, &json!({"spec": {"providerID": "a://2"}})), expected_message).await;
}
