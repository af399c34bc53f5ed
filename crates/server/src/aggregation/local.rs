//! An APIService for each version of a group that is served here, as upstream makes them: of built-in groups at the start,
//! of custom kinds as they come and go (`autoregister_controller.go`, `crdregistration_controller.go`). One of what stands
//! in for another server is made whenever there is none: who brings that server changes it or puts another in its place.

use super::{ALL, STORAGE};
use crate::{registry, service::ApiServer};
use futures::{FutureExt, future::join_all};
use http::Method;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use store::{Key, Scope};

const MANAGED: &str = "kube-aggregator.kubernetes.io/automanaged";
/// Custom groups come after the built-in ones.
const CUSTOM: (i64, i64) = (1000, 100);

/// Of a group, and of a version within (`DefaultGenericAPIServicePriorities`).
fn priority(group: &str, version: &str) -> (i64, i64) {
    let of_group = match group {
        "" => return (18_000, 1),
        "apps" => 17_800,
        "events.k8s.io" => 17_750,
        "authentication.k8s.io" => 17_700,
        "authorization.k8s.io" => 17_600,
        "autoscaling" => 17_500,
        "batch" => 17_400,
        "certificates.k8s.io" => 17_300,
        "networking.k8s.io" => 17_200,
        "policy" => 17_100,
        "rbac.authorization.k8s.io" => 17_000,
        "storage.k8s.io" => 16_800,
        "apiextensions.k8s.io" | "admissionregistration.k8s.io" => 16_700,
        "scheduling.k8s.io" => 16_600,
        "coordination.k8s.io" => 16_500,
        "node.k8s.io" => 16_300,
        "discovery.k8s.io" | "resource.k8s.io" => 16_200,
        "flowcontrol.apiserver.k8s.io" => 16_100,
        // As metrics-server's manifest has it.
        "metrics.k8s.io" => return (100, 100),
        _ => 15_900,
    };
    let of_version = match (group, version) {
        ("autoscaling", "v2") => 30,
        ("flowcontrol.apiserver.k8s.io" | "resource.k8s.io", _) => 21,
        _ => 15,
    };
    (of_group, of_version)
}

fn object(group: &str, version: &str, managed: &str, (of_group, of_version): (i64, i64)) -> Value {
    let mut spec = json!({"version": version, "groupPriorityMinimum": of_group, "versionPriority": of_version});
    if !group.is_empty() {
        spec["group"] = json!(group);
    }
    let metadata = json!({"name": format!("{version}.{group}"), "labels": {MANAGED: managed}});
    json!({"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": metadata, "spec": spec})
}

async fn make(server: ApiServer, object: Value) {
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    if server.store.get(&Key::new(STORAGE, "", name)).is_none() {
        server.ensure_made(ALL, &object).await;
    }
}

/// Those of built-in groups, but that of APIServices themselves.
pub(super) async fn begin(server: &ApiServer) {
    let served = server.registry.served();
    let built_in = registry::built_in_versions().filter(|(group, version)| {
        *group != "apiregistration.k8s.io" && served.has(group, version) && !stands_in(group, version)
    });
    let objects = built_in.map(|(group, version)| object(group, version, "onstart", priority(group, version)));
    join_all(objects.map(|object| make(server.clone(), object).boxed())).await;
}

fn stands_in(group: &str, version: &str) -> bool {
    registry::built_in(group, version).any(|kind| kind.info().stand_in)
}

/// Those of custom groups, as they are served now, and of what stands in for another server.
pub(super) async fn follow(server: &ApiServer) {
    let served = server.registry.served();
    let custom = served.defined().map(|(group, version, _)| object(group, version, "true", CUSTOM));
    let own = registry::built_in_versions().filter(|(group, version)| stands_in(group, version));
    let own = own.map(|(group, version)| object(group, version, "true", priority(group, version)));
    let wanted: BTreeMap<String, Value> =
        custom.chain(own).map(|o| (o["metadata"]["name"].as_str().unwrap_or_default().to_owned(), o)).collect();
    for stored in &server.store.list(&Scope::resource(STORAGE), None, None).objects {
        let known: Value = serde_json::from_slice(&stored.data).unwrap_or_default();
        if known["metadata"]["labels"][MANAGED] == "true" && !wanted.contains_key(&*stored.key.name) {
            server.ask(Method::DELETE, &format!("{ALL}/{}", stored.key.name), &Value::Null).await;
        }
    }
    for object in wanted.into_values() {
        make(server.clone(), object).await;
    }
}
