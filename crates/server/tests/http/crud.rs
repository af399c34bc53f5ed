//! Create, get, update, delete, deletecollection, dry runs, generated names, finalizers, generation.

use crate::common::*;
use serde_json::{Value, json};

#[tokio::test]
async fn object_create_get_update_delete_roundtrip() {
    let api = TestApi::new().await;
    let given = json!({"metadata": {"name": "a", "uid": "mine", "creationTimestamp": "2001-01-01T00:00:00Z"}, "data": {"k": "v"}});
    let created = api
        .check(
            post(CONFIG_MAPS, &given),
            201,
            json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "a", "namespace": "default"}, "data": {"k": "v"}}),
        )
        .await
        .body;
    assert_ne!(created["metadata"]["uid"], "mine");
    assert_ne!(created["metadata"]["creationTimestamp"], "2001-01-01T00:00:00Z");
    let path = format!("{CONFIG_MAPS}/a");
    let read = api.check(get(&path), 200, json!({})).await.body;
    assert_eq!(read, created);
    api.check(
        post(CONFIG_MAPS, &given),
        409,
        json!({"kind": "Status", "reason": "AlreadyExists", "message": "configmaps \"a\" already exists", "details": {"name": "a", "kind": "configmaps"}}),
    )
    .await;
    let changed = json!({"metadata": {"name": "a"}, "data": {"k": "w"}});
    let after = api
        .check(put(&path, &changed), 200, json!({"data": {"k": "w"}, "metadata": {"uid": created["metadata"]["uid"], "creationTimestamp": created["metadata"]["creationTimestamp"]}}))
        .await
        .body;
    assert_ne!(resource_version(&after), resource_version(&created));
    // An update without changes keeps the resource version.
    let same = api.check(put(&path, &changed), 200, json!({})).await.body;
    assert_eq!(resource_version(&same), resource_version(&after));
    api.check(
        delete(&path),
        200,
        json!({"kind": "Status", "status": "Success", "details": {"name": "a", "kind": "configmaps", "uid": created["metadata"]["uid"], "group": null}}),
    )
    .await;
    let gone = json!({"kind": "Status", "reason": "NotFound", "message": "configmaps \"a\" not found", "code": 404});
    for request in [get(&path), put(&path, &changed), delete(&path), merge_patch(&path, &json!({}))] {
        api.check(request, 404, gone.clone()).await;
    }
}

#[tokio::test]
async fn path_and_body_mismatch_is_rejected() {
    let api = TestApi::new().await;
    api.create_config_map("a", json!({})).await;
    let named = |name: &str, namespace: &str| json!({"metadata": {"name": name, "namespace": namespace}});
    for (request, code, message) in [
        (
            post(CONFIG_MAPS, &named("b", "kube-system")),
            400,
            "the namespace of the provided object does not match the namespace sent on the request",
        ),
        (
            put(format!("{CONFIG_MAPS}/a"), &named("b", "default")),
            400,
            "the name of the object (b) does not match the name on the URL (a)",
        ),
        (
            put(format!("{CONFIG_MAPS}/a"), &json!({})),
            400,
            "the name of the object (a based on URL) was undeterminable: name must be provided",
        ),
        (
            put(format!("{CONFIG_MAPS}/a"), &named("a", "kube-system")),
            400,
            "the namespace of the object (kube-system) does not match the namespace on the request (default)",
        ),
        (
            merge_patch(format!("{CONFIG_MAPS}/a"), &json!({"metadata": {"name": "b"}})),
            400,
            "the name of the object (b) does not match the name on the URL (a)",
        ),
        (
            post(CONFIG_MAPS, &json!({"apiVersion": "v2", "metadata": {"name": "b"}})),
            400,
            "the API version in the data (v2) does not match the expected API version (v1)",
        ),
        (post("/api/v1/namespaces/none/configmaps", &named("a", "")), 404, "namespaces \"none\" not found"),
        (
            post("/api/v1/configmaps", &named("a", "default")),
            405,
            "the server does not allow this method on the requested resource",
        ),
        (
            post(format!("{CONFIG_MAPS}/a"), &named("a", "")),
            405,
            "the server does not allow this method on the requested resource",
        ),
        (get("/api/v1/configmaps/a"), 404, "the server could not find the requested resource"),
        (get("/api/v1/gadgets"), 404, "the server could not find the requested resource"),
        (get(format!("{CONFIG_MAPS}/a/status")), 404, "the server could not find the requested resource"),
        (get(format!("{CONFIG_MAPS}/..")), 400, "Name parameter invalid: \"..\": may not be '..'"),
        (get(format!("{CONFIG_MAPS}/a%2Fb")), 400, "Name parameter invalid: \"a/b\": may not contain '/'"),
    ] {
        api.check(request, code, json!({"kind": "Status", "status": "Failure", "code": code, "message": message}))
            .await;
    }
}

