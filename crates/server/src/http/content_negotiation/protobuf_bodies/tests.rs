//! Requests and responses in protobuf over HTTP.

use crate::{
    ApiServer,
    test_server::{Answer, request, send, server},
};
use ::wire::protobuf::{
    MEDIA_TYPE, decode, encode,
    sample::{KUBECTL_BODIES, bytes},
    wire,
};
use http_body_util::BodyExt;
use request::UserInfo;
use serde_json::{Value, json};

const PROTOBUF: [(&str, &str); 2] =
    [("content-type", MEDIA_TYPE), ("accept", "application/vnd.kubernetes.protobuf,application/json")];

async fn post(server: &ApiServer, path: &str, object: &Value) -> Answer {
    send(server, "POST", path, &PROTOBUF, &encode(object).unwrap()).await
}

#[track_caller]
fn object(answer: &Answer) -> Value {
    assert_eq!(answer.header("content-type"), MEDIA_TYPE);
    decode(&answer.body).unwrap()
}

async fn with_pod() -> ApiServer {
    let server = server().await;
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}});
    post(&server, "/api/v1/namespaces/default/serviceaccounts", &account).await;
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {
        "containers": [{"name": "c", "image": "i", "resources": {"limits": {"cpu": "1"}},
                        "livenessProbe": {"httpGet": {"path": "/", "port": "http"}}, "ports": [{"name": "http", "containerPort": 80}]}],
        "volumes": [{"name": "v", "emptyDir": {}}]}});
    let created = post(&server, "/api/v1/namespaces/default/pods", &pod).await;
    assert_eq!(created.code, 201, "{}", object(&created));
    server
}

#[tokio::test]
async fn kubectl_bodies_create_the_printed_objects() {
    let server = server().await;
    let paths = ["/api/v1/namespaces", "/api/v1/namespaces/default/configmaps", "/api/v1/namespaces/default/secrets"];
    for (path, (body, printed)) in paths.into_iter().zip(KUBECTL_BODIES) {
        let answer = send(&server, "POST", &format!("{path}?fieldValidation=Strict"), &PROTOBUF, &bytes(body)).await;
        let created = object(&answer);
        assert_eq!(answer.code, 201, "{created}");
        let printed: Value = serde_json::from_str(printed).unwrap();
        let name = printed["metadata"]["name"].as_str().unwrap();
        let stored = send(&server, "GET", &format!("{path}/{name}"), &[], &[]).await.json();
        // The protobuf response equals the JSON response.
        assert_eq!(created, stored);
        for field in ["kind", "data", "binaryData"] {
            assert_eq!(stored[field], printed[field]);
        }
    }
}

#[tokio::test]
async fn responses_and_errors_have_the_negotiated_media_type() {
    let server = server().await;
    let again = post(
        &server,
        "/api/v1/namespaces",
        &json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default"}}),
    )
    .await;
    assert_eq!((again.code, object(&again)["reason"].clone()), (409, json!("AlreadyExists")));
    let broken = send(&server, "POST", "/api/v1/namespaces", &[("content-type", MEDIA_TYPE)], b"k8s\0\x0a\xff").await;
    assert_eq!((broken.code, broken.json()["reason"].clone()), (400, json!("BadRequest")));
    let wrong = post(&server, "/api/v1/namespaces", &json!({"apiVersion": "v1", "kind": "Pod"})).await;
    assert_eq!(wrong.code, 400);
    // A Table is only encoded as JSON.
    let list = "/api/v1/namespaces";
    let table = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json,application/vnd.kubernetes.protobuf";
    assert_eq!(send(&server, "GET", list, &[("accept", table)], &[]).await.json()["kind"], "Table");
    let both = "application/vnd.kubernetes.protobuf;as=Table;v=v1;g=meta.k8s.io,application/json";
    assert_eq!(send(&server, "GET", list, &[("accept", both)], &[]).await.json()["kind"], "NamespaceList");
    let metadata = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
    let partial = object(&send(&server, "GET", list, &[("accept", metadata)], &[]).await);
    assert_eq!(
        (partial["kind"].clone(), partial["items"].as_array().map(Vec::len)),
        (json!("PartialObjectMetadataList"), Some(4))
    );
}

