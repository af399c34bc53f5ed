//! What is served beside resources: groups and their versions, the version of the server, and the keys of its tokens.

use super::{
    document,
    paths::{group_id, group_tag},
    schemas::{self, reference},
};
use crate::registry;
use serde_json::{Map, Value, json};

const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1";
const FORMS: [&str; 3] = ["application/json", "application/vnd.kubernetes.protobuf", "application/yaml"];

/// A document of its own.
pub(super) struct General {
    /// For example `apis/apps`.
    pub(super) path: String,
    /// The group that must be served, for it to be there.
    pub(super) group: Option<&'static str>,
    pub(super) value: Value,
}

/// All of them.
pub(super) fn documents() -> Vec<General> {
    let all = schemas::of_general();
    let own = |path: &str, item: Value| {
        let paths = Map::from_iter([(format!("/{path}/"), json!({"get": item}))]);
        General { path: path.to_owned(), group: None, value: document::of(paths, all.clone()) }
    };
    let mut documents = vec![
        own("api", versions("core", "getCoreAPIVersions", "APIVersions")),
        own("apis", versions("apis", "getAPIVersions", "APIGroupList")),
        own("version", version()),
        own(".well-known/openid-configuration", configuration()),
        own("openid/v1/jwks", keys()),
    ];
    let mut groups: Vec<&'static str> = registry::built_in_versions().map(|(group, _)| group).collect();
    groups.dedup();
    for group in groups.into_iter().filter(|group| !group.is_empty()) {
        documents.push(General { group: Some(group), ..own(&format!("apis/{group}"), information(group)) });
    }
    documents
}

/// What a version of a group has, at the path where its resources are.
pub(super) fn resources(group: &str, version: &str) -> Value {
    let tag = format!("{}_{version}", group_tag(group));
    let id = format!("get{}APIResources", group_id(group, version));
    json!({"get": operation("get available resources", &id, &tag, &FORMS, kind("APIResourceList"))})
}

fn versions(tag: &str, id: &str, answer: &str) -> Value {
    operation("get available API versions", id, tag, &FORMS, kind(answer))
}

fn information(group: &str) -> Value {
    let id = format!("get{}APIGroup", group_id(group, ""));
    operation("get information of a group", &id, &group_tag(group), &FORMS, kind("APIGroup"))
}

fn version() -> Value {
    let answer = reference("io.k8s.apimachinery.pkg.version.Info");
    operation("get the version information for this server", "getCodeVersion", "version", &FORMS[..1], answer)
}

fn configuration() -> Value {
    let about = "get service account issuer OpenID configuration, also known as the 'OIDC discovery doc'";
    operation(about, "getServiceAccountIssuerOpenIDConfiguration", "WellKnown", &FORMS[..1], json!({"type": "string"}))
}

fn keys() -> Value {
    let about = "get service account issuer OpenID JSON Web Key Set (contains public token verification keys)";
    let id = "getServiceAccountIssuerOpenIDKeyset";
    operation(about, id, "openid", &["application/jwk-set+json"], json!({"type": "string"}))
}

fn kind(name: &str) -> Value {
    reference(&format!("{META}.{name}"))
}

fn operation(description: &str, id: &str, tag: &str, forms: &[&str], answer: Value) -> Value {
    let content: Map<String, Value> =
        forms.iter().map(|form| ((*form).to_owned(), json!({"schema": answer.clone()}))).collect();
    json!({
        "tags": [tag],
        "description": description,
        "operationId": id,
        "responses": {"200": {"description": "OK", "content": content}, "401": {"description": "Unauthorized"}},
    })
}
