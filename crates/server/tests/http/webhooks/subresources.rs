//! Reviews of subresources, deletions and connections.

use super::*;

/// Returns the requests of the webhook, as `UPDATE deployments/scale Scale a`.
fn reviewed_requests(hook: &WebhookServer) -> Vec<String> {
    let text = |v: &Value| v.as_str().unwrap_or("").to_owned();
    let one = |(_, review): (String, Value)| {
        let request = &review["request"];
        let part = request["subResource"].as_str().map_or(String::new(), |part| format!("/{part}"));
        let resource = text(&request["resource"]["resource"]);
        format!(
            "{} {resource}{part} {} {}",
            text(&request["operation"]),
            text(&request["kind"]["kind"]),
            text(&request["name"])
        )
    };
    hook.take_requests().into_iter().map(one).collect()
}

#[tokio::test]
async fn webhooks_receive_subresource_kinds() {
    let api = TestApi::new().await;
    let hook = WebhookServer::new(|_, review| match review["request"]["kind"]["kind"].as_str() {
        Some("Scale") => patch_response(review, json!([{"op": "replace", "path": "/spec/replicas", "value": 4}])),
        _ => review_response(review, json!({})),
    })
    .await;
    let template =
        json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "busybox:1"}]}});
    let deployment =
        json!({"metadata": {"name": "d"}, "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": template}});
    let deployments = "/apis/apps/v1/namespaces/default/deployments";
    api.check(post(deployments, &deployment), 201, json!({})).await;
    api.create_pod("p").await;
    create_mutating_webhook(&api, "m", hook.client_config("/"), json!({})).await;
    let scaled = json!({"spec": {"replicas": 4}});
    api.check(merge_patch(format!("{deployments}/d/scale"), &json!({"spec": {"replicas": 2}})), 200, scaled.clone())
        .await;
    api.check(get(format!("{deployments}/d")), 200, scaled).await;
    let condition = json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}});
    api.check(merge_patch(format!("{PODS}/p/status"), &condition), 200, json!({})).await;
    let binding = json!({"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "n"}});
    api.check(post(format!("{PODS}/p/binding"), &binding), 201, json!({})).await;
    let review = json!({"spec": {"resourceAttributes": {"verb": "get", "resource": "pods"}}});
    api.check(post("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", &review), 201, json!({})).await;
    let expected = [
        "UPDATE deployments/scale Scale d",
        "UPDATE pods/status Pod p",
        "CREATE pods/binding Binding p",
        "CREATE selfsubjectaccessreviews SelfSubjectAccessReview ",
    ];
    assert_eq!(reviewed_requests(&hook), expected);
}

#[tokio::test]
async fn delete_review_has_the_old_object() {
    let api = TestApi::new().await;
    let hook = WebhookServer::new(|_, review| {
        let old = &review["request"]["oldObject"];
        review_response(
            review,
            json!({"allowed": old["metadata"]["labels"]["keep"].is_null(), "status": {"message": "it is kept"}}),
        )
    })
    .await;
    for (name, labels) in [("a", json!({})), ("b", json!({})), ("kept", json!({"keep": "yes"}))] {
        api.create_config_map(name, labels).await;
    }
    api.create_pod("p").await;
    create_validating_webhook(&api, "v", hook.client_config("/"), json!({})).await;
    api.check(
        delete_with_options(format!("{CONFIG_MAPS}/a"), &json!({"propagationPolicy": "Background"})),
        200,
        json!({}),
    )
    .await;
    let request = hook.take_requests().remove(0).1["request"].clone();
    assert_eq!((&request["object"], &request["oldObject"]["metadata"]["name"]), (&Value::Null, &json!("a")));
    assert_eq!(
        request["options"],
        json!({"kind": "DeleteOptions", "apiVersion": "meta.k8s.io/v1", "propagationPolicy": "Background"})
    );
    let kept = json!({"message": "admission webhook \"v.example.com\" denied the request: it is kept"});
    api.check(delete(format!("{CONFIG_MAPS}/kept")), 400, kept.clone()).await;
    api.check(get(format!("{CONFIG_MAPS}/kept")), 200, json!({})).await;
    hook.take_requests();
    api.check(delete(CONFIG_MAPS), 400, kept).await;
    assert_eq!(reviewed_requests(&hook), ["DELETE configmaps ConfigMap ", "DELETE configmaps ConfigMap "]);
    api.check(get(format!("{CONFIG_MAPS}/b")), 404, json!({})).await;
    api.check(post(format!("{PODS}/p/eviction"), &json!({"metadata": {"name": "p"}})), 201, json!({})).await;
    // The deletion by an eviction is not reviewed again.
    assert_eq!(reviewed_requests(&hook), ["CREATE pods/eviction Eviction p"]);
}

#[tokio::test]
async fn connect_review_has_the_options() {
    let api = TestApi::new().await;
    let hook = WebhookServer::new(|_, review| {
        review_response(review, json!({"allowed": false, "status": {"message": "no way in"}}))
    })
    .await;
    api.bound_pod("p").await;
    let rules = json!([{"operations": ["CONNECT"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods/exec", "pods/portforward"]}]);
    create_validating_webhook(&api, "v", hook.client_config("/"), json!({"rules": rules})).await;
    let rejected = json!({"message": "admission webhook \"v.example.com\" denied the request: no way in"});
    api.check(
        post(format!("{PODS}/p/exec?command=ls&command=-l&stdout=true&container=c"), &Value::Null),
        400,
        rejected.clone(),
    )
    .await;
    let request = hook.take_requests().remove(0).1["request"].clone();
    assert_eq!(
        request["object"],
        json!({"kind": "PodExecOptions", "apiVersion": "v1", "command": ["ls", "-l"], "stdout": true, "container": "c"})
    );
    assert_eq!(
        (&request["operation"], &request["subResource"], &request["name"]),
        (&json!("CONNECT"), &json!("exec"), &json!("p"))
    );
    api.check(post(format!("{PODS}/p/portforward?ports=80"), &Value::Null), 400, rejected).await;
    assert_eq!(hook.take_requests()[0].1["request"]["object"]["ports"], json!([80]));
    let response = api.send(&post(format!("{PODS}/p/attach?container=c"), &Value::Null)).await;
    assert_ne!(response.body["message"], "admission webhook \"v.example.com\" denied the request: no way in");
}

#[tokio::test]
async fn proxy_connect_review_has_the_path() {
    let api = TestApi::new().await;
    let hook = WebhookServer::new(|_, review| review_response(review, json!({"allowed": false}))).await;
    let rules = json!([{"operations": ["CONNECT"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods/proxy", "services/proxy", "nodes/proxy"]}]);
    create_validating_webhook(&api, "v", hook.client_config("/"), json!({"rules": rules})).await;
    for (path, kind, behind) in [
        ("/api/v1/nodes/n/proxy/healthz?path=/other", "NodeProxyOptions", json!("/healthz")),
        ("/api/v1/namespaces/default/pods/p:80/proxy/a/b%20c/", "PodProxyOptions", json!("/a/b c/")),
        ("/api/v1/namespaces/default/services/s/proxy/", "ServiceProxyOptions", json!("/")),
        ("/api/v1/namespaces/default/services/s/proxy", "ServiceProxyOptions", Value::Null),
    ] {
        api.check(get(path), 400, json!({})).await;
        let request = hook.take_requests().remove(0).1["request"].clone();
        assert_eq!((&request["object"]["kind"], &request["object"]["path"]), (&json!(kind), &behind), "{path}");
    }
}

#[tokio::test]
async fn webhooks_run_before_missing_object_check() {
    let api = TestApi::new().await;
    let hook = WebhookServer::new(|_, review| review_response(review, json!({"allowed": true}))).await;
    let rules =
        json!([{"operations": ["CONNECT"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods/exec"]}]);
    create_validating_webhook(&api, "v", hook.client_config("/"), json!({"rules": rules})).await;
    api.check(post(format!("{PODS}/none/exec?command=ls"), &Value::Null), 404, json!({})).await;
    assert_eq!(reviewed_requests(&hook), ["CONNECT pods/exec PodExecOptions none"]);
}

#[tokio::test]
async fn binding_and_token_reviews_have_defaulted_objects() {
    let api = crate::tokens::api().await;
    let hook = WebhookServer::new(|_, review| review_response(review, json!({"allowed": true}))).await;
    let rules = json!([{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["bindings", "serviceaccounts/token"]}]);
    create_validating_webhook(&api, "v", hook.client_config("/"), json!({"rules": rules})).await;
    api.create_pod("p").await;
    let binding = json!({"metadata": {"name": "p"}, "target": {"name": "n"}});
    api.check(post("/api/v1/namespaces/default/bindings", &binding), 201, json!({})).await;
    let request = hook.take_requests().remove(0).1["request"].clone();
    assert_eq!(
        (&request["resource"]["resource"], &request["subResource"], &request["name"], &request["object"]["metadata"]),
        (&json!("bindings"), &Value::Null, &json!("p"), &json!({"name": "p", "namespace": "default"}))
    );
    api.check(post("/api/v1/namespaces/default/serviceaccounts/app/token", &json!({})), 201, json!({})).await;
    let returned = hook.take_requests().remove(0).1["request"]["object"].clone();
    assert_eq!(
        (&returned["metadata"]["name"], &returned["metadata"]["namespace"], &returned["spec"]["expirationSeconds"]),
        (&json!("app"), &json!("default"), &json!(3600))
    );
    assert_eq!(returned["spec"]["audiences"].as_array().map(Vec::len), Some(1));
}
