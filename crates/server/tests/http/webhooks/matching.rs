//! Matching of webhooks: selectors, match conditions and versions.

use super::*;
use crate::custom_resources::{CRONTABS, DEFINITIONS, crontab, crontab_definition, crontab_properties};

fn names(hook: &WebhookServer) -> Vec<String> {
    hook.take_requests()
        .into_iter()
        .map(|(_, review)| review["request"]["name"].as_str().unwrap_or("").to_owned())
        .collect()
}

async fn namespace(api: &TestApi, name: &str, labels: Value) {
    api.check(post("/api/v1/namespaces", &json!({"metadata": {"name": name, "labels": labels}})), 201, json!({})).await;
}

#[tokio::test]
async fn webhook_selectors_match_object_and_namespace() {
    let api = TestApi::new().await;
    let hook = WebhookServer::new(allow_response).await;
    namespace(&api, "in", json!({"asked": "yes"})).await;
    namespace(&api, "out", json!({})).await;
    let select = json!({"matchLabels": {"asked": "yes"}});
    create_validating_webhook(&api, "n", hook.client_config("/n"), json!({"namespaceSelector": select})).await;
    let make = |namespace: &str, name: &str, labels: Value| {
        post(
            format!("/api/v1/namespaces/{namespace}/configmaps"),
            &json!({"metadata": {"name": name, "labels": labels}}),
        )
    };
    api.check(make("in", "a", json!({})), 201, json!({})).await;
    api.check(make("out", "b", json!({"asked": "yes"})), 201, json!({})).await;
    // Cluster-scoped objects match; a namespace is matched by its new labels.
    api.check(
        post("/apis/scheduling.k8s.io/v1/priorityclasses", &json!({"metadata": {"name": "p"}, "value": 1})),
        201,
        json!({}),
    )
    .await;
    namespace(&api, "new", json!({"asked": "yes"})).await;
    namespace(&api, "other", json!({"asked": "no"})).await;
    assert_eq!(names(&hook), ["a", "p", "new"]);
    api.check(delete(format!("{GROUP}/validatingwebhookconfigurations/n")), 200, json!({})).await;
    create_validating_webhook(&api, "o", hook.client_config("/o"), json!({"objectSelector": select})).await;
    api.check(make("in", "c", json!({"asked": "yes"})), 201, json!({})).await;
    api.check(make("in", "d", json!({})), 201, json!({})).await;
    // The old object is matched, too.
    let path = "/api/v1/namespaces/in/configmaps";
    api.check(merge_patch(format!("{path}/c"), &json!({"metadata": {"labels": null}})), 200, json!({})).await;
    api.check(merge_patch(format!("{path}/c"), &json!({"data": {"a": "b"}})), 200, json!({})).await;
    api.check(delete(format!("{path}/d")), 200, json!({})).await;
    assert_eq!(names(&hook), ["c", "c"]);
}

#[tokio::test]
async fn match_conditions_filter_webhook_calls() {
    let api = TestApi::new().await;
    let hook = WebhookServer::new(allow_response).await;
    let condition =
        |text: &str| json!({"rules": rule_for("configmaps"), "matchConditions": [{"name": "c", "expression": text}]});
    let may = "authorizer.group('').resource('secrets').namespace('default').check('get').allowed()";
    api.grant_cluster_role(
        "secrets",
        json!([{"kind": "User", "name": "ann"}]),
        json!([{"verbs": ["get"], "apiGroups": [""], "resources": ["secrets"]}]),
    )
    .await;
    let maps = json!([{"verbs": ["*"], "apiGroups": [""], "resources": ["configmaps"]}]);
    api.grant_cluster_role("maps", json!([{"kind": "User", "name": "ann"}, {"kind": "User", "name": "bob"}]), maps)
        .await;
    create_validating_webhook(&api, "may", hook.client_config("/may"), condition(may)).await;
    create_validating_webhook(
        &api,
        "request",
        hook.client_config("/request"),
        condition("authorizer.requestResource.check('delete').allowed() && request.userInfo.username == 'bob'"),
    )
    .await;
    create_validating_webhook(
        &api,
        "object",
        hook.client_config("/object"),
        condition("has(object.data) && object.data.ask == 'yes' && oldObject == null"),
    )
    .await;
    for (name, user, data) in [("a", "ann", json!({})), ("b", "bob", json!({})), ("c", "test", json!({"ask": "yes"}))] {
        let created = post(CONFIG_MAPS, &json!({"metadata": {"name": name}, "data": data}));
        api.check(if user == "test" { created } else { created.with_user(user, &[]) }, 201, json!({})).await;
    }
    let mut requests: Vec<String> = hook
        .take_requests()
        .into_iter()
        .map(|(path, r)| format!("{path} {}", r["request"]["name"].as_str().unwrap()))
        .collect();
    requests.sort();
    assert_eq!(requests, ["/may a", "/may c", "/object c", "/request b"]);
    // An evaluation error follows the failure policy.
    let broken = "object.data.none == 'x'";
    create_mutating_webhook(&api, "broken", hook.client_config("/broken"), condition(broken)).await;
    let reason = format!("configmaps \"d\" is forbidden: expression '{broken}' resulted in error: no such key: data");
    api.check(post(CONFIG_MAPS, &json!({"metadata": {"name": "d"}})), 403, json!({"message": reason})).await;
    let path = format!("{GROUP}/mutatingwebhookconfigurations/broken");
    api.check(
        patch("json-patch", path, &json!([{"op": "replace", "path": "/webhooks/0/failurePolicy", "value": "Ignore"}])),
        200,
        json!({}),
    )
    .await;
    api.check(post(CONFIG_MAPS, &json!({"metadata": {"name": "d"}})), 201, json!({})).await;
}