#[tokio::test]
async fn pod_is_created_updated_and_deleted_in_protobuf() {
    let server = with_pod().await;
    let path = "/api/v1/namespaces/default/pods/p";
    let got = object(&send(&server, "GET", path, &PROTOBUF, &[]).await);
    assert_eq!(got, send(&server, "GET", path, &[], &[]).await.json());
    assert_eq!(got["spec"]["containers"][0]["livenessProbe"]["httpGet"]["port"], "http");
    let mut changed = got.clone();
    changed["metadata"]["labels"] = json!({"a": "b"});
    let updated = send(&server, "PUT", path, &PROTOBUF, &encode(&changed).unwrap()).await;
    assert_eq!((updated.code, object(&updated)["metadata"]["labels"].clone()), (200, json!({"a": "b"})));
    let list = object(&send(&server, "GET", "/api/v1/namespaces/default/pods", &PROTOBUF, &[]).await);
    assert_eq!((list["kind"].clone(), list["items"][0]["metadata"]["name"].clone()), (json!("PodList"), json!("p")));
    let binding = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "p"}, "target": {"kind": "Node", "name": "n"}});
    assert_eq!(post(&server, &format!("{path}/binding"), &binding).await.code, 201);
    let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"}, "deleteOptions": {"gracePeriodSeconds": 5}});
    assert_eq!(post(&server, &format!("{path}/eviction"), &eviction).await.code, 201);
    let terminating = object(&send(&server, "GET", path, &PROTOBUF, &[]).await);
    assert_eq!(terminating["metadata"]["deletionGracePeriodSeconds"], 5);
    let now = json!({"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0});
    assert_eq!(send(&server, "DELETE", path, &PROTOBUF, &encode(&now).unwrap()).await.code, 200);
    assert_eq!(send(&server, "GET", path, &PROTOBUF, &[]).await.code, 404);
}

#[tokio::test]
async fn watch_sends_frames_of_watch_events() {
    let server = with_pod().await;
    let path = "/api/v1/namespaces/default/pods?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
    let user = UserInfo::component("test");
    let response = server.handle(Some(user), request("GET", path, &PROTOBUF, &[])).await;
    assert_eq!(response.headers()["content-type"], "application/vnd.kubernetes.protobuf;stream=watch");
    let mut body = response.into_body();
    let mut seen = Vec::new();
    while seen.len() < 2 {
        let mut chunk = body.frame().await.unwrap().unwrap().into_data().unwrap().to_vec();
        while !chunk.is_empty() {
            let length = usize::try_from(u32::from_be_bytes(chunk[..4].try_into().unwrap())).unwrap();
            let rest = chunk.split_off(4 + length);
            let mut fields = wire::Fields::new(&chunk[4..]);
            let Ok(Some((1, wire::Wire::Bytes(kind)))) = fields.next() else { panic!("no type") };
            let Ok(Some((2, wire::Wire::Bytes(raw)))) = fields.next() else { panic!("no object") };
            let Ok(Some((1, wire::Wire::Bytes(object)))) = wire::Fields::new(raw).next() else { panic!("no raw") };
            seen.push((String::from_utf8(kind.to_vec()).unwrap(), decode(object).unwrap()));
            chunk = rest;
        }
    }
    assert_eq!((seen[0].0.as_str(), &seen[0].1["metadata"]["name"]), ("ADDED", &json!("p")));
    let marked = &seen[1].1["metadata"]["annotations"]["k8s.io/initial-events-end"];
    assert_eq!((seen[1].0.as_str(), marked), ("BOOKMARK", &json!("true")));
}
