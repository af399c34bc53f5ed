//! Who may do what, as clients see it.

use crate::common::*;
use serde_json::{Value, json};

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";

fn by(ask: Ask) -> Ask {
    ask.by("ann", &["devs"])
}

fn ann() -> Value {
    json!([{"kind": "User", "name": "ann"}])
}

fn denied(what: &str) -> Value {
    json!({"kind": "Status", "reason": "Forbidden", "message": what})
}

#[tokio::test]
async fn nothing_is_allowed_that_nobody_allowed() {
    let api = Api::new().await;
    let message = r#"configmaps "a" is forbidden: User "ann" cannot get resource "configmaps" in API group "" in the namespace "default""#;
    let answer = api.check(by(get(format!("{CONFIG_MAPS}/a"))), 403, denied(message)).await;
    assert_eq!(answer.body["details"], json!({"name": "a", "kind": "configmaps"}));
    // What is not there is not told to those who may not look.
    let message = r#"things.example.com is forbidden: User "ann" cannot list resource "things" in API group "example.com" at the cluster scope"#;
    api.check(by(get("/apis/example.com/v1/things")), 403, denied(message)).await;
    let message = r#"forbidden: User "ann" cannot get path "/metrics""#;
    api.check(by(get("/metrics")), 403, denied(message)).await;
}

#[tokio::test]
async fn a_binding_counts_as_soon_as_it_is_written() {
    let api = Api::new().await;
    api.create_config_map("a", json!({})).await;
    api.check(by(get(CONFIG_MAPS)), 403, json!({})).await;
    let rules = json!([{"verbs": ["get", "list"], "apiGroups": [""], "resources": ["configmaps"]}]);
    api.bind("reader", ann(), rules).await;
    api.check(by(get(CONFIG_MAPS)), 200, json!({"items": [{}]})).await;
    api.check(by(get("/api/v1/configmaps")), 200, json!({})).await;
    api.check(by(delete(format!("{CONFIG_MAPS}/a"))), 403, json!({})).await;
    api.check(get(CONFIG_MAPS).by("bob", &["devs"]), 403, json!({})).await;
    api.check(delete(format!("{RBAC}/clusterrolebindings/reader")), 200, json!({})).await;
    api.check(by(get(CONFIG_MAPS)), 403, json!({})).await;
}

#[tokio::test]
async fn a_role_of_a_namespace_counts_there_and_nowhere_else() {
    let api = Api::new().await;
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
        api.check(by(post(CONFIG_MAPS, &object)), 201, json!({})).await;
        api.check(by(get(format!("{CONFIG_MAPS}/{name}"))), code, json!({})).await;
        api.check(by(get(format!("{CONFIG_MAPS}?fieldSelector=metadata.name={name}"))), code, json!({})).await;
        api.check(by(delete(format!("{CONFIG_MAPS}/{name}"))), code, json!({})).await;
    }
    api.check(by(get(CONFIG_MAPS)), 403, json!({})).await;
    let elsewhere = "/api/v1/namespaces/kube-system/configmaps";
    api.check(by(post(elsewhere, &json!({"metadata": {"name": "mine"}}))), 403, json!({})).await;
}

#[tokio::test]
async fn a_role_that_is_not_there_is_named() {
    let api = Api::new().await;
    let binding =
        json!({"metadata": {"name": "b"}, "roleRef": {"kind": "ClusterRole", "name": "lost"}, "subjects": ann()});
    api.check(post(format!("{RBAC}/clusterrolebindings"), &binding), 201, json!({})).await;
    let message = r#"pods is forbidden: User "ann" cannot list resource "pods" in API group "" in the namespace "default": RBAC: clusterrole.rbac.authorization.k8s.io "lost" not found"#;
    api.check(by(get(PODS)), 403, denied(message)).await;
}

#[tokio::test]
async fn everybody_with_a_name_is_in_one_group() {
    let api = Api::new().await;
    let all = json!([{"kind": "Group", "name": "system:authenticated"}]);
    api.bind("all", all, json!([{"verbs": ["get"], "nonResourceURLs": ["/api*", "/openapi/*"]}])).await;
    api.check(by(get("/api/v1")), 200, json!({"kind": "APIResourceList"})).await;
    api.check(by(get("/apis")), 200, json!({"kind": "APIGroupList"})).await;
    api.check(by(get("/version")), 200, json!({})).await;
    api.check(by(get("/metrics")), 403, json!({})).await;
}

#[tokio::test]
async fn who_opens_a_stream_with_a_get_must_be_allowed_to_create_one() {
    let api = Api::new().await;
    api.create_pod("p").await;
    let exec = format!("{PODS}/p/exec?command=true");
    let rule = |verb: &str| json!([{"verbs": [verb], "apiGroups": [""], "resources": ["pods/exec"]}]);
    api.bind("looks", ann(), rule("get")).await;
    let message = r#"pods "p" is forbidden: User "ann" cannot create resource "pods/exec" in API group "" in the namespace "default""#;
    api.check(by(get(&exec)), 403, denied(message)).await;
    api.bind("acts", ann(), rule("create")).await;
    let answer = api.ask(&by(get(&exec))).await;
    assert_ne!(answer.status, 403, "{}", answer.body);
}

/// A server with upstream's roles and bindings.
async fn api_with_roles() -> Api {
    let api = Api::new().await;
    api.server.bootstrap_access().await;
    api
}

