//! The `scale` subresource of custom resources.

use super::*;

/// Starts a server whose CronTabs preserve unknown fields.
async fn api_preserving_unknown_fields() -> TestApi {
    let mut definition = crontab_definition(&json!({}));
    let any = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"] = json!({"spec": any, "status": any});
    let api = TestApi::new().await;
    api.check(post(DEFINITIONS, &definition), 201, json!({})).await;
    api
}

async fn check_rejected(api: &TestApi, request: TestRequest, message: &str) {
    let expected = format!("CronTab.stable.example.com \"a\" is invalid: {message}");
    api.check(request, 422, json!({"message": expected})).await;
}

#[tokio::test]
async fn custom_scale_uses_the_paths_of_the_crd() {
    let api = api_with_crontabs(&crontab_properties()).await;
    api.check(post(CRONTABS, &crontab("a", &json!({"replicas": 2}))), 201, json!({})).await;
    api.check(post(CRONTABS, &crontab("none", &json!({}))), 201, json!({})).await;
    let path = format!("{CRONTABS}/a");
    let status = json!({"status": {"replicas": 1, "labelSelector": "app=a"}});
    api.check(merge_patch(format!("{path}/status"), &status), 200, json!({})).await;
    let scale = json!({"kind": "Scale", "spec": {"replicas": 2}, "status": {"replicas": 1, "selector": "app=a"}});
    api.check(get(format!("{path}/scale")), 200, scale).await;
    api.check(
        merge_patch(format!("{path}/scale"), &json!({"spec": {"replicas": 3}})),
        200,
        json!({"spec": {"replicas": 3}}),
    )
    .await;
    api.check(get(&path), 200, json!({"metadata": {"generation": 2}, "spec": {"replicas": 3}})).await;
    let message = "Internal error occurred: the spec replicas field \".spec.replicas\" does not exist";
    api.check(get(format!("{CRONTABS}/none/scale")), 500, json!({"message": message})).await;
}

#[tokio::test]
async fn invalid_replicas_are_rejected_on_every_write() {
    let api = api_preserving_unknown_fields().await;
    let path = format!("{CRONTABS}/a");
    let invalid = [
        (json!(-1), ".spec.replicas: Invalid value: -1: should be a non-negative integer"),
        (
            json!(2_147_483_648_u32),
            ".spec.replicas: Invalid value: 2147483648: should be less than or equal to 2147483647",
        ),
        (
            json!("x"),
            ".spec.replicas: Invalid value: 0: .spec.replicas accessor error: x is of the type string, expected int64",
        ),
        (
            json!(1.5),
            ".spec.replicas: Invalid value: 0: .spec.replicas accessor error: 1.5 is of the type float64, expected int64",
        ),
    ];
    for (replicas, message) in &invalid {
        check_rejected(&api, post(CRONTABS, &crontab("a", &json!({"replicas": replicas}))), message).await;
    }
    api.check(post(CRONTABS, &crontab("a", &json!({"replicas": 1}))), 201, json!({})).await;
    for (replicas, message) in &invalid {
        check_rejected(&api, merge_patch(&path, &json!({"spec": {"replicas": replicas}})), message).await;
    }
    check_rejected(&api, merge_patch(format!("{path}/scale"), &json!({"spec": {"replicas": -1}})), invalid[0].1).await;
    let status = json!({"status": {"replicas": -1, "labelSelector": 7}});
    let message = "[.status.replicas: Invalid value: -1: should be a non-negative integer, .status.labelSelector: Invalid value: \"\": .status.labelSelector accessor error: 7 is of the type int64, expected string]";
    check_rejected(&api, merge_patch(format!("{path}/status"), &status), message).await;
}

/// Returns the path of an object `a` that was created before its kind had a scale.
async fn api_with_added_scale(kind: &str, replicas: &Value) -> TestApi {
    let mut definition = crontab_definition(&json!({"replicas": {"type": kind}}));
    let scale = definition["spec"]["versions"][0]["subresources"]["scale"].take();
    let api = TestApi::new().await;
    api.check(post(DEFINITIONS, &definition), 201, json!({})).await;
    api.check(post(CRONTABS, &crontab("a", &json!({"replicas": replicas}))), 201, json!({})).await;
    let change = json!([{"op": "add", "path": "/spec/versions/0/subresources/scale", "value": scale}]);
    api.check(patch("json-patch", format!("{DEFINITIONS}/crontabs.stable.example.com"), &change), 200, json!({})).await;
    api
}

#[tokio::test]
async fn status_write_ignores_invalid_spec_replicas() {
    let api = api_with_added_scale("integer", &json!(-1)).await;
    let path = format!("{CRONTABS}/a");
    api.check(merge_patch(format!("{path}/status"), &json!({"status": {"replicas": 1}})), 200, json!({})).await;
    let message = ".spec.replicas: Invalid value: -1: should be a non-negative integer";
    check_rejected(&api, merge_patch(&path, &json!({"metadata": {"labels": {"a": "b"}}})), message).await;
}

