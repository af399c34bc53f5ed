//! The kinds whose objects can own or be owned: those that are discovered, those that clients define later, and those of
//! other servers.

pub(super) mod aggregated;

use super::Outline;
use crate::watch::{WatchEvent, watch};
use aggregated::Told;
use futures::stream::{self, BoxStream, SelectAll, StreamExt};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::APIService;
use kube::discovery::{ApiGroup, ApiResource, Discovery, Scope};
use kube::runtime::watcher::Config;
use kube::{Api, Client};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Nothing owns or is owned by these, and there are many of them (upstream's `ignoredResources`).
const IGNORED: [&str; 1] = ["events"];

/// So long nothing is looked at after something was: every write of anything concerns the garbage collector, and while one
/// follows the other it is woken a hundred times a second and not by each. What goes because of another can wait.
const PAUSE: Duration = Duration::from_millis(10);
/// As many events are taken at once.
const TOGETHER: usize = 4096;

/// How long the list of a kind is waited for (upstream's `initialSyncTimeout`): one that cannot be listed, as by a broken
/// conversion, is not to hold up all others for ever.
pub(super) const LISTED_WITHIN: Duration = Duration::from_secs(30);

/// What the garbage collector sees.
#[derive(Debug)]
pub(super) enum Event {
    Object(Arc<ApiResource>, WatchEvent<Outline>),
    /// There is a new kind, whose objects were not listed yet.
    Served(Served),
    /// A kind ought to have been listed by now.
    Late(Arc<ApiResource>),
    /// There is a new kind of another server. Nobody waits for its list: the server may never answer.
    Aggregated(Served),
    /// A kind that is known already can be named in more ways.
    Named(Served),
    /// There is no such kind any more, and so no object of it.
    Unserved(Served),
}

/// A kind, watched in one of its versions.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Served {
    pub(super) resource: Arc<ApiResource>,
    namespaced: bool,
    /// Every `group/version` in which owners can be named.
    versions: Vec<String>,
}

impl Served {
    /// By what references to owners name the kind.
    pub(super) fn names(&self) -> impl Iterator<Item = (String, String)> {
        self.versions.iter().map(|version| (version.clone(), self.resource.kind.clone()))
    }

    fn place(&self) -> (String, String) {
        (self.resource.group.clone(), self.resource.plural.clone())
    }

    pub(super) fn what(&self) -> (Arc<ApiResource>, bool) {
        (Arc::clone(&self.resource), self.namespaced)
    }