#[tokio::test]
async fn a_new_cluster_has_upstreams_roles() {
    let api = api_with_roles().await;
    let roles = api.check(get(format!("{RBAC}/clusterroles")), 200, json!({})).await.body;
    let bindings = api.check(get(format!("{RBAC}/clusterrolebindings")), 200, json!({})).await.body;
    let count = |list: &Value| list["items"].as_array().unwrap().len();
    assert_eq!((count(&roles), count(&bindings)), (69, 49));
    let role = json!({"metadata": {"labels": {"kubernetes.io/bootstrapping": "rbac-defaults"},
        "annotations": {"rbac.authorization.kubernetes.io/autoupdate": "true"}}, "rules": [{}, {}]});
    let role = api.check(get(format!("{RBAC}/clusterroles/cluster-admin")), 200, role).await.body;
    assert_eq!(managers(&role), ["kube-apiserver Update"]);
    // Everybody may look around, and nobody learns more.
    api.check(by(get("/apis")), 200, json!({})).await;
    api.check(by(get("/openapi/v3")), 200, json!({})).await;
    api.check(by(get(PODS)), 403, json!({})).await;
    api.check(by(get("/metrics")), 403, json!({})).await;
}

#[tokio::test]
async fn who_comes_before_the_roles_are_there_waits_for_them() {
    let api = Api::new().await;
    let coming = api.server.bootstrap_access();
    api.check(get("/apis"), 200, json!({})).await;
    let ask = by(get("/apis"));
    let early = api.ask(&ask);
    let (early, ()) = futures::join!(early, coming);
    assert_eq!(early.status, 200);
}

#[tokio::test]
async fn what_somebody_made_of_a_default_role_outlives_a_restart() {
    let api = api_with_roles().await;
    let (view, discovery) = (format!("{RBAC}/clusterroles/view"), format!("{RBAC}/clusterroles/system:discovery"));
    let before = api.check(get(&view), 200, json!({})).await.body;
    api.check(merge(&discovery, &json!({"rules": [{"verbs": ["get"], "nonResourceURLs": ["/mine"]}]})), 200, json!({}))
        .await;
    let node = format!("{RBAC}/clusterrolebindings/system:node");
    api.check(merge(&node, &json!({"subjects": [{"kind": "Group", "name": "mine"}]})), 200, json!({})).await;
    api.check(delete(format!("{RBAC}/clusterroles/edit")), 200, json!({})).await;
    api.server.bootstrap_access().await;
    let added = json!({"rules": [{"nonResourceURLs": ["/mine"]}, {"nonResourceURLs": ["/livez"]}]});
    let again = api.check(get(&discovery), 200, json!({})).await.body;
    assert_eq!(again["rules"][0], json!({"verbs": ["get"], "nonResourceURLs": ["/mine"]}), "{added}");
    assert_eq!(again["rules"].as_array().unwrap().len(), 12);
    api.check(get(&node), 200, json!({"subjects": [{"name": "mine"}]})).await;
    api.check(get(format!("{RBAC}/clusterroles/edit")), 200, json!({})).await;
    assert_eq!(api.check(get(&view), 200, json!({})).await.body, before);
}

#[tokio::test]
async fn what_everybody_may_is_taken_from_those_from_whom_discovery_is() {
    let api = api_with_roles().await;
    let bindings = format!("{RBAC}/clusterrolebindings");
    let (discovery, info) = (format!("{bindings}/system:discovery"), format!("{bindings}/system:public-info-viewer"));
    let mine = json!({"metadata": {"annotations": {"rbac.authorization.kubernetes.io/autoupdate": "false"}},
        "subjects": [{"kind": "User", "name": "q", "apiGroup": "rbac.authorization.k8s.io"}]});
    api.check(merge(&discovery, &mine), 200, json!({})).await;
    api.check(delete(&info), 200, json!({})).await;
    api.server.bootstrap_access().await;
    let mut expected = mine;
    expected["roleRef"] = json!({"name": "system:public-info-viewer"});
    let found = api.check(get(&info), 200, expected).await.body;
    assert_eq!(found["subjects"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn a_role_can_be_given_for_a_namespace() {
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
            api.check(get(path).by(name, &[]), code, json!({})).await;
        }
    }
    api.check(get("/api/v1/namespaces/default").by("vic", &[]), 200, json!({})).await;
    api.check(post(PODS, &pod("a")).by("vic", &[]), 403, json!({})).await;
    api.check(post(PODS, &pod("a")).by("ed", &[]), 201, json!({})).await;
}

#[tokio::test]
async fn who_is_nobody_in_particular_may_nothing_whatever_is_bound_to_him() {
    let api = api_with_roles().await;
    let everything = json!({"metadata": {"name": "open"}, "subjects": [{"kind": "Group", "name": "system:unauthenticated"}],
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"}});
    api.check(post(format!("{RBAC}/clusterrolebindings"), &everything), 201, json!({})).await;
    for (path, code) in [(PODS, 401), ("/apis", 401), ("/healthz", 200), ("/readyz", 200), ("/version", 200)] {
        let request = http::Request::get(path).body(http_body_util::Full::<bytes::Bytes>::default()).unwrap();
        assert_eq!(api.server.handle(None, request).await.status(), code, "{path}");
    }
}
