//! Privilege escalation is prevented.

use crate::common::*;
use serde_json::{Value, json};

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
const GROUP: &str = "rbac.authorization.k8s.io";

/// Starts a server where `ann` may write roles and bindings, and read Pods.
async fn api() -> TestApi {
    let api = TestApi::new().await;
    let all = json!(["roles", "rolebindings", "clusterroles", "clusterrolebindings"]);
    let rules = json!([
        {"verbs": ["create", "update", "patch", "get"], "apiGroups": [GROUP], "resources": all},
        {"verbs": ["get", "list"], "apiGroups": [""], "resources": ["pods"]},
    ]);
    api.grant_cluster_role("ann", json!([{"kind": "User", "name": "ann"}]), rules).await;
    api
}

fn as_ann(request: TestRequest) -> TestRequest {
    request.with_user("ann", &["devs"])
}

fn rule(verbs: &[&str], resource: &str) -> Value {
    json!({"verbs": verbs, "apiGroups": [""], "resources": [resource]})
}

fn role(name: &str, rules: Value) -> Value {
    json!({"metadata": {"name": name}, "rules": rules})
}

fn binding(name: &str, kind: &str, role: &str) -> Value {
    json!({"metadata": {"name": name}, "roleRef": {"kind": kind, "name": role}, "subjects": [{"kind": "User", "name": "bob"}]})
}

fn forbidden(action: &str, lacking: &str) -> Value {
    let message = format!(
        "{action} is forbidden: user \"ann\" (groups=[\"devs\" \"system:authenticated\"]) is attempting to grant RBAC permissions not currently held:\n{lacking}"
    );
    json!({"reason": "Forbidden", "message": message})
}

#[tokio::test]
async fn role_write_beyond_own_permissions_is_denied() {
    let api = api().await;
    let roles = format!("{RBAC}/namespaces/default/roles");
    api.check(as_ann(post(&roles, &role("r", json!([rule(&["get"], "pods")])))), 201, json!({})).await;
    let extended = role("s", json!([rule(&["get", "delete", "patch"], "pods"), rule(&["get"], "secrets")]));
    let lacking = "{APIGroups:[\"\"], Resources:[\"pods\"], Verbs:[\"delete\" \"patch\"]}\n{APIGroups:[\"\"], Resources:[\"secrets\"], Verbs:[\"get\"]}";
    let response = api
        .check(as_ann(post(&roles, &extended)), 403, forbidden("roles.rbac.authorization.k8s.io \"s\"", lacking))
        .await;
    assert_eq!(response.body["details"], json!({"name": "s", "group": GROUP, "kind": "roles"}));
    let lacking = "{APIGroups:[\"\"], Resources:[\"pods\"], Verbs:[\"*\"]}";
    let change = json!({"rules": [rule(&["*"], "pods")]});
    let expected = forbidden("roles.rbac.authorization.k8s.io \"r\"", lacking);
    api.check(as_ann(merge_patch(format!("{roles}/r"), &change)), 403, expected.clone()).await;
    let config = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "r"}, "rules": [rule(&["*"], "pods")]});
    api.check(as_ann(apply(format!("{roles}/r?force=true"), "m", &config)), 403, expected).await;
    // Rules and owners that a role already has may be kept.
    api.check(post(&roles, &role("big", json!([rule(&["*"], "secrets")]))), 201, json!({})).await;
    let big = format!("{roles}/big");
    api.check(as_ann(merge_patch(&big, &json!({"metadata": {"finalizers": ["a/b"]}}))), 200, json!({})).await;
    api.check(as_ann(merge_patch(&big, &json!({"metadata": {"labels": {"a": "b"}}}))), 403, json!({})).await;
}

#[tokio::test]
async fn escalate_verb_allows_writing_any_role() {
    let api = api().await;
    let big = role("big", json!([rule(&["*"], "secrets")]));
    api.check(as_ann(post(format!("{RBAC}/clusterroles"), &big)), 403, json!({})).await;
    let escalate = json!([{"verbs": ["escalate"], "apiGroups": [GROUP], "resources": ["clusterroles"]}]);
    api.grant_cluster_role("escalate", json!([{"kind": "User", "name": "ann"}]), escalate).await;
    api.check(as_ann(post(format!("{RBAC}/clusterroles"), &big)), 201, json!({})).await;
    api.check(as_ann(post(format!("{RBAC}/namespaces/default/roles"), &big)), 403, json!({})).await;
}

