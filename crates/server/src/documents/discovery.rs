//! Discovery of groups, versions and resources, and `/version`.

use crate::{
    aggregation::Aggregation,
    documents::openapi,
    objects::kind_registry::{Group, ServedKinds},
};
use base64::{Engine, engine::general_purpose::STANDARD};
use http::{HeaderMap, Response};
use kinds::{Kind, KindInfo};
use response::Body;
use serde::Serialize;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use wire::{
    accept::{MediaRange, parse_accept},
    json_order,
};

const VERBS: [&str; 8] = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];

/// Verbs of a resource. Namespaces have no `deletecollection`, reviews only `create`.
pub(crate) fn verbs(info: &KindInfo) -> Vec<&'static str> {
    if info.create_only {
        return vec!["create"];
    }
    if info.computed {
        return vec!["get", "list"];
    }
    VERBS.into_iter().filter(|v| info.plural != "namespaces" || *v != "deletecollection").collect()
}

/// `k8s.io/apimachinery/pkg/version.Info`.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Info<'a> {
    major: &'a str,
    minor: &'a str,
    git_version: &'a str,
    git_commit: &'a str,
    git_tree_state: &'a str,
    build_date: &'a str,
    go_version: &'a str,
    compiler: &'a str,
    platform: String,
}

pub(crate) fn version_response() -> Response<Body> {
    let info = Info {
        major: "1",
        minor: "35",
        git_version: api::KUBERNETES_VERSION,
        git_commit: "",
        git_tree_state: "clean",
        build_date: "1970-01-01T00:00:00Z",
        go_version: "none",
        compiler: "rustc",
        platform: format!("linux/{}", if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" }),
    };
    response::raw_json(&serde_json::to_vec(&info).unwrap_or_default())
}

/// Responds to a path of discovery; `None` when the path is another one.
pub(crate) fn respond(
    served: &ServedKinds,
    aggregation: &Aggregation,
    path: &str,
    address: Option<&str>,
    accept: &str,
    headers: &HeaderMap,
) -> Option<Response<Body>> {
    let aggregated = is_aggregated(accept);
    let parts: Vec<&str> = path.split('/').filter(|p| !p.is_empty()).collect();
    let value = match parts.as_slice() {
        ["api"] if aggregated => return Some(discovery_list(served, None, headers)),
        ["apis"] if aggregated => return Some(discovery_list(served, Some(aggregation), headers)),
        [] => return Some(response::raw_json(json!({"paths": paths(served)}).to_string().as_bytes())),
        ["api"] => {
            let address = address.map(|to| json!({"clientCIDR": "0.0.0.0/0", "serverAddress": to}));
            json!({"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": Vec::from_iter(address)})
        }
        ["apis"] => {
            let mut all: Vec<Value> = served.groups().iter().filter(|g| !g.name.is_empty()).map(group).collect();
            aggregation.add_groups(&mut all);
            json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": all})
        }
        ["apis", name] => {
            let group_entry = served.groups().iter().find(|g| g.name == *name && !g.name.is_empty()).map(group);
            let mut value = aggregation.add_versions(name, group_entry)?;
            value["kind"] = json!("APIGroup");
            value["apiVersion"] = json!("v1");
            value
        }
        ["api", "v1"] => resource_list(served, "", "v1"),
        ["apis", g, v] if !g.is_empty() && served.has_version(g, v) => resource_list(served, g, v),
        _ => return None,
    };
    Some(response::json(200, &value))
}

/// Paths of the root index (`k8s.io/apiserver/pkg/server/routes/index.go`).
fn paths(served: &ServedKinds) -> Vec<String> {
    let mut all: Vec<String> =
        ["/api", "/api/v1", "/apis", "/healthz", "/livez", "/openapi/v2", "/openapi/v3", "/readyz", "/version"]
            .map(str::to_owned)
            .into();
    for group in served.groups().iter().filter(|g| !g.name.is_empty()) {
        all.push(format!("/apis/{}", group.name));
        all.extend(group.versions.iter().map(|v| format!("/apis/{}/{v}", group.name)));
    }
    all.sort_unstable();
    all
}

/// Whether the client prefers aggregated discovery, in the served version v2.
fn is_aggregated(accept: &str) -> bool {
    let is_v2 = |range: &MediaRange<'_>| {
        range.parameter("g") == Some("apidiscovery.k8s.io") && range.parameter("v") == Some("v2")
    };
    let aggregated = |range: &MediaRange<'_>| match range.requested_as() {
        Some("APIGroupDiscoveryList") => is_v2(range).then_some(true),
        Some(_) => None,
        None => matches!(range.media, "application/json" | "application/*" | "*/*").then_some(false),
    };
    parse_accept(accept).iter().find_map(aggregated).unwrap_or(false)
}