    /// What a definition says is served, once it is.
    fn defined(definition: &CustomResourceDefinition) -> Option<Self> {
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

/// Whether objects of a kind can be seen and deleted.
fn can_be_collected(plural: &str, can: impl Fn(&str) -> bool) -> bool {
    ["list", "watch", "delete"].into_iter().all(can) && !IGNORED.contains(&plural)
}

/// The built-in kinds: those that clients define come with their definitions.
pub(super) fn discovered(discovery: &Discovery) -> Vec<Served> {
    let all = discovery.groups().flat_map(ApiGroup::recommended_resources);
    let wanted = all.filter(|(resource, capabilities)| {
        can_be_collected(&resource.plural, |verb| capabilities.supports_operation(verb))
    });
    let served = wanted.map(|(resource, capabilities)| Served {
        namespaced: capabilities.scope == Scope::Namespaced,
        versions: vec![resource.api_version.clone()],
        resource: Arc::new(resource),
    });
    served.collect()
}

/// Watches of all kinds, of which there can be more and fewer.
struct Watches {
    client: Client,
    all: SelectAll<BoxStream<'static, Seen>>,
    /// By the name of the definition.
    defined: HashMap<String, Defined>,
    /// What was discovered, by group and plural, with what ends the watch.
    known: HashMap<(String, String), (Served, CancellationToken)>,
    /// By `group/version` of another server: its kinds, and what ends the looking.
    aggregated: HashMap<String, Aggregated>,
}

/// A kind that a client has defined.
struct Defined {
    /// As its definition tells of it.
    told: Served,
    /// As it is watched: what was discovered may be so in another version.
    watched: Served,
    /// Ends the watch.
    end: CancellationToken,
}

/// What another server serves in one version.
#[derive(Default)]
struct Aggregated {
    kinds: Vec<(Served, CancellationToken)>,
    looking: CancellationToken,
}

enum Seen {
    Object(Arc<ApiResource>, WatchEvent<Outline>),
    Late(Arc<ApiResource>),
    Definition(WatchEvent<CustomResourceDefinition>),
    Service(WatchEvent<APIService>),
    /// What another server serves now in this version.
    Kinds(String, Vec<Served>),
}

pub(super) fn events(client: &Client, known: Vec<Served>) -> BoxStream<'static, Event> {
    let definitions = watch(Api::all(client.clone()), Config::default()).map(Seen::Definition);
    let services = watch(Api::all(client.clone()), Config::default()).map(Seen::Service);
    let mut watches = Watches {
        client: client.clone(),
        all: stream::select_all([definitions.boxed(), services.boxed()]),
        defined: HashMap::new(),
        known: HashMap::new(),
        aggregated: HashMap::new(),
    };
    for served in known {
        let end = CancellationToken::new();
        watches.begin(&served, end.clone());
        watches.known.insert(served.place(), (served, end));
    }
    let seen = stream::unfold(watches, |mut watches| async move {
        let events = match watches.all.next().await? {
            Seen::Object(resource, change) => vec![Event::Object(resource, change)],
            Seen::Late(resource) => vec![Event::Late(resource)],
            Seen::Definition(change) => watches.define(change),
            Seen::Service(change) => watches.hear(&change),
            Seen::Kinds(version, kinds) => watches.compare(&version, kinds),
        };
        Some((stream::iter(events), watches))
    });
    together(seen.flatten().boxed())
}

/// Gives all events that there are, and then none for a while.
fn together<T: Send + 'static>(events: BoxStream<'static, T>) -> BoxStream<'static, T> {
    let some = stream::unfold((events.ready_chunks(TOGETHER), false), |(mut events, is_again)| async move {
        if is_again {
            tokio::time::sleep(PAUSE).await;
        }
        Some((stream::iter(events.next().await?), (events, true)))
    });
    some.flatten().boxed()
}

impl Watches {
    fn begin(&mut self, served: &Served, end: CancellationToken) {
        let (resource, late) = (Arc::clone(&served.resource), Arc::clone(&served.resource));
        let is_late = async move {
            tokio::time::sleep(LISTED_WITHIN).await;
            Seen::Late(late)
        };
        let until = end.clone();
        let is_late = stream::once(is_late).take_until(async move { until.cancelled().await });
        self.all.push(is_late.boxed());
        let changes = watch::<Outline>(Api::all_with(self.client.clone(), resource.as_ref()), Config::default());
        let seen = changes.map(move |change| Seen::Object(Arc::clone(&resource), change));
        self.all.push(seen.take_until(async move { end.cancelled().await }).boxed());
    }

    fn define(&mut self, change: WatchEvent<CustomResourceDefinition>) -> Vec<Event> {
        match change {
            WatchEvent::Applied(definition) => {
                let name = definition.metadata.name.clone().unwrap_or_default();
                let now = Served::defined(&definition);
                if self.defined.get(&name).map(|known| &known.told) == now.as_ref() {
                    return Vec::new();
                }
                let mut events = self.forget(&name);
                let Some(told) = now else { return events };
                // What was there at the beginning was discovered, and is watched already.
                if let Some((before, end)) = self.known.remove(&told.place()) {
                    let watched = Served { resource: before.resource, ..told.clone() };
                    events.push(Event::Named(watched.clone()));
                    self.defined.insert(name, Defined { told, watched, end });
                    return events;
                }
                let end = CancellationToken::new();
                self.begin(&told, end.clone());
                self.defined.insert(name, Defined { watched: told.clone(), told: told.clone(), end });
                events.push(Event::Served(told));
                events
            }
            WatchEvent::Deleted(definition) => self.forget(&definition.metadata.name.unwrap_or_default()),
            WatchEvent::Listed(names) => {
                let gone: Vec<String> = self.defined.keys().filter(|name| !names.contains(*name)).cloned().collect();
                gone.iter().flat_map(|name| self.forget(name)).collect()
            }
        }
    }

    fn forget(&mut self, name: &str) -> Vec<Event> {
        self.defined.remove(name).map(|known| ended((known.watched, known.end))).into_iter().collect()
    }

