//! RBAC authorization.

use crate::common::*;
use serde_json::{Value, json};

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";

fn as_ann(request: TestRequest) -> TestRequest {
    request.with_user("ann", &["devs"])
}

fn subjects_ann() -> Value {
    json!([{"kind": "User", "name": "ann"}])
}

fn forbidden(action: &str) -> Value {
    json!({"kind": "Status", "reason": "Forbidden", "message": action})
}

#[tokio::test]
async fn requests_without_a_binding_are_denied() {
    let api = TestApi::new().await;
    let message = r#"configmaps "a" is forbidden: User "ann" cannot get resource "configmaps" in API group "" in the namespace "default""#;
    let response = api.check(as_ann(get(format!("{CONFIG_MAPS}/a"))), 403, forbidden(message)).await;
    assert_eq!(response.body["details"], json!({"name": "a", "kind": "configmaps"}));
    // An unknown resource is denied before it is reported as not found.
    let message = r#"things.example.com is forbidden: User "ann" cannot list resource "things" in API group "example.com" at the cluster scope"#;
    api.check(as_ann(get("/apis/example.com/v1/things")), 403, forbidden(message)).await;
    let message = r#"forbidden: User "ann" cannot get path "/metrics""#;
    api.check(as_ann(get("/metrics")), 403, forbidden(message)).await;
}

#[tokio::test]
async fn binding_takes_effect_immediately() {
    let api = TestApi::new().await;
    api.create_config_map("a", json!({})).await;
    api.check(as_ann(get(CONFIG_MAPS)), 403, json!({})).await;
    let rules = json!([{"verbs": ["get", "list"], "apiGroups": [""], "resources": ["configmaps"]}]);
    api.grant_cluster_role("reader", subjects_ann(), rules).await;
    api.check(as_ann(get(CONFIG_MAPS)), 200, json!({"items": [{}]})).await;
    api.check(as_ann(get("/api/v1/configmaps")), 200, json!({})).await;
    api.check(as_ann(delete(format!("{CONFIG_MAPS}/a"))), 403, json!({})).await;
    api.check(get(CONFIG_MAPS).with_user("bob", &["devs"]), 403, json!({})).await;
    api.check(delete(format!("{RBAC}/clusterrolebindings/reader")), 200, json!({})).await;
    api.check(as_ann(get(CONFIG_MAPS)), 403, json!({})).await;
}

#[tokio::test]
async fn role_applies_only_in_its_namespace() {
    let api = TestApi::new().await;
    let rules = json!([
        {"verbs": ["*"], "apiGroups": [""], "resources": ["configmaps"], "resourceNames": ["mine"]},
        {"verbs": ["create"], "apiGroups": [""], "resources": ["configmaps"]},
    ]);
    let role = json!({"metadata": {"name": "own"}, "rules": rules});
    api.check(post(format!("{RBAC}/namespaces/default/roles"), &role), 201, json!({})).await;
    let devs = json!([{"kind": "Group", "name": "devs"}]);
    let binding = json!({"metadata": {"name": "own"}, "roleRef": {"kind": "Role", "name": "own"}, "subjects": devs});
    api.check(post(format!("{RBAC}/namespaces/default/rolebindings"), &binding), 201, json!({})).await;
    for (name, code) in [("mine", 200), ("other", 403)] {
        let object = json!({"metadata": {"name": name}});
        api.check(as_ann(post(CONFIG_MAPS, &object)), 201, json!({})).await;
        api.check(as_ann(get(format!("{CONFIG_MAPS}/{name}"))), code, json!({})).await;
        api.check(as_ann(get(format!("{CONFIG_MAPS}?fieldSelector=metadata.name={name}"))), code, json!({})).await;
        api.check(as_ann(delete(format!("{CONFIG_MAPS}/{name}"))), code, json!({})).await;
    }
    api.check(as_ann(get(CONFIG_MAPS)), 403, json!({})).await;
    let elsewhere = "/api/v1/namespaces/kube-system/configmaps";
    api.check(as_ann(post(elsewhere, &json!({"metadata": {"name": "mine"}}))), 403, json!({})).await;
}

