//! Server-side apply: ownership, conflicts and errors.

use crate::common::{
    CONFIG_MAPS, PODS, TestApi, TestRequest, apply, get, managers, merge_patch, owned_fields, pod, put,
    resource_version,
};
use serde_json::{Value, json};

fn config_map(name: &str, data: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data})
}

#[tokio::test]
async fn apply_creates_then_updates_and_tracks_managers() {
    let api = TestApi::new().await;
    let path = format!("{CONFIG_MAPS}/c");
    let created =
        api.check(apply(&path, "a", &config_map("c", json!({"k": "v", "l": "w"}))), 201, json!({})).await.body;
    assert_eq!(managers(&created), ["a Apply"]);
    assert_eq!(owned_fields(&created, "a"), json!({"f:data": {"f:k": {}, "f:l": {}}}));
    let expected = json!({"data": {"k": "x", "l": null}});
    let changed = api.check(apply(&path, "a", &config_map("c", json!({"k": "x"}))), 200, expected).await.body;
    assert_ne!(resource_version(&created), resource_version(&changed));
    let again = api.check(apply(&path, "a", &config_map("c", json!({"k": "x"}))), 200, json!({})).await.body;
    assert_eq!(again, changed, "a repeated apply changes nothing");
    let expected = json!({"data": {"k": "x", "m": "y"}});
    let other = api.check(apply(&path, "b", &config_map("c", json!({"m": "y"}))), 200, expected).await.body;
    assert_eq!(managers(&other), ["a Apply", "b Apply"]);
    let gone =
        api.check(apply(&path, "a", &config_map("c", json!({}))), 200, json!({"data": {"k": null, "m": "y"}})).await;
    // An empty map is owned itself.
    assert_eq!(owned_fields(&gone.body, "a"), json!({"f:data": {}}));
}

#[tokio::test]
async fn dry_run_apply_stores_nothing() {
    let api = TestApi::new().await;
    let path = format!("{CONFIG_MAPS}/c?dryRun=All");
    api.check(apply(&path, "a", &config_map("c", json!({"k": "v"}))), 201, json!({"data": {"k": "v"}})).await;
    api.check(get(format!("{CONFIG_MAPS}/c")), 404, json!({})).await;
}

#[tokio::test]
async fn apply_conflicts_are_reported_and_overridden_by_force() {
    let api = TestApi::new().await;
    let path = format!("{CONFIG_MAPS}/c");
    api.check(apply(&path, "a", &config_map("c", json!({"k": "v", "l": "w"}))), 201, json!({})).await;
    let one = apply(&path, "b", &config_map("c", json!({"k": "x"})));
    let expected = json!({
        "kind": "Status", "status": "Failure", "reason": "Conflict", "code": 409,
        "message": "Apply failed with 1 conflict: conflict with \"a\": .data.k",
        "details": {"name": null, "causes": [
            {"reason": "FieldManagerConflict", "message": "conflict with \"a\"", "field": ".data.k"},
        ]},
    });
    api.check(one, 409, expected).await;
    let patch = merge_patch(format!("{path}?fieldManager=u"), &json!({"data": {"l": "z"}}));
    api.check(patch, 200, json!({})).await;
    let two = config_map("c", json!({"k": "x", "l": "y"}));
    let message =
        "Apply failed with 2 conflicts: conflicts with \"a\":\n- .data.k\nconflicts with \"u\" using v1:\n- .data.l";
    api.check(apply(&path, "b", &two), 409, json!({"message": message})).await;
    let forced = api.check(apply(format!("{path}?force=true"), "b", &two), 200, json!({"data": {"k": "x", "l": "y"}}));
    assert_eq!(managers(&forced.await.body), ["b Apply"]);
}

