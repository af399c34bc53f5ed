//! Content types, field validation, duplicate fields, quantities, warnings.

use crate::common::*;
use serde_json::json;

const YAML: &str = "application/yaml";
const JSON: &str = "application/json";

fn post_pod_json() -> TestRequest {
    let body = r#"{"metadata": {"name": "p", "lables": {}}, "spec": {"containers": [{"name": "c", "image": "a", "image": "b", "imagee": "x"}]}}"#;
    post(PODS, &json!(null)).text(JSON, body)
}

#[tokio::test]
async fn field_validation_rejects_warns_or_ignores() {
    let api = TestApi::new().await;
    let invalid = [
        r#"unknown field \"metadata.lables\""#,
        r#"unknown field \"spec.containers[0].imagee\""#,
        r#"duplicate field \"spec.containers[0].image\""#,
    ];
    let plain: Vec<String> = invalid.iter().map(|w| w.replace('\\', "")).collect();
    let mut strict = post_pod_json();
    strict.path += "?fieldValidation=Strict";
    let message =
        format!("Pod in version \"v1\" cannot be handled as a Pod: strict decoding error: {}", plain.join(", "));
    api.check(strict, 400, json!({"reason": "BadRequest", "message": message})).await;
    let mut ignore = post_pod_json();
    ignore.path += "?fieldValidation=Ignore&dryRun=All";
    let response = api.check(ignore, 201, json!({"spec": {"containers": [{"image": "b", "imagee": null}]}})).await;
    assert_eq!(response.warnings(), Vec::<String>::new());
    // Warn is the default.
    let response =
        api.check(post_pod_json(), 201, json!({"spec": {"containers": [{"image": "b", "imagee": null}]}})).await;
    assert_eq!(response.warnings(), invalid.map(|w| format!("299 - \"{w}\"")));
    let mut odd = post_pod_json();
    odd.path += "?fieldValidation=Odd";
    api.check(
        odd,
        422,
        json!({"message": "CreateOptions.meta.k8s.io \"\" is invalid: fieldValidation: Unsupported value: \"Odd\": supported values: \"\", \"Ignore\", \"Strict\", \"Warn\""}),
    )
    .await;
    let unknown = json!({"spec": {"nodName": "n"}});
    let response = api.check(merge_patch(format!("{PODS}/p"), &unknown), 200, json!({"spec": {"nodName": null}})).await;
    assert_eq!(response.warnings(), [r#"299 - "unknown field \"spec.nodName\"""#]);
    let response = api
        .check(merge_patch(format!("{PODS}/p?fieldValidation=Strict"), &unknown), 422, json!({"reason": "Invalid"}))
        .await;
    let message = response.body["message"].as_str().unwrap();
    assert!(message.starts_with(" \"\" is invalid: patch: Invalid value: \"{"), "{message}");
    assert!(message.ends_with("strict decoding error: unknown field \"spec.nodName\""), "{message}");
    let strategic = patch("strategic-merge-patch", format!("{PODS}/p?fieldValidation=Strict"), &unknown);
    let message = r#" "" is invalid: patch: Invalid value: "map[spec:map[nodName:n]]": strict decoding error: unknown field "spec.nodName""#;
    api.check(strategic, 422, json!({"message": message})).await;
}

#[tokio::test]
async fn manifests_are_accepted_as_json_or_yaml() {
    let api = TestApi::new().await;
    let yaml = "metadata:\n  name: yam\ndata:\n  a: |\n    x\n  b: 'true'\n";
    api.check(post(CONFIG_MAPS, &json!(null)).text(YAML, yaml), 201, json!({"data": {"a": "x\n", "b": "true"}})).await;
    let doubled = "metadata: {name: z}\ndata:\n  a: one\n  a: two\n";
    let response =
        api.check(post(CONFIG_MAPS, &json!(null)).text(YAML, doubled), 201, json!({"data": {"a": "two"}})).await;
    assert_eq!(response.warnings().len(), 1);
    let strict = post(format!("{CONFIG_MAPS}?fieldValidation=Strict"), &json!(null)).text(YAML, doubled);
    api.check(strict, 400, json!({"reason": "BadRequest"})).await;
    for (content_type, body, code, reason) in [
        (JSON, "{\"metadata\": ", 400, "BadRequest"),
        (JSON, "[]", 400, "BadRequest"),
        (JSON, "", 400, "BadRequest"),
        (YAML, "a: [", 400, "BadRequest"),
        (YAML, "\u{0}", 400, "BadRequest"),
        ("text/plain", "{}", 415, "UnsupportedMediaType"),
    ] {
        api.check(post(CONFIG_MAPS, &json!(null)).text(content_type, body), code, json!({"reason": reason})).await;
    }
    let charset =
        post(CONFIG_MAPS, &json!(null)).text("application/json; charset=utf-8", r#"{"metadata": {"name": "c"}}"#);
    api.check(charset, 201, json!({})).await;
    let (content_type, text) = api.text(&get(format!("{CONFIG_MAPS}/yam")).header("accept", YAML)).await;
    assert_eq!(content_type, YAML);
    let read: serde_json::Value = serde_saphyr::from_str(&text).unwrap();
    assert_eq!((&read["kind"], &read["data"]), (&json!("ConfigMap"), &json!({"a": "x\n", "b": "true"})), "{text}");
    let (content_type, text) = api.text(&get(format!("{CONFIG_MAPS}/none")).header("accept", YAML)).await;
    assert!(content_type == YAML && text.contains("reason: NotFound"), "{text}");
    // Watches are not served as YAML.
    let watch = get(format!("{CONFIG_MAPS}?watch=1")).header("accept", YAML);
    assert!(api.text(&watch).await.1.contains("NotAcceptable"));
    api.check(get(CONFIG_MAPS).header("accept", "text/html"), 406, json!({"reason": "NotAcceptable"})).await;
}

#[tokio::test]
async fn yaml_scalars_are_read_like_upstream() {
    let api = TestApi::new().await;
    let yaml = "metadata: {name: keys}\ndata:\n  0x10: a\n  010: b\n  n: c\n  yes: d\n  '010': e\n";
    let expected = json!({"16": "a", "8": "b", "false": "c", "true": "d", "010": "e"});
    let created = api.check(post(CONFIG_MAPS, &json!(null)).text(YAML, yaml), 201, json!({})).await.body;
    assert_eq!(created["data"], expected);
    let yaml = "metadata: {name: p}\nspec:\n  terminationGracePeriodSeconds: 400.0\n  containers: [{name: c, image: i}]\n  \
        volumes: [{name: v, configMap: {name: m, defaultMode: 0640}}]\n";
    let spec = json!({"terminationGracePeriodSeconds": 400, "volumes": [{"configMap": {"defaultMode": 416}}]});
    api.check(post(PODS, &json!(null)).text(YAML, yaml), 201, json!({"spec": spec})).await;
    let fraction = yaml.replace("400.0", "1.5");
    api.check(post(PODS, &json!(null)).text(YAML, &fraction), 400, json!({"reason": "BadRequest"})).await;
}

#[tokio::test]
async fn wrong_field_type_error_names_the_field() {
    let api = TestApi::new().await;
    for (field, value, expected) in [
        ("hostNetwork", json!("yes"), "string into Go struct field PodSpec.spec.hostNetwork of type bool"),
        ("containers", json!({}), "object into Go struct field PodSpec.spec.containers of type []v1.Container"),
        (
            "terminationGracePeriodSeconds",
            json!(1.5),
            "number 1.5 into Go struct field PodSpec.spec.terminationGracePeriodSeconds of type int64",
        ),
        ("nodeSelector", json!({"a": 1}), "number into Go struct field PodSpec.spec.nodeSelector of type string"),
    ] {
        let mut object = pod("p");
        object["spec"][field] = value;
        let message = format!("Pod in version \"v1\" cannot be handled as a Pod: json: cannot unmarshal {expected}");
        api.check(post(PODS, &object), 400, json!({"reason": "BadRequest", "message": message})).await;
    }
}

#[tokio::test]
async fn quantities_are_stored_in_canonical_form() {
    let api = TestApi::new().await;
    let mut object = pod("p");
    object["spec"]["containers"][0]["resources"] = json!({"limits": {"cpu": "1000m", "memory": "1024Ki", "x.io/gpu": 2}, "requests": {"cpu": 0.5, "memory": "1048576"}});
    object["spec"]["volumes"] = json!([{"name": "v", "emptyDir": {"sizeLimit": "2048Mi"}}]);
    let stored = json!({"limits": {"cpu": "1", "memory": "1Mi", "x.io/gpu": "2"}, "requests": {"cpu": "500m", "memory": "1048576", "x.io/gpu": "2"}});
    let expected =
        json!({"spec": {"containers": [{"resources": stored}], "volumes": [{"emptyDir": {"sizeLimit": "2Gi"}}]}});
    let created = api.check(post(PODS, &object), 201, expected).await.body;
    // An equal quantity in another format is not a change.
    let mut same = created.clone();
    same["spec"]["containers"][0]["resources"]["limits"]["cpu"] = json!("1.0");
    let after = api.check(put(format!("{PODS}/p"), &same), 200, json!({})).await.body;
    assert_eq!(resource_version(&after), resource_version(&created));
    object["spec"]["containers"][0]["resources"] = json!({"limits": {"cpu": "1 core"}});
    let response = api.check(post(PODS, &object), 400, json!({"reason": "BadRequest"})).await;
    let message = response.body["message"].as_str().unwrap();
    assert!(message.contains("resources.limits[cpu]: "), "{message}");
}

#[tokio::test]
async fn quantities_keep_the_format_that_upstream_keeps() {
    let api = TestApi::new().await;
    let mut object = pod("p");
    let written = json!({"cpu": "+2", "memory": "1E9", "x.io/gpu": "007", "ephemeral-storage": "+1024Mi"});
    let returned = json!({"cpu": "+2", "memory": "1E9", "x.io/gpu": "007", "ephemeral-storage": "1Gi"});
    object["spec"]["containers"][0]["resources"] = json!({"limits": written, "requests": {"cpu": "1.234500"}});
    object["spec"]["volumes"] = json!([{"name": "v", "emptyDir": {"sizeLimit": "+5Mi"}}]);
    let resources = json!({"limits": returned, "requests": {"cpu": "1235m", "memory": "1E9", "x.io/gpu": "007"}});
    let expected =
        json!({"spec": {"containers": [{"resources": resources}], "volumes": [{"emptyDir": {"sizeLimit": "+5Mi"}}]}});
    api.check(post(PODS, &object), 201, expected.clone()).await;
    api.check(get(format!("{PODS}/p")), 200, expected).await;
}

#[tokio::test]
async fn deprecated_fields_cause_warnings() {
    let api = TestApi::new().await;
    let mut object = pod("p.q");
    object["spec"]["terminationGracePeriodSeconds"] = json!(-1);
    let c = &mut object["spec"]["containers"][0];
    c["env"] = json!([{"name": "A"}, {"name": "A"}, {"name": "B"}, {"name": "B", "value": "$(B)x"}]);
    c["ports"] = json!([{"containerPort": 80}, {"containerPort": 80}]);
    c["resources"] = json!({"requests": {"memory": "100m"}});
    let response = api.check(post(PODS, &object), 201, json!({})).await;
    let starts = [
        "metadata.name: this is used in the Pod's hostname",
        "spec.containers[0].resources.requests[memory]: fractional byte value \\\"100m\\\" is invalid, must be an integer",
        "spec.containers[0].env[1]: hides previous definition of \\\"A\\\", which may be dropped when using apply",
        "spec.containers[0].ports[1]: duplicate port definition with spec.containers[0].ports[0]",
    ];
    let warnings = response.warnings();
    assert_eq!(warnings.len(), starts.len(), "{warnings:#?}");
    for (warning, start) in warnings.iter().zip(starts) {
        assert!(warning.starts_with(&format!("299 - \"{start}")), "{warning}");
    }
    let lease = json!({"metadata": {"name": "l", "finalizers": ["mine"]}});
    let response = api.check(post(LEASES, &lease), 201, json!({})).await;
    let start = "299 - \"metadata.finalizers: \\\"mine\\\": prefer a domain-qualified finalizer name";
    assert!(response.warnings()[0].starts_with(start), "{:?}", response.warnings());
}

const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/default/leases";

#[tokio::test]
async fn lease_is_created_by_update_and_requires_a_version() {
    let api = TestApi::new().await;
    let lease = |holder: &str| json!({"metadata": {"name": "l"}, "spec": {"holderIdentity": holder}});
    let path = format!("{LEASES}/l");
    let created = api.check(put(&path, &lease("a")), 201, json!({"spec": {"holderIdentity": "a"}})).await.body;
    let message = "leases.coordination.k8s.io \"l\" is invalid: metadata.resourceVersion: Invalid value: 0: must be specified for an update";
    api.check(put(&path, &lease("b")), 422, json!({"message": message})).await;
    let mut next = lease("b");
    next["metadata"]["resourceVersion"] = json!("0");
    api.check(put(&path, &next), 422, json!({"message": message})).await;
    let none = json!({"metadata": {"resourceVersion": "0"}});
    api.check(patch("merge-patch", path.clone(), &none), 422, json!({"message": message})).await;
    next["metadata"]["resourceVersion"] = created["metadata"]["resourceVersion"].clone();
    api.check(put(&path, &next), 200, json!({"spec": {"holderIdentity": "b"}})).await;
    api.check(delete(&path), 200, json!({})).await;
    api.check(put(&path, &next), 404, json!({})).await;
    next["metadata"]["resourceVersion"] = json!("0");
    api.check(put(&path, &next), 201, json!({})).await;
}

#[tokio::test]
async fn resource_version_0_in_update_is_unconditional() {
    let api = TestApi::new().await;
    api.create_config_map("c", json!({})).await;
    let map = json!({"metadata": {"name": "c", "resourceVersion": "0"}, "data": {"a": "b"}});
    let path = format!("{CONFIG_MAPS}/c");
    api.check(put(&path, &map), 200, json!({"data": {"a": "b"}})).await;
    let merge = json!({"metadata": {"resourceVersion": "0"}, "data": {"a": "c"}});
    let patched = api.check(patch("merge-patch", path, &merge), 200, json!({"data": {"a": "c"}})).await.body;
    assert_ne!(patched["metadata"]["resourceVersion"], "0");
}

#[tokio::test]
async fn json_patch_operations_follow_field_validation() {
    let api = TestApi::new().await;
    api.create_config_map("c", json!({})).await;
    let operations = json!([{"op": "add", "path": "/data", "value": {"a": "b"}, "foo": "bar"}]);
    let request = |how: &str| patch("json-patch", format!("{CONFIG_MAPS}/c?fieldValidation={how}"), &operations);
    let rejected = api.check(request("Strict"), 422, json!({"reason": "Invalid"})).await;
    let message = rejected.body["message"].as_str().unwrap();
    assert!(message.ends_with("strict decoding error: json patch unknown field \"[0].foo\""), "{message}");
    let warned = api.check(request("Warn"), 200, json!({"data": {"a": "b"}})).await;
    assert_eq!(warned.warnings(), [r#"299 - "json patch unknown field \"[0].foo\"""#]);
}

#[tokio::test]
async fn too_deeply_nested_object_is_rejected() {
    let api = TestApi::new().await;
    let nested = |depth: usize| (0..depth).fold(json!(1), |inner, _| json!({"a": inner}));
    let path = "/apis/apps/v1/namespaces/default/controllerrevisions";
    let make = |name: &str, depth: usize| {
        post(path, &json!({"metadata": {"name": name, "finalizers": ["a.b/c"]}, "revision": 1, "data": nested(depth)}))
    };
    let message = "the object is nested deeper than 100 levels";
    api.check(make("deep", 100), 400, json!({"message": message})).await;
    api.check(make("fits", 99), 201, json!({"metadata": {"name": "fits"}})).await;
    // The managed fields are as deep as the object.
    let config = json!({"apiVersion": "apps/v1", "kind": "ControllerRevision", "metadata": {"name": "fits", "labels": {"a": "b"}},
        "revision": 1, "data": nested(99)});
    api.check(apply(format!("{path}/fits?force=true"), "m", &config), 200, json!({})).await;
    api.check(delete(format!("{path}/fits")), 200, json!({"metadata": {"finalizers": ["a.b/c"]}})).await;
    let copied = json!([{"op": "copy", "from": "/data", "path": format!("/data{}/b", "/a".repeat(98))}]);
    api.check(patch("json-patch", format!("{path}/fits"), &copied), 400, json!({"message": message})).await;
    for request in [get(path), get_table(path), get(format!("{path}/fits"))] {
        api.check(request, 200, json!({})).await;
    }
    api.check(merge_patch(format!("{path}/fits"), &json!({"metadata": {"finalizers": null}})), 200, json!({})).await;
    api.check(get(format!("{path}/fits")), 404, json!({})).await;
}