/// Computes upstream's `StorageVersionHash`, which changes with the storage version.
fn storage_version_hash(served: &ServedKinds, info: &KindInfo) -> String {
    // Upstream still stores these in v1beta1.
    if matches!(
        (info.group, info.kind),
        ("storage.k8s.io", "VolumeAttributesClass") | ("apiextensions.k8s.io", "CustomResourceDefinition")
    ) {
        let hash = Sha256::digest(format!("{}/v1beta1/{}", info.group, info.kind));
        return STANDARD.encode(&hash[..8]);
    }
    let stored = served.kinds_of_storage(info.storage).into_iter().find(|k| !k.info().converted);
    let (group, version) = stored.as_ref().map_or((info.group, info.version), |k| (k.info().group, k.info().version));
    let hash = Sha256::digest(format!("{group}/{version}/{}", info.kind));
    STANDARD.encode(&hash[..8])
}

/// Subresources whose group and version are part of discovery (`GroupVersionKindProvider`).
const WITH_GROUP_VERSION: [&str; 3] = ["scale", "eviction", "token"];

fn group(group: &Group) -> Value {
    let version = |v: &&str| json!({"groupVersion": format!("{}/{v}", group.name), "version": v});
    let versions: Vec<Value> = group.versions.iter().map(version).collect();
    json!({"name": group.name, "versions": versions, "preferredVersion": versions.first()})
}

fn resource_list(served: &ServedKinds, group: &str, version: &str) -> Value {
    let mut resources = Vec::new();
    for info in served.kinds(group, version).map(Kind::info) {
        resources.push(json!({
            "name": info.plural, "singularName": info.singular, "namespaced": info.namespaced, "kind": info.kind,
            "verbs": verbs(info),
        }));
        if let Some(resource) = resources.last_mut() {
            for (field, all) in [("shortNames", info.short_names), ("categories", info.categories)] {
                if !all.is_empty() {
                    resource[field] = json!(all);
                }
            }
            if !info.create_only && !info.computed {
                resource["storageVersionHash"] = json!(storage_version_hash(served, info));
            }
        }
        if info.status {
            let name = format!("{}/status", info.plural);
            resources.push(json!({"name": name, "singularName": "", "namespaced": info.namespaced, "kind": info.kind, "verbs": ["get", "patch", "update"]}));
        }
        for s in info.subresources {
            let name = format!("{}/{}", info.plural, s.name);
            resources.push(json!({"name": name, "singularName": "", "namespaced": info.namespaced, "kind": s.kind, "verbs": s.verbs}));
            if WITH_GROUP_VERSION.contains(&s.name)
                && let Some(resource) = resources.last_mut()
            {
                resource["group"] = json!(s.group);
                resource["version"] = json!(s.version);
            }
        }
    }
    let group_version = if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
    json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version, "resources": resources})
}

fn discovery_list(served: &ServedKinds, aggregation: Option<&Aggregation>, headers: &HeaderMap) -> Response<Body> {
    let version = |group: &str, version: &&str| {
        let resources: Vec<Value> = served.kinds(group, version).map(resource_discovery).collect();
        json!({"version": version, "resources": resources, "freshness": "Current"})
    };
    let mut items: Vec<Value> = served
        .groups()
        .iter()
        .filter(|g| g.name.is_empty() == aggregation.is_none())
        .map(|g| {
            let versions: Vec<Value> = g.versions.iter().map(|v| version(g.name, v)).collect();
            json!({"metadata": {"name": g.name}, "versions": versions})
        })
        .collect();
    if let Some(aggregation) = aggregation {
        aggregation.add_discovered(&mut items);
    }
    let list = json!({"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": items});
    const MEDIA_TYPE: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
    let text = json_order::encode_document(&list);
    let hash = openapi::etag_hash(&text);
    let (code, text) = if openapi::matches_etag(headers, &hash) { (304, Vec::new()) } else { (200, text) };
    openapi::with_etag(response::full(code, MEDIA_TYPE, text), &hash)
}

fn resource_discovery(kind: &dyn Kind) -> Value {
    let info = kind.info();
    let response = |group: &str, version: &str, kind: &str| json!({"group": group, "version": version, "kind": kind});
    let mut subresources: Vec<Value> = info
        .subresources
        .iter()
        .map(|s| json!({"subresource": s.name, "responseKind": response(s.group, s.version, s.kind), "verbs": s.verbs}))
        .collect();
    if info.status {
        let kind = response(info.group, info.version, info.kind);
        subresources.push(json!({"subresource": "status", "responseKind": kind, "verbs": ["get", "patch", "update"]}));
    }
    json!({
        "resource": info.plural, "responseKind": response(info.group, info.version, info.kind),
        "scope": if info.namespaced { "Namespaced" } else { "Cluster" }, "singularResource": info.singular, "verbs": verbs(info),
        "shortNames": info.short_names, "categories": info.categories, "subresources": subresources,
    })
}
