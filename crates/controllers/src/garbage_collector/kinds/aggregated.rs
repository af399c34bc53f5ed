//! The kinds of groups that other servers serve. They come, change and go without a word, so their servers are asked when
//! an APIService changes, and from time to time, as upstream's `garbagecollector.Sync` does.

use super::{Seen, Served, can_be_collected};
use crate::watch::WatchEvent;
use futures::stream::{self, BoxStream, StreamExt};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::APIResourceList;
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::APIService;
use kube::Client;
use kube::discovery::ApiResource;
use std::sync::Arc;
use std::time::Duration;

/// How often a server is asked that nobody has said anything about (upstream's resync of monitors).
const AGAIN: Duration = Duration::from_secs(30);
/// How long it may take to answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// The `group/version` that another server serves, if this is one of those.
pub(crate) fn version_of(service: &APIService) -> Option<String> {
    let spec = service.spec.as_ref().filter(|spec| spec.service.is_some())?;
    Some(format!("{}/{}", spec.group.as_deref()?, spec.version.as_deref()?))
}

/// Whether its server is there to be asked.
fn is_available(service: &APIService) -> bool {
    let conditions = service.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.into_iter().any(|c| c.type_ == "Available" && c.status == "True")
}

/// Asks which kinds there are, at once and from time to time, until nobody listens. Who does not answer says nothing.
pub(super) fn look(client: &Client, version: String) -> BoxStream<'static, Seen> {
    let ask = move |(client, version, pause): (Client, String, Duration)| async move {
        tokio::time::sleep(pause).await;
        let answer = tokio::time::timeout(PATIENCE, client.list_api_group_resources(&version)).await;
        let kinds = match answer {
            Ok(Ok(list)) => Some(kinds(&version, &list)),
            Ok(Err(error)) => {
                tracing::debug!(version, %error, "a server does not say what it serves");
                None
            }
            Err(_) => None,
        };
        let seen = kinds.map(|kinds| Seen::Kinds(version.clone(), kinds));
        Some((seen, (client, version, AGAIN)))
    };
    stream::unfold((client.clone(), version, Duration::ZERO), ask).filter_map(std::future::ready).boxed()
}

/// What a change of an APIService means for the kinds of its version: they are to be looked at, or are no more.
pub(super) enum Told {
    Look(String),
    Gone(String),
    Nothing,
}

impl Told {
    pub(super) fn by(change: &WatchEvent<APIService>) -> Self {
        match change {
            WatchEvent::Applied(service) => match version_of(service).filter(|_| is_available(service)) {
                Some(version) => Self::Look(version),
                None => Self::Nothing,
            },
            WatchEvent::Deleted(service) => version_of(service).map_or(Self::Nothing, Self::Gone),
            WatchEvent::Listed(_) => Self::Nothing,
        }
    }
}

fn kinds(group_version: &str, list: &APIResourceList) -> Vec<Served> {
    let (group, version) = group_version.split_once('/').unwrap_or(("", group_version));
    let wanted = list.resources.iter().filter(|r| {
        let can = |verb: &str| r.verbs.iter().any(|known| known == verb);
        !r.name.contains('/') && can_be_collected(&r.name, can)
    });
    let served = wanted.map(|r| Served {
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
    fn only_what_can_be_watched_and_deleted_is_collected() {
        let all = ["list", "watch", "delete", "get"];
        let list = json!({"groupVersion": "g.example.com/v1", "resources": [
            {"name": "things", "singularName": "thing", "namespaced": true, "kind": "Thing", "verbs": all},
            {"name": "things/status", "singularName": "", "namespaced": true, "kind": "Thing", "verbs": all},
            {"name": "events", "singularName": "", "namespaced": true, "kind": "Event", "verbs": all},
            {"name": "metrics", "singularName": "metric", "namespaced": false, "kind": "Metric", "verbs": ["list"]}]});
        let found = kinds("g.example.com/v1", &serde_json::from_value(list).unwrap());
        assert_eq!(found.len(), 1);
        let names: Vec<_> = found[0].names().collect();
        assert_eq!((names, found[0].namespaced), (vec![("g.example.com/v1".to_owned(), "Thing".to_owned())], true));
    }

    #[test]
    fn a_version_is_looked_at_once_its_server_is_available() {
        let service = |spec: serde_json::Value, available: &str| -> Box<APIService> {
            let conditions = json!([{"type": "Available", "status": available}]);
            Box::new(serde_json::from_value(json!({"spec": spec, "status": {"conditions": conditions}})).unwrap())
        };
        let foreign = json!({"group": "g", "version": "v1", "groupPriorityMinimum": 1, "versionPriority": 1, "service": {"name": "s"}});
        let own = json!({"group": "g", "version": "v1", "groupPriorityMinimum": 1, "versionPriority": 1});
        let look =
            |spec: &serde_json::Value, available| Told::by(&WatchEvent::Applied(service(spec.clone(), available)));
        assert!(matches!(look(&foreign, "True"), Told::Look(version) if version == "g/v1"));
        assert!(matches!(look(&foreign, "False"), Told::Nothing), "what it served stays known");
        assert!(matches!(look(&own, "True"), Told::Nothing));
        assert!(
            matches!(Told::by(&WatchEvent::Deleted(service(foreign, "True"))), Told::Gone(version) if version == "g/v1")
        );
    }
}
