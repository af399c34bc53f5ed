//! Access reviews, rules reviews and token reviews.

use crate::common::*;
use auth::pki::Pki;
use serde_json::{Value, json};

const ACCESS: &str = "/apis/authorization.k8s.io/v1";
const IDENTITY: &str = "/apis/authentication.k8s.io/v1";

/// Starts a server with upstream's roles, where `ann` may view the namespace `default`.
async fn api() -> TestApi {
    let mut api = TestApi::new().await;
    let dir = tempfile::tempdir().unwrap();
    let key = Pki::load_or_create(dir.path(), &[], &[]).unwrap().signing_key().unwrap();
    api.server = api.server.with_signing_key(key);
    api.server.bootstrap_rbac().await;
    let subjects = json!([{"kind": "User", "name": "ann"}]);
    let binding =
        json!({"metadata": {"name": "ann"}, "roleRef": {"kind": "ClusterRole", "name": "view"}, "subjects": subjects});
    let path = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings";
    api.check(post(path, &binding), 201, json!({})).await;
    api
}

fn as_ann(request: TestRequest) -> TestRequest {
    request.with_user("ann", &[])
}

fn self_subject_access_review(verb: &str, resource: &str, namespace: &str) -> TestRequest {
    let about = json!({"verb": verb, "resource": resource, "namespace": namespace});
    as_ann(post(format!("{ACCESS}/selfsubjectaccessreviews"), &json!({"spec": {"resourceAttributes": about}})))
}

#[tokio::test]
async fn self_subject_access_review_answers_the_caller() {
    let api = api().await;
    let reason = r#"RBAC: allowed by RoleBinding "ann/default" of ClusterRole "view" to User "ann""#;
    let yes = json!({"kind": "SelfSubjectAccessReview", "apiVersion": "authorization.k8s.io/v1",
        "spec": {"resourceAttributes": {"verb": "list"}}, "status": {"allowed": true, "reason": reason}});
    api.check(self_subject_access_review("list", "pods", "default"), 201, yes).await;
    let no = json!({"status": {"allowed": false, "reason": null, "denied": null}});
    api.check(self_subject_access_review("list", "pods", ""), 201, no.clone()).await;
    api.check(self_subject_access_review("list", "secrets", "default"), 201, no).await;
    let path = json!({"spec": {"nonResourceAttributes": {"verb": "get", "path": "/healthz"}}});
    let requests = as_ann(post(format!("{ACCESS}/selfsubjectaccessreviews"), &path));
    api.check(requests, 201, json!({"status": {"allowed": true}})).await;
    // `system:masters` is allowed without a reason.
    let any = post(format!("{ACCESS}/selfsubjectaccessreviews"), &path);
    api.check(any, 201, json!({"status": {"allowed": true, "reason": null}})).await;
}

#[tokio::test]
async fn subject_access_review_requires_permission() {
    let api = api().await;
    let about = json!({"verb": "get", "resource": "pods", "namespace": "default"});
    let review = json!({"spec": {"user": "ann", "groups": ["g"], "resourceAttributes": about}});
    let (all, local) =
        (format!("{ACCESS}/subjectaccessreviews"), format!("{ACCESS}/namespaces/default/localsubjectaccessreviews"));
    for path in [&all, &local] {
        api.check(post(path, &review), 201, json!({"status": {"allowed": true}})).await;
        api.check(as_ann(post(path, &review)), 403, json!({})).await;
    }
    let master = json!({"spec": {"groups": ["system:masters"], "resourceAttributes": about}});
    api.check(post(&all, &master), 201, json!({"status": {"allowed": true}})).await;
    let local = api.check(post(&local, &review), 201, json!({"kind": "LocalSubjectAccessReview"})).await.body;
    assert_eq!(local["metadata"], json!({"namespace": "default"}));
}

#[tokio::test]
async fn access_review_accepts_selectors() {
    let api = api().await;
    let request = |selector: Value| {
        let about = json!({"verb": "list", "resource": "pods", "fieldSelector": selector});
        let spec = json!({"user": "system:node:n", "groups": ["system:nodes"], "resourceAttributes": about});
        post(format!("{ACCESS}/subjectaccessreviews"), &json!({"spec": spec}))
    };
    for (raw, allowed) in [
        ("spec.nodeName=n", true),
        ("spec.nodeName=n,status.phase!=Failed", true),
        ("spec.nodeName=m", false),
        ("spec.nodeName!=n", false),
        ("no sense", false),
    ] {
        let expected = json!({"status": {"allowed": allowed}});
        api.check(request(json!({"rawSelector": raw})), 201, expected).await;
    }
    let requirement = json!({"key": "spec.nodeName", "operator": "In", "values": ["n"]});
    api.check(request(json!({"requirements": [requirement]})), 201, json!({"status": {"allowed": true}})).await;
}

