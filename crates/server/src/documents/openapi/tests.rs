//! Tests of OpenAPI documents over HTTP.

mod apply_types;
mod built_in_kinds;
mod gnostic;
mod k8s_openapi_schemas;
mod protobuf;
mod published;
mod swagger;
mod upstream;

use crate::test_server::{Answer, send, server};
use api::feature_gates::FeatureGates;
use flate2::read::GzDecoder;
use kinds::ALL;
use serde_json::{Value, json};
use std::{collections::BTreeMap, io::Read};

async fn get(path: &str, headers: &[(&str, &str)]) -> Answer {
    // All kinds are served.
    let gates = FeatureGates::parse("MutatingAdmissionPolicy=true").unwrap();
    send(&server().await.with_gates(gates), "GET", path, headers, &[]).await
}

async fn documents() -> Vec<Value> {
    let index = get("/openapi/v3", &[]).await.json();
    let mut all = Vec::new();
    for entry in index["paths"].as_object().unwrap().values() {
        let answer = get(entry["serverRelativeURL"].as_str().unwrap(), &[]).await;
        assert_eq!((answer.code, answer.header("cache-control")), (200, "public, immutable, max-age=31536000"));
        all.push(answer.json());
    }
    all
}

fn references<'a>(value: &'a Value, found: &mut Vec<&'a str>) {
    match value {
        Value::Object(map) => {
            found.extend(map.get("$ref").and_then(Value::as_str));
            map.values().for_each(|v| references(v, found));
        }
        Value::Array(list) => list.iter().for_each(|v| references(v, found)),
        _ => {}
    }
}

#[tokio::test]
async fn kinds_have_schemas_and_references_resolve() {
    let all = documents().await;
    for document in &all {
        let mut found = Vec::new();
        references(document, &mut found);
        for reference in found {
            assert!(document.pointer(&reference[1..]).is_some_and(Value::is_object), "{reference} has no target");
        }
    }
    for info in ALL.iter().map(|k| k.info()) {
        // Reviews have no lists.
        let list = (!info.create_only).then(|| format!("{}List", info.kind));
        for kind in std::iter::once(info.kind.to_owned()).chain(list) {
            let gvk = json!([{"group": info.group, "kind": kind, "version": info.version}]);
            let schemas = all.iter().flat_map(|d| d["components"]["schemas"].as_object().unwrap());
            // Several documents may contain a schema.
            let found: BTreeMap<&String, &Value> =
                schemas.filter(|(_, s)| s["x-kubernetes-group-version-kind"] == gvk).collect();
            assert_eq!(found.len(), 1, "{kind} has {} schemas", found.len());
            let schema = found.values().next().unwrap();
            assert!(schema["properties"].is_object() && schema["description"].is_string(), "{kind}");
        }
    }
}

#[tokio::test]
async fn fields_have_their_types_and_descriptions() {
    let core = get("/openapi/v3/api/v1", &[]).await.json();
    let schema = |name: &str| &core["components"]["schemas"][name];
    let get = &schema("io.k8s.api.core.v1.Probe")["properties"]["httpGet"];
    assert_eq!(get["allOf"], json!([{"$ref": "#/components/schemas/io.k8s.api.core.v1.HTTPGetAction"}]));
    assert!(get["description"].as_str().unwrap().contains("HTTP"));
    assert_eq!(schema("io.k8s.api.core.v1.HTTPGetAction")["required"], json!(["port"]));
    assert_eq!(schema("io.k8s.apimachinery.pkg.util.intstr.IntOrString")["format"], "int-or-string");
    assert_eq!(schema("io.k8s.api.core.v1.Pod").get("required"), None);
    assert_eq!(schema("io.k8s.api.core.v1.Binding")["required"], json!(["target"]));
    let patch = &core["paths"]["/api/v1/namespaces/{namespace}/pods/{name}"]["patch"];
    assert_eq!(patch["x-kubernetes-group-version-kind"], json!({"group": "", "version": "v1", "kind": "Pod"}));
    let parameters = patch["parameters"].as_array().unwrap();
    assert!(parameters.iter().any(|p| p["name"] == "fieldValidation"));
    let eviction = &core["paths"]["/api/v1/namespaces/{namespace}/pods/{name}/eviction"]["post"];
    assert_eq!(
        eviction["requestBody"]["content"]["*/*"]["schema"]["$ref"],
        "#/components/schemas/io.k8s.api.policy.v1.Eviction"
    );
}

#[tokio::test]
async fn fields_without_omitempty_have_a_default() {
    let core = get("/openapi/v3/api/v1", &[]).await.json();
    let default = |name: &str, field: &str| {
        core["components"]["schemas"][format!("io.k8s.api.core.v1.{name}")]["properties"]
            .pointer(&format!("/{field}/default"))
            .cloned()
    };
    for (name, field, expected) in [
        ("Pod", "spec", Some(json!({}))),
        ("PodList", "items/items", Some(json!({}))),
        ("Container", "name", Some(json!(""))),
        ("Container", "image", None),
        ("Container", "args/items", Some(json!(""))),
        ("Container", "livenessProbe", None),
        ("ContainerPort", "containerPort", Some(json!(0))),
        ("ContainerPort", "protocol", Some(json!("TCP"))),
        ("ConfigMap", "data/additionalProperties", Some(json!(""))),
        ("PodSpec", "containers/items", Some(json!({}))),
        ("ContainerStatus", "ready", Some(json!(false))),
        ("ContainerStateRunning", "startedAt", None),
        ("ResourceRequirements", "limits/additionalProperties", None),
        ("ConfigMapKeySelector", "name", Some(json!(""))),
    ] {
        assert_eq!(default(name, field), expected, "{name}.{field}");
    }
}

