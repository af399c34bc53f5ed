//! Admission webhooks: matching, reviews and responses.

mod matching;
mod reinvocation;
mod subresources;

use crate::{common::*, webhook_server::WebhookServer};
use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::{Value, json};

pub(crate) const GROUP: &str = "/apis/admissionregistration.k8s.io/v1";

/// Returns a configuration with one webhook that matches all writes.
pub(crate) fn webhook_configuration(name: &str, config: Value, fields: Value) -> Value {
    let rule = json!({"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*/*"]});
    let mut webhook = json!({
        "name": format!("{name}.example.com"), "clientConfig": config, "rules": [rule], "sideEffects": "None",
        "admissionReviewVersions": ["v1"], "timeoutSeconds": 1,
    });
    for (field, value) in fields.as_object().unwrap() {
        webhook[field] = value.clone();
    }
    json!({"metadata": {"name": name}, "webhooks": [webhook]})
}

pub(crate) async fn create_mutating_webhook(api: &TestApi, name: &str, config: Value, fields: Value) {
    let path = format!("{GROUP}/mutatingwebhookconfigurations");
    api.check(post(path, &webhook_configuration(name, config, fields)), 201, json!({})).await;
}

pub(crate) async fn create_validating_webhook(api: &TestApi, name: &str, config: Value, fields: Value) {
    let path = format!("{GROUP}/validatingwebhookconfigurations");
    api.check(post(path, &webhook_configuration(name, config, fields)), 201, json!({})).await;
}

/// Returns a rule for one resource.
pub(crate) fn rule_for(resource: &str) -> Value {
    json!([{"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": [resource]}])
}

/// Returns an AdmissionReview with this response.
pub(crate) fn review_response(review: &Value, mut response: Value) -> (u16, Value) {
    response["uid"] = review["request"]["uid"].clone();
    if response["allowed"].is_null() {
        response["allowed"] = json!(true);
    }
    (200, json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}))
}

/// Returns an AdmissionReview with this JSON patch.
pub(crate) fn patch_response(review: &Value, patch: Value) -> (u16, Value) {
    review_response(review, json!({"patchType": "JSONPatch", "patch": STANDARD.encode(patch.to_string())}))
}

pub(crate) fn allow_response(_path: &str, review: &Value) -> (u16, Value) {
    review_response(review, json!({}))
}

#[tokio::test]
async fn validating_webhook_sees_mutated_object() {
    let api = TestApi::new().await;
    let hook = WebhookServer::new(|path, review| match path {
        "/change" => patch_response(
            review,
            json!([{"op": "add", "path": "/metadata/labels", "value": {"by": "hook"}},
                {"op": "add", "path": "/spec/containers/-", "value": {"name": "more", "image": "busybox:1", "unknown": 1}},
                {"op": "add", "path": "/metadata/annotations", "value": {"saw": review["request"]["object"]["spec"]["priority"].to_string()}}]),
        ),
        _ => review_response(review, json!({"warnings": ["mind the \"gap\""]})),
    })
    .await;
    create_mutating_webhook(&api, "changes", hook.client_config("/change"), json!({"rules": rule_for("pods")})).await;
    create_validating_webhook(&api, "checks", hook.client_config("/check"), json!({"rules": rule_for("pods")})).await;
    let expected = json!({"metadata": {"labels": {"by": "hook"}, "annotations": {"saw": "0"}},
        "spec": {"containers": [{"name": "c"}, {"name": "more", "imagePullPolicy": "IfNotPresent", "terminationMessagePath": "/dev/termination-log", "unknown": null}]}});
    let created = api.check(post(format!("{PODS}?fieldManager=me"), &pod("a")), 201, expected.clone()).await;
    assert_eq!(created.warnings(), ["299 - \"mind the \\\"gap\\\"\""]);
    let requests = hook.take_requests();
    let paths: Vec<&str> = requests.iter().map(|(path, _)| path.as_str()).collect();
    assert_eq!(paths, ["/change", "/check"]);
    let (changing, checking) = (&requests[0].1["request"], &requests[1].1["request"]);
    let about = json!({
        "kind": {"group": "", "version": "v1", "kind": "Pod"}, "resource": {"group": "", "version": "v1", "resource": "pods"},
        "requestKind": {"group": "", "version": "v1", "kind": "Pod"}, "requestResource": {"group": "", "version": "v1", "resource": "pods"},
        "name": "a", "namespace": "default", "operation": "CREATE", "dryRun": false, "oldObject": null, "subResource": null,
        "userInfo": {"username": "test", "groups": ["system:masters", "system:authenticated"]},
        "options": {"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1", "fieldManager": "me"},
    });
    for request in [changing, checking] {
        let mut mismatches = Vec::new();
        compare(&about, request, "", &mut mismatches);
        assert!(mismatches.is_empty(), "{mismatches:#?}");
    }
    // Validation runs after mutation, defaulting before.
    assert!(
        changing["object"]["metadata"]["uid"].is_null()
            && changing["object"]["spec"]["serviceAccountName"] == "default"
    );
    assert_eq!(changing["object"]["metadata"]["managedFields"][0]["manager"], "me");
    assert_eq!(checking["object"]["metadata"]["uid"], created.body["metadata"]["uid"]);
    assert_eq!(checking["object"]["spec"], created.body["spec"]);
    // Fields that a webhook sets have no manager.
    assert!(owned_fields(&created.body, "me")["f:metadata"]["f:labels"].is_null());
    api.check(get(format!("{PODS}/a")), 200, expected).await;
    // The review of an update has both objects.
    api.check(merge_patch(format!("{PODS}/a"), &json!({"metadata": {"labels": {"x": "y"}}})), 422, json!({})).await;
    let requests = hook.take_requests();
    assert_eq!(
        (&requests[0].1["request"]["operation"], &requests[0].1["request"]["oldObject"]["metadata"]["name"]),
        (&json!("UPDATE"), &json!("a"))
    );
    assert_eq!(requests[0].1["request"]["options"]["kind"], "UpdateOptions");
}

