//! Kinds of aggregated servers. No event tells when they change, so they are discovered when an APIService changes,
//! and periodically, as in upstream's `garbagecollector.Sync`.

use super::{MonitorEvent, MonitoredKind, can_be_collected};
use futures::stream::{self, BoxStream, StreamExt};
use informer::WatchEvent;
use k8s_openapi::{
    apimachinery::pkg::apis::meta::v1::APIResourceList, kube_aggregator::pkg::apis::apiregistration::v1::APIService,
};
use kube::{Client, discovery::ApiResource};
use std::{sync::Arc, time::Duration};

/// Discovery interval (upstream's resync of monitors).
const RESYNC_INTERVAL: Duration = Duration::from_secs(30);
/// Discovery timeout.
const DISCOVERY_TIMEOUT: Duration = Duration::from_secs(10);

/// Returns the `group/version` that an APIService delegates to another server.
pub(crate) fn version_of(service: &APIService) -> Option<String> {
    let spec = service.spec.as_ref().filter(|spec| spec.service.is_some())?;
    Some(format!("{}/{}", spec.group.as_deref()?, spec.version.as_deref()?))
}

/// Returns whether the aggregated server is available.
fn is_available(service: &APIService) -> bool {
    let conditions = service.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.into_iter().any(|c| c.type_ == "Available" && c.status == "True")
}

/// Discovers the kinds at once and periodically. Failed discoveries are skipped.
pub(super) fn discover_periodically(client: &Client, version: String) -> BoxStream<'static, MonitorEvent> {
    let discover = move |(client, version, delay): (Client, String, Duration)| async move {
        tokio::time::sleep(delay).await;
        let answer = tokio::time::timeout(DISCOVERY_TIMEOUT, client.list_api_group_resources(&version)).await;
        let kinds = match answer {
            Ok(Ok(list)) => Some(kinds(&version, &list)),
            Ok(Err(error)) => {
                tracing::debug!(version, %error, "failed to discover the kinds of an aggregated server");
                None
            }
            Err(_) => None,
        };
        let seen = kinds.map(|kinds| MonitorEvent::Kinds(version.clone(), kinds));
        Some((seen, (client, version, RESYNC_INTERVAL)))
    };
    stream::unfold((client.clone(), version, Duration::ZERO), discover).filter_map(std::future::ready).boxed()
}

/// Effect of an APIService event on the kinds of its version.
pub(super) enum ApiServiceChange {
    Discover(String),
    Removed(String),
    Ignore,
}

impl ApiServiceChange {
    pub(super) fn from_event(change: &WatchEvent<APIService>) -> Self {
        match change {
            WatchEvent::Applied(service) => match version_of(service).filter(|_| is_available(service)) {
                Some(version) => Self::Discover(version),
                None => Self::Ignore,
            },
            WatchEvent::Deleted(service) => version_of(service).map_or(Self::Ignore, Self::Removed),
            WatchEvent::Listed(_) => Self::Ignore,
        }
    }
}

fn kinds(group_version: &str, list: &APIResourceList) -> Vec<MonitoredKind> {
    let (group, version) = group_version.split_once('/').unwrap_or(("", group_version));
    let deletable = list.resources.iter().filter(|r| {
        let can = |verb: &str| r.verbs.iter().any(|known| known == verb);
        !r.name.contains('/') && can_be_collected(&r.name, can)
    });
    let served = deletable.map(|r| MonitoredKind {
        resource: Arc::new(ApiResource {
            group: group.to_owned(),
            version: version.to_owned(),
            api_version: group_version.to_owned(),
            kind: r.kind.clone(),
            plural: r.name.clone(),
        }),
        namespaced: r.namespaced,
        versions: vec![group_version.to_owned()],
    });
    served.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn only_watchable_deletable_resources_are_monitored() {
        let all = ["list", "watch", "delete", "get"];
        let list = json!({"groupVersion": "g.example.com/v1", "resources": [
            {"name": "things", "singularName": "thing", "namespaced": true, "kind": "Thing", "verbs": all},
            {"name": "things/status", "singularName": "", "namespaced": true, "kind": "Thing", "verbs": all},
            {"name": "events", "singularName": "", "namespaced": true, "kind": "Event", "verbs": all},
            {"name": "metrics", "singularName": "metric", "namespaced": false, "kind": "Metric", "verbs": ["list"]}]});
        let found = kinds("g.example.com/v1", &serde_json::from_value(list).unwrap());
        assert_eq!(found.len(), 1);
        let names: Vec<_> = found[0].owner_reference_kinds().collect();
        assert_eq!((names, found[0].namespaced), (vec![("g.example.com/v1".to_owned(), "Thing".to_owned())], true));
    }

    #[test]
    fn version_is_discovered_when_its_server_is_available() {
        let service = |spec: serde_json::Value, available: &str| -> Box<APIService> {
            let conditions = json!([{"type": "Available", "status": available}]);
            Box::new(serde_json::from_value(json!({"spec": spec, "status": {"conditions": conditions}})).unwrap())
        };
        let foreign = json!({"group": "g", "version": "v1", "groupPriorityMinimum": 1, "versionPriority": 1, "service": {"name": "s"}});
        let api_service_spec = json!({"group": "g", "version": "v1", "groupPriorityMinimum": 1, "versionPriority": 1});
        let look = |spec: &serde_json::Value, available| {
            ApiServiceChange::from_event(&WatchEvent::Applied(service(spec.clone(), available)))
        };
        assert!(matches!(look(&foreign, "True"), ApiServiceChange::Discover(version) if version == "g/v1"));
        assert!(matches!(look(&foreign, "False"), ApiServiceChange::Ignore), "what it served stays known");
        assert!(matches!(look(&api_service_spec, "True"), ApiServiceChange::Ignore));
        assert!(
            matches!(ApiServiceChange::from_event(&WatchEvent::Deleted(service(foreign, "True"))), ApiServiceChange::Removed(version) if version == "g/v1")
        );
    }
}
