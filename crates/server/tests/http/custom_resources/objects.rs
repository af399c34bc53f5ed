//! Custom resources support the operations of built-in kinds.

use super::*;

#[tokio::test]
async fn custom_resource_crud_roundtrip() {
    let api = api_with_crontabs(&crontab_properties()).await;
    let object = crontab("a", &json!({"cronSpec": "* * * * */5", "replicas": 2}));
    let created = api
        .check(
            post(CRONTABS, &object),
            201,
            json!({"apiVersion": "stable.example.com/v1", "kind": "CronTab",
                "metadata": {"name": "a", "namespace": "default", "generation": 1}, "spec": {"image": "busybox"}}),
        )
        .await
        .body;
    let path = format!("{CRONTABS}/a");
    api.check(post(CRONTABS, &object), 409, json!({"message": "crontabs.stable.example.com \"a\" already exists"}))
        .await;
    let changed = api
        .check(merge_patch(&path, &json!({"spec": {"replicas": 3}})), 200, json!({"metadata": {"generation": 2}}))
        .await;
    assert_ne!(resource_version(&created), resource_version(&changed.body));
    let json_patch = patch("json-patch", &path, &json!([{"op": "replace", "path": "/spec/replicas", "value": 4}]));
    api.check(json_patch, 200, json!({"spec": {"replicas": 4}})).await;
    let strategic = api.send(&patch("strategic-merge-patch", &path, &json!({"spec": {}}))).await;
    assert_eq!((strategic.status, strategic.body["reason"].as_str()), (415, Some("UnsupportedMediaType")));
    let mut whole = api.send(&get(&path)).await.body;
    whole["metadata"]["labels"] = json!({"a": "b"});
    api.check(put(&path, &whole), 200, json!({"metadata": {"labels": {"a": "b"}, "generation": 3}})).await;
    api.check(put(&path, &whole), 409, json!({"reason": "Conflict"})).await;
    api.check(get(format!("{CRONTABS}?labelSelector=a%3Db")), 200, json!({"kind": "CronTabList", "items": [{}]})).await;
    api.check(get("/apis/stable.example.com/v1/crontabs"), 200, json!({"items": [{"kind": "CronTab"}]})).await;
    api.check(
        delete(&path),
        200,
        json!({"status": "Success", "details": {"name": "a", "group": "stable.example.com", "kind": "crontabs"}}),
    )
    .await;
    api.check(get(&path), 404, json!({"message": "crontabs.stable.example.com \"a\" not found"})).await;
}

#[tokio::test]
async fn custom_table_has_additional_printer_columns() {
    let api = api_with_crontabs(&crontab_properties()).await;
    api.check(post(CRONTABS, &crontab("a", &json!({"cronSpec": "* * * * *", "replicas": 2}))), 201, json!({})).await;
    api.check(post(CRONTABS, &crontab("b", &json!({}))), 201, json!({})).await;
    let returned = api.check(get_table(CRONTABS), 200, json!({"kind": "Table"})).await.body;
    let names: Vec<&Value> = returned["columnDefinitions"].as_array().unwrap().iter().map(|c| &c["name"]).collect();
    assert_eq!(names, ["Name", "Spec", "Replicas", "Age"]);
    let cells = |i: usize| returned["rows"][i]["cells"].as_array().unwrap()[..3].to_vec();
    assert_eq!(cells(0), [json!("a"), json!("* * * * *"), json!(2)]);
    assert_eq!(cells(1), [json!("b"), json!(null), json!(null)]);
}