#[tokio::test]
async fn generate_name_appends_a_suffix_and_truncates() {
    let api = TestApi::new().await;
    let object = json!({"metadata": {"generateName": "web-"}});
    let (a, b) = (api.send(&post(CONFIG_MAPS, &object)).await.body, api.send(&post(CONFIG_MAPS, &object)).await.body);
    let (a, b) = (a["metadata"]["name"].as_str().unwrap(), b["metadata"]["name"].as_str().unwrap());
    assert!(a != b && a.len() == 9 && a.starts_with("web-"), "{a} {b}");
    let long = json!({"metadata": {"generateName": "x".repeat(100)}});
    let name = api.send(&post(CONFIG_MAPS, &long)).await.body["metadata"]["name"].as_str().unwrap().to_owned();
    assert_eq!(name.len(), 63);
    let kept =
        api.check(get(format!("{CONFIG_MAPS}/{a}")), 200, json!({"metadata": {"generateName": "web-"}})).await.body;
    assert_eq!(kept["metadata"]["name"], a);
    let bad = json!({"metadata": {"generateName": "Web-"}});
    let response = api.check(post(CONFIG_MAPS, &bad), 422, json!({"reason": "Invalid"})).await.body;
    let fields: Vec<&Value> = response["details"]["causes"].as_array().unwrap().iter().map(|c| &c["field"]).collect();
    assert_eq!(fields, ["metadata.generateName", "metadata.name"]);
}

#[tokio::test]
async fn dry_run_returns_the_result_and_stores_nothing() {
    let api = TestApi::new().await;
    api.bound_pod("p").await;
    let before = api.send(&get(PODS)).await.body;
    let path = format!("{PODS}/p");
    api.check(
        post(format!("{PODS}?dryRun=All"), &pod("q")),
        201,
        json!({"metadata": {"name": "q"}, "spec": {"restartPolicy": "Always"}}),
    )
    .await;
    api.check(post(format!("{PODS}?dryRun=All"), &pod("p")), 409, json!({"reason": "AlreadyExists"})).await;
    api.check(
        merge_patch(format!("{path}?dryRun=All"), &json!({"metadata": {"labels": {"a": "b"}}})),
        200,
        json!({"metadata": {"labels": {"a": "b"}}}),
    )
    .await;
    api.check(delete(format!("{path}?dryRun=All")), 200, json!({})).await;
    api.check(delete_with_options(&path, &json!({"dryRun": ["All"]})), 200, json!({})).await;
    api.check(delete(format!("{PODS}?dryRun=All")), 200, json!({"items": [{}]})).await;
    let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"}});
    api.check(post(format!("{path}/eviction?dryRun=All"), &eviction), 201, json!({})).await;
    api.check(
        post(format!("{PODS}?dryRun=Some"), &pod("q")),
        422,
        json!({"message": "CreateOptions.meta.k8s.io \"\" is invalid: dryRun: Unsupported value: [\"Some\"]: supported values: \"All\""}),
    )
    .await;
    assert_eq!(api.send(&get(PODS)).await.body, before);
}

#[tokio::test]
async fn deletecollection_uses_selector_and_namespace() {
    let api = TestApi::new().await;
    for (name, tier) in [("a", "x"), ("b", "y"), ("c", "x")] {
        api.create_config_map(name, json!({"tier": tier})).await;
    }
    let list = api
        .check(delete(format!("{CONFIG_MAPS}?labelSelector=tier%3Dx")), 200, json!({"kind": "ConfigMapList"}))
        .await
        .body;
    assert_eq!(list["items"].as_array().unwrap().len(), 2);
    let shaped = |shape: &str| {
        let accept = format!("application/json;as={shape};v=v1;g=meta.k8s.io");
        delete(format!("{CONFIG_MAPS}?dryRun=All")).header("accept", &accept)
    };
    let row = json!({"object": {"kind": "PartialObjectMetadata", "metadata": {"name": "b"}}});
    api.check(shaped("Table"), 200, json!({"kind": "Table", "rows": [row]})).await;
    let item = json!({"metadata": {"name": "b"}});
    api.check(shaped("PartialObjectMetadataList"), 200, json!({"kind": "PartialObjectMetadataList", "items": [item]}))
        .await;
    api.check(get(CONFIG_MAPS), 200, json!({"items": [{"metadata": {"name": "b"}}]})).await;
    api.check(delete("/api/v1/configmaps"), 405, json!({"reason": "MethodNotAllowed"})).await;
    api.check(delete("/api/v1/namespaces"), 405, json!({"reason": "MethodNotAllowed"})).await;
    api.check(delete(CONFIG_MAPS), 200, json!({"items": [{"metadata": {"name": "b"}}]})).await;
    api.check(get(CONFIG_MAPS), 200, json!({"items": []})).await;
}

