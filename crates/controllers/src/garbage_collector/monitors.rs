//! Monitors: watches of all kinds that can own or be owned, whether built-in, custom or served by aggregated servers.

pub(super) mod aggregated;

use super::ObjectMetadata;
use aggregated::ApiServiceChange;
use futures::stream::{self, BoxStream, SelectAll, StreamExt};
use informer::{WatchEvent, watch};
use k8s_openapi::{
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
    kube_aggregator::pkg::apis::apiregistration::v1::APIService,
};
use kube::{
    Api, Client,
    discovery::{ApiGroup, ApiResource, Discovery, Scope},
    runtime::watcher::Config,
};
use std::{collections::HashMap, sync::Arc, time::Duration};
use tokio_util::sync::CancellationToken;

/// Resources that are not monitored (upstream's `ignoredResources`).
const IGNORED: [&str; 1] = ["events"];

/// Pause after a batch of events. Every write is an event for the garbage collector; the pause limits wake-ups to a
/// hundred per second.
const EVENT_BATCH_PAUSE: Duration = Duration::from_millis(10);
/// Maximum number of events in a batch.
const EVENT_BATCH_SIZE: usize = 4096;

/// Time to wait for the initial list of a kind (upstream's `initialSyncTimeout`), so that a kind that cannot be
/// listed, such as one with a broken conversion, does not block all others.
pub(super) const INITIAL_SYNC_TIMEOUT: Duration = Duration::from_secs(30);

/// Event of the garbage collector.
#[derive(Debug)]
pub(super) enum Event {
    Object(Arc<ApiResource>, WatchEvent<ObjectMetadata>),
    /// A kind was added whose initial list is outstanding.
    KindAdded(MonitoredKind),
    /// The initial list of a kind was not complete in time.
    SyncTimedOut(Arc<ApiResource>),
    /// A kind of an aggregated server was added. Its initial list is not waited for, because the server may never
    /// answer.
    AggregatedKindAdded(MonitoredKind),
    /// A monitored kind is served in further versions.
    VersionsAdded(MonitoredKind),
    /// A kind is no longer served, so none of its objects exist.
    KindRemoved(MonitoredKind),
}

/// A kind, monitored in one of its versions.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct MonitoredKind {
    pub(super) resource: Arc<ApiResource>,
    namespaced: bool,
    /// Every `group/version` in which owner references can name the kind.
    versions: Vec<String>,
}

impl MonitoredKind {
    /// Returns the API versions and kinds by which owner references can name it.
    pub(super) fn owner_reference_kinds(&self) -> impl Iterator<Item = (String, String)> {
        self.versions.iter().map(|version| (version.clone(), self.resource.kind.clone()))
    }

    fn group_resource(&self) -> (String, String) {
        (self.resource.group.clone(), self.resource.plural.clone())
    }

    pub(super) fn resource_and_scope(&self) -> (Arc<ApiResource>, bool) {
        (Arc::clone(&self.resource), self.namespaced)
    }

    /// Returns the kind of an established definition.
    fn from_definition(definition: &CustomResourceDefinition) -> Option<Self> {
        let status = definition.status.as_ref()?;
        let established = |c: &_| matches!(c, (kind, value) if *kind == "Established" && *value == "True");
        let mut conditions = status.conditions.iter().flatten().map(|c| (c.type_.as_str(), c.status.as_str()));
        let (spec, names) = (&definition.spec, status.accepted_names.as_ref()?);
        let served: Vec<&str> = spec.versions.iter().filter(|v| v.served).map(|v| v.name.as_str()).collect();
        let version = (*served.first()?).to_owned();
        let resource = ApiResource {
            api_version: format!("{}/{version}", spec.group),
            group: spec.group.clone(),
            version,
            kind: names.kind.clone(),
            plural: names.plural.clone(),
        };
        conditions.any(|c| established(&c)).then(|| Self {
            resource: Arc::new(resource),
            namespaced: spec.scope == "Namespaced",
            versions: served.iter().map(|version| format!("{}/{version}", spec.group)).collect(),
        })
    }
}