#[tokio::test]
async fn printer_column_paths_are_parsed_and_validated() {
    let mut definition = crontab_definition(&crontab_properties());
    let column = |name: &str, path: &str| json!({"name": name, "type": "string", "jsonPath": path});
    definition["spec"]["versions"][0]["additionalPrinterColumns"] = json!([
        column("Quoted", r".metadata.labels['serving\.knative\.dev/configuration']"),
        column("Plain", r".metadata.labels.serving\.knative\.dev/configuration"),
        column("Unescaped", ".metadata.labels['serving.knative.dev/configuration']"),
        column("None", ".metadata.labels[x]"),
        column("Behind", ".spec.image"),
    ]);
    let api = TestApi::new().await;
    api.check(post(DEFINITIONS, &definition), 201, json!({})).await;
    let mut object = crontab("a", &json!({}));
    object["metadata"]["labels"] = json!({"serving.knative.dev/configuration": "hello"});
    api.check(post(CRONTABS, &object), 201, json!({})).await;
    let expected = json!({"columnDefinitions": [{"name": "Name"}, {"name": "Quoted"}, {"name": "Plain"}, {"name": "Unescaped"}],
        "rows": [{"cells": ["a", "hello", "hello", null]}]});
    api.check(get_table(CRONTABS), 200, expected).await;
    for path in ["metadata.labels", "{.metadata}"] {
        let invalid =
            json!([{"op": "replace", "path": "/spec/versions/0/additionalPrinterColumns/0/jsonPath", "value": path}]);
        let location = "spec.additionalPrinterColumns[0].JSONPath";
        let message = format!("{location}: Invalid value: {path:?}: must be a simple json path starting with .");
        let response =
            api.send(&patch("json-patch", format!("{DEFINITIONS}/crontabs.stable.example.com"), &invalid)).await;
        assert!(response.body["message"].as_str().unwrap().contains(&message), "{path}: {}", response.body);
    }
}

#[tokio::test]
async fn custom_resource_watch_and_deletecollection_work() {
    let api = api_with_crontabs(&crontab_properties()).await;
    let mut watch = api.watch(&format!("{CRONTABS}?watch=1")).await;
    api.check(post(CRONTABS, &crontab("a", &json!({}))), 201, json!({})).await;
    watch.check("ADDED", json!({"metadata": {"name": "a"}, "spec": {"image": "busybox"}})).await;
    api.check(delete(CRONTABS), 200, json!({"kind": "CronTabList", "items": [{}]})).await;
    watch.check("DELETED", json!({"metadata": {"name": "a"}})).await;
}

#[tokio::test]
async fn custom_status_subresource_is_separate() {
    let api = api_with_crontabs(&crontab_properties()).await;
    let mut object = crontab("a", &json!({"replicas": 2}));
    object["status"] = json!({"replicas": 9});
    api.check(post(CRONTABS, &object), 201, json!({"status": null})).await;
    let path = format!("{CRONTABS}/a");
    let status = json!({"metadata": {"labels": {"by": "status"}}, "spec": {"replicas": 5}, "status": {"replicas": 1}});
    let expected =
        json!({"metadata": {"generation": 1, "labels": null}, "spec": {"replicas": 2}, "status": {"replicas": 1}});
    api.check(merge_patch(format!("{path}/status"), &status), 200, expected).await;
    api.check(merge_patch(&path, &json!({"status": {"replicas": 7}})), 200, json!({"status": {"replicas": 1}})).await;
    let invalid = api.send(&merge_patch(format!("{path}/status"), &json!({"status": {"replicas": "x"}}))).await;
    let message =
        "status.replicas: Invalid value: \"string\": status.replicas in body must be of type integer: \"string\"";
    assert!(invalid.body["message"].as_str().unwrap().contains(message), "{}", invalid.body);
}