#[tokio::test]
async fn equivalent_match_policy_converts_versions() {
    let api = TestApi::new().await;
    let hook = WebhookServer::new(|path, review| match path {
        "/patch" => patch_response(review, json!([{"op": "replace", "path": "/spec/maxReplicas", "value": 7}])),
        _ => review_response(review, json!({})),
    })
    .await;
    let rules = json!([{"operations": ["*"], "apiGroups": ["autoscaling"], "apiVersions": ["v2"], "resources": ["horizontalpodautoscalers"]}]);
    create_mutating_webhook(&api, "m", hook.client_config("/patch"), json!({"rules": rules})).await;
    create_validating_webhook(
        &api,
        "exact",
        hook.client_config("/exact"),
        json!({"rules": rules, "matchPolicy": "Exact"}),
    )
    .await;
    create_validating_webhook(&api, "all", hook.client_config("/all"), json!({"rules": rules})).await;
    let scaler = json!({"metadata": {"name": "a"}, "spec": {"maxReplicas": 3, "targetCPUUtilizationPercentage": 50,
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"}}});
    let path = "/apis/autoscaling/v1/namespaces/default/horizontalpodautoscalers";
    let created =
        json!({"apiVersion": "autoscaling/v1", "spec": {"maxReplicas": 7, "targetCPUUtilizationPercentage": 50}});
    api.check(post(path, &scaler), 201, created).await;
    let requests = hook.take_requests();
    assert_eq!(requests.iter().map(|(path, _)| path.as_str()).collect::<Vec<_>>(), ["/patch", "/all"]);
    let request = &requests[1].1["request"];
    let expected = json!({
        "kind": {"group": "autoscaling", "version": "v2", "kind": "HorizontalPodAutoscaler"},
        "requestKind": {"group": "autoscaling", "version": "v1", "kind": "HorizontalPodAutoscaler"},
        "object": {"apiVersion": "autoscaling/v2", "spec": {"maxReplicas": 7, "metrics": [{"type": "Resource", "resource": {"name": "cpu"}}]}},
    });
    let mut mismatches = Vec::new();
    compare(&expected, request, "", &mut mismatches);
    assert!(mismatches.is_empty(), "{mismatches:#?}\n{request:#}");
}

#[tokio::test]
async fn webhook_output_of_custom_resources_is_pruned() {
    let api = TestApi::new().await;
    api.check(post(DEFINITIONS, &crontab_definition(&crontab_properties())), 201, json!({})).await;
    let hook = WebhookServer::new(|_, review| {
        let replicas = if review["request"]["name"] == "wrong" { 11 } else { 5 };
        let spec = json!({"replicas": replicas, "unknown": true});
        patch_response(review, json!([{"op": "replace", "path": "/spec", "value": spec}]))
    })
    .await;
    create_mutating_webhook(&api, "m", hook.client_config("/"), json!({"rules": rule_for("crontabs")})).await;
    let expected = json!({"spec": {"replicas": 5, "image": "busybox", "unknown": null}});
    api.check(post(CRONTABS, &crontab("a", &json!({"replicas": 1}))), 201, expected).await;
    assert_eq!(hook.take_requests()[0].1["request"]["object"]["spec"], json!({"replicas": 1, "image": "busybox"}));
    let rejected = api.send(&post(CRONTABS, &crontab("wrong", &json!({})))).await;
    assert_eq!(rejected.status, 422, "{}", rejected.body);
}