#[tokio::test]
async fn missing_role_is_named_in_the_denial() {
    let api = TestApi::new().await;
    let binding = json!({"metadata": {"name": "b"}, "roleRef": {"kind": "ClusterRole", "name": "lost"}, "subjects": subjects_ann()});
    api.check(post(format!("{RBAC}/clusterrolebindings"), &binding), 201, json!({})).await;
    let message = r#"pods is forbidden: User "ann" cannot list resource "pods" in API group "" in the namespace "default": RBAC: clusterrole.rbac.authorization.k8s.io "lost" not found"#;
    api.check(as_ann(get(PODS)), 403, forbidden(message)).await;
}

#[tokio::test]
async fn authenticated_users_are_in_system_authenticated() {
    let api = TestApi::new().await;
    let all = json!([{"kind": "Group", "name": "system:authenticated"}]);
    api.grant_cluster_role("all", all, json!([{"verbs": ["get"], "nonResourceURLs": ["/api*", "/openapi/*"]}])).await;
    api.check(as_ann(get("/api/v1")), 200, json!({"kind": "APIResourceList"})).await;
    api.check(as_ann(get("/apis")), 200, json!({"kind": "APIGroupList"})).await;
    api.check(as_ann(get("/version")), 200, json!({})).await;
    api.check(as_ann(get("/metrics")), 403, json!({})).await;
}

#[tokio::test]
async fn exec_by_get_requires_the_create_verb() {
    let api = TestApi::new().await;
    api.create_pod("p").await;
    let exec = format!("{PODS}/p/exec?command=true");
    let rule = |verb: &str| json!([{"verbs": [verb], "apiGroups": [""], "resources": ["pods/exec"]}]);
    api.grant_cluster_role("looks", subjects_ann(), rule("get")).await;
    let message = r#"pods "p" is forbidden: User "ann" cannot create resource "pods/exec" in API group "" in the namespace "default""#;
    api.check(as_ann(get(&exec)), 403, forbidden(message)).await;
    api.grant_cluster_role("acts", subjects_ann(), rule("create")).await;
    let response = api.send(&as_ann(get(&exec))).await;
    assert_ne!(response.status, 403, "{}", response.body);
}

/// Starts a server with upstream's bootstrap roles and bindings.
async fn api_with_roles() -> TestApi {
    let api = TestApi::new().await;
    api.server.bootstrap_rbac().await;
    api
}

#[tokio::test]
async fn bootstrap_creates_upstream_roles_and_bindings() {
    let api = api_with_roles().await;
    let roles = api.check(get(format!("{RBAC}/clusterroles")), 200, json!({})).await.body;
    let bindings = api.check(get(format!("{RBAC}/clusterrolebindings")), 200, json!({})).await.body;
    let count = |list: &Value| list["items"].as_array().unwrap().len();
    assert_eq!((count(&roles), count(&bindings)), (69, 49));
    let role = json!({"metadata": {"labels": {"kubernetes.io/bootstrapping": "rbac-defaults"},
        "annotations": {"rbac.authorization.kubernetes.io/autoupdate": "true"}}, "rules": [{}, {}]});
    let role = api.check(get(format!("{RBAC}/clusterroles/cluster-admin")), 200, role).await.body;
    assert_eq!(managers(&role), ["kube-apiserver Update"]);
    // `system:authenticated` has discovery only.
    api.check(as_ann(get("/apis")), 200, json!({})).await;
    api.check(as_ann(get("/openapi/v3")), 200, json!({})).await;
    api.check(as_ann(get(PODS)), 403, json!({})).await;
    api.check(as_ann(get("/metrics")), 403, json!({})).await;
}

#[tokio::test]
async fn requests_during_bootstrap_wait_for_the_roles() {
    let api = TestApi::new().await;
    let coming = api.server.bootstrap_rbac();
    api.check(get("/apis"), 200, json!({})).await;
    let request = as_ann(get("/apis"));
    let early = api.send(&request);
    let (early, ()) = futures::join!(early, coming);
    assert_eq!(early.status, 200);
}