#[tokio::test]
async fn invalid_access_reviews_are_rejected() {
    let api = api().await;
    let check = async |kind: &str, review: Value, message: &str| {
        let plural = format!("{}s", kind.to_lowercase());
        let location = if kind.starts_with("Local") { "namespaces/default/" } else { "" };
        let message = format!(".authorization.k8s.io \"\" is invalid: {message}");
        api.check(post(format!("{ACCESS}/{location}{plural}"), &review), 422, json!({"message": message})).await;
    };
    let (resource, path) = (json!({"resource": "pods"}), json!({"path": "/"}));
    check(
        "SelfSubjectAccessReview",
        json!({"spec": {}}),
        "spec.resourceAttributes: Invalid value: null: exactly one of nonResourceAttributes or resourceAttributes must be specified",
    )
    .await;
    check(
        "SelfSubjectAccessReview",
        json!({"spec": {"resourceAttributes": resource, "nonResourceAttributes": path}}),
        "spec.nonResourceAttributes: Invalid value: {\"Path\":\"/\",\"Verb\":\"\"}: cannot be specified in combination with resourceAttributes",
    )
    .await;
    check(
        "SubjectAccessReview",
        json!({"spec": {"resourceAttributes": resource}}),
        "spec.user: Invalid value: \"\": at least one of user or group must be specified",
    )
    .await;
    check(
        "SelfSubjectAccessReview",
        json!({"metadata": {"name": "x"}, "spec": {"resourceAttributes": resource}}),
        "metadata: Invalid value: {\"name\":\"x\"}: must be empty",
    )
    .await;
    check(
        "LocalSubjectAccessReview",
        json!({"spec": {"user": "a", "resourceAttributes": {"resource": "pods", "namespace": "other"}}}),
        "spec.resourceAttributes.namespace: Invalid value: \"other\": must match metadata.namespace",
    )
    .await;
    check(
        "LocalSubjectAccessReview",
        json!({"spec": {"user": "a", "nonResourceAttributes": path}}),
        "spec.nonResourceAttributes: Invalid value: {\"path\":\"/\"}: disallowed on this kind of request",
    )
    .await;
    let field = "spec.resourceAttributes.fieldSelector";
    let label = "spec.resourceAttributes.labelSelector";
    for (selectors, message) in [
        (
            json!({"fieldSelector": {"rawSelector": "a=b", "requirements": [{"key": "a", "operator": "Exists"}]}}),
            format!("{field}.rawSelector: Invalid value: \"a=b\": may not specified at the same time as requirements"),
        ),
        (
            json!({"labelSelector": {}}),
            format!(
                "{label}.requirements: Required value: when {label} is specified, requirements or rawSelector is required"
            ),
        ),
        (
            json!({"fieldSelector": {"requirements": [{"key": "", "operator": "In"}]}}),
            format!(
                "[{field}.requirements[0].key: Required value: must be specified, {field}.requirements[0].values: Required value: must be specified when `operator` is 'In' or 'NotIn']"
            ),
        ),
        (
            json!({"labelSelector": {"requirements": [{"key": "a", "operator": "Exists", "values": ["-"]}]}}),
            format!(
                "[{label}.requirements[0].values: Forbidden: may not be specified when `operator` is 'Exists' or 'DoesNotExist', {label}.requirements[0].values[0]: Invalid value: \"-\": a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')]"
            ),
        ),
    ] {
        check("SelfSubjectAccessReview", json!({"spec": {"resourceAttributes": selectors}}), &message).await;
    }
    let reviews = format!("{ACCESS}/selfsubjectaccessreviews");
    // Unknown selector operators of newer clients are accepted.
    let newer = json!({"fieldSelector": {"requirements": [{"key": "a", "operator": "Near", "values": ["b"]}]}});
    api.check(post(&reviews, &json!({"spec": {"resourceAttributes": newer}})), 201, json!({})).await;
    for request in
        [get(&reviews), get(format!("{reviews}/x")), delete(&reviews), put(format!("{reviews}/x"), &json!({}))]
    {
        api.check(request, 405, json!({"reason": "MethodNotAllowed"})).await;
    }
    for body in [json!([]), json!({"spec": 5}), json!({"kind": "Pod"}), json!({"spec": {"resourceAttributes": []}})] {
        assert_eq!(api.send(&post(&reviews, &body)).await.status, 400, "{body}");
    }
}