    fn hear(&mut self, change: &WatchEvent<APIService>) -> Vec<Event> {
        match Told::by(change) {
            Told::Look(version) => {
                let looking = CancellationToken::new();
                let until = looking.clone();
                let look = aggregated::look(&self.client, version.clone());
                self.all.push(look.take_until(async move { until.cancelled().await }).boxed());
                let at = self.aggregated.entry(version).or_default();
                // The new look takes the place of the one before; its first answer comes at once.
                std::mem::replace(&mut at.looking, looking).cancel();
                Vec::new()
            }
            Told::Gone(version) => {
                let gone = self.aggregated.remove(&version);
                gone.map(Aggregated::end).unwrap_or_default()
            }
            Told::Nothing => Vec::new(),
        }
    }

    /// Watches the kinds of another server that were not known, and no longer those that are no more.
    fn compare(&mut self, version: &str, now: Vec<Served>) -> Vec<Event> {
        let Some(before) = self.aggregated.get_mut(version).map(|at| std::mem::take(&mut at.kinds)) else {
            return Vec::new();
        };
        let (mut kinds, gone): (Vec<_>, Vec<_>) = before.into_iter().partition(|(known, _)| now.contains(known));
        let mut events: Vec<Event> = gone.into_iter().map(ended).collect();
        for served in now {
            if kinds.iter().any(|(known, _)| *known == served) || self.is_watched(&served.place()) {
                continue;
            }
            let end = CancellationToken::new();
            self.begin(&served, end.clone());
            kinds.push((served.clone(), end));
            events.push(Event::Aggregated(served));
        }
        if let Some(at) = self.aggregated.get_mut(version) {
            at.kinds = kinds;
        }
        events
    }

    /// Whether a kind is watched already, in another version.
    fn is_watched(&self, place: &(String, String)) -> bool {
        self.aggregated.values().flat_map(|at| &at.kinds).any(|(served, _)| served.place() == *place)
    }
}

fn ended((served, end): (Served, CancellationToken)) -> Event {
    end.cancel();
    Event::Unserved(served)
}

impl Aggregated {
    fn end(self) -> Vec<Event> {
        self.looking.cancel();
        self.kinds.into_iter().map(ended).collect()
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
    async fn a_kind_that_goes_is_the_one_that_was_watched_whatever_version_its_definition_begins_with() {
        let client = FakeApi::new().client();
        let found = Served { resource: resource("v1"), namespaced: true, versions: vec!["example.com/v1".to_owned()] };
        let known = HashMap::from([(found.place(), (found, CancellationToken::new()))]);
        let (defined, aggregated) = (HashMap::new(), HashMap::new());
        let mut watches = Watches { client, all: SelectAll::new(), defined, known, aggregated };
        let version = |name| json!({"name": name, "served": true, "storage": name == "v1"});
        let names = json!({"kind": "Thing", "plural": "things"});
        let definition: CustomResourceDefinition = serde_json::from_value(json!({
            "metadata": {"name": "things.example.com"},
            "spec": {"group": "example.com", "scope": "Namespaced", "names": names, "versions": [version("v1beta1"), version("v1")]},
            "status": {"acceptedNames": names, "conditions": [{"type": "Established", "status": "True", "lastTransitionTime": null}]},
        }))
        .unwrap();
        let named = watches.define(WatchEvent::Applied(Box::new(definition.clone())));
        assert!(matches!(named.as_slice(), [Event::Named(served)] if served.versions.len() == 2), "{named:?}");
        assert!(watches.define(WatchEvent::Applied(Box::new(definition.clone()))).is_empty());
        let gone = watches.define(WatchEvent::Deleted(Box::new(definition)));
        assert!(matches!(gone.as_slice(), [Event::Unserved(served)] if served.resource == resource("v1")), "{gone:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn what_follows_an_event_is_seen_together() {
        let (told, events) = mpsc::unbounded();
        let (start, mut events) = (Instant::now(), together(events.boxed()));
        let tell = |event: u32| told.unbounded_send(event).unwrap();
        tell(1);
        assert_eq!((events.next().await, start.elapsed()), (Some(1), Duration::ZERO));
        tell(2);
        tell(3);
        assert_eq!((events.next().await, start.elapsed()), (Some(2), PAUSE));
        assert_eq!((events.next().await, start.elapsed()), (Some(3), PAUSE));
        drop(told);
        assert_eq!(events.next().await, None);
    }
}