/// Returns whether objects of a kind can be listed, watched and deleted.
fn can_be_collected(plural: &str, can: impl Fn(&str) -> bool) -> bool {
    ["list", "watch", "delete"].into_iter().all(can) && !IGNORED.contains(&plural)
}

/// Returns the discovered kinds. Later custom kinds are added by their definitions.
pub(super) fn discovered(discovery: &Discovery) -> Vec<MonitoredKind> {
    let all = discovery.groups().flat_map(ApiGroup::recommended_resources);
    let deletable = all.filter(|(resource, capabilities)| {
        can_be_collected(&resource.plural, |verb| capabilities.supports_operation(verb))
    });
    let served = deletable.map(|(resource, capabilities)| MonitoredKind {
        namespaced: capabilities.scope == Scope::Namespaced,
        versions: vec![resource.api_version.clone()],
        resource: Arc::new(resource),
    });
    served.collect()
}

/// The monitors of all kinds.
struct Monitors {
    client: Client,
    all: SelectAll<BoxStream<'static, MonitorEvent>>,
    /// By the name of the definition.
    defined: HashMap<String, DefinedKind>,
    /// Discovered kinds by group and plural, with the token that ends the monitor.
    known: HashMap<(String, String), (MonitoredKind, CancellationToken)>,
    /// By `group/version` of an aggregated server: its kinds, and the token that ends the discovery.
    aggregated: HashMap<String, AggregatedVersion>,
}

/// A custom kind.
struct DefinedKind {
    /// The kind as its definition describes it.
    defined: MonitoredKind,
    /// The kind as it is monitored: a discovered kind may use another version.
    watched: MonitoredKind,
    /// Ends the monitor.
    end: CancellationToken,
}

/// The kinds that an aggregated server serves in one version.
#[derive(Default)]
struct AggregatedVersion {
    kinds: Vec<(MonitoredKind, CancellationToken)>,
    discovery: CancellationToken,
}

enum MonitorEvent {
    Object(Arc<ApiResource>, WatchEvent<ObjectMetadata>),
    SyncTimedOut(Arc<ApiResource>),
    Definition(WatchEvent<CustomResourceDefinition>),
    ApiService(WatchEvent<APIService>),
    /// The kinds that an aggregated server serves in this version.
    Kinds(String, Vec<MonitoredKind>),
}

pub(super) fn events(client: &Client, known: Vec<MonitoredKind>) -> BoxStream<'static, Event> {
    let definitions = watch(Api::all(client.clone()), Config::default()).map(MonitorEvent::Definition);
    let services = watch(Api::all(client.clone()), Config::default()).map(MonitorEvent::ApiService);
    let mut monitors = Monitors {
        client: client.clone(),
        all: stream::select_all([definitions.boxed(), services.boxed()]),
        defined: HashMap::new(),
        known: HashMap::new(),
        aggregated: HashMap::new(),
    };
    for served in known {
        let end = CancellationToken::new();
        monitors.start_monitor(&served, end.clone());
        monitors.known.insert(served.group_resource(), (served, end));
    }
    let seen = stream::unfold(monitors, |mut monitors| async move {
        let events = match monitors.all.next().await? {
            MonitorEvent::Object(resource, change) => vec![Event::Object(resource, change)],
            MonitorEvent::SyncTimedOut(resource) => vec![Event::SyncTimedOut(resource)],
            MonitorEvent::Definition(change) => monitors.process_definition(change),
            MonitorEvent::ApiService(change) => monitors.process_api_service(&change),
            MonitorEvent::Kinds(version, kinds) => monitors.sync_aggregated(&version, kinds),
        };
        Some((stream::iter(events), monitors))
    });
    batch_events(seen.flatten().boxed())
}

