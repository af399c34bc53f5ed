//! Exact response bodies: upstream's order of fields and the final newline.

use crate::common::*;
use serde_json::{Value, json};

const NODE_CLASSES: &str = "/apis/node.k8s.io/v1/runtimeclasses";

async fn response_text(api: &TestApi, request: &TestRequest) -> String {
    api.text(request).await.1
}

#[tokio::test]
async fn object_json_has_upstream_field_order() {
    let api = TestApi::new().await;
    let map = json!({"data": {"b": "2", "a": "1"}, "immutable": false, "metadata": {"labels": {"x": "y"}, "name": "m"},
        "kind": "ConfigMap", "apiVersion": "v1"});
    let created = response_text(&api, &post(CONFIG_MAPS, &map)).await;
    let object: Value = serde_json::from_str(&created).unwrap();
    let metadata = &object["metadata"];
    let [uid, revision, time] = ["uid", "resourceVersion", "creationTimestamp"].map(|field| &metadata[field]);
    let managed = metadata["managedFields"].as_array().unwrap();
    assert_eq!(managed.len(), 1);
    let entry = format!(
        r#"{{"manager":{},"operation":"Update","apiVersion":"v1","time":{},"fieldsType":"FieldsV1","fieldsV1":{}}}"#,
        managed[0]["manager"], managed[0]["time"], managed[0]["fieldsV1"],
    );
    let metadata = format!(
        r#"{{"name":"m","namespace":"default","uid":{uid},"resourceVersion":{revision},"creationTimestamp":{time},"labels":{{"x":"y"}},"managedFields":[{entry}]}}"#,
    );
    let rest = format!(r#""metadata":{metadata},"immutable":false,"data":{{"a":"1","b":"2"}}}}"#);
    let whole = format!(r#"{{"kind":"ConfigMap","apiVersion":"v1",{rest}"#);
    assert_eq!(created, format!("{whole}\n"));
    assert_eq!(response_text(&api, &get(format!("{CONFIG_MAPS}/m"))).await, created);
    let list = response_text(&api, &get(format!("{CONFIG_MAPS}?fieldSelector=metadata.name=m"))).await;
    let now: Value = serde_json::from_str(&list).unwrap();
    let head = format!(r#"{{"kind":"ConfigMapList","apiVersion":"v1","metadata":{}"#, now["metadata"]);
    assert_eq!(list, format!("{head},\"items\":[{{{rest}]}}\n"));
    let partial = get(format!("{CONFIG_MAPS}/m"))
        .header("accept", "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1");
    let expected = format!(r#"{{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{metadata}}}"#);
    assert_eq!(response_text(&api, &partial).await, format!("{expected}\n"));
    let pretty: Value =
        serde_json::from_str(&response_text(&api, &get(format!("{CONFIG_MAPS}/m?pretty=true"))).await).unwrap();
    assert_eq!(pretty, object);
    let pretty = response_text(&api, &get(format!("{CONFIG_MAPS}/m?pretty=true"))).await;
    assert!(pretty.starts_with(
        "{\n  \"kind\": \"ConfigMap\",\n  \"apiVersion\": \"v1\",\n  \"metadata\": {\n    \"name\": \"m\","
    ));
    assert!(pretty.ends_with("  }\n}"));
}

#[tokio::test]
async fn status_and_discovery_json_have_struct_field_order() {
    let api = TestApi::new().await;
    assert_eq!(
        response_text(&api, &get(format!("{CONFIG_MAPS}/none"))).await,
        concat!(
            r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"configmaps \"none\" not found","#,
            r#""reason":"NotFound","details":{"name":"none","kind":"configmaps"},"code":404}"#,
            "\n"
        )
    );
    let resources = response_text(&api, &get("/apis/node.k8s.io/v1")).await;
    let head = concat!(
        r#"{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"node.k8s.io/v1","resources":["#,
        r#"{"name":"runtimeclasses","singularName":"runtimeclass","namespaced":false,"kind":"RuntimeClass","verbs":["#
    );
    assert!(resources.starts_with(head) && resources.ends_with("]}\n"), "{resources}");
    let groups = response_text(&api, &get("/apis")).await;
    let head = r#"{"kind":"APIGroupList","apiVersion":"v1","groups":[{"name":"#;
    assert!(groups.starts_with(head) && groups.ends_with("\n"), "{groups}");
    let all = get("/apis").header("accept", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList");
    let all = response_text(&api, &all).await;
    let head = r#"{"kind":"APIGroupDiscoveryList","apiVersion":"apidiscovery.k8s.io/v2","metadata":{},"items":[{"metadata":{"name":"#;
    assert!(all.starts_with(head) && all.ends_with("]}\n"), "{all}");
    assert!(all.contains(r#"{"resource":"runtimeclasses","responseKind":{"group":"node.k8s.io","version":"v1","kind":"RuntimeClass"},"scope":"Cluster","singularResource":"runtimeclass","verbs":["#));
    let version = response_text(&api, &get("/version")).await;
    assert!(version.starts_with("{\n  \"major\": \"1\",\n  \"minor\": \"35\",\n  \"gitVersion\": "), "{version}");
}

#[tokio::test]
async fn watch_event_json_begins_with_type() {
    let api = TestApi::new().await;
    let class =
        json!({"handler": "h", "metadata": {"name": "c"}, "kind": "RuntimeClass", "apiVersion": "node.k8s.io/v1"});
    let created = response_text(&api, &post(NODE_CLASSES, &class)).await;
    let events =
        response_text(&api, &get(format!("{NODE_CLASSES}?watch=1&timeoutSeconds=1&fieldSelector=metadata.name=c")))
            .await;
    assert_eq!(events, format!("{{\"type\":\"ADDED\",\"object\":{}}}\n", created.trim_end()));
}

/// Deletes an object and asserts that the response is the object (`ReturnDeletedObject`) or a Status.
#[track_caller]
fn check_delete_response<'a>(
    api: &'a TestApi,
    path: &'a str,
    rest: &Value,
    kind: &'a str,
) -> impl Future<Output = ()> + use<'a> {
    let mut object = rest.clone();
    object["metadata"] = json!({"name": "x"});
    async move {
        api.check(post(path, &object), 201, json!({"metadata": {"name": "x"}})).await;
        let response = match kind {
            "Status" => json!({"kind": "Status", "status": "Success", "details": {"name": "x"}}),
            kind => json!({"kind": kind, "metadata": {"name": "x", "deletionTimestamp": null}}),
        };
        api.check(delete(format!("{path}/x")), 200, response).await;
        api.check(get(format!("{path}/x")), 404, json!({})).await;
    }
}

#[tokio::test]
async fn delete_returns_object_or_status_by_kind() {
    let api = TestApi::new().await;
    let core = |plural: &str| format!("/api/v1/namespaces/default/{plural}");
    let storage = |plural: &str| format!("/apis/storage.k8s.io/v1/{plural}");
    let template = json!({"template": {"spec": {"containers": [{"name": "c", "image": "i"}]}}});
    let capacities = "/apis/storage.k8s.io/v1/namespaces/default/csistoragecapacities";
    check_delete_response(&api, &core("services"), &json!({"spec": {"ports": [{"port": 80}]}}), "Service").await;
    check_delete_response(&api, &core("serviceaccounts"), &json!({}), "ServiceAccount").await;
    check_delete_response(&api, &core("resourcequotas"), &json!({"spec": {}}), "ResourceQuota").await;
    check_delete_response(&api, &core("podtemplates"), &template, "PodTemplate").await;
    check_delete_response(&api, &storage("storageclasses"), &json!({"provisioner": "p"}), "StorageClass").await;
    check_delete_response(&api, &storage("csidrivers"), &json!({"spec": {}}), "CSIDriver").await;
    check_delete_response(&api, "/apis/resource.k8s.io/v1/deviceclasses", &json!({"spec": {}}), "DeviceClass").await;
    check_delete_response(&api, capacities, &json!({"storageClassName": "s"}), "Status").await;
    check_delete_response(&api, &core("configmaps"), &json!({}), "Status").await;
    check_delete_response(&api, &core("secrets"), &json!({}), "Status").await;
    check_delete_response(&api, NODE_CLASSES, &json!({"handler": "h"}), "Status").await;
}