#[tokio::test]
async fn custom_status_defaults_are_set_on_create() {
    let mut definition = crontab_definition(&crontab_properties());
    let first = &mut definition["spec"]["versions"][0];
    first["schema"]["openAPIV3Schema"]["properties"]["status"] = json!({"type": "object",
        "default": {"state": "Waiting"},
        "properties": {"state": {"type": "string"}, "replicas": {"type": "integer", "default": 0}}});
    first["additionalPrinterColumns"] = json!([{"name": "State", "type": "string", "jsonPath": ".status.state"}]);
    let api = TestApi::new().await;
    api.check(post(DEFINITIONS, &definition), 201, json!({})).await;
    let mut watch = api.watch(&format!("{CRONTABS}?watch=1")).await;
    let mut object = crontab("a", &json!({}));
    object["status"] = json!({"state": "Mine", "replicas": 9});
    let returned = json!({"status": {"state": "Waiting", "replicas": 0}, "metadata": {"generation": 1}});
    api.check(post(format!("{CRONTABS}?dryRun=All"), &object), 201, returned.clone()).await;
    let created = api.check(post(CRONTABS, &object), 201, returned.clone()).await.body;
    let path = format!("{CRONTABS}/a");
    api.check(get(&path), 200, returned.clone()).await;
    api.check(get(CRONTABS), 200, json!({"items": [returned]})).await;
    watch.check("ADDED", returned.clone()).await;
    api.check(get_table(CRONTABS), 200, json!({"rows": [{"cells": ["a", "Waiting"]}]})).await;
    // An update without changes keeps the version, and status writes override the defaults.
    let same = api.check(merge_patch(&path, &json!({"spec": {}})), 200, returned).await.body;
    assert_eq!(resource_version(&same), resource_version(&created));
    let changed = json!({"status": {"state": "Waiting", "replicas": 0}, "metadata": {"generation": 2}});
    api.check(merge_patch(&path, &json!({"spec": {"replicas": 3}})), 200, changed).await;
    let written = json!({"status": {"state": "Ready", "replicas": 0}});
    api.check(merge_patch(format!("{path}/status"), &json!({"status": {"state": "Ready"}})), 200, written.clone())
        .await;
    api.check(get(&path), 200, written).await;
}

#[tokio::test]
async fn custom_resource_apply_merges_map_lists_by_key() {
    let ports = json!({"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
        "items": {"type": "object", "required": ["name"],
            "properties": {"name": {"type": "string"}, "port": {"type": "integer"}}}});
    let api = api_with_crontabs(&json!({"ports": ports, "list": {"type": "array", "items": {"type": "string"}}})).await;
    let path = format!("{CRONTABS}/a");
    let first = crontab("a", &json!({"ports": [{"name": "http", "port": 80}], "list": ["a"]}));
    api.check(apply(&path, "one", &first), 201, json!({})).await;
    let second = crontab("a", &json!({"ports": [{"name": "https", "port": 443}]}));
    api.check(apply(&path, "two", &second), 200, json!({"spec": {"ports": [{"port": 80}, {"port": 443}]}})).await;
    let conflict = api.send(&apply(&path, "two", &crontab("a", &json!({"list": ["b"]})))).await;
    assert_eq!((conflict.status, conflict.body["details"]["causes"][0]["field"].as_str()), (409, Some(".spec.list")));
    let gone =
        api.check(apply(&path, "one", &crontab("a", &json!({}))), 200, json!({"spec": {"ports": [{"name": "https"}]}}));
    assert_eq!(owned_fields(&gone.await.body, "one"), json!({"f:spec": {}}));
}

#[tokio::test]
async fn selectable_fields_work_as_field_selectors() {
    let mut definition = crontab_definition(&crontab_properties());
    definition["spec"]["versions"][0]["selectableFields"] = json!([{"jsonPath": ".spec.image"}]);
    let api = TestApi::new().await;
    api.check(post(DEFINITIONS, &definition), 201, json!({})).await;
    api.check(post(CRONTABS, &crontab("a", &json!({}))), 201, json!({})).await;
    api.check(post(CRONTABS, &crontab("b", &json!({"image": "other"}))), 201, json!({})).await;
    let found = json!({"items": [{"metadata": {"name": "b"}}]});
    api.check(get(format!("{CRONTABS}?fieldSelector=spec.image%3Dother")), 200, found).await;
    let unknown = api.send(&get(format!("{CRONTABS}?fieldSelector=spec.replicas%3D1"))).await;
    assert_eq!(
        (unknown.status, unknown.body["message"].as_str()),
        (400, Some("field label not supported: spec.replicas"))
    );
}

