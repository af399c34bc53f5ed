//! Structural schemas: validation, pruning and defaults of custom resources.

use super::*;

/// Posts an object with this `spec` and asserts the end of the error message.
async fn check_rejected(api: &TestApi, spec: Value, message: &str) {
    let response = api.send(&post(CRONTABS, &crontab("wrong", &spec))).await;
    let expected = format!("CronTab.stable.example.com \"wrong\" is invalid: {message}");
    assert_eq!((response.status, response.body["message"].as_str()), (422, Some(expected.as_str())), "{spec}");
}

#[tokio::test]
async fn invalid_custom_resource_is_rejected() {
    let mut fields = crontab_properties();
    fields["when"] = json!({"type": "string", "format": "date-time"});
    fields["size"] = json!({"x-kubernetes-int-or-string": true});
    fields["kind"] = json!({"type": "string", "enum": ["a", "b"]});
    fields["tags"] = json!({"type": "array", "items": {"type": "string", "maxLength": 3}, "x-kubernetes-list-type": "set", "maxItems": 3});
    fields["one"] = json!({"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "string"}},
        "oneOf": [{"required": ["a"]}, {"required": ["b"]}]});
    let api = api_with_crontabs(&fields).await;
    for (spec, message) in [
        (
            json!({"replicas": "x"}),
            "[spec.replicas: Invalid value: \"string\": spec.replicas in body must be of type integer: \"string\", .spec.replicas: Invalid value: 0: .spec.replicas accessor error: x is of the type string, expected int64]",
        ),
        (
            json!({"replicas": 15}),
            "spec.replicas: Invalid value: 15: spec.replicas in body should be less than or equal to 10",
        ),
        (
            json!({"replicas": 0}),
            "spec.replicas: Invalid value: 0: spec.replicas in body should be greater than or equal to 1",
        ),
        (
            json!({"replicas": 1.5}),
            "[spec.replicas: Invalid value: \"number\": spec.replicas in body must be of type integer: \"number\", .spec.replicas: Invalid value: 0: .spec.replicas accessor error: 1.5 is of the type float64, expected int64]",
        ),
        (
            json!({"cronSpec": "* * * *"}),
            "spec.cronSpec: Invalid value: \"* * * *\": spec.cronSpec in body should match '^(\\d+|\\*)(/\\d+)?(\\s+(\\d+|\\*)(/\\d+)?){4}$'",
        ),
        (
            json!({"when": "soon"}),
            "spec.when: Invalid value: \"soon\": spec.when in body must be of type date-time: \"soon\"",
        ),
        (
            json!({"size": true}),
            "spec.size: Invalid value: \"boolean\": spec.size in body must be of type integer,string: \"boolean\"",
        ),
        (json!({"kind": "c"}), "spec.kind: Unsupported value: \"c\": supported values: \"a\", \"b\""),
        (json!({"tags": ["abcd"]}), "spec.tags[0]: Too long: may not be more than 3 bytes"),
        (json!({"tags": ["a", "a"]}), "spec.tags[1]: Duplicate value: \"a\""),
        (json!({"tags": ["a", "b", "c", "d"]}), "spec.tags: Too many: 4: must have at most 3 items"),
        (
            json!({"one": {}}),
            "[<nil>: Invalid value: \"\": \"spec.one\" must validate one and only one schema (oneOf). Found none valid, spec.one.a: Required value]",
        ),
        (
            json!([]),
            "[spec: Invalid value: \"array\": spec in body must be of type object: \"array\", .spec.replicas: Invalid value: 0: .spec.replicas accessor error: [] is of the type []interface {}, expected map[string]interface{}]",
        ),
    ] {
        check_rejected(&api, spec, message).await;
    }
    let response = api.send(&post(CRONTABS, &crontab("wrong", &json!({"replicas": "x"})))).await;
    let cause = &response.body["details"]["causes"][0];
    assert_eq!((&cause["reason"], &cause["field"]), (&json!("FieldValueTypeInvalid"), &json!("spec.replicas")));
}

