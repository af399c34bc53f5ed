//! Aggregated group versions in discovery documents.

use super::{Aggregation, Route};
use serde_json::{Value, json};
use std::{cmp::Reverse, sync::Arc};

impl Aggregation {
    /// Returns the routes by group; groups and versions are sorted by priority.
    fn routes_by_group(&self) -> Vec<(String, Vec<Arc<Route>>)> {
        let mut groups: Vec<(String, Vec<Arc<Route>>)> = Vec::new();
        for route in self.routes().values() {
            match groups.iter_mut().find(|(group, _)| *group == route.group) {
                Some((_, versions)) => versions.push(Arc::clone(route)),
                None => groups.push((route.group.clone(), vec![Arc::clone(route)])),
            }
        }
        groups.iter_mut().for_each(|(_, versions)| versions.sort_by_key(|r| Reverse(r.priority.1)));
        groups.sort_by_key(|(_, versions)| Reverse(versions.iter().map(|r| r.priority.0).max()));
        groups
    }

    /// Adds the groups to an `APIGroupList`.
    pub(crate) fn add_groups(&self, groups: &mut Vec<Value>) {
        for (name, routes) in self.routes_by_group() {
            let versions = routes.iter().map(|r| version_for_discovery(r));
            match groups.iter_mut().find(|g| g["name"] == name) {
                Some(group) => extend(&mut group["versions"], versions),
                None => groups.push(api_group(&name, versions.collect())),
            }
        }
    }

    /// Adds the aggregated versions of a group to an `APIGroup`; `group` is `None` when this server does not serve it.
    pub(crate) fn add_versions(&self, name: &str, group: Option<Value>) -> Option<Value> {
        let aggregated = self.routes_by_group().into_iter().find(|(group, _)| group == name);
        let Some((_, routes)) = aggregated else { return group };
        let versions = routes.iter().map(|r| version_for_discovery(r));
        let Some(mut group) = group else { return Some(api_group(name, versions.collect())) };
        extend(&mut group["versions"], versions);
        Some(group)
    }

    /// Adds the groups to the items of an `APIGroupDiscoveryList`.
    pub(crate) fn add_discovered(&self, items: &mut Vec<Value>) {
        for (name, routes) in self.routes_by_group() {
            let versions = routes.iter().map(|r| self.version_discovery(r));
            match items.iter_mut().find(|g| g["metadata"]["name"] == name) {
                Some(group) => extend(&mut group["versions"], versions),
                None => items.push(json!({"metadata": {"name": name}, "versions": versions.collect::<Vec<_>>()})),
            }
        }
    }

    /// Returns path and URL of the OpenAPI documents of all available versions.
    pub(crate) fn openapi_urls(&self) -> Vec<(String, String)> {
        let (routes, discovered) = (self.routes(), self.discovered.read());
        let available = routes.values().filter(|route| route.available);
        let document = |route: &Arc<Route>| {
            let url = discovered.get(&route.key())?.openapi_url.clone()?;
            Some((format!("apis/{}/{}", route.group, route.version), url))
        };
        available.filter_map(document).collect()
    }

    /// Returns the paths of all aggregated versions, available or not.
    pub(crate) fn paths(&self) -> Vec<String> {
        self.routes().values().map(|route| format!("apis/{}/{}", route.group, route.version)).collect()
    }

    /// The last discovery of a version. It is stale when the server is unavailable or has never answered.
    fn version_discovery(&self, route: &Route) -> Value {
        let resource_list = self.discovered.read().get(&route.key()).cloned().unwrap_or_default().resources;
        let freshness = if route.available && !resource_list.is_null() { "Current" } else { "Stale" };
        json!({"version": route.version, "resources": discovery_resources(route, &resource_list), "freshness": freshness})
    }
}

fn version_for_discovery(route: &Route) -> Value {
    json!({"groupVersion": format!("{}/{}", route.group, route.version), "version": route.version})
}

fn api_group(name: &str, versions: Vec<Value>) -> Value {
    json!({"name": name, "preferredVersion": versions.first(), "versions": versions})
}

fn extend(list: &mut Value, added: impl Iterator<Item = Value>) {
    if let Some(list) = list.as_array_mut() {
        for version in added {
            // This server may serve the version too, as a custom resource: the extension API server wins.
            list.retain(|known| known["version"] != version["version"]);
            list.push(version);
        }
    }
}

/// Converts an `APIResourceList` to aggregated discovery, where subresources are part of their resource.
fn discovery_resources(route: &Route, resource_list: &Value) -> Vec<Value> {
    let all = || resource_list["resources"].as_array().into_iter().flatten();
    let name = |resource: &Value| resource["name"].as_str().unwrap_or_default().to_owned();
    let kind = |resource: &Value| {
        let or =
            |field: &str, other: &str| resource[field].as_str().filter(|t| !t.is_empty()).unwrap_or(other).to_owned();
        json!({"group": or("group", &route.group), "version": or("version", &route.version), "kind": resource["kind"]})
    };
    let subresources = |resource: &str| -> Vec<Value> {
        let prefix = format!("{resource}/");
        let subresource = |r: &Value| {
            let subresource = name(r).strip_prefix(&prefix)?.to_owned();
            Some(json!({"subresource": subresource, "responseKind": kind(r), "verbs": r["verbs"]}))
        };
        all().filter_map(subresource).collect()
    };
    let whole = all().filter(|r| !name(r).contains('/'));
    whole
        .map(|r| {
            let mut found = json!({"resource": name(r), "responseKind": kind(r), "verbs": r["verbs"],
                "scope": if r["namespaced"] == true { "Namespaced" } else { "Cluster" }, "singularResource": r["singularName"]});
            for field in ["shortNames", "categories"] {
                if r[field].is_array() {
                    found[field] = r[field].clone();
                }
            }
            let subresources = subresources(&name(r));
            if !subresources.is_empty() {
                found["subresources"] = json!(subresources);
            }
            found
        })
        .collect()
}
