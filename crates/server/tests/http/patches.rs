//! Patch types of the API; `src/patch` tests how lists merge.

use crate::common::*;
use serde_json::{Value, json};

async fn api() -> TestApi {
    let api = TestApi::new().await;
    let object = json!({"metadata": {"name": "a", "labels": {"x": "1"}}, "data": {"k": "v", "l": "w"}});
    api.check(post(CONFIG_MAPS, &object), 201, json!({})).await;
    api
}

#[tokio::test]
async fn each_patch_type_is_applied() {
    for (kind, body) in [
        ("merge-patch", json!({"metadata": {"labels": {"x": null, "y": "2"}}, "data": {"k": "n"}})),
        ("strategic-merge-patch", json!({"metadata": {"labels": {"x": null, "y": "2"}}, "data": {"k": "n"}})),
        (
            "json-patch",
            json!([{"op": "test", "path": "/data/k", "value": "v"}, {"op": "replace", "path": "/data/k", "value": "n"},
                   {"op": "move", "from": "/metadata/labels/x", "path": "/metadata/labels/y"}, {"op": "add", "path": "/metadata/labels/y", "value": "2"}]),
        ),
    ] {
        let api = api().await;
        let expected = json!({"metadata": {"labels": {"x": null, "y": "2"}}, "data": {"k": "n", "l": "w"}});
        api.check(patch(kind, format!("{CONFIG_MAPS}/a"), &body), 200, expected.clone()).await;
        api.check(get(format!("{CONFIG_MAPS}/a")), 200, expected).await;
    }
}

#[tokio::test]
async fn strategic_merge_directives_are_applied() {
    let api = TestApi::new().await;
    let mut object = pod("p");
    object["metadata"]["finalizers"] = json!(["x.io/a", "x.io/b"]);
    object["metadata"]["labels"] = json!({"was": "there"});
    object["spec"]["containers"] = json!([{"name": "a", "image": "a:1"}, {"name": "b", "image": "b:1"}]);
    object["spec"]["tolerations"] = json!([{"key": "k", "operator": "Exists"}]);
    api.check(post(PODS, &object), 201, json!({})).await;
    let path = format!("{PODS}/p");
    let smp = |body: Value| patch("strategic-merge-patch", &path, &body);
    let images =
        |a: &str, b: &str| json!({"spec": {"containers": [{"name": "a", "image": a}, {"name": "b", "image": b}]}});
    api.check(smp(json!({"spec": {"containers": [{"name": "b", "image": "b:2"}]}})), 200, images("a:1", "b:2")).await;
    let ordered = json!({"spec": {"$setElementOrder/containers": [{"name": "a"}, {"name": "b"}], "containers": [{"name": "a", "image": "a:2"}]}});
    api.check(smp(ordered), 200, images("a:2", "b:2")).await;
    api.check(
        smp(json!({"metadata": {"$deleteFromPrimitiveList/finalizers": ["x.io/a"], "$setElementOrder/finalizers": ["x.io/c", "x.io/b"], "finalizers": ["x.io/c"]}})),
        200,
        json!({"metadata": {"finalizers": ["x.io/c", "x.io/b"]}}),
    )
    .await;
    api.check(
        smp(json!({"metadata": {"labels": {"$patch": "replace", "only": "this"}}})),
        200,
        json!({"metadata": {"labels": {"only": "this"}}}),
    )
    .await;
    api.check(smp(json!({"metadata": {"labels": {"$patch": "delete"}}})), 200, json!({"metadata": {"labels": null}}))
        .await;
    // A patch cannot remove a container of a Pod.
    api.check(
        smp(json!({"spec": {"containers": [{"name": "a", "$patch": "delete"}]}})),
        422,
        json!({"message": "Pod \"p\" is invalid: spec.containers: Forbidden: pod updates may not add or remove containers"}),
    )
    .await;
    // A strategic merge patch merges conditions by type.
    let condition = |kind: &str, status: &str| json!({"status": {"conditions": [{"type": kind, "status": status}]}});
    let status = |body: Value| patch("strategic-merge-patch", format!("{path}/status"), &body);
    api.check(status(condition("x.io/a", "True")), 200, condition("x.io/a", "True")).await;
    api.check(
        status(condition("x.io/b", "False")),
        200,
        json!({"status": {"conditions": [{"type": "x.io/b", "status": "False"}, {"type": "x.io/a", "status": "True"}]}}),
    )
    .await;
    api.check(
        status(condition("x.io/a", "False")),
        200,
        json!({"status": {"conditions": [{"type": "x.io/b"}, {"type": "x.io/a", "status": "False"}]}}),
    )
    .await;
}

