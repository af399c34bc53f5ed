//! Autoregistration: creates an APIService for each group version that is served here. Those of built-in groups are
//! created at the start, those of custom resources with their definitions (`autoregister_controller.go`,
//! `crdregistration_controller.go`). The APIService of a stand-in for an extension API server is created whenever there
//! is none; the extension API server's manifest updates or replaces it.

use super::{Aggregator, PATH, STORAGE};
use crate::objects::kind_registry;
use futures::{FutureExt, future::join_all};
use http::Method;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use store::{Key, Scope};

const MANAGED: &str = "kube-aggregator.kubernetes.io/automanaged";
/// Priorities of custom groups, lower than those of built-in groups.
const CUSTOM_PRIORITY: (i64, i64) = (1000, 100);

/// Returns group and version priority (`DefaultGenericAPIServicePriorities`).
fn priority(group: &str, version: &str) -> (i64, i64) {
    let group_priority = match group {
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
        // Same as in metrics-server's manifest.
        "metrics.k8s.io" => return (100, 100),
        _ => 15_900,
    };
    let version_priority = match (group, version) {
        ("autoscaling", "v2") => 30,
        ("flowcontrol.apiserver.k8s.io" | "resource.k8s.io", _) => 21,
        _ => 15,
    };
    (group_priority, version_priority)
}

fn api_service(group: &str, version: &str, managed: &str, (group_priority, version_priority): (i64, i64)) -> Value {
    let mut spec =
        json!({"version": version, "groupPriorityMinimum": group_priority, "versionPriority": version_priority});
    if !group.is_empty() {
        spec["group"] = json!(group);
    }
    let metadata = json!({"name": format!("{version}.{group}"), "labels": {MANAGED: managed}});
    json!({"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": metadata, "spec": spec})
}

async fn ensure(aggregator: Aggregator, api_service: Value) {
    let name = api_service["metadata"]["name"].as_str().unwrap_or_default();
    if aggregator.store.get(&Key::new(STORAGE, "", name)).is_none() {
        aggregator.client.ensure_created(PATH, &api_service).await;
    }
}

/// Creates the APIServices of built-in groups, except that of APIServices themselves.
pub(super) async fn register_built_in(aggregator: &Aggregator) {
    let served = aggregator.kinds.served();
    let built_in = kind_registry::built_in_versions().filter(|(group, version)| {
        *group != "apiregistration.k8s.io" && served.has_version(group, version) && !is_fallback(group, version)
    });
    let objects = built_in.map(|(group, version)| api_service(group, version, "onstart", priority(group, version)));
    join_all(objects.map(|api_service| ensure(aggregator.clone(), api_service).boxed())).await;
}

fn is_fallback(group: &str, version: &str) -> bool {
    kind_registry::built_in_kinds(group, version).any(|kind| kind.info().aggregation_fallback)
}

/// Reconciles the APIServices of custom groups and of stand-ins for extension API servers.
pub(super) async fn reconcile(aggregator: &Aggregator) {
    let served = aggregator.kinds.served();
    let custom =
        served.custom_versions().map(|(group, version, _)| api_service(group, version, "true", CUSTOM_PRIORITY));
    let fallbacks = kind_registry::built_in_versions().filter(|(group, version)| is_fallback(group, version));
    let fallbacks = fallbacks.map(|(group, version)| api_service(group, version, "true", priority(group, version)));
    let desired: BTreeMap<String, Value> =
        custom.chain(fallbacks).map(|o| (o["metadata"]["name"].as_str().unwrap_or_default().to_owned(), o)).collect();
    for stored in &aggregator.store.list(&Scope::resource(STORAGE), None, None).objects {
        let existing: Value = serde_json::from_slice(&stored.data).unwrap_or_default();
        if existing["metadata"]["labels"][MANAGED] == "true" && !desired.contains_key(&*stored.key.name) {
            aggregator.client.request(Method::DELETE, &format!("{PATH}/{}", stored.key.name), &Value::Null).await;
        }
    }
    for api_service in desired.into_values() {
        ensure(aggregator.clone(), api_service).await;
    }
}