#[tokio::test]
async fn deletecollection_honors_the_limit() {
    let api = TestApi::new().await;
    for name in ["a", "b", "c"] {
        api.create_config_map(name, json!({})).await;
    }
    let items = json!([{"metadata": {"name": "a"}}, {"metadata": {"name": "b"}}]);
    let page = api.check(delete(format!("{CONFIG_MAPS}?limit=2")), 200, json!({"items": items})).await.body;
    assert!(page["metadata"]["continue"].is_string(), "{page}");
    api.check(get(CONFIG_MAPS), 200, json!({"items": [{"metadata": {"name": "c"}}]})).await;
    api.check(delete(format!("{CONFIG_MAPS}?resourceVersionMatch=Exact")), 422, json!({"reason": "Invalid"})).await;
    api.check(get(format!("{CONFIG_MAPS}?limit=-1")), 200, json!({"items": [{"metadata": {"name": "c"}}]})).await;
}

#[tokio::test]
async fn create_with_resource_version_is_rejected() {
    let api = TestApi::new().await;
    let object = |version: &str| json!({"metadata": {"name": "a", "resourceVersion": version}});
    let message = json!({"message": "resourceVersion should not be set on objects to be created", "code": 500});
    api.check(post(CONFIG_MAPS, &object("7")), 500, message.clone()).await;
    // A dry run only checks in the store whether the name is taken.
    api.check(post(format!("{CONFIG_MAPS}?dryRun=All"), &object("7")), 201, json!({})).await;
    api.check(post(CONFIG_MAPS, &object("")), 201, json!({})).await;
    api.check(post(CONFIG_MAPS, &object("7")), 500, message).await;
    let unread = json!({"metadata": {"name": "b", "resourceVersion": "x"}});
    api.check(post(CONFIG_MAPS, &unread), 201, json!({})).await;
}

#[tokio::test]
async fn create_runs_admission_before_resource_version_check() {
    let api = TestApi::new().await;
    let object = |name: &str| json!({"metadata": {"name": name, "resourceVersion": "7"}});
    let invalid = json!({"message": "ConfigMap \"A\" is invalid: metadata.name: Invalid value: \"A\": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"});
    api.check(post(CONFIG_MAPS, &object("A")), 422, invalid).await;
    let gone = json!({"message": "namespaces \"none\" not found"});
    api.check(post("/api/v1/namespaces/none/configmaps", &object("a")), 404, gone).await;
    crate::validating_admission_policies::create_policy(
        &api,
        "never",
        json!({"validations": [{"expression": "false", "message": "no"}]}),
    )
    .await;
    crate::validating_admission_policies::create_binding(&api, "never", "never", json!({})).await;
    let rejected =
        "configmaps \"a\" is forbidden: ValidatingAdmissionPolicy 'never' with binding 'never' denied request: no";
    api.check(post(CONFIG_MAPS, &object("a")), 422, json!({"message": rejected})).await;
    let hard = json!({"hard": {"secrets": "0"}});
    let quota = json!({"metadata": {"name": "q"}, "spec": hard});
    api.check(post("/api/v1/namespaces/default/resourcequotas", &quota), 201, json!({})).await;
    let message =
        "secrets \"a\" is forbidden: exceeded quota: q, requested: secrets=1, used: secrets=0, limited: secrets=0";
    api.check(post("/api/v1/namespaces/default/secrets", &object("a")), 403, json!({"message": message})).await;
}

#[tokio::test]
async fn object_is_kept_until_its_last_finalizer_is_removed() {
    let api = TestApi::new().await;
    let path = format!("{CONFIG_MAPS}/a");
    let object = json!({"metadata": {"name": "a", "finalizers": ["x.io/a", "x.io/b"]}});
    api.check(post(CONFIG_MAPS, &object), 201, json!({})).await;
    // The response is the object, not a Status, because the object still exists.
    let marked = api
        .check(delete(&path), 200, json!({"kind": "ConfigMap", "metadata": {"deletionGracePeriodSeconds": 0}}))
        .await
        .body;
    assert!(marked["metadata"]["deletionTimestamp"].is_string());
    let again = api.check(delete(&path), 200, json!({"kind": "ConfigMap"})).await.body;
    assert_eq!(resource_version(&again), resource_version(&marked));
    let added = json!({"metadata": {"finalizers": ["x.io/a", "x.io/b", "x.io/c"]}});
    api.check(
        merge_patch(&path, &added),
        422,
        json!({"message": "ConfigMap \"a\" is invalid: metadata.finalizers: Forbidden: no new finalizers can be added if the object is being deleted, found new finalizers []string{\"x.io/c\"}"}),
    )
    .await;
    api.check(
        merge_patch(&path, &json!({"metadata": {"finalizers": ["x.io/b"]}})),
        200,
        json!({"metadata": {"finalizers": ["x.io/b"]}}),
    )
    .await;
    api.check(
        merge_patch(&path, &json!({"metadata": {"finalizers": null}})),
        200,
        json!({"metadata": {"finalizers": null}}),
    )
    .await;
    api.check(get(&path), 404, json!({})).await;
}