#[tokio::test]
async fn invalid_apply_is_rejected() {
    let api = TestApi::new().await;
    let path = format!("{CONFIG_MAPS}/c");
    let good = || config_map("c", json!({"k": "v"}));
    let with = |field: &str, value: Value| {
        let mut object = good();
        object["metadata"][field] = value;
        object
    };
    let required =
        "PatchOptions.meta.k8s.io \"\" is invalid: fieldManager: Required value: is required for apply patch";
    api.check(apply(&path, "", &good()), 422, json!({"reason": "Invalid", "message": required})).await;
    let mut long = "m".repeat(129);
    let too_long = "PatchOptions.meta.k8s.io \"\" is invalid: fieldManager: Too long: may not be more than 128 bytes";
    api.check(apply(&path, &long, &good()), 422, json!({"message": too_long})).await;
    long.pop();
    api.check(apply(format!("{path}?dryRun=All"), &long, &good()), 201, json!({})).await;
    let unprintable = "PatchOptions.meta.k8s.io \"\" is invalid: fieldManager: Invalid value: \"a\\a\": invalid character U+0007 (at position 1)";
    api.check(apply(&path, "a%07", &good()), 422, json!({"message": unprintable})).await;
    let forced = "PatchOptions.meta.k8s.io \"\" is invalid: force: Forbidden: may not be specified for non-apply patch";
    api.check(merge_patch(format!("{path}?force=true"), &json!({})), 422, json!({"message": forced})).await;
    let mut secret = good();
    secret["kind"] = json!("Secret");
    for (object, code, message) in [
        (secret, 400, "invalid object type: /v1, Kind=Secret"),
        (json!({}), 400, "invalid object type: /, Kind="),
        (json!(null), 400, "invalid object type: /, Kind="),
        (json!([]), 400, "error decoding YAML: a configuration must be an object"),
        (with("managedFields", json!([{"manager": "m"}])), 400, "metadata.managedFields must be nil"),
        (with("name", json!("d")), 400, "the name of the object (d) does not match the name on the URL (c)"),
        (
            with("name", json!(null)),
            400,
            "the name of the object (c based on URL) was undeterminable: name must be provided",
        ),
        (
            with("namespace", json!("other")),
            400,
            "the namespace of the provided object does not match the namespace sent on the request",
        ),
        (
            with("uid", json!("u")),
            409,
            "Operation cannot be fulfilled on configmaps \"c\": uid mismatch: the provided object specified uid u, and no existing object was found",
        ),
        (
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "dat": {}}),
            400,
            "failed to create typed patch object (/c; /v1, Kind=ConfigMap): .dat: field not declared in schema",
        ),
        (
            config_map("c", json!({"k": 1})),
            400,
            "failed to create typed patch object (/c; /v1, Kind=ConfigMap): .data.k: expected string, got 1",
        ),
        (
            with("finalizers", json!(["a.b/c", "a.b/c"])),
            400,
            "failed to create typed patch object (/c; /v1, Kind=ConfigMap): .metadata.finalizers: duplicate entries for key [=\"a.b/c\"]",
        ),
    ] {
        api.check(apply(&path, "a", &object), code, json!({"message": message, "code": code})).await;
    }
    api.check(get(&path), 404, json!({})).await;
}

#[tokio::test]
async fn apply_checks_resource_version_and_uid() {
    let api = TestApi::new().await;
    let path = format!("{CONFIG_MAPS}/c");
    let created = api.check(apply(&path, "a", &config_map("c", json!({"k": "v"}))), 201, json!({})).await.body;
    let mut next = config_map("c", json!({"k": "w"}));
    next["metadata"]["resourceVersion"] = json!("1");
    let modified = "Operation cannot be fulfilled on configmaps \"c\": the object has been modified; please apply your changes to the latest version and try again";
    api.check(apply(&path, "a", &next), 409, json!({"reason": "Conflict", "message": modified})).await;
    next["metadata"]["resourceVersion"] = json!(resource_version(&created));
    next["metadata"]["uid"] = json!("another");
    api.check(apply(&path, "a", &next), 422, json!({"reason": "Invalid"})).await;
    next["metadata"]["uid"] = created["metadata"]["uid"].clone();
    api.check(apply(&path, "a", &next), 200, json!({"data": {"k": "w"}})).await;
}

#[tokio::test]
async fn apply_accepts_yaml_and_reports_duplicate_keys() {
    let api = TestApi::new().await;
    let path = |query: &str| format!("{CONFIG_MAPS}/c?fieldManager=a&{query}");
    let request = |query: &str, text: &str| {
        TestRequest { headers: Vec::new(), ..apply(path(query), "a", &Value::Null) }
            .text("application/apply-patch+yaml", text)
    };
    let text = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\ndata:\n  k: v\n";
    api.check(request("", text), 201, json!({"data": {"k": "v"}})).await;
    let twice = format!("{text}  k: w\n");
    let response = api.check(request("", &twice), 200, json!({"data": {"k": "w"}})).await;
    assert_eq!(response.warnings().len(), 1, "{:?}", response.warnings());
    let ignored = api.check(request("fieldValidation=Ignore", &twice), 200, json!({})).await;
    assert_eq!(ignored.warnings(), Vec::<String>::new());
    let rejected = api.check(request("fieldValidation=Strict", &twice), 400, json!({"reason": "BadRequest"})).await;
    assert!(rejected.body["message"].as_str().unwrap().starts_with("error strict decoding YAML: "));
    for bad in ["{", "a: [", "\u{1}", "a: &a [*a]", "- x", "7"] {
        let response = api.check(request("", bad), 400, json!({"reason": "BadRequest"})).await;
        assert!(response.body["message"].as_str().unwrap().starts_with("error decoding YAML: "), "{bad}");
    }
}

#[tokio::test]
async fn apply_defaults_the_protocol_key_of_ports() {
    let api = TestApi::new().await;
    let path = format!("{PODS}/p");
    let mut first = pod("p");
    first["spec"]["containers"][0]["ports"] = json!([{"containerPort": 80}, {"containerPort": 80, "protocol": "UDP"}]);
    let created = api.check(apply(&path, "a", &first), 201, json!({})).await.body;
    let ports = &owned_fields(&created, "a")["f:spec"]["f:containers"]["k:{\"name\":\"c\"}"]["f:ports"];
    let expected = json!({
        "k:{\"containerPort\":80,\"protocol\":\"TCP\"}": {".": {}, "f:containerPort": {}},
        "k:{\"containerPort\":80,\"protocol\":\"UDP\"}": {".": {}, "f:containerPort": {}, "f:protocol": {}},
    });
    assert_eq!(ports, &expected);
    let again = api.check(apply(&path, "a", &first), 200, json!({})).await.body;
    assert_eq!(resource_version(&again), resource_version(&created));
}