#[tokio::test]
async fn webhook_denial_message_is_returned() {
    let api = TestApi::new().await;
    let hook = WebhookServer::new(|path, review| match path {
        "/told" => review_response(review, json!({"allowed": false, "status": {"message": "not today", "code": 403, "reason": "Forbidden"}, "warnings": ["told anyway"]})),
        "/mute" => review_response(review, json!({"allowed": false})),
        _ => review_response(review, json!({})),
    })
    .await;
    let (message, mute) = (
        json!({"message": "admission webhook \"a.example.com\" denied the request: not today", "code": 403, "reason": "Forbidden", "status": "Failure"}),
        json!({"message": "admission webhook \"b.example.com\" denied the request without explanation", "code": 400}),
    );
    create_mutating_webhook(&api, "a", hook.client_config("/told"), json!({"rules": rule_for("configmaps")})).await;
    let response = api.check(post(CONFIG_MAPS, &json!({"metadata": {"name": "a"}})), 403, message).await;
    assert_eq!(response.warnings(), ["299 - \"told anyway\""]);
    api.check(delete(format!("{GROUP}/mutatingwebhookconfigurations/a")), 200, json!({})).await;
    create_validating_webhook(&api, "b", hook.client_config("/mute"), json!({"rules": rule_for("configmaps")})).await;
    api.check(post(CONFIG_MAPS, &json!({"metadata": {"name": "a"}})), 400, mute).await;
    api.check(get(format!("{CONFIG_MAPS}/a")), 404, json!({})).await;
    api.check(delete(format!("{GROUP}/validatingwebhookconfigurations/b")), 200, json!({})).await;
    api.check(post(CONFIG_MAPS, &json!({"metadata": {"name": "a"}})), 201, json!({})).await;
}

