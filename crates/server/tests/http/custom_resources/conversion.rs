//! Conversion webhooks of CustomResourceDefinitions.

use super::*;
use crate::webhook_server::WebhookServer;

const CRONTABS_V1BETA1: &str = "/apis/stable.example.com/v1beta1/namespaces/default/crontabs";

/// Returns a definition with `spec.schedule` in `v1`, and `spec.cron` in the storage version `v1beta1`.
fn definition(config: &Value) -> Value {
    let mut definition = crontab_definition(&json!({"schedule": {"type": "string"}, "replicas": {"type": "integer"},
        "given": {"type": "string", "default": "new"}}));
    let mut old = definition["spec"]["versions"][0].clone();
    old["name"] = json!("v1beta1");
    old["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"] =
        json!({"cron": {"type": "string"}, "replicas": {"type": "integer"}});
    definition["spec"]["versions"][0]["storage"] = json!(false);
    definition["spec"]["versions"].as_array_mut().unwrap().push(old);
    definition["spec"]["conversion"] = json!({"strategy": "Webhook",
        "webhook": {"clientConfig": config, "conversionReviewVersions": ["v1"]}});
    definition
}

/// Renames the field, and records the target version in an annotation.
fn convert(_path: &str, review: &Value) -> (u16, Value) {
    let request = &review["request"];
    let desired = request["desiredAPIVersion"].clone();
    let objects = request["objects"].as_array().unwrap().iter().map(|object| {
        let mut object = object.clone();
        let (from, to) = if desired == "stable.example.com/v1" { ("cron", "schedule") } else { ("schedule", "cron") };
        if let Some(value) = object["spec"].as_object_mut().and_then(|spec| spec.remove(from)) {
            object["spec"][to] = value;
        }
        object["spec"]["unknown"] = json!(true);
        object["apiVersion"] = desired.clone();
        object["metadata"]["annotations"]["to"] = desired.clone();
        object
    });
    let objects: Vec<Value> = objects.collect();
    let response = json!({"uid": request["uid"], "convertedObjects": objects, "result": {"status": "Success"}});
    (200, json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview", "response": response}))
}

async fn api_with_versions(hook: &WebhookServer) -> TestApi {
    let api = TestApi::new().await;
    api.check(post(DEFINITIONS, &definition(&hook.client_config("/convert"))), 201, json!({})).await;
    api
}

#[tokio::test]
async fn webhook_converts_between_stored_and_served_version() {
    let hook = WebhookServer::new(convert).await;
    let api = api_with_versions(&hook).await;
    let new = crontab("a", &json!({"schedule": "* * * * *", "replicas": 2}));
    let expected = json!({"apiVersion": "stable.example.com/v1",
        "spec": {"schedule": "* * * * *", "given": "new", "cron": null, "unknown": null}});
    // `given` is not in the schema of the storage version, so it is pruned.
    let expected_back = json!({"apiVersion": "stable.example.com/v1",
        "spec": {"schedule": "* * * * *", "cron": null, "unknown": null}});
    api.check(post(CRONTABS, &new), 201, expected_back.clone()).await;
    let requests = hook.take_requests();
    assert_eq!((requests.len(), &requests[0].0[..]), (2, "/convert"));
    let review = &requests[0].1;
    assert_eq!(review["apiVersion"], "apiextensions.k8s.io/v1");
    assert_eq!(review["request"]["desiredAPIVersion"], "stable.example.com/v1beta1");
    assert_contains(&expected, &review["request"]["objects"][0]);
    // A read in the storage version does not call the webhook.
    let stored = json!({"apiVersion": "stable.example.com/v1beta1", "spec": {"cron": "* * * * *", "schedule": null, "unknown": null},
        "metadata": {"annotations": {"to": "stable.example.com/v1beta1"}}});
    api.check(get(format!("{CRONTABS_V1BETA1}/a")), 200, stored).await;
    assert!(hook.take_requests().is_empty());
    api.check(get(format!("{CRONTABS}/a")), 200, expected_back).await;
    // A patch applies to the version of its path.
    let patch = json!({"spec": {"schedule": "1 * * * *"}});
    api.check(merge_patch(format!("{CRONTABS}/a"), &patch), 200, json!({"spec": {"schedule": "1 * * * *"}})).await;
    api.check(
        get(format!("{CRONTABS_V1BETA1}/a")),
        200,
        json!({"spec": {"cron": "1 * * * *"}, "metadata": {"generation": 2}}),
    )
    .await;
    let scaled = json!({"metadata": {"name": "a"}, "spec": {"replicas": 5}});
    api.check(put(format!("{CRONTABS}/a/scale"), &scaled), 200, json!({"spec": {"replicas": 5}})).await;
    api.check(get(format!("{CRONTABS}/a/scale")), 200, json!({"spec": {"replicas": 5}})).await;
    let status = json!({"status": {"replicas": 4}});
    api.check(
        merge_patch(format!("{CRONTABS}/a/status"), &status),
        200,
        json!({"apiVersion": "stable.example.com/v1", "status": {"replicas": 4}}),
    )
    .await;
    let applied = json!({"apiVersion": "stable.example.com/v1", "kind": "CronTab", "metadata": {"name": "a"}, "spec": {"schedule": "2 * * * *"}});
    api.check(
        apply(format!("{CRONTABS}/a?force=true"), "me", &applied),
        200,
        json!({"spec": {"schedule": "2 * * * *"}}),
    )
    .await;
    api.check(
        get(format!("{CRONTABS_V1BETA1}/a")),
        200,
        json!({"spec": {"cron": "2 * * * *", "replicas": 5}, "status": {"replicas": 4}}),
    )
    .await;
    api.check(delete(format!("{CRONTABS}/a")), 200, json!({"status": "Success"})).await;
}

/// Asserts that an object contains this JSON.
fn assert_contains(expected: &Value, got: &Value) {
    let mut mismatches = Vec::new();
    compare(expected, got, "", &mut mismatches);
    assert!(mismatches.is_empty(), "{mismatches:#?}\n{got:#}");
}

#[tokio::test]
async fn apply_in_alternating_versions_keeps_fields() {
    let hook = WebhookServer::new(convert).await;
    let api = api_with_versions(&hook).await;
    let path = |base: &str| format!("{base}/a?force=true");
    let new = crontab("a", &json!({"schedule": "1 * * * *", "replicas": 2}));
    let mut old = crontab("a", &json!({"cron": "1 * * * *", "replicas": 2}));
    old["apiVersion"] = json!("stable.example.com/v1beta1");
    api.check(apply(path(CRONTABS), "me", &new), 201, json!({})).await;
    for _ in 0..2 {
        let stays = json!({"spec": {"cron": "1 * * * *", "replicas": 2}});
        api.check(apply(path(CRONTABS_V1BETA1), "me", &old), 200, stays.clone()).await;
        api.check(get(format!("{CRONTABS_V1BETA1}/a")), 200, stays).await;
        let stays = json!({"spec": {"schedule": "1 * * * *", "replicas": 2}});
        api.check(apply(path(CRONTABS), "me", &new), 200, stays.clone()).await;
        api.check(get(format!("{CRONTABS}/a")), 200, stays).await;
    }
}

#[tokio::test]
async fn list_is_converted_in_one_call_and_watch_per_event() {
    let hook = WebhookServer::new(convert).await;
    let api = api_with_versions(&hook).await;
    let old = |name: &str, cron: &str| {
        json!({"apiVersion": "stable.example.com/v1beta1", "kind": "CronTab",
            "metadata": {"name": name, "labels": {"name": name}}, "spec": {"cron": cron}})
    };
    for name in ["a", "b", "c"] {
        api.check(post(CRONTABS_V1BETA1, &old(name, name)), 201, json!({})).await;
    }
    assert!(hook.take_requests().is_empty());
    let items = json!([{"spec": {"schedule": "a"}}, {"spec": {"schedule": "b"}}, {"spec": {"schedule": "c"}}]);
    let list = api.check(get(CRONTABS), 200, json!({"apiVersion": "stable.example.com/v1", "items": items})).await.body;
    let requests = hook.take_requests();
    assert_eq!((requests.len(), requests[0].1["request"]["objects"].as_array().unwrap().len()), (1, 3));
    api.check(get(format!("{CRONTABS}?labelSelector=name%3Db")), 200, json!({"items": [{"spec": {"schedule": "b"}}]}))
        .await;
    let mut watch = api.watch(&format!("{CRONTABS}?watch=true&resourceVersion={}", resource_version(&list))).await;
    let mut from_now = api.watch(&format!("{CRONTABS}?watch=true")).await;
    for name in ["a", "b", "c"] {
        from_now.check("ADDED", json!({"apiVersion": "stable.example.com/v1", "spec": {"schedule": name}})).await;
    }
    api.check(merge_patch(format!("{CRONTABS_V1BETA1}/a"), &json!({"spec": {"cron": "x"}})), 200, json!({})).await;
    let changed = json!({"apiVersion": "stable.example.com/v1", "spec": {"schedule": "x", "cron": null}});
    watch.check("MODIFIED", changed.clone()).await;
    from_now.check("MODIFIED", changed).await;
    api.check(delete(format!("{CRONTABS_V1BETA1}/b")), 200, json!({})).await;
    watch.check("DELETED", json!({"spec": {"schedule": "b"}})).await;
}

#[tokio::test]
async fn object_of_old_storage_version_is_converted() {
    let hook = WebhookServer::new(convert).await;
    let api = api_with_versions(&hook).await;
    api.check(post(CRONTABS, &crontab("a", &json!({"schedule": "1"}))), 201, json!({})).await;
    // New objects are stored as `v1`; the existing object is still `v1beta1`.
    let versions = definition(&hook.client_config("/convert"))["spec"]["versions"].clone();
    let mut versions = versions.as_array().unwrap().clone();
    versions[0]["storage"] = json!(true);
    versions[1]["storage"] = json!(false);
    let path = format!("{DEFINITIONS}/crontabs.stable.example.com");
    api.check(merge_patch(&path, &json!({"spec": {"versions": versions}})), 200, json!({})).await;
    hook.take_requests();
    api.check(get(format!("{CRONTABS_V1BETA1}/a")), 200, json!({"spec": {"cron": "1"}})).await;
    assert!(hook.take_requests().is_empty());
    api.check(get(format!("{CRONTABS}/a")), 200, json!({"spec": {"schedule": "1"}})).await;
    api.check(merge_patch(format!("{CRONTABS}/a"), &json!({"spec": {"replicas": 3}})), 200, json!({})).await;
    hook.take_requests();
    let now = json!({"apiVersion": "stable.example.com/v1", "spec": {"schedule": "1", "given": "new", "replicas": 3}});
    api.check(get(format!("{CRONTABS}/a")), 200, now).await;
    assert!(hook.take_requests().is_empty());
}

#[tokio::test]
async fn conversion_webhook_failures_are_reported() {
    let hook = WebhookServer::new(|path, review| {
        let (code, mut response) = convert(path, review);
        let objects = &mut response["response"]["convertedObjects"];
        match path {
            "/down" => return (500, json!("out of order")),
            "/uid" => response["response"]["uid"] = json!("other"),
            "/none" => *objects = json!([]),
            "/version" => objects[0]["apiVersion"] = json!("stable.example.com/v3"),
            "/name" => objects[0]["metadata"]["name"] = json!("b"),
            "/refused" => response["response"]["result"] = json!({"status": "Failed", "message": "I will not"}),
            _ => {}
        }
        (code, response)
    })
    .await;
    let api = api_with_versions(&hook).await;
    api.check(post(CRONTABS, &crontab("a", &json!({"schedule": "1"}))), 201, json!({})).await;
    let webhook = "conversion webhook for stable.example.com/v1beta1, Kind=CronTab";
    let path = format!("{DEFINITIONS}/crontabs.stable.example.com");
    for (at, expected_message) in [
        ("/down", " failed: an error on the server (\"out of order\") has prevented the request from succeeding"),
        ("/none", " returned 0 objects, expected 1"),
        (
            "/version",
            " returned invalid converted object at index 0: invalid groupVersion (expected stable.example.com/v1, received stable.example.com/v3)",
        ),
        ("/name", " returned invalid converted object at index 0: must have the same name: a != b"),
        ("/refused", " failed: I will not"),
    ] {
        let conversion = json!({"webhook": {"clientConfig": hook.client_config(at)}});
        api.check(merge_patch(&path, &json!({"spec": {"conversion": conversion}})), 200, json!({})).await;
        let message = json!({"message": format!("{webhook}{expected_message}"), "code": 500});
        api.check(get(format!("{CRONTABS}/a")), 500, message.clone()).await;
        api.check(get(CRONTABS), 500, message.clone()).await;
        let mut watch = api.watch(&format!("{CRONTABS}?watch=true")).await;
        watch.check("ERROR", message).await;
        assert!(watch.try_next().await.is_none(), "{at}");
    }
    // An object that cannot be converted can be deleted.
    api.check(delete(format!("{CRONTABS}/a")), 200, json!({"status": "Success"})).await;
}

#[tokio::test]
async fn conversion_webhook_service_is_resolved() {
    let hook = WebhookServer::new(convert).await;
    let api = TestApi::new().await;
    let service =
        json!({"service": {"name": "hook", "namespace": "default", "path": "/convert"}, "caBundle": hook.ca_bundle()});
    api.check(post(DEFINITIONS, &definition(&service)), 201, json!({})).await;
    let new = crontab("a", &json!({"schedule": "1"}));
    let url = "Post \"https://hook.default.svc:443/convert?timeout=30s\"";
    let failed = |reason: &str| json!({"message": format!("conversion webhook for stable.example.com/v1, Kind=CronTab failed: {url}: {reason}")});
    api.check(post(CRONTABS, &new), 500, failed("service \"hook\" not found")).await;
    let spec = json!({"ports": [{"port": 443, "targetPort": 9443}]});
    api.check(
        post("/api/v1/namespaces/default/services", &json!({"metadata": {"name": "hook"}, "spec": spec})),
        201,
        json!({}),
    )
    .await;
    api.check(post(CRONTABS, &new), 500, failed("no endpoints available for service \"hook\"")).await;
    let slice = json!({
        "metadata": {"name": "hook-1", "labels": {"kubernetes.io/service-name": "hook"}}, "addressType": "IPv4",
        "endpoints": [{"addresses": [crate::echo_server::own_ip()]}], "ports": [{"port": hook.port}],
    });
    let slices = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices";
    api.check(post(slices, &slice), 201, json!({})).await;
    api.check(post(CRONTABS, &new), 201, json!({"spec": {"schedule": "1"}})).await;
}

#[tokio::test]
async fn conversion_webhook_certificate_must_be_trusted() {
    let hook = WebhookServer::self_signed(convert).await;
    let api = api_with_versions(&hook).await;
    let new = crontab("a", &json!({"schedule": "1"}));
    api.check(post(CRONTABS, &new), 201, json!({"spec": {"schedule": "1"}})).await;
    let other = WebhookServer::new(convert).await;
    let mut config = hook.client_config("/convert");
    config["caBundle"] = json!(other.ca_bundle());
    let path = format!("{DEFINITIONS}/crontabs.stable.example.com");
    api.check(
        merge_patch(&path, &json!({"spec": {"conversion": {"webhook": {"clientConfig": config}}}})),
        200,
        json!({}),
    )
    .await;
    let response = api.send(&get(format!("{CRONTABS}/a"))).await;
    let message = "tls: failed to verify certificate: x509: certificate signed by unknown authority";
    assert!(response.body["message"].as_str().unwrap().ends_with(message), "{}", response.body);
}