#[tokio::test]
async fn default_role_changes_survive_reconciliation() {
    let api = api_with_roles().await;
    let (view, discovery) = (format!("{RBAC}/clusterroles/view"), format!("{RBAC}/clusterroles/system:discovery"));
    let before = api.check(get(&view), 200, json!({})).await.body;
    api.check(
        merge_patch(&discovery, &json!({"rules": [{"verbs": ["get"], "nonResourceURLs": ["/mine"]}]})),
        200,
        json!({}),
    )
    .await;
    let node = format!("{RBAC}/clusterrolebindings/system:node");
    api.check(merge_patch(&node, &json!({"subjects": [{"kind": "Group", "name": "mine"}]})), 200, json!({})).await;
    api.check(delete(format!("{RBAC}/clusterroles/edit")), 200, json!({})).await;
    api.server.bootstrap_rbac().await;
    let added = json!({"rules": [{"nonResourceURLs": ["/mine"]}, {"nonResourceURLs": ["/livez"]}]});
    let again = api.check(get(&discovery), 200, json!({})).await.body;
    assert_eq!(again["rules"][0], json!({"verbs": ["get"], "nonResourceURLs": ["/mine"]}), "{added}");
    assert_eq!(again["rules"].as_array().unwrap().len(), 12);
    api.check(get(&node), 200, json!({"subjects": [{"name": "mine"}]})).await;
    api.check(get(format!("{RBAC}/clusterroles/edit")), 200, json!({})).await;
    assert_eq!(api.check(get(&view), 200, json!({})).await.body, before);
}

#[tokio::test]
async fn public_info_viewer_copies_discovery_subjects() {
    let api = api_with_roles().await;
    let bindings = format!("{RBAC}/clusterrolebindings");
    let (discovery, info) = (format!("{bindings}/system:discovery"), format!("{bindings}/system:public-info-viewer"));
    let mine = json!({"metadata": {"annotations": {"rbac.authorization.kubernetes.io/autoupdate": "false"}},
        "subjects": [{"kind": "User", "name": "q", "apiGroup": "rbac.authorization.k8s.io"}]});
    api.check(merge_patch(&discovery, &mine), 200, json!({})).await;
    api.check(delete(&info), 200, json!({})).await;
    api.server.bootstrap_rbac().await;
    let mut expected = mine;
    expected["roleRef"] = json!({"name": "system:public-info-viewer"});
    let found = api.check(get(&info), 200, expected).await.body;
    assert_eq!(found["subjects"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn cluster_role_can_be_bound_in_a_namespace() {
    let api = api_with_roles().await;
    let bind = |name: &str, role: &str| {
        let subjects = json!([{"kind": "User", "name": name}]);
        json!({"metadata": {"name": name}, "roleRef": {"kind": "ClusterRole", "name": role}, "subjects": subjects})
    };
    for (name, role) in [("vic", "view"), ("ed", "edit"), ("ada", "admin")] {
        api.check(post(format!("{RBAC}/namespaces/default/rolebindings"), &bind(name, role)), 201, json!({})).await;
    }
    let secrets = "/api/v1/namespaces/default/secrets";
    let (roles, elsewhere) = (format!("{RBAC}/namespaces/default/roles"), "/api/v1/namespaces/kube-system/pods");
    for (path, vic, ed, ada) in
        [(PODS, 200, 200, 200), (secrets, 403, 200, 200), (&roles, 403, 403, 200), (elsewhere, 403, 403, 403)]
    {
        for (name, code) in [("vic", vic), ("ed", ed), ("ada", ada)] {
            api.check(get(path).with_user(name, &[]), code, json!({})).await;
        }
    }
    api.check(get("/api/v1/namespaces/default").with_user("vic", &[]), 200, json!({})).await;
    api.check(post(PODS, &pod("a")).with_user("vic", &[]), 403, json!({})).await;
    api.check(post(PODS, &pod("a")).with_user("ed", &[]), 201, json!({})).await;
}

#[tokio::test]
async fn anonymous_is_denied_despite_bindings() {
    let api = api_with_roles().await;
    let everything = json!({"metadata": {"name": "open"}, "subjects": [{"kind": "Group", "name": "system:unauthenticated"}],
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"}});
    api.check(post(format!("{RBAC}/clusterrolebindings"), &everything), 201, json!({})).await;
    for (path, code) in [(PODS, 401), ("/apis", 401), ("/healthz", 200), ("/readyz", 200), ("/version", 200)] {
        let request = http::Request::get(path).body(http_body_util::Full::<bytes::Bytes>::default()).unwrap();
        assert_eq!(api.server.handle(None, request).await.status(), code, "{path}");
    }
}