/// Returns the available events as a batch, followed by a pause.
fn batch_events<T: Send + 'static>(events: BoxStream<'static, T>) -> BoxStream<'static, T> {
    let some = stream::unfold((events.ready_chunks(EVENT_BATCH_SIZE), false), |(mut events, is_again)| async move {
        if is_again {
            tokio::time::sleep(EVENT_BATCH_PAUSE).await;
        }
        Some((stream::iter(events.next().await?), (events, true)))
    });
    some.flatten().boxed()
}

impl Monitors {
    fn start_monitor(&mut self, served: &MonitoredKind, end: CancellationToken) {
        let (resource, late) = (Arc::clone(&served.resource), Arc::clone(&served.resource));
        let timeout = async move {
            tokio::time::sleep(INITIAL_SYNC_TIMEOUT).await;
            MonitorEvent::SyncTimedOut(late)
        };
        let until = end.clone();
        let timeout = stream::once(timeout).take_until(async move { until.cancelled().await });
        self.all.push(timeout.boxed());
        let changes = watch::<ObjectMetadata>(Api::all_with(self.client.clone(), resource.as_ref()), Config::default());
        let seen = changes.map(move |change| MonitorEvent::Object(Arc::clone(&resource), change));
        self.all.push(seen.take_until(async move { end.cancelled().await }).boxed());
    }

    fn process_definition(&mut self, change: WatchEvent<CustomResourceDefinition>) -> Vec<Event> {
        match change {
            WatchEvent::Applied(definition) => {
                let name = definition.metadata.name.clone().unwrap_or_default();
                let kind = MonitoredKind::from_definition(&definition);
                if self.defined.get(&name).map(|known| &known.defined) == kind.as_ref() {
                    return Vec::new();
                }
                let mut events = self.stop_defined(&name);
                let Some(defined) = kind else { return events };
                // The kind was discovered at the start, and is monitored already.
                if let Some((before, end)) = self.known.remove(&defined.group_resource()) {
                    let watched = MonitoredKind { resource: before.resource, ..defined.clone() };
                    events.push(Event::VersionsAdded(watched.clone()));
                    self.defined.insert(name, DefinedKind { defined, watched, end });
                    return events;
                }
                let end = CancellationToken::new();
                self.start_monitor(&defined, end.clone());
                self.defined.insert(name, DefinedKind { watched: defined.clone(), defined: defined.clone(), end });
                events.push(Event::KindAdded(defined));
                events
            }
            WatchEvent::Deleted(definition) => self.stop_defined(&definition.metadata.name.unwrap_or_default()),
            WatchEvent::Listed(names) => {
                let gone: Vec<String> = self.defined.keys().filter(|name| !names.contains(*name)).cloned().collect();
                gone.iter().flat_map(|name| self.stop_defined(name)).collect()
            }
        }
    }

    fn stop_defined(&mut self, name: &str) -> Vec<Event> {
        self.defined.remove(name).map(|known| stop_monitor((known.watched, known.end))).into_iter().collect()
    }

    fn process_api_service(&mut self, change: &WatchEvent<APIService>) -> Vec<Event> {
        match ApiServiceChange::from_event(change) {
            ApiServiceChange::Discover(version) => {
                let discovery = CancellationToken::new();
                let until = discovery.clone();
                let look = aggregated::discover_periodically(&self.client, version.clone());
                self.all.push(look.take_until(async move { until.cancelled().await }).boxed());
                let at = self.aggregated.entry(version).or_default();
                // The new discovery replaces the one before, and starts at once.
                std::mem::replace(&mut at.discovery, discovery).cancel();
                Vec::new()
            }
            ApiServiceChange::Removed(version) => {
                let gone = self.aggregated.remove(&version);
                gone.map(AggregatedVersion::end).unwrap_or_default()
            }
            ApiServiceChange::Ignore => Vec::new(),
        }
    }