#[tokio::test]
async fn binding_requires_own_permissions_or_bind_verb() {
    let api = api().await;
    api.check(post(format!("{RBAC}/clusterroles"), &role("big", json!([rule(&["*"], "secrets")]))), 201, json!({}))
        .await;
    api.check(post(format!("{RBAC}/clusterroles"), &role("small", json!([rule(&["get"], "pods")]))), 201, json!({}))
        .await;
    let (cluster, own) = (format!("{RBAC}/clusterrolebindings"), format!("{RBAC}/namespaces/default/rolebindings"));
    let lacking = "{APIGroups:[\"\"], Resources:[\"secrets\"], Verbs:[\"*\"]}";
    for (path, resource) in [(&cluster, "clusterrolebindings"), (&own, "rolebindings")] {
        let expected = forbidden(&format!("{resource}.{GROUP} \"b\""), lacking);
        api.check(as_ann(post(path, &binding("b", "ClusterRole", "big"))), 403, expected).await;
        api.check(as_ann(post(path, &binding("s", "ClusterRole", "small"))), 201, json!({})).await;
        let message = format!("clusterroles.{GROUP} \"none\" not found");
        api.check(as_ann(post(path, &binding("n", "ClusterRole", "none"))), 404, json!({"message": message})).await;
    }
    let bind = json!([{"verbs": ["bind"], "apiGroups": [GROUP], "resources": ["clusterroles"], "resourceNames": ["big", "none"]}]);
    api.grant_cluster_role("bind", json!([{"kind": "User", "name": "ann"}]), bind).await;
    api.check(as_ann(post(&cluster, &binding("b", "ClusterRole", "big"))), 201, json!({})).await;
    api.check(as_ann(post(&own, &binding("n", "ClusterRole", "none"))), 201, json!({})).await;
    // A new subject in a binding needs permission, too.
    let with_subject = json!({"subjects": [{"kind": "User", "name": "eve"}]});
    api.check(as_ann(merge_patch(format!("{own}/s"), &with_subject)), 200, json!({})).await;
    let invalid = r#"ClusterRoleBinding.rbac.authorization.k8s.io "s" is invalid: roleRef: Invalid value: {"APIGroup":"rbac.authorization.k8s.io","Kind":"ClusterRole","Name":"big"}: cannot change roleRef"#;
    let change = json!({"roleRef": {"name": "big"}});
    api.check(as_ann(merge_patch(format!("{cluster}/s"), &change)), 422, json!({"message": invalid})).await;
}

#[tokio::test]
async fn aggregated_role_write_requires_all_permissions() {
    let api = api().await;
    let mut gathers = role("g", json!([]));
    gathers["aggregationRule"] = json!({"clusterRoleSelectors": [{"matchLabels": {"a": "b"}}]});
    let roles = format!("{RBAC}/clusterroles");
    let message = "clusterroles.rbac.authorization.k8s.io \"g\" is forbidden: must have cluster-admin privileges to use the aggregationRule";
    api.check(as_ann(post(&roles, &gathers)), 403, json!({"message": message})).await;
    api.check(post(&roles, &gathers), 201, json!({})).await;
    api.check(
        as_ann(merge_patch(format!("{roles}/g"), &json!({"aggregationRule": null}))),
        403,
        json!({"message": message}),
    )
    .await;
    let everything =
        json!([{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}, {"verbs": ["*"], "nonResourceURLs": ["*"]}]);
    api.grant_cluster_role("all", json!([{"kind": "User", "name": "root"}]), everything).await;
    api.check(
        merge_patch(format!("{roles}/g"), &json!({"aggregationRule": null})).with_user("root", &[]),
        200,
        json!({}),
    )
    .await;
}

#[tokio::test]
async fn patch_verb_alone_cannot_create_by_apply() {
    let api = TestApi::new().await;
    let rules = json!([{"verbs": ["patch"], "apiGroups": [""], "resources": ["configmaps"]}]);
    api.grant_cluster_role("patch", json!([{"kind": "User", "name": "ann"}]), rules).await;
    let config = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"k": "v"}});
    let message = r#"configmaps "a" is forbidden: User "ann" cannot create resource "configmaps" in API group "" in the namespace "default""#;
    api.check(as_ann(apply(format!("{CONFIG_MAPS}/a"), "m", &config)), 403, json!({"message": message})).await;
    api.create_config_map("a", json!({})).await;
    api.check(as_ann(apply(format!("{CONFIG_MAPS}/a"), "m", &config)), 200, json!({})).await;
}