#[tokio::test]
async fn invalid_patches_are_rejected() {
    let api = api().await;
    let path = format!("{CONFIG_MAPS}/a");
    let before = api.send(&get(&path)).await.body;
    let rejected = "the server rejected our request due to an error in our request";
    for (kind, body, code, reason, message) in [
        ("json-patch", json!([{"op": "test", "path": "/data/k", "value": "x"}]), 422, "Invalid", Some(rejected)),
        ("json-patch", json!([{"op": "remove", "path": "/nothing"}]), 422, "Invalid", Some(rejected)),
        ("json-patch", json!([{"op": "replace", "path": "", "value": 7}]), 422, "Invalid", None),
        ("json-patch", json!({}), 400, "BadRequest", None),
        ("json-patch", json!([{"op": "fly"}]), 422, "Invalid", Some(rejected)),
        ("merge-patch", json!([]), 422, "Invalid", None),
        ("merge-patch", json!({"data": {"k": 5}}), 422, "Invalid", None),
        ("merge-patch", json!({"kind": "Secret"}), 422, "Invalid", None),
        ("merge-patch", json!({"metadata": null}), 400, "BadRequest", None),
        (
            "strategic-merge-patch",
            json!([]),
            400,
            "BadRequest",
            Some("error decoding patch: a patch must be an object"),
        ),
        ("strategic-merge-patch", json!({"data": {"$patch": "odd"}}), 400, "BadRequest", None),
        ("strategic-merge-patch", json!({"$patch": "delete"}), 400, "BadRequest", None),
        ("json", json!({}), 415, "UnsupportedMediaType", None),
        ("apply-patch+cbor", json!({}), 415, "UnsupportedMediaType", None),
    ] {
        let mut expected = json!({"reason": reason, "code": code});
        if let Some(message) = message {
            expected["message"] = json!(message);
        }
        api.check(patch(kind, &path, &body), code, expected).await;
    }
    for bad in ["", "{", "nul", "{\"a\": 1e999}"] {
        let request = patch("merge-patch", &path, &Value::Null).text("application/merge-patch+json", bad);
        api.check(request, 400, json!({"reason": "BadRequest"})).await;
    }
    let duplicate = patch("merge-patch", format!("{path}?dryRun=All"), &Value::Null);
    let duplicate = TestRequest { headers: Vec::new(), ..duplicate }
        .text("application/merge-patch+json", r#"{"data": {"k": "a", "k": "b"}}"#);
    let response = api.check(duplicate, 200, json!({"data": {"k": "b"}})).await;
    assert_eq!(response.warnings(), [r#"299 - "duplicate field \"data.k\"""#]);
    assert_eq!(api.send(&get(&path)).await.body, before);
}

#[tokio::test]
async fn strategic_merge_to_wrong_type_is_rejected() {
    let api = TestApi::new().await;
    api.create_pod("p").await;
    let smp = |path: &str, body: Value| patch("strategic-merge-patch", format!("{PODS}/p{path}"), &body);
    for (body, returned, reason) in [
        (json!({"metadata": {"labels": "x"}}), "map[metadata:map[labels:x]]", "cannot restore map from string"),
        (
            json!({"metadata": {"finalizers": {}}}),
            "map[metadata:map[finalizers:map[]]]",
            "cannot restore slice from map",
        ),
        (
            json!({"metadata": {"labels": {"a": 1}}}),
            "map[metadata:map[labels:map[a:1]]]",
            "cannot convert int64 to string",
        ),
        (json!({"spec": "x"}), "map[spec:x]", "cannot restore struct from: string"),
        (json!({"spec": {"priority": "x"}}), "map[spec:map[priority:x]]", "unrecognized type: int32"),
    ] {
        let message = format!(" \"\" is invalid: patch: Invalid value: \"{returned}\": {reason}");
        api.check(smp("", body), 422, json!({"reason": "Invalid", "message": message})).await;
    }
    let whole = json!({"spec": {"activeDeadlineSeconds": 400}});
    api.check(smp("", json!({"spec": {"activeDeadlineSeconds": 400.0}})), 200, whole).await;
    // Other patch types produce JSON that is decoded.
    let response = api.send(&merge_patch(format!("{PODS}/p"), &json!({"metadata": {"labels": "x"}}))).await;
    let message = response.body["message"].as_str().unwrap();
    let expected_message =
        "json: cannot unmarshal string into Go struct field ObjectMeta.metadata.labels of type map[string]string";
    assert!(message.ends_with(expected_message), "{message}");
}
