//! User impersonation.

use crate::common::*;
use serde_json::{Value, json};

const WHO: &str = "/apis/authentication.k8s.io/v1/selfsubjectreviews";

async fn api() -> TestApi {
    let api = TestApi::new().await;
    api.server.bootstrap_rbac().await;
    api
}

fn whoami() -> TestRequest {
    post(WHO, &json!({}))
}

fn user_info(user: Value) -> Value {
    json!({"status": {"userInfo": user}})
}

fn as_ann(request: TestRequest) -> TestRequest {
    request.with_user("ann", &[])
}

#[tokio::test]
async fn masters_may_impersonate_anyone() {
    let api = api().await;
    let request = whoami()
        .header("impersonate-user", "bob")
        .header("impersonate-group", "devs")
        .header("impersonate-group", "ops");
    let request = request.header("impersonate-uid", "7").header("impersonate-extra-scopes", "view");
    let user = json!({"username": "bob", "uid": "7", "groups": ["devs", "ops", "system:authenticated"], "extra": {"scopes": ["view"]}});
    api.check(request, 201, user_info(user)).await;
    // The request has the permissions of the impersonated user.
    let message =
        r#"pods is forbidden: User "bob" cannot list resource "pods" in API group "" in the namespace "default""#;
    api.check(get(PODS).header("Impersonate-User", "bob"), 403, json!({"message": message})).await;
    let account = whoami().header("impersonate-user", "system:serviceaccount:default:app");
    let groups = json!(["system:serviceaccounts", "system:serviceaccounts:default", "system:authenticated"]);
    api.check(account, 201, user_info(json!({"groups": groups}))).await;
}

#[tokio::test]
async fn impersonation_requires_the_impersonate_verb() {
    let api = api().await;
    let as_bob = || as_ann(whoami()).header("impersonate-user", "bob");
    let denied = |message: &str| json!({"reason": "Forbidden", "message": message});
    let users = r#"users "bob" is forbidden: User "ann" cannot impersonate resource "users" in API group "" at the cluster scope"#;
    api.check(as_bob(), 403, denied(users)).await;
    let ann = json!([{"kind": "User", "name": "ann"}]);
    let rules =
        json!([{"verbs": ["impersonate"], "apiGroups": [""], "resources": ["users"], "resourceNames": ["bob"]}]);
    api.grant_cluster_role("bob", ann.clone(), rules).await;
    api.check(as_bob(), 201, user_info(json!({"username": "bob", "groups": ["system:authenticated"]}))).await;
    let groups = r#"groups "system:masters" is forbidden: User "ann" cannot impersonate resource "groups" in API group "" at the cluster scope"#;
    api.check(as_bob().header("impersonate-group", "system:masters"), 403, denied(groups)).await;
    let extra = r#"userextras.authentication.k8s.io "view" is forbidden: User "ann" cannot impersonate resource "userextras/scopes" in API group "authentication.k8s.io" at the cluster scope"#;
    api.check(as_bob().header("Impersonate-Extra-Scopes", "view"), 403, denied(extra)).await;
    let uid = r#"uids.authentication.k8s.io "7" is forbidden: User "ann" cannot impersonate resource "uids" in API group "authentication.k8s.io" at the cluster scope"#;
    api.check(as_bob().header("impersonate-uid", "7"), 403, denied(uid)).await;
    let account = r#"serviceaccounts "app" is forbidden: User "ann" cannot impersonate resource "serviceaccounts" in API group "" in the namespace "default""#;
    let as_app = || as_ann(whoami()).header("impersonate-user", "system:serviceaccount:default:app");
    api.check(as_app(), 403, denied(account)).await;
    let rules = json!([
        {"verbs": ["impersonate"], "apiGroups": [""], "resources": ["serviceaccounts"]},
        {"verbs": ["impersonate"], "apiGroups": ["authentication.k8s.io"], "resources": ["userextras/scopes", "uids"]},
    ]);
    api.grant_cluster_role("more", ann, rules).await;
    api.check(as_app(), 201, json!({})).await;
    let all = as_bob().header("impersonate-extra-scopes", "view").header("impersonate-uid", "7");
    api.check(all, 201, user_info(json!({"uid": "7", "extra": {"scopes": ["view"]}}))).await;
}

#[tokio::test]
async fn impersonated_group_without_user_is_rejected() {
    let api = api().await;
    let message = "requested [{Group  devs    }] without impersonating a user";
    let request = whoami().header("impersonate-group", "devs");
    api.check(request, 400, json!({"reason": "BadRequest", "message": message})).await;
}
