//! Version 3 in protobuf equals version 3 in JSON.

use super::{get, gnostic::Document};
use crate::test_server::{Answer, send, server};
use prost::Message;
use serde_json::{Value, json};

const PROTOBUF: &str = "application/com.github.proto-openapi.spec.v3.v1.0+protobuf";
const DEPRECATED: &str = "application/com.github.proto-openapi.spec.v3@v1.0+protobuf";

#[track_caller]
fn decoded(answer: &Answer) -> Value {
    assert_eq!((answer.code, answer.header("content-type")), (200, PROTOBUF));
    Document::decode(answer.body.as_ref()).expect("a document").json()
}

/// Adds the differences, with their paths.
fn differences(at: &str, json: &Value, binary: &Value, found: &mut Vec<String>) {
    match (json, binary) {
        (Value::Object(one), Value::Object(other)) => {
            for key in one.keys().chain(other.keys().filter(|key| !one.contains_key(*key))) {
                differences(&format!("{at}/{key}"), &json[key], &binary[key], found);
            }
        }
        (Value::Array(one), Value::Array(other)) if one.len() == other.len() => {
            for (i, (one, other)) in one.iter().zip(other).enumerate() {
                differences(&format!("{at}/{i}"), one, other, found);
            }
        }
        _ if json == binary => {}
        _ => found.push(format!("{at}: {json} in JSON, {binary} in protobuf")),
    }
}

#[tokio::test]
async fn documents_in_protobuf_equal_those_in_json() {
    let index = get("/openapi/v3", &[]).await.json();
    let all = index["paths"].as_object().unwrap();
    assert!(all.len() > 20, "{}", all.len());
    for (name, entry) in all {
        let url = entry["serverRelativeURL"].as_str().unwrap();
        let (json, binary) = (get(url, &[]).await, get(url, &[("accept", DEPRECATED)]).await);
        assert_eq!(binary.header("cache-control"), "public, immutable, max-age=31536000");
        let mut found = Vec::new();
        differences(name, &json.json(), &decoded(&binary), &mut found);
        assert!(found.is_empty(), "{} differences, such as {:#?}", found.len(), &found[..found.len().min(5)]);
    }
}

#[tokio::test]
async fn protobuf_and_json_have_the_same_etag() {
    let path = "/openapi/v3/apis/policy/v1";
    let json = get(path, &[]).await;
    let binary = get(path, &[("accept", PROTOBUF)]).await;
    assert_ne!(json.body, binary.body);
    assert_eq!(binary.header("etag"), json.header("etag"));
    assert_eq!(binary.header("vary"), "Accept, Accept-Encoding");
    let again = get(path, &[("accept", PROTOBUF), ("if-none-match", binary.header("etag"))]).await;
    assert_eq!((again.code, again.body.len()), (304, 0));
    let small = get(path, &[("accept", PROTOBUF), ("accept-encoding", "gzip")]).await;
    assert_eq!(small.header("content-encoding"), "gzip");
    assert!(small.body.len() < binary.body.len() / 2);
    let preferred = get(path, &[("accept", &format!("{PROTOBUF};q=0.5, application/json"))]).await;
    assert_eq!(preferred.header("content-type"), "application/json");
    assert_eq!(get("/openapi/v3/apis/nothing/v1", &[("accept", PROTOBUF)]).await.code, 404);
    let wrong = get(path, &[("accept", "application/test")]).await;
    assert_eq!(wrong.code, 406);
    assert!(wrong.json()["message"].as_str().unwrap().contains(PROTOBUF));
}

#[tokio::test]
async fn custom_resources_are_encoded_in_protobuf() {
    let server = server().await;
    let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
        "any": {"type": "object", "additionalProperties": true},
        "size": {"type": "integer", "minimum": -1, "maximum": 2.5, "default": 0, "not": {"minimum": 2}},
        "on": {"type": "boolean", "default": false, "nullable": true},
        "pods": {"type": "array", "items": {"type": "object", "x-kubernetes-embedded-resource": true, "required": ["spec"],
            "properties": {"spec": {"type": "object", "properties": {"a": {"type": "string"}}}}}},
        "name": {"type": "string", "pattern": "^a", "minLength": 1, "maxLength": 9, "enum": ["a", "true"], "default": "a"},
        "rest": {"type": "object", "additionalProperties": {"x-kubernetes-int-or-string": true, "anyOf": [{"type": "integer"}, {"type": "string"}]}},
        "x-y": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set", "maxItems": 3},
        "rule": {"type": "string", "x-kubernetes-validations": [{"rule": "self != ''", "message": "a: b"}]}}}}});
    let definition = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "things.example.com"},
        "spec": {"group": "example.com", "scope": "Namespaced", "names": {"plural": "things", "kind": "Thing"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}]}});
    let body = definition.to_string();
    let json_type = [("content-type", "application/json")];
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let made = send(&server, "POST", path, &json_type, body.as_bytes()).await;
    assert_eq!(made.code, 201, "{:?}", made.body);
    let path = "/openapi/v3/apis/example.com/v1";
    let json = send(&server, "GET", path, &[], &[]).await.json();
    let binary = decoded(&send(&server, "GET", path, &[("accept", PROTOBUF)], &[]).await);
    let mut found = Vec::new();
    differences("", &json, &binary, &mut found);
    assert!(found.is_empty(), "{found:#?}");
    let spec = &binary["components"]["schemas"]["com.example.v1.Thing"]["properties"]["spec"];
    assert_eq!(
        (&spec["properties"]["any"]["additionalProperties"], &spec["properties"]["size"]["default"]),
        (&json!(true), &json!(0))
    );
    assert_eq!(spec["properties"]["x-y"]["x-kubernetes-list-type"], "set");
    let pod = &spec["properties"]["pods"]["items"];
    assert_eq!(pod["required"], json!(["spec", "kind", "apiVersion"]));
    let metadata = "#/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";
    assert_eq!(pod["properties"]["metadata"]["allOf"][0]["$ref"], metadata);
}