#[tokio::test]
async fn self_subject_rules_review_lists_rules() {
    let api = api().await;
    let request = |namespace: &str| {
        as_ann(post(format!("{ACCESS}/selfsubjectrulesreviews"), &json!({"spec": {"namespace": namespace}})))
    };
    let rules =
        api.check(request("default"), 201, json!({"status": {"incomplete": false}})).await.body["status"].clone();
    let resources = rules["resourceRules"].as_array().unwrap();
    assert!(
        resources.contains(&json!({"verbs": ["get", "list", "watch"], "apiGroups": [""], "resources": ["namespaces"]}))
    );
    assert!(rules["nonResourceRules"].as_array().unwrap().iter().any(|r| r["nonResourceURLs"][0] == "/api"), "{rules}");
    let elsewhere = api.check(request("kube-system"), 201, json!({})).await.body["status"]["resourceRules"].clone();
    assert_eq!(elsewhere.as_array().unwrap().len(), 2, "what every user may do: {elsewhere}");
    api.check(request(""), 400, json!({"message": "no namespace on request"})).await;
}

#[tokio::test]
async fn self_subject_review_returns_the_user() {
    let api = api().await;
    let whoami = post(
        format!("{IDENTITY}/selfsubjectreviews"),
        &json!({"kind": "SelfSubjectReview", "apiVersion": "authentication.k8s.io/v1"}),
    );
    let user = json!({"username": "ann", "groups": ["system:authenticated"], "uid": null, "extra": null});
    api.check(as_ann(whoami), 201, json!({"kind": "SelfSubjectReview", "status": {"userInfo": user}})).await;
}

#[tokio::test]
async fn token_review_returns_the_user() {
    let api = api().await;
    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    let uid =
        api.check(post(accounts, &json!({"metadata": {"name": "app"}})), 201, json!({})).await.body["metadata"]["uid"]
            .clone();
    let token = async |audiences: Value| {
        let request = post(format!("{accounts}/app/token"), &json!({"spec": {"audiences": audiences}}));
        api.check(request, 201, json!({})).await.body["status"]["token"].clone()
    };
    let send_request = |spec: Value| post(format!("{IDENTITY}/tokenreviews"), &json!({"spec": spec}));
    let own = token(json!([])).await;
    let groups = json!(["system:serviceaccounts", "system:serviceaccounts:default", "system:authenticated"]);
    let user = json!({"username": "system:serviceaccount:default:app", "uid": uid, "groups": groups});
    let status =
        json!({"authenticated": true, "user": user, "audiences": ["https://kubernetes.default.svc.cluster.local"]});
    let reviewed = api.check(send_request(json!({"token": own})), 201, json!({"status": status})).await.body;
    let id = &reviewed["status"]["user"]["extra"]["authentication.kubernetes.io/credential-id"][0];
    assert!(id.as_str().unwrap().starts_with("JTI="), "{reviewed}");
    let vault = token(json!(["vault", "other"])).await;
    let status = json!({"authenticated": true, "audiences": ["vault"]});
    api.check(send_request(json!({"token": vault, "audiences": ["vault", "x"]})), 201, json!({"status": status})).await;
    let error = r#"[invalid bearer token, token audiences ["vault" "other"] is invalid for the target audiences ["https://kubernetes.default.svc.cluster.local"]]"#;
    api.check(send_request(json!({"token": vault})), 201, json!({"status": {"authenticated": null, "error": error}}))
        .await;
    api.check(send_request(json!({"token": "x"})), 201, json!({"status": {"error": "invalid bearer token"}})).await;
    api.check(send_request(json!({})), 400, json!({"message": "token is required for TokenReview in authentication"}))
        .await;
    api.check(as_ann(send_request(json!({"token": own}))), 403, json!({})).await;
}

#[tokio::test]
async fn reviews_are_in_discovery_as_create_only() {
    let api = api().await;
    let access = api.check(get(ACCESS), 200, json!({"kind": "APIResourceList"})).await.body;
    let names: Vec<&str> =
        access["resources"].as_array().unwrap().iter().map(|r| r["name"].as_str().unwrap()).collect();
    assert_eq!(
        names,
        ["localsubjectaccessreviews", "selfsubjectaccessreviews", "selfsubjectrulesreviews", "subjectaccessreviews"]
    );
    for resource in access["resources"].as_array().unwrap() {
        assert_eq!(resource["verbs"], json!(["create"]), "{resource}");
    }
    let local = &access["resources"][0];
    assert_eq!((&local["namespaced"], &local["singularName"]), (&json!(true), &json!("localsubjectaccessreview")));
    let document = api.check(get("/openapi/v3/apis/authentication.k8s.io/v1"), 200, json!({})).await.body;
    let path = &document["paths"]["/apis/authentication.k8s.io/v1/tokenreviews"];
    assert_eq!((path["post"].is_object(), path["get"].is_null()), (true, true));
}

#[tokio::test]
async fn reviews_are_not_served_as_tables() {
    let api = api().await;
    let table = "application/json;as=Table;v=v1;g=meta.k8s.io";
    let requests = || self_subject_access_review("list", "pods", "default");
    api.check(requests().header("accept", table), 406, json!({"reason": "NotAcceptable"})).await;
    let either = format!("{table},application/json");
    api.check(requests().header("accept", &either), 201, json!({"kind": "SelfSubjectAccessReview"})).await;
}