#[tokio::test]
async fn status_apply_is_separate_and_never_creates() {
    let api = TestApi::new().await;
    let condition = json!([{"type": "Mine", "status": "True"}]);
    let status =
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "status": {"conditions": condition}});
    let path = format!("{PODS}/p/status");
    api.check(apply(&path, "s", &status), 404, json!({"reason": "NotFound"})).await;
    api.check(apply(format!("{PODS}/p"), "a", &pod("p")), 201, json!({})).await;
    let body = api.check(apply(&path, "s", &status), 200, json!({"status": {"phase": "Pending"}})).await.body;
    assert_eq!(managers(&body), ["a Apply", "s Apply status"]);
    let expected =
        json!({"f:status": {"f:conditions": {"k:{\"type\":\"Mine\"}": {".": {}, "f:status": {}, "f:type": {}}}}});
    assert_eq!(owned_fields(&body, "s"), expected);
    // An apply to the object ignores its status, and an apply to the status ignores the rest.
    let mut both = pod("p");
    both["status"] = json!({"phase": "Failed"});
    both["metadata"]["labels"] = json!({"l": "1"});
    let expected = json!({"status": {"phase": "Pending", "conditions": condition}, "metadata": {"labels": {"l": "1"}}});
    let body = api.check(apply(format!("{PODS}/p"), "a", &both), 200, expected).await.body;
    assert_eq!(owned_fields(&body, "a")["f:status"], Value::Null);
    let empty = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}});
    let body = api.check(apply(&path, "s", &empty), 200, json!({"status": {"conditions": null}})).await.body;
    assert_eq!(managers(&body), ["a Apply"]);
}

#[tokio::test]
async fn kubectl_apply_takes_over_client_side_apply_fields() {
    let api = TestApi::new().await;
    let path = format!("{CONFIG_MAPS}/c");
    let annotation = "kubectl.kubernetes.io/last-applied-configuration";
    let last = config_map("c", json!({"k": "v"})).to_string();
    let mut object = config_map("c", json!({"k": "v"}));
    object["metadata"]["annotations"] = json!({annotation: last});
    let create = crate::common::post(format!("{CONFIG_MAPS}?fieldManager=kubectl-client-side-apply"), &object);
    api.check(create, 201, json!({})).await;
    let next = config_map("c", json!({"k": "w"}));
    api.check(apply(&path, "someone", &next), 409, json!({"reason": "Conflict"})).await;
    let body = api.check(apply(&path, "kubectl", &next), 200, json!({"data": {"k": "w"}})).await.body;
    assert_eq!(body["metadata"]["annotations"][annotation], format!("{next}\n"));
    assert_eq!(owned_fields(&body, "kubectl"), json!({"f:data": {"f:k": {}}}));
}

#[tokio::test]
async fn event_field_ownership_is_shared_by_both_groups() {
    let api = TestApi::new().await;
    let meta = json!({"name": "e", "namespace": "default"});
    let about = json!({"kind": "Pod", "name": "p", "namespace": "default"});
    let core = json!({"apiVersion": "v1", "kind": "Event", "metadata": meta, "involvedObject": about, "message": "m", "reason": "R", "type": "Normal", "count": 1});
    let path = "/api/v1/namespaces/default/events/e";
    api.check(apply(path, "a", &core), 201, json!({})).await;
    let metadata = json!({"name": "e", "namespace": "default", "labels": {"l": "b"}});
    let new = json!({"apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": metadata, "note": "n"});
    let message = "Apply failed with 1 conflict: conflict with \"a\": .message";
    let path = "/apis/events.k8s.io/v1/namespaces/default/events/e";
    api.check(apply(path, "b", &new), 409, json!({"message": message})).await;
    // Fields of an Event are immutable.
    let message = "Event \"e\" is invalid: message: Invalid value: \"n\": field is immutable";
    api.check(apply(format!("{path}?force=true"), "b", &new), 422, json!({"message": message})).await;
    let same = json!({"apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": metadata, "note": "m"});
    let body = api.check(apply(path, "b", &same), 200, json!({"note": "m"})).await.body;
    assert_eq!(owned_fields(&body, "b"), json!({"f:metadata": {"f:labels": {"f:l": {}}}, "f:note": {}}));
    assert_eq!(owned_fields(&body, "a")["f:message"], json!({}));
}

#[tokio::test]
async fn put_of_a_missing_object_fails_where_apply_creates() {
    let api = TestApi::new().await;
    let path = format!("{CONFIG_MAPS}/c");
    api.check(put(&path, &config_map("c", json!({"k": "v"}))), 404, json!({})).await;
    api.check(apply(&path, "a", &config_map("c", json!({"k": "v"}))), 201, json!({})).await;
}
