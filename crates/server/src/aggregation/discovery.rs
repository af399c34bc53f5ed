//! What other servers serve, in discovery.

use super::{Aggregation, Route};
use serde_json::{Value, json};
use std::{cmp::Reverse, sync::Arc};

impl Aggregation {
    /// By group, each with its versions, in the order of their priorities.
    fn grouped(&self) -> Vec<(String, Vec<Arc<Route>>)> {
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
        for (name, routes) in self.grouped() {
            let versions = routes.iter().map(|r| version_of(r));
            match groups.iter_mut().find(|g| g["name"] == name) {
                Some(group) => extend(&mut group["versions"], versions),
                None => groups.push(group_of(&name, versions.collect())),
            }
        }
    }

    /// Adds the versions of a group, which may not be served here at all.
    pub(crate) fn add_versions(&self, name: &str, group: Option<Value>) -> Option<Value> {
        let own = self.grouped().into_iter().find(|(group, _)| group == name);
        let Some((_, routes)) = own else { return group };
        let versions = routes.iter().map(|r| version_of(r));
        let Some(mut group) = group else { return Some(group_of(name, versions.collect())) };
        extend(&mut group["versions"], versions);
        Some(group)
    }

    /// Adds the groups to the items of an `APIGroupDiscoveryList`.
    pub(crate) fn add_discovered(&self, items: &mut Vec<Value>) {
        for (name, routes) in self.grouped() {
            let versions = routes.iter().map(|r| self.discovered(r));
            match items.iter_mut().find(|g| g["metadata"]["name"] == name) {
                Some(group) => extend(&mut group["versions"], versions),
                None => items.push(json!({"metadata": {"name": name}, "versions": versions.collect::<Vec<_>>()})),
            }
        }
    }

    /// The OpenAPI documents of versions that are available, and where they are.
    pub(crate) fn documents(&self) -> Vec<(String, String)> {
        let (routes, said) = (self.routes(), self.said.read());
        let available = routes.values().filter(|route| route.available);
        let document = |route: &Arc<Route>| {
            let url = said.get(&route.key())?.document.clone()?;
            Some((format!("apis/{}/{}", route.group, route.version), url))
        };
        available.filter_map(document).collect()
    }

    /// The paths of all versions that other servers serve, whether they are available or not.
    pub(crate) fn paths(&self) -> Vec<String> {
        self.routes().values().map(|route| format!("apis/{}/{}", route.group, route.version)).collect()
    }

    /// What the server of a version said last; without that nothing is known, and with that it may be out of date.
    fn discovered(&self, route: &Route) -> Value {
        let said = self.said.read().get(&route.key()).cloned().unwrap_or_default().resources;
        let freshness = if route.available && !said.is_null() { "Current" } else { "Stale" };
        json!({"version": route.version, "resources": resources(route, &said), "freshness": freshness})
    }
}

fn version_of(route: &Route) -> Value {
    json!({"groupVersion": format!("{}/{}", route.group, route.version), "version": route.version})
}

fn group_of(name: &str, versions: Vec<Value>) -> Value {
    json!({"name": name, "preferredVersion": versions.first(), "versions": versions})
}

fn extend(list: &mut Value, more: impl Iterator<Item = Value>) {
    if let Some(list) = list.as_array_mut() {
        for version in more {
            // A custom kind may be served here, too; then the other server has its version.
            list.retain(|known| known["version"] != version["version"]);
            list.push(version);
        }
    }
}

/// An `APIResourceList` in the form of aggregated discovery: parts stand with their resources.
fn resources(route: &Route, said: &Value) -> Vec<Value> {
    let all = || said["resources"].as_array().into_iter().flatten();
    let name = |resource: &Value| resource["name"].as_str().unwrap_or_default().to_owned();
    let kind = |resource: &Value| {
        let or =
            |field: &str, other: &str| resource[field].as_str().filter(|t| !t.is_empty()).unwrap_or(other).to_owned();
        json!({"group": or("group", &route.group), "version": or("version", &route.version), "kind": resource["kind"]})
    };
    let parts = |of: &str| -> Vec<Value> {
        let prefix = format!("{of}/");
        let part = |r: &Value| {
            let part = name(r).strip_prefix(&prefix)?.to_owned();
            Some(json!({"subresource": part, "responseKind": kind(r), "verbs": r["verbs"]}))
        };
        all().filter_map(part).collect()
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
            let parts = parts(&name(r));
            if !parts.is_empty() {
                found["subresources"] = json!(parts);
            }
            found
        })
        .collect()
}
