//! Version 2, and comparison of both versions with discovery.

use super::{documents, get, references};
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;

/// `PUT /api/v1/...` for each operation of a document.
fn operations(paths: &Map<String, Value>) -> BTreeSet<String> {
    let operations = |(path, item): (&String, &Value)| {
        let methods = item.as_object().unwrap().keys().filter(|key| *key != "parameters");
        methods.map(|method| format!("{} {path}", method.to_uppercase())).collect::<Vec<_>>()
    };
    paths.iter().flat_map(operations).collect()
}

/// Non-resource paths without a group.
const NON_RESOURCE_PATHS: [&str; 5] =
    ["/api/", "/apis/", "/version/", "/.well-known/openid-configuration/", "/openid/v1/jwks/"];

/// Returns the operations that discovery lists.
async fn discovered() -> BTreeSet<String> {
    let mut roots = vec!["/api/v1".to_owned()];
    for group in get("/apis", &[]).await.json()["groups"].as_array().unwrap() {
        let versions = group["versions"].as_array().unwrap().iter();
        roots.extend(versions.map(|v| format!("/apis/{}", v["groupVersion"].as_str().unwrap())));
    }
    let mut all: BTreeSet<String> = NON_RESOURCE_PATHS.iter().map(|path| format!("GET {path}")).collect();
    for root in roots {
        all.insert(format!("GET {root}/"));
        all.extend(root.strip_prefix("/apis/").map(|rest| format!("GET /apis/{}/", rest.split('/').next().unwrap())));
        for resource in get(&root, &[]).await.json()["resources"].as_array().unwrap() {
            let (plural, sub) = match resource["name"].as_str().unwrap().split_once('/') {
                Some((plural, sub)) => (plural, Some(sub)),
                None => (resource["name"].as_str().unwrap(), None),
            };
            let base =
                if resource["namespaced"] == true { format!("{root}/namespaces/{{namespace}}") } else { root.clone() };
            let collection = format!("{base}/{plural}");
            let one = sub.map_or(format!("{collection}/{{name}}"), |sub| format!("{collection}/{{name}}/{sub}"));
            for verb in resource["verbs"].as_array().unwrap().iter().map(|v| v.as_str().unwrap()) {
                all.extend(match (verb, sub) {
                    ("watch", _) => {
                        let below = base.strip_prefix(&root).unwrap();
                        let one = format!("GET {root}/watch{below}/{plural}");
                        let everywhere = (!below.is_empty()).then(|| format!("GET {root}/watch/{plural}"));
                        [format!("{one}/{{name}}"), one].into_iter().chain(everywhere).collect()
                    }
                    ("list", _) if resource["namespaced"] == true => {
                        vec![format!("GET {collection}"), format!("GET {root}/{plural}")]
                    }
                    ("list", _) => vec![format!("GET {collection}")],
                    ("create", None) => vec![format!("POST {collection}")],
                    ("deletecollection", _) => vec![format!("DELETE {collection}")],
                    (verb, sub) => {
                        let method = match verb {
                            "create" => "POST".to_owned(),
                            "update" => "PUT".to_owned(),
                            other => other.to_uppercase(),
                        };
                        let mut methods = vec![method];
                        if sub == Some("proxy") {
                            // Discovery has no verbs for them.
                            methods.extend(["HEAD".to_owned(), "OPTIONS".to_owned()]);
                        }
                        let below = methods.iter().filter(|_| sub == Some("proxy"));
                        let below: Vec<String> = below.map(|method| format!("{method} {one}/{{path}}")).collect();
                        methods.iter().map(|method| format!("{method} {one}")).chain(below).collect()
                    }
                });
            }
        }
    }
    all
}

#[tokio::test]
async fn both_versions_contain_exactly_the_served_operations() {
    let served = discovered().await;
    assert!(served.len() > 500, "{}", served.len());
    let v3: BTreeSet<String> =
        documents().await.iter().flat_map(|d| operations(d["paths"].as_object().unwrap())).collect();
    let v2 = operations(get("/openapi/v2", &[]).await.json()["paths"].as_object().unwrap());
    for (version, documented) in [("v3", v3), ("v2", v2)] {
        let missing: Vec<_> = served.difference(&documented).collect();
        let only_documented: Vec<_> = documented.difference(&served).collect();
        assert!(
            missing.is_empty() && only_documented.is_empty(),
            "{version}: not documented {missing:#?}, not served {only_documented:#?}"
        );
    }
}

#[tokio::test]
async fn version_2_contains_all_schemas_converted() {
    let document = get("/openapi/v2", &[]).await.json();
    assert_eq!((&document["swagger"], &document["info"]["title"]), (&json!("2.0"), &json!("Kubernetes")));
    let mut found = Vec::new();
    references(&document, &mut found);
    assert!(found.len() > 2000, "{}", found.len());
    for reference in found {
        assert!(document.pointer(&reference[1..]).is_some_and(Value::is_object), "{reference} has no target");
    }
    let definitions = document["definitions"].as_object().unwrap();
    for name in documents().await.iter().flat_map(|d| d["components"]["schemas"].as_object().unwrap().keys()) {
        assert!(definitions.contains_key(name), "{name}");
    }
    let pod = &definitions["io.k8s.api.core.v1.Pod"];
    assert_eq!(pod["x-kubernetes-group-version-kind"], json!([{"group": "", "version": "v1", "kind": "Pod"}]));
    assert_eq!(pod["properties"]["spec"]["$ref"], "#/definitions/io.k8s.api.core.v1.PodSpec");
    assert!(pod["properties"]["spec"].get("default").is_none());
    let containers = &definitions["io.k8s.api.core.v1.PodSpec"]["properties"]["containers"];
    assert_eq!(containers["x-kubernetes-patch-merge-key"], "name");
    assert_eq!(definitions["io.k8s.apimachinery.pkg.api.resource.Quantity"]["type"], "string");
    let create = &document["paths"]["/api/v1/namespaces/{namespace}/pods"]["post"];
    assert_eq!(create["x-kubernetes-action"], "post");
    assert_eq!(create["parameters"][0]["schema"]["$ref"], "#/definitions/io.k8s.api.core.v1.Pod");
}

#[tokio::test]
async fn version_2_has_an_etag_and_a_protobuf_media_type() {
    let plain = get("/openapi/v2", &[]).await;
    let again = get("/openapi/v2", &[("if-none-match", plain.header("etag"))]).await;
    assert_eq!((plain.code, again.code, again.body.len()), (200, 304, 0));
    let accept = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf";
    let binary = get("/openapi/v2", &[("accept", accept)]).await;
    assert_eq!(binary.header("content-type"), "application/com.github.proto-openapi.spec.v2.v1.0+protobuf");
    // Field 1, three bytes: the version of the document.
    assert_eq!(&binary.body[..5], b"\x0a\x032.0");
    assert_ne!(binary.header("etag"), plain.header("etag"));
    let strategy = b"x-kubernetes-patch-strategy";
    assert!(binary.body.windows(strategy.len()).any(|w| w == strategy));
    assert_eq!(get("/openapi/v2", &[("accept", "text/html")]).await.code, 406);
}
