//! Documents of non-resource paths: groups and their versions, the version of the server, and OpenID discovery.

use super::{
    document,
    paths::{group_id, group_tag},
    schemas::{self, reference},
};
use crate::objects::kind_registry;
use serde_json::{Map, Value, json};

const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1";
const MEDIA_TYPES: [&str; 3] = ["application/json", "application/vnd.kubernetes.protobuf", "application/yaml"];

/// Document of a non-resource path.
pub(super) struct NonResourceDocument {
    /// For example `apis/apps`.
    pub(super) path: String,
    /// The document exists if this group is served.
    pub(super) group: Option<&'static str>,
    pub(super) value: Value,
}

/// Builds all documents of non-resource paths.
pub(super) fn documents() -> Vec<NonResourceDocument> {
    let all = schemas::of_discovery();
    let path_item = |path: &str, item: Value| {
        let paths = Map::from_iter([(format!("/{path}/"), json!({"get": item}))]);
        NonResourceDocument { path: path.to_owned(), group: None, value: document::build(paths, all.clone()) }
    };
    let mut documents = vec![
        path_item("api", versions("core", "getCoreAPIVersions", "APIVersions")),
        path_item("apis", versions("apis", "getAPIVersions", "APIGroupList")),
        path_item("version", version()),
        path_item(".well-known/openid-configuration", configuration()),
        path_item("openid/v1/jwks", keys()),
    ];
    let mut groups: Vec<&'static str> = kind_registry::built_in_versions().map(|(group, _)| group).collect();
    groups.dedup();
    for group in groups.into_iter().filter(|group| !group.is_empty()) {
        documents.push(NonResourceDocument {
            group: Some(group),
            ..path_item(&format!("apis/{group}"), information(group))
        });
    }
    documents
}

/// Returns the path item of the APIResourceList of a group and version.
pub(super) fn api_resources(group: &str, version: &str) -> Value {
    let tag = format!("{}_{version}", group_tag(group));
    let id = format!("get{}APIResources", group_id(group, version));
    json!({"get": operation("get available resources", &id, &tag, &MEDIA_TYPES, kind("APIResourceList"))})
}

fn versions(tag: &str, id: &str, kind_name: &str) -> Value {
    operation("get available API versions", id, tag, &MEDIA_TYPES, kind(kind_name))
}

fn information(group: &str) -> Value {
    let id = format!("get{}APIGroup", group_id(group, ""));
    operation("get information of a group", &id, &group_tag(group), &MEDIA_TYPES, kind("APIGroup"))
}

fn version() -> Value {
    let schema = reference("io.k8s.apimachinery.pkg.version.Info");
    operation("get the version information for this server", "getCodeVersion", "version", &MEDIA_TYPES[..1], schema)
}

fn configuration() -> Value {
    let about = "get service account issuer OpenID configuration, also known as the 'OIDC discovery doc'";
    operation(
        about,
        "getServiceAccountIssuerOpenIDConfiguration",
        "WellKnown",
        &MEDIA_TYPES[..1],
        json!({"type": "string"}),
    )
}

fn keys() -> Value {
    let about = "get service account issuer OpenID JSON Web Key Set (contains public token verification keys)";
    let id = "getServiceAccountIssuerOpenIDKeyset";
    operation(about, id, "openid", &["application/jwk-set+json"], json!({"type": "string"}))
}

fn kind(name: &str) -> Value {
    reference(&format!("{META}.{name}"))
}

fn operation(description: &str, id: &str, tag: &str, media_types: &[&str], schema: Value) -> Value {
    let content: Map<String, Value> =
        media_types.iter().map(|media_type| ((*media_type).to_owned(), json!({"schema": schema.clone()}))).collect();
    json!({
        "tags": [tag],
        "description": description,
        "operationId": id,
        "responses": {"200": {"description": "OK", "content": content}, "401": {"description": "Unauthorized"}},
    })
}
