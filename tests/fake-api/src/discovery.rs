//! Discovery documents of the fake API server.

use serde_json::{Value, json};

/// Returns the discovery document at a path: enough for the namespace controller to find content.
pub(crate) fn document(path: &str) -> Option<Value> {
    let resource = |name: &str, kind: &str, namespaced: bool, verbs: &[&str]| json!({ "name": name, "singularName": "", "kind": kind, "namespaced": namespaced, "verbs": verbs });
    let all = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];
    let core = [
        resource("namespaces", "Namespace", false, &all),
        resource("configmaps", "ConfigMap", true, &all),
        resource("serviceaccounts", "ServiceAccount", true, &all),
        resource("pods", "Pod", true, &all),
        resource("pods/status", "Pod", true, &["get", "patch", "update"]),
        resource("bindings", "Binding", true, &["create"]),
    ];
    let coordination = [resource("leases", "Lease", true, &all)];
    let list = |group_version: &str, resources: &[Value]| {
        Some(json!({ "kind": "APIResourceList", "groupVersion": group_version, "resources": resources }))
    };
    match path {
        "api" => Some(aggregated("", &core)),
        "apis" => Some(aggregated("coordination.k8s.io", &coordination)),
        "api/v1" => list("v1", &core),
        "apis/coordination.k8s.io/v1" => list("coordination.k8s.io/v1", &coordination),
        // Custom groups that autoscalers look up.
        "apis/example.com" => Some(group("example.com", "v1")),
        "apis/example.com/v1" => list("example.com/v1", &[resource("widgets", "Widget", true, &all)]),
        "apis/custom.metrics.k8s.io" => Some(group("custom.metrics.k8s.io", "v1beta2")),
        _ => None,
    }
}

/// Returns an API group of one version.
fn group(name: &str, version: &str) -> Value {
    let version = json!({ "groupVersion": format!("{name}/{version}"), "version": version });
    json!({ "kind": "APIGroup", "apiVersion": "v1", "name": name, "versions": [version], "preferredVersion": version })
}

/// Returns an aggregated discovery document of one group.
fn aggregated(group: &str, resources: &[Value]) -> Value {
    let entry = |r: &Value| {
        json!({ "resource": r["name"], "singularResource": "", "verbs": r["verbs"],
        "responseKind": { "group": group, "version": "v1", "kind": r["kind"] },
        "scope": if r["namespaced"] == true { "Namespaced" } else { "Cluster" } })
    };
    let whole = resources.iter().filter(|r| r["name"].as_str().is_some_and(|name| !name.contains('/')));
    let version = json!({ "version": "v1", "resources": whole.map(entry).collect::<Vec<_>>() });
    let item = json!({ "metadata": { "name": group }, "versions": [version] });
    json!({ "kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": [item] })
}