#[tokio::test]
async fn csr_has_its_user_and_approval_requires_signer_verb() {
    let api = TestApi::new().await;
    let path = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
    let ann = || json!([{"kind": "User", "name": "ann"}]);
    let all = json!([
        "certificatesigningrequests",
        "certificatesigningrequests/approval",
        "certificatesigningrequests/status"
    ]);
    let rules = json!([{"verbs": ["create", "get", "patch"], "apiGroups": ["certificates.k8s.io"], "resources": all}]);
    api.grant_cluster_role("requests", ann(), rules).await;
    let spec = json!({"request": CERTIFICATE_REQUEST, "signerName": "example.com/own", "usages": ["client auth"], "username": "root", "groups": ["system:masters"]});
    let message = json!({"spec": {"username": "ann", "groups": ["devs", "system:authenticated"], "uid": null}});
    api.check(as_ann(post(path, &json!({"metadata": {"name": "r"}, "spec": spec}))), 201, message).await;
    let approved =
        json!({"status": {"conditions": [{"type": "Approved", "status": "True", "reason": "r", "message": "m"}]}});
    let approve = || as_ann(merge_patch(format!("{path}/r/approval"), &approved));
    let reason = |verb: &str| json!({"message": format!("certificatesigningrequests.certificates.k8s.io \"r\" is forbidden: user not permitted to {verb} requests with signerName \"example.com/own\"")});
    api.check(approve(), 403, reason("approve")).await;
    let signers = |verb: &str, name: &str| json!([{"verbs": [verb], "apiGroups": ["certificates.k8s.io"], "resources": ["signers"], "resourceNames": [name]}]);
    api.grant_cluster_role("approves", ann(), signers("approve", "example.com/*")).await;
    api.check(approve(), 200, json!({})).await;
    let sign = || as_ann(merge_patch(format!("{path}/r/status"), &json!({"status": {"certificate": "QQ=="}})));
    api.check(sign(), 403, reason("sign")).await;
    api.grant_cluster_role("signs", ann(), signers("sign", "example.com/own")).await;
    assert_ne!(api.send(&sign()).await.status, 403);
}

/// `/CN=root/O=system:masters`
const MASTERS_CSR: &str = "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURSBSRVFVRVNULS0tLS0KTUlIa01JR0tBZ0VBTUNneERUQUxCZ05WQkFNTUJISnZiM1F4RnpBVkJnTlZCQW9NRG5ONWMzUmxiVHB0WVhOMApaWEp6TUZrd0V3WUhLb1pJemowQ0FRWUlLb1pJemowREFRY0RRZ0FFT0R0MUxhVXFJb0V4VXpJVXVFY1ZqYzF1ClBDNDlkQW81cmhBZlFkZTV1OHNkU0ZEZTdCdnhQcnFBTi81NU50bE1OdnJDRW1jM1FXdnRuMFRCZjFmamZxQUEKTUFvR0NDcUdTTTQ5QkFNQ0Ewa0FNRVlDSVFDNkx5NUJmM1pXbFZXeno5NG5FbWI2dDA0VjFrV3JaeERUZmJGcQp6dk1vV3dJaEFLbUdhcnBob0x3anpjY3hxdWFOdmNMK2FmbHM3ZXMwY3ZqN0tmTm5jNU5tCi0tLS0tRU5EIENFUlRJRklDQVRFIFJFUVVFU1QtLS0tLQo=";

#[tokio::test]
async fn csr_for_system_masters_is_rejected() {
    let api = TestApi::new().await;
    let path = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
    let request = |signer: &str| {
        let spec = json!({"request": MASTERS_CSR, "signerName": signer, "usages": ["client auth"]});
        post(path, &json!({"metadata": {"name": "r"}, "spec": spec}))
    };
    let message = "certificatesigningrequests.certificates.k8s.io \"r\" is forbidden: use of kubernetes.io/kube-apiserver-client signer with system:masters group is not allowed";
    api.check(request("kubernetes.io/kube-apiserver-client"), 403, json!({"message": message})).await;
    api.check(request("example.com/own"), 201, json!({})).await;
}

#[tokio::test]
async fn role_create_by_update_checks_escalation() {
    let api = api().await;
    let path = format!("{RBAC}/namespaces/default/roles/r");
    let held = role("r", json!([rule(&["get"], "pods")]));
    let extended = role("r", json!([rule(&["delete"], "pods")]));
    api.check(as_ann(put(&path, &extended)), 403, json!({"reason": "Forbidden"})).await;
    api.check(get(&path), 404, json!({})).await;
    api.check(as_ann(put(&path, &held)), 201, json!({"metadata": {"name": "r"}})).await;
    api.check(put(&path, &extended), 200, json!({})).await;
    let service = json!({"metadata": {"name": "s"}, "spec": {"ports": [{"port": 80}]}});
    let path = "/api/v1/namespaces/default/services/s";
    api.check(put(path, &service), 201, json!({"spec": {"type": "ClusterIP"}})).await;
}