    /// Starts monitors for new kinds of an aggregated server, and stops those of removed kinds.
    fn sync_aggregated(&mut self, version: &str, new_kinds: Vec<MonitoredKind>) -> Vec<Event> {
        let Some(before) = self.aggregated.get_mut(version).map(|at| std::mem::take(&mut at.kinds)) else {
            return Vec::new();
        };
        let (mut kinds, gone): (Vec<_>, Vec<_>) = before.into_iter().partition(|(known, _)| new_kinds.contains(known));
        let mut events: Vec<Event> = gone.into_iter().map(stop_monitor).collect();
        for served in new_kinds {
            if kinds.iter().any(|(known, _)| *known == served) || self.is_watched(&served.group_resource()) {
                continue;
            }
            let end = CancellationToken::new();
            self.start_monitor(&served, end.clone());
            kinds.push((served.clone(), end));
            events.push(Event::AggregatedKindAdded(served));
        }
        if let Some(at) = self.aggregated.get_mut(version) {
            at.kinds = kinds;
        }
        events
    }

    /// Returns whether a kind is monitored already, in another version.
    fn is_watched(&self, group_resource: &(String, String)) -> bool {
        self.aggregated.values().flat_map(|at| &at.kinds).any(|(served, _)| served.group_resource() == *group_resource)
    }
}

fn stop_monitor((served, end): (MonitoredKind, CancellationToken)) -> Event {
    end.cancel();
    Event::KindRemoved(served)
}

impl AggregatedVersion {
    fn end(self) -> Vec<Event> {
        self.discovery.cancel();
        self.kinds.into_iter().map(stop_monitor).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fake_api::FakeApi;
    use futures::channel::mpsc;
    use serde_json::json;
    use tokio::time::Instant;

    fn resource(version: &str) -> Arc<ApiResource> {
        Arc::new(ApiResource {
            group: "example.com".to_owned(),
            version: version.to_owned(),
            api_version: format!("example.com/{version}"),
            kind: "Thing".to_owned(),
            plural: "things".to_owned(),
        })
    }

    #[tokio::test]
    async fn removed_kind_is_the_monitored_one_in_any_version() {
        let client = FakeApi::new().client();
        let found =
            MonitoredKind { resource: resource("v1"), namespaced: true, versions: vec!["example.com/v1".to_owned()] };
        let known = HashMap::from([(found.group_resource(), (found, CancellationToken::new()))]);
        let (defined, aggregated) = (HashMap::new(), HashMap::new());
        let mut monitors = Monitors { client, all: SelectAll::new(), defined, known, aggregated };
        let version = |name| json!({"name": name, "served": true, "storage": name == "v1"});
        let names = json!({"kind": "Thing", "plural": "things"});
        let definition: CustomResourceDefinition = serde_json::from_value(json!({
            "metadata": {"name": "things.example.com"},
            "spec": {"group": "example.com", "scope": "Namespaced", "names": names, "versions": [version("v1beta1"), version("v1")]},
            "status": {"acceptedNames": names, "conditions": [{"type": "Established", "status": "True", "lastTransitionTime": null}]},
        }))
        .unwrap();
        let named = monitors.process_definition(WatchEvent::Applied(Box::new(definition.clone())));
        assert!(matches!(named.as_slice(), [Event::VersionsAdded(served)] if served.versions.len() == 2), "{named:?}");
        assert!(monitors.process_definition(WatchEvent::Applied(Box::new(definition.clone()))).is_empty());
        let gone = monitors.process_definition(WatchEvent::Deleted(Box::new(definition)));
        assert!(
            matches!(gone.as_slice(), [Event::KindRemoved(served)] if served.resource == resource("v1")),
            "{gone:?}"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn events_during_the_pause_are_batched() {
        let (sender, events) = mpsc::unbounded();
        let (start, mut events) = (Instant::now(), batch_events(events.boxed()));
        let send = |event: u32| sender.unbounded_send(event).unwrap();
        send(1);
        assert_eq!((events.next().await, start.elapsed()), (Some(1), Duration::ZERO));
        send(2);
        send(3);
        assert_eq!((events.next().await, start.elapsed()), (Some(2), EVENT_BATCH_PAUSE));
        assert_eq!((events.next().await, start.elapsed()), (Some(3), EVENT_BATCH_PAUSE));
        drop(sender);
        assert_eq!(events.next().await, None);
    }
}