#[tokio::test]
async fn generation_increments_on_spec_changes_only() {
    let api = TestApi::new().await;
    let path = format!("{PODS}/p");
    let generation = |n: i64| json!({"metadata": {"generation": n}});
    api.check(post(PODS, &pod("p")), 201, generation(1)).await;
    api.check(merge_patch(&path, &json!({"metadata": {"labels": {"a": "b"}, "generation": 9}})), 200, generation(1))
        .await;
    api.check(merge_patch(format!("{path}/status"), &json!({"status": {"message": "x"}})), 200, generation(1)).await;
    api.check(merge_patch(&path, &json!({"spec": {"activeDeadlineSeconds": 5}})), 200, generation(2)).await;
    let binding = json!({"metadata": {"name": "p"}, "target": {"name": "n"}});
    api.check(post(format!("{path}/binding"), &binding), 201, json!({})).await;
    api.check(get(&path), 200, generation(2)).await;
    api.check(delete(&path), 200, generation(3)).await;
    // A ConfigMap has no generation.
    let created = api.create_config_map("a", json!({})).await;
    assert!(created["metadata"]["generation"].is_null());
}

#[tokio::test]
async fn head_returns_headers_without_body() {
    let api = TestApi::new().await;
    for (path, status) in [("/version", 200), ("/healthz", 200), ("/nowhere", 404)] {
        let whole = api.send(&get(path)).await;
        let head = api.send(&TestRequest { method: "HEAD", ..get(path) }).await;
        assert_eq!((head.status, &head.body), (status, &Value::Null), "{path}");
        assert_eq!(head.headers["content-type"], whole.headers["content-type"], "{path}");
        assert!(head.headers["content-length"].to_str().unwrap() != "0", "{path}");
    }
}

/// Permission on `status` only must not allow deletion of the object.
#[tokio::test]
async fn status_subresource_does_not_allow_delete() {
    let api = TestApi::new().await;
    api.create_pod("p").await;
    api.check(post("/api/v1/nodes", &json!({"metadata": {"name": "n"}})), 201, json!({})).await;
    let rejected = json!({"reason": "MethodNotAllowed"});
    for path in [format!("{PODS}/p"), "/api/v1/nodes/n".to_owned(), "/api/v1/namespaces/default".to_owned()] {
        api.check(delete(format!("{path}/status")), 405, rejected.clone()).await;
        let there = api.check(get(&path), 200, json!({})).await.body;
        assert!(there["metadata"]["deletionTimestamp"].is_null(), "{path}");
    }
}

#[tokio::test]
async fn update_name_mismatch_and_invalid_timeout_are_rejected() {
    let api = TestApi::new().await;
    let message = "the name of the object (other) does not match the name on the URL (none)";
    let other = json!({"metadata": {"name": "other"}});
    api.check(put(format!("{CONFIG_MAPS}/none"), &other), 400, json!({"message": message})).await;
    api.check(get(format!("{CONFIG_MAPS}?timeout=-1s")), 200, json!({})).await;
    // `timeout` is checked on every path but those of long-running requests.
    let invalid = "invalid timeout specified in the request URL - time: invalid duration \"x\"";
    for path in ["/version", "/apis", "/livez"] {
        api.check(get(format!("{path}?timeout=x")), 400, json!({"message": invalid})).await;
    }
    api.watch(&format!("{CONFIG_MAPS}?watch=1&timeout=x")).await;
    api.check(post("/version", &json!({})), 405, json!({"reason": "MethodNotAllowed"})).await;
}

#[tokio::test]
async fn delete_without_orphaning_returns_accepted_if_kept() {
    let api = TestApi::new().await;
    for (options, expected) in [
        (json!({"orphanDependents": false}), 202),
        (json!({"orphanDependents": true}), 200),
        (json!({"propagationPolicy": "Background"}), 200),
    ] {
        let created = json!({"metadata": {"generateName": "c-", "finalizers": ["x.io/y"]}});
        let created = api.check(post(CONFIG_MAPS, &created), 201, json!({})).await.body;
        let path = format!("{CONFIG_MAPS}/{}", created["metadata"]["name"].as_str().unwrap());
        api.check(delete_with_options(&path, &options), expected, json!({"kind": "ConfigMap"})).await;
    }
}