#[tokio::test]
async fn openapi_document_describes_custom_kinds() {
    let api = api_with_crontabs(&crontab_properties()).await;
    let index = api.check(get("/openapi/v3"), 200, json!({})).await.body;
    let url = index["paths"]["apis/stable.example.com/v1"]["serverRelativeURL"].as_str().unwrap().to_owned();
    let document = api.check(get(&url), 200, json!({})).await.body;
    let schema = &document["components"]["schemas"]["com.example.stable.v1.CronTab"];
    assert_eq!(
        schema["properties"]["spec"]["properties"]["replicas"],
        json!({"type": "integer", "minimum": 1, "maximum": 10})
    );
    let gvk = json!([{"group": "stable.example.com", "kind": "CronTab", "version": "v1"}]);
    assert_eq!(schema["x-kubernetes-group-version-kind"], gvk);
    let patches = &document["paths"]["/apis/stable.example.com/v1/namespaces/{namespace}/crontabs/{name}"]["patch"]["requestBody"]
        ["content"];
    assert!(
        patches.get("application/merge-patch+json").is_some()
            && patches.get("application/strategic-merge-patch+json").is_none()
    );
    // A changed document has another URL.
    let change =
        json!([{"op": "add", "path": "/spec/versions/0/schema/openAPIV3Schema/description", "value": "Of time."}]);
    api.check(patch("json-patch", format!("{DEFINITIONS}/crontabs.stable.example.com"), &change), 200, json!({})).await;
    let index = api.check(get("/openapi/v3"), 200, json!({})).await.body;
    assert_ne!(index["paths"]["apis/stable.example.com/v1"]["serverRelativeURL"], url);
}

#[tokio::test]
async fn custom_versions_serve_pruned_views_of_one_object() {
    let mut definition = crontab_definition(&crontab_properties());
    let mut old = definition["spec"]["versions"][0].clone();
    old["name"] = json!("v1beta1");
    old["storage"] = json!(false);
    old["deprecated"] = json!(true);
    old["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"] = json!({"cronSpec": {"type": "string"}, "image": {"type": "string", "default": "old"}, "only": {"type": "string", "default": "here"}});
    definition["spec"]["versions"].as_array_mut().unwrap().push(old);
    let api = TestApi::new().await;
    api.check(post(DEFINITIONS, &definition), 201, json!({})).await;
    let beta = CRONTABS.replace("/v1/", "/v1beta1/");
    api.check(post(CRONTABS, &crontab("a", &json!({"replicas": 2}))), 201, json!({})).await;
    let returned = json!({"apiVersion": "stable.example.com/v1beta1", "spec": {"image": "busybox", "only": "here", "replicas": null}});
    let got = api.check(get(format!("{beta}/a")), 200, returned.clone()).await;
    assert_eq!(
        got.warnings(),
        ["299 - \"stable.example.com/v1beta1 CronTab is deprecated; use stable.example.com/v1 CronTab\""]
    );
    api.check(get(&beta), 200, json!({"apiVersion": "stable.example.com/v1beta1", "items": [returned]})).await;
    api.check(get(CRONTABS), 200, json!({"items": [{"apiVersion": "stable.example.com/v1", "spec": {"replicas": 2}}]}))
        .await;
    api.check(
        merge_patch(format!("{beta}/a"), &json!({"spec": {"cronSpec": "x"}})),
        200,
        json!({"apiVersion": "stable.example.com/v1beta1"}),
    )
    .await;
    let groups =
        api.check(get("/apis/stable.example.com"), 200, json!({"preferredVersion": {"version": "v1"}})).await.body;
    assert_eq!(groups["versions"].as_array().unwrap().len(), 2);
}

#[tokio::test]
async fn custom_resource_denial_names_the_resource() {
    let api = api_with_crontabs(&crontab_properties()).await;
    let user = request::UserInfo { name: "jane".to_owned(), ..request::UserInfo::default() };
    let request = http::Request::get(CRONTABS).body(http_body_util::Full::<bytes::Bytes>::default()).unwrap();
    let response = api.server.handle(Some(user), request).await;
    let body = http_body_util::BodyExt::collect(response.into_body()).await.unwrap().to_bytes();
    let body: Value = serde_json::from_slice(&body).unwrap();
    let message = "crontabs.stable.example.com is forbidden: User \"jane\" cannot list resource \"crontabs\" in API group \"stable.example.com\" in the namespace \"default\"";
    assert_eq!(body["message"], message);
}