#[tokio::test]
async fn enum_fields_list_their_values() {
    let core = get("/openapi/v3/api/v1", &[]).await.json();
    let value = |name: &str, at: &str| {
        core["components"]["schemas"][format!("io.k8s.api.core.v1.{name}")]["properties"].pointer(at).cloned()
    };
    let pulls = Some(json!(["Always", "IfNotPresent", "Never"]));
    assert_eq!(value("Container", "/imagePullPolicy/enum"), pulls);
    // Also in inlined structs.
    assert_eq!(value("EphemeralContainer", "/imagePullPolicy/enum"), pulls);
    let modes = Some(json!(["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"]));
    assert_eq!(value("PersistentVolumeSpec", "/accessModes/items/enum"), modes);
    assert_eq!(value("PersistentVolumeSpec", "/accessModes/enum"), None);
    assert_eq!(value("Container", "/image/enum"), None);
    let description = value("ServicePort", "/protocol/description").unwrap();
    let values = "\n\nPossible enum values:\n - `\"SCTP\"`\n - `\"TCP\"`\n - `\"UDP\"`";
    assert!(description.as_str().unwrap().ends_with(values), "{description}");
    let two = get("/openapi/v2", &[]).await.json();
    let old = &two["definitions"]["io.k8s.api.core.v1.Container"]["properties"]["imagePullPolicy"]["enum"];
    assert_eq!(Some(old.clone()), pulls);
}

#[tokio::test]
async fn lists_and_maps_have_merge_extensions() {
    let core = get("/openapi/v3/api/v1", &[]).await.json();
    let extensions = |name: &str, field: &str| {
        let property = &core["components"]["schemas"][format!("io.k8s.api.core.v1.{name}")]["properties"][field];
        let all = property.as_object().unwrap().iter();
        Value::Object(all.filter_map(|(k, v)| Some((k.strip_prefix("x-kubernetes-")?.to_owned(), v.clone()))).collect())
    };
    for (name, field, expected) in [
        (
            "PodSpec",
            "containers",
            json!({"list-type": "map", "list-map-keys": ["name"], "patch-strategy": "merge", "patch-merge-key": "name"}),
        ),
        (
            "PodSpec",
            "volumes",
            json!({"list-type": "map", "list-map-keys": ["name"], "patch-strategy": "merge,retainKeys", "patch-merge-key": "name"}),
        ),
        ("PodSpec", "nodeSelector", json!({"map-type": "atomic"})),
        ("PodSpec", "tolerations", json!({"list-type": "atomic"})),
        (
            "Container",
            "ports",
            json!({"list-type": "map", "list-map-keys": ["containerPort", "protocol"], "patch-strategy": "merge", "patch-merge-key": "containerPort"}),
        ),
        (
            "EphemeralContainer",
            "env",
            json!({"list-type": "map", "list-map-keys": ["name"], "patch-strategy": "merge", "patch-merge-key": "name"}),
        ),
        ("NodeSpec", "podCIDRs", json!({"list-type": "set", "patch-strategy": "merge"})),
        ("PodSpec", "hostname", json!({})),
    ] {
        assert_eq!(extensions(name, field), expected, "{name}.{field}");
    }
    assert_eq!(
        core["components"]["schemas"]["io.k8s.api.core.v1.LocalObjectReference"]["x-kubernetes-map-type"],
        "atomic"
    );
}

#[tokio::test]
async fn document_with_matching_etag_is_not_modified() {
    let plain = get("/openapi/v3/apis/policy/v1", &[]).await;
    assert_eq!((plain.code, plain.header("cache-control")), (200, "no-cache, private"));
    let tag = plain.header("etag");
    assert_eq!(tag.len(), 130);
    let again = get("/openapi/v3/apis/policy/v1", &[("if-none-match", tag)]).await;
    assert_eq!((again.code, again.body.len(), again.header("etag")), (304, 0, tag));
    let index = get("/openapi/v3", &[]).await;
    let again = get("/openapi/v3", &[("if-none-match", index.header("etag"))]).await;
    assert_eq!(again.code, 304);
    let old = get("/openapi/v3/apis/policy/v1?hash=OLD", &[]).await;
    let now = format!("/openapi/v3/apis/policy/v1?hash={}", tag.trim_matches('"'));
    assert_eq!((old.code, old.header("location")), (301, now.as_str()));
    let small = get("/openapi/v3/apis/policy/v1", &[("accept-encoding", "gzip")]).await;
    let mut text = Vec::new();
    GzDecoder::new(small.body.as_ref()).read_to_end(&mut text).unwrap();
    assert_eq!((small.header("content-encoding"), &text[..]), ("gzip", &plain.body[..]));
}

#[tokio::test]
async fn unknown_documents_and_media_types_are_rejected() {
    assert_eq!(get("/openapi/v3/apis/nothing/v1", &[]).await.code, 404);
    assert_eq!(get("/openapi/v3x", &[]).await.code, 404);
    assert_eq!(get("/openapi/v3/api/v1", &[("accept", "text/html")]).await.code, 406);
    assert_eq!(get("/openapi/v3/api/v1", &[("accept", "text/html, application/json;q=0.5")]).await.code, 200);
    // The index is always JSON.
    let index = get("/openapi/v3", &[("accept", "text/html")]).await;
    assert_eq!((index.code, index.header("content-type")), (200, "application/json"));
}