#[tokio::test]
async fn scale_of_non_integer_replicas_is_an_error() {
    let api = api_with_added_scale("string", &json!("x")).await;
    let message = json!({"message": ".spec.replicas accessor error: x is of the type string, expected int64"});
    let path = format!("{CRONTABS}/a/scale");
    api.check(get(&path), 500, message.clone()).await;
    api.check(merge_patch(&path, &json!({"spec": {"replicas": 1}})), 500, message).await;
}

#[tokio::test]
async fn unset_scale_replicas_can_be_set() {
    let api = api_with_crontabs(&crontab_properties()).await;
    for name in ["merged", "patched", "put", "applied", "empty"] {
        api.check(post(CRONTABS, &crontab(name, &json!({}))), 201, json!({})).await;
    }
    let path = |name: &str| format!("{CRONTABS}/{name}/scale");
    let set = json!({"spec": {"replicas": 3}});
    api.check(merge_patch(path("merged"), &set), 200, set.clone()).await;
    let replace = json!([{"op": "replace", "path": "/spec/replicas", "value": 3}]);
    api.check(patch("json-patch", path("patched"), &replace), 200, set.clone()).await;
    let scale = |name: &str, spec: Value| json!({"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": name}, "spec": spec});
    api.check(put(path("put"), &scale("put", json!({"replicas": 3}))), 200, set.clone()).await;
    let applied = scale("applied", json!({"replicas": 3}));
    // Server-side apply treats the number that stands for an unset value as a value with an earlier owner.
    let conflict = api.check(apply(path("applied"), "one", &applied), 409, json!({"reason": "Conflict"})).await.body;
    assert_eq!(conflict["details"]["causes"][0]["field"], ".spec.replicas");
    api.check(apply(format!("{}?force=true", path("applied")), "one", &applied), 200, set.clone()).await;
    for name in ["merged", "patched", "put", "applied"] {
        api.check(get(format!("{CRONTABS}/{name}")), 200, set.clone()).await;
    }
    let message =
        json!({"reason": "BadRequest", "message": "the spec replicas field \".spec.replicas\" cannot be empty"});
    let labels = json!({"metadata": {"labels": {"a": "b"}}});
    api.check(merge_patch(path("empty"), &labels), 400, message.clone()).await;
    api.check(apply(path("empty"), "one", &scale("empty", json!({}))), 400, message).await;
    let message = "Internal error occurred: the spec replicas field \".spec.replicas\" does not exist";
    api.check(get(path("empty")), 500, json!({"message": message})).await;
}

#[tokio::test]
async fn scale_update_that_breaks_a_rule_is_rejected() {
    let mut definition = crontab_definition(&crontab_properties());
    definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["x-kubernetes-validations"] =
        json!([{"rule": "!has(self.replicas) || self.replicas % 2 == 0", "message": "must be even"}]);
    let api = TestApi::new().await;
    api.check(post(DEFINITIONS, &definition), 201, json!({})).await;
    api.check(post(CRONTABS, &crontab("a", &json!({"replicas": 2}))), 201, json!({})).await;
    let path = format!("{CRONTABS}/a/scale");
    let scale = |replicas: i32| json!({"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "a"}, "spec": {"replicas": replicas}});
    check_rejected(&api, merge_patch(&path, &json!({"spec": {"replicas": 3}})), "spec: Invalid value: must be even")
        .await;
    check_rejected(&api, put(&path, &scale(3)), "spec: Invalid value: must be even").await;
    let forced = format!("{path}?force=true");
    check_rejected(&api, apply(forced, "m", &scale(3)), "spec: Invalid value: must be even").await;
    let large = "spec.replicas: Invalid value: 12: spec.replicas in body should be less than or equal to 10";
    check_rejected(&api, merge_patch(&path, &json!({"spec": {"replicas": 12}})), large).await;
    api.check(merge_patch(&path, &json!({"spec": {"replicas": 4}})), 200, json!({"spec": {"replicas": 4}})).await;
}

#[tokio::test]
async fn scale_put_requires_the_name_of_its_path() {
    let api = api_with_crontabs(&crontab_properties()).await;
    api.check(post(CRONTABS, &crontab("a", &json!({}))), 201, json!({})).await;
    let path = format!("{CRONTABS}/a/scale");
    let scale = |metadata: Value| json!({"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": metadata, "spec": {"replicas": 3}});
    for (metadata, reason) in [
        (json!({}), "the name of the object (a based on URL) was undeterminable: name must be provided"),
        (json!({"name": "b"}), "the name of the object (b) does not match the name on the URL (a)"),
    ] {
        api.check(put(&path, &scale(metadata)), 400, json!({"message": reason})).await;
    }
}