#[tokio::test]
async fn unknown_fields_follow_field_validation() {
    let api = api_with_crontabs(&crontab_properties()).await;
    let object = crontab("a", &json!({"unknown": 1, "replicas": 1}));
    let strict = api.send(&post(format!("{CRONTABS}?fieldValidation=Strict"), &object)).await;
    let message = "CronTab in version \"v1\" cannot be handled as a CronTab: strict decoding error: unknown field \"spec.unknown\"";
    assert_eq!((strict.status, strict.body["message"].as_str()), (400, Some(message)));
    let created = api.check(post(CRONTABS, &object), 201, json!({"spec": {"unknown": null, "replicas": 1}})).await;
    assert_eq!(created.warnings(), ["299 - \"unknown field \\\"spec.unknown\\\"\""]);
    let quiet =
        api.send(&post(format!("{CRONTABS}?fieldValidation=Ignore"), &crontab("b", &json!({"unknown": 1})))).await;
    assert_eq!((quiet.status, quiet.warnings().len()), (201, 0));
    let patched =
        api.send(&merge_patch(format!("{CRONTABS}/a?fieldValidation=Strict"), &json!({"spec": {"more": 1}}))).await;
    assert_eq!(patched.status, 422);
    assert!(patched.body["message"].as_str().unwrap().contains("unknown field \"spec.more\""));
    let applied = api.send(&apply(format!("{CRONTABS}/a"), "m", &crontab("a", &json!({"more": 1})))).await;
    let message = "failed to create typed patch object (/a; stable.example.com/v1, Kind=CronTab): .spec.more: field not declared in schema";
    assert_eq!((applied.status, applied.body["message"].as_str()), (400, Some(message)));
}

#[tokio::test]
async fn preserve_unknown_fields_keeps_unknown_fields() {
    let fields = json!({
        "any": {"type": "object", "x-kubernetes-preserve-unknown-fields": true,
            "properties": {"known": {"type": "object", "properties": {"a": {"type": "string"}}}}},
        "pod": {"type": "object", "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true},
        "map": {"type": "object", "additionalProperties": {"type": "object", "properties": {"a": {"type": "string"}}}},
    });
    let api = api_with_crontabs(&fields).await;
    let given = json!({
        "any": {"x": {"y": 1}, "known": {"a": "1", "b": "2"}},
        "pod": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"x": 1}},
        "map": {"one": {"a": "1", "b": "2"}},
    });
    let mut kept = given.clone();
    kept["any"]["known"]["b"] = Value::Null;
    kept["map"]["one"]["b"] = Value::Null;
    api.check(post(CRONTABS, &crontab("a", &given)), 201, json!({"spec": kept})).await;
    check_rejected(
        &api,
        json!({"pod": {"spec": {}}}),
        "[spec.pod.apiVersion: Required value: must not be empty, spec.pod.kind: Required value: must not be empty]",
    )
    .await;
}