#[tokio::test]
async fn failing_webhook_follows_its_failure_policy() {
    let api = TestApi::new().await;
    let hook = WebhookServer::new(|path, review| match path {
        "/down" => (500, json!("out of order")),
        "/uid" => {
            (200, json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": {"uid": "x"}}))
        }
        "/patch" => patch_response(review, json!([])),
        "/type" => review_response(review, json!({"allowed": "yes"})),
        _ => (404, json!("")),
    })
    .await;
    let post_one = || post(CONFIG_MAPS, &json!({"metadata": {"generateName": "a-"}}));
    let url = |path: &str| format!("Post \"https://127.0.0.1:{}{path}?timeout=1s\"", hook.port);
    let cases = [
        ("/down", "failed to call webhook: an error on the server (\"out of order\") has prevented the request from succeeding".to_owned()),
        ("/none", "failed to call webhook: the server could not find the requested resource".to_owned()),
        ("/never", format!("failed to call webhook: {}: context deadline exceeded", url("/never"))),
        ("/type", "failed to call webhook: json: cannot unmarshal string into Go struct field AdmissionReview.response.allowed of type bool".to_owned()),
        ("/patch", "received invalid webhook response: validating webhook may not return response.patch".to_owned()),
    ];
    for (path, reason) in cases {
        for (policy, status) in [("Fail", 500), ("Ignore", 201)] {
            create_validating_webhook(
                &api,
                "v",
                hook.client_config(path),
                json!({"rules": rule_for("configmaps"), "failurePolicy": policy}),
            )
            .await;
            let message = format!("Internal error occurred: failed calling webhook \"v.example.com\": {reason}");
            let expected =
                if status == 500 { json!({"message": message, "reason": "InternalError"}) } else { json!({}) };
            api.check(post_one(), status, expected).await;
            api.check(delete(format!("{GROUP}/validatingwebhookconfigurations/v")), 200, json!({})).await;
        }
    }
    let nobody = json!({"url": "https://127.0.0.1:1/x", "caBundle": hook.ca_bundle()});
    create_mutating_webhook(&api, "m", nobody, json!({"rules": rule_for("configmaps")})).await;
    let reason = "failed to call webhook: Post \"https://127.0.0.1:1/x?timeout=1s\": dial tcp 127.0.0.1:1: connect: connection refused";
    let message = format!("Internal error occurred: failed calling webhook \"m.example.com\": {reason}");
    api.check(post_one(), 500, json!({"message": message})).await;
    let patient = json!({"rules": rule_for("configmaps"), "timeoutSeconds": 30});
    let nobody = json!({"url": "https://127.0.0.1:1/x", "caBundle": hook.ca_bundle()});
    api.check(delete(format!("{GROUP}/mutatingwebhookconfigurations/m")), 200, json!({})).await;
    create_mutating_webhook(&api, "m", nobody, patient).await;
    for (query, given) in [("?timeout=2500ms", 3), ("", 30), ("?timeout=50s", 30)] {
        let request = post(format!("{CONFIG_MAPS}{query}"), &json!({"metadata": {"generateName": "a-"}}));
        let message = message.replace("timeout=1s", &format!("timeout={given}s"));
        api.check(request, 500, json!({"message": message})).await;
    }
}

#[tokio::test]
async fn if_needed_webhook_is_reinvoked_after_changes() {
    let api = TestApi::new().await;
    // Each webhook appends its name.
    let hook = WebhookServer::new(|path, review| {
        let data = &review["request"]["object"]["data"];
        let seen = data["said"].as_str().unwrap_or("");
        if path == "/still" || seen.matches(path).count() > 1 {
            return review_response(review, json!({}));
        }
        patch_response(review, json!([{"op": "add", "path": "/data", "value": {"said": format!("{seen}{path}")}}]))
    })
    .await;
    let rules = rule_for("configmaps");
    create_mutating_webhook(
        &api,
        "a",
        hook.client_config("/a"),
        json!({"rules": rules, "reinvocationPolicy": "IfNeeded"}),
    )
    .await;
    create_mutating_webhook(&api, "b", hook.client_config("/b"), json!({"rules": rules})).await;
    create_mutating_webhook(
        &api,
        "c",
        hook.client_config("/c"),
        json!({"rules": rules, "reinvocationPolicy": "IfNeeded"}),
    )
    .await;
    create_mutating_webhook(&api, "d", hook.client_config("/still"), json!({"rules": rules})).await;
    let created = json!({"data": {"said": "/a/b/c/a/c"}});
    api.check(post(CONFIG_MAPS, &json!({"metadata": {"name": "a"}})), 201, created).await;
    let requests: Vec<String> = hook.take_requests().into_iter().map(|(path, _)| path).collect();
    assert_eq!(requests, ["/a", "/b", "/c", "/still", "/a", "/c"]);
}

#[tokio::test]
async fn webhook_may_not_change_identity_or_break_schema() {
    let api = TestApi::new().await;
    let hook = WebhookServer::new(|_, review| {
        let object = &review["request"]["object"];
        patch_response(review, object["data"]["patch"].as_str().map_or(json!([]), |p| serde_json::from_str(p).unwrap()))
    })
    .await;
    create_mutating_webhook(&api, "m", hook.client_config("/"), json!({"rules": rule_for("configmaps")})).await;
    let with = |patch: Value| json!({"metadata": {"name": "a"}, "data": {"patch": patch.to_string()}});
    let set = |path: &str, value: Value| with(json!([{"op": "add", "path": path, "value": value}]));
    api.check(post(CONFIG_MAPS, &set("/unknown", json!(1))), 201, json!({"unknown": null})).await;
    let update = |object: Value| put(format!("{CONFIG_MAPS}/a"), &object);
    api.check(
        update(set("/metadata/name", json!("b"))),
        400,
        json!({"message": "the name of the object (b) does not match the name on the URL (a)"}),
    )
    .await;
    api.check(update(set("/metadata/uid", json!("b"))), 422, json!({"reason": "Invalid"})).await;
    api.check(update(set("/data/x", json!(1))), 500, json!({"reason": "InternalError"})).await;
    let message = "Internal error occurred: error in remove for path: '/none': Unable to remove nonexistent key: none: missing value";
    let none = update(with(json!([{"op": "remove", "path": "/none"}])));
    api.check(none, 500, json!({"reason": "InternalError", "message": message})).await;
    // An invalid mutation is rejected by validation.
    let invalid = json!({"message": "ConfigMap \"a\" is invalid: metadata.labels: Invalid value: \"%\": a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"});
    api.check(update(set("/metadata/labels", json!({"a": "%"}))), 422, invalid).await;
    let other = json!({"metadata": {"name": "b"}, "data": {"patch": json!([{"op": "add", "path": "/metadata/namespace", "value": "kube-system"}]).to_string()}});
    api.check(post(CONFIG_MAPS, &other), 400, json!({})).await;
    // Invalid managed fields of a webhook are ignored.
    let owned = api
        .check(
            update(set("/metadata/managedFields", json!([{"manager": "x", "fieldsV1": {"f:a": {}}}]))),
            200,
            json!({}),
        )
        .await;
    assert_eq!(owned.warnings().len(), 1, "{:?}", owned.warnings());
    assert_eq!(managers(&owned.body), ["unknown Update"]);
    // A deletion has no object that could be patched.
    let hook =
        WebhookServer::new(|_, review| patch_response(review, json!([{"op": "add", "path": "/x", "value": 1}]))).await;
    create_mutating_webhook(&api, "n", hook.client_config("/"), json!({"rules": [{"operations": ["DELETE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]}]})).await;
    let reason = "Internal error occurred: admission webhook \"n.example.com\" attempted to modify the object, which is not supported for this operation";
    api.check(delete(format!("{CONFIG_MAPS}/a")), 500, json!({"message": reason})).await;
}

#[tokio::test]
async fn slow_webhook_does_not_block_other_services() {
    let (api, hook) = (TestApi::new().await, WebhookServer::new(allow_response).await);
    let slow = json!({"rules": rule_for("services"), "objectSelector": {"matchLabels": {"slow": "yes"}}, "failurePolicy": "Ignore"});
    create_validating_webhook(&api, "v", hook.client_config("/never"), slow).await;
    let make = |name: &str, labels: Value| {
        let object = json!({"metadata": {"name": name, "labels": labels}, "spec": {"ports": [{"port": 80}]}});
        post("/api/v1/namespaces/default/services", &object)
    };
    let slow = api.check(make("slow", json!({"slow": "yes"})), 201, json!({}));
    let fast = async {
        while hook.take_requests().is_empty() {
            tokio::task::yield_now().await;
        }
        api.check(make("fast", json!({})), 201, json!({})).await
    };
    match futures::future::select(slow, Box::pin(fast)).await {
        futures::future::Either::Right((fast, slow)) => {
            let address = |response: &TestResponse| response.body["spec"]["clusterIP"].as_str().unwrap().to_owned();
            assert_ne!(address(&fast), address(&slow.await));
        }
        futures::future::Either::Left(_) => panic!("one request waited for the other"),
    }
}

#[tokio::test]
async fn webhooks_skip_configurations_and_see_dry_run() {
    let api = TestApi::new().await;
    let hook = WebhookServer::new(allow_response).await;
    create_validating_webhook(&api, "a", hook.client_config("/"), json!({})).await;
    create_validating_webhook(&api, "b", hook.client_config("/"), json!({})).await;
    api.check(delete(format!("{GROUP}/validatingwebhookconfigurations/a")), 200, json!({})).await;
    assert!(hook.take_requests().is_empty());
    api.check(post(format!("{CONFIG_MAPS}?dryRun=All"), &json!({"metadata": {"name": "a"}})), 201, json!({})).await;
    let requests = hook.take_requests();
    assert_eq!(
        (&requests[0].1["request"]["dryRun"], &requests[0].1["request"]["options"]["dryRun"]),
        (&json!(true), &json!(["All"]))
    );
    assert_eq!(requests.len(), 1);
    api.check(get(format!("{CONFIG_MAPS}/a")), 404, json!({})).await;
    assert!(hook.take_requests().is_empty());
}