#[tokio::test]
async fn embedded_resources_are_validated() {
    let pod =
        json!({"type": "object", "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true});
    let fields = json!({"pod": pod.clone(), "pods": {"type": "array", "items": pod}});
    let api = api_with_crontabs(&fields).await;
    let with = |metadata: Value| json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata});
    let given = json!({"pods": [with(json!({"name": "p", "unknown": 1, "labels": {"a": "b"}}))]});
    let kept = json!({"spec": {"pods": [with(json!({"name": "p", "unknown": null, "labels": {"a": "b"}}))]}});
    let created = api.check(post(CRONTABS, &crontab("a", &given)), 201, kept).await;
    assert_eq!(created.warnings(), ["299 - \"unknown field \\\"spec.pods[0].metadata.unknown\\\"\""]);
    let message = "json: cannot unmarshal number into Go struct field ObjectMeta.spec.pod.metadata.name of type string";
    let invalid = json!({"pod": with(json!({"name": 1}))});
    let response = api.send(&post(CRONTABS, &crontab("b", &invalid))).await;
    assert_eq!(
        (response.status, response.body["message"].as_str().unwrap().contains(message)),
        (400, true),
        "{}",
        response.body
    );
    for (resource, message) in [
        (
            json!({"apiVersion": "a/b/c", "kind": ""}),
            "[spec.pod.apiVersion: Invalid value: \"a/b/c\": unexpected GroupVersion string: a/b/c, spec.pod.kind: Invalid value: \"\": must not be empty]",
        ),
        (with(json!({"name": "a/b"})), "spec.pod.metadata.name: Invalid value: \"a/b\": may not contain '/'"),
        (
            with(json!({"generation": -1})),
            "spec.pod.metadata.generation: Invalid value: -1: must be greater than or equal to 0",
        ),
    ] {
        check_rejected(&api, json!({"pod": resource}), message).await;
    }
    // An update cannot make an embedded resource invalid.
    let change = json!({"spec": {"pods": [with(json!({"namespace": "No"}))]}});
    let response = api.send(&merge_patch(format!("{CRONTABS}/a"), &change)).await;
    assert_eq!(response.status, 422, "{}", response.body);
}

#[tokio::test]
async fn new_defaults_apply_to_stored_objects() {
    let mut before = crontab_properties();
    before["image"].as_object_mut().unwrap().remove("default");
    before["old"] = json!({"type": "string", "nullable": true});
    let api = api_with_crontabs(&before).await;
    api.check(
        post(CRONTABS, &crontab("a", &json!({"old": null, "image": null}))),
        201,
        json!({"spec": {"image": null}}),
    )
    .await;
    let path = format!("{DEFINITIONS}/crontabs.stable.example.com");
    let mut definition = api.send(&get(&path)).await.body;
    definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"] =
        crontab_properties();
    let mut watch = api.watch(&format!("{CRONTABS}?watch=1")).await;
    watch.check("ADDED", json!({})).await;
    api.check(put(&path, &definition), 200, json!({"metadata": {"generation": 2}})).await;
    // A change of the schema ends the watches of the kind.
    assert_eq!(watch.try_next().await, None);
    let got = api.check(get(format!("{CRONTABS}/a")), 200, json!({"spec": {"image": "busybox"}})).await.body;
    assert_eq!(got["spec"].get("old"), None);
    api.check(get(CRONTABS), 200, json!({"items": [{"spec": {"image": "busybox"}}]})).await;
    api.watch(&format!("{CRONTABS}?watch=1")).await.check("ADDED", json!({"spec": {"image": "busybox"}})).await;
}

#[tokio::test]
async fn integers_accept_whole_json_numbers() {
    let fields =
        json!({"long": {"type": "integer", "format": "int64"}, "any": {"type": "integer"}, "part": {"type": "number"}});
    let api = api_with_crontabs(&fields).await;
    for (field, value, message) in [
        (
            "long",
            json!(9_223_372_036_854_775_808_u64),
            "spec.long: Invalid value: \"double\": spec.long in body must be of type int64: \"double\"",
        ),
        (
            "any",
            json!(1e30),
            "spec.any: Invalid value: \"number\": spec.any in body must be of type integer: \"number\"",
        ),
    ] {
        check_rejected(&api, json!({field: value}), message).await;
    }
    let text = r#"{"apiVersion": "stable.example.com/v1", "kind": "CronTab", "metadata": {"name": "a"}, "spec": {"long": 1.0, "any": 1.5e1, "part": 2.0}}"#;
    let created = api.send(&post_json(text)).await;
    assert_eq!((created.status, created.body["spec"].to_string().as_str()), (201, r#"{"any":15,"long":1,"part":2}"#));
}

fn post_json(body: &str) -> TestRequest {
    post(CRONTABS, &Value::Null).text("application/json", body)
}
