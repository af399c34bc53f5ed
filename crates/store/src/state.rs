//! State that readers see: objects and watch caches, at one durable revision.

use crate::{
    Event, EventKind, Expired, Key, Object, Options, Revision, quota::object_size, watch_cache::WatchCache,
    watch_topics::Topics,
};
use std::{
    borrow::Borrow,
    cmp::Ordering,
    collections::{BTreeSet, HashMap, HashSet},
    sync::Arc,
};
use tokio::sync::watch;

/// Object that is ordered by its key: a map would store each key twice.
#[derive(Debug)]
pub(crate) struct ByKey(pub(crate) Object);

impl Borrow<Key> for ByKey {
    fn borrow(&self) -> &Key {
        &self.0.key
    }
}

impl PartialEq for ByKey {
    fn eq(&self, other: &Self) -> bool {
        self.0.key == other.0.key
    }
}

impl Eq for ByKey {}

impl PartialOrd for ByKey {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for ByKey {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.key.cmp(&other.0.key)
    }
}

/// Objects, watch cache and watched scopes of a resource.
#[derive(Debug)]
pub(crate) struct Resource {
    pub(crate) objects: BTreeSet<ByKey>,
    pub(crate) watch_cache: WatchCache,
    pub(crate) topics: Topics,
}

impl Resource {
    fn new(start: Revision) -> Self {
        Self { objects: BTreeSet::new(), watch_cache: WatchCache::new(start), topics: Topics::default() }
    }

    /// Evicts the oldest event of the watch cache; returns its cost.
    fn evict_oldest(&mut self) -> usize {
        let Some(event) = self.watch_cache.evict_oldest() else { return 0 };
        self.topics.record_eviction(&event.object.key, event.revision());
        event.cost()
    }
}

/// State of the store at one revision.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) revision: Revision,
    /// Revision at opening: earlier history is unknown.
    loaded_revision: Revision,
    resources: HashMap<Arc<str>, Resource>,
    /// Objects loaded so far. Building each map from all sorted objects at once leaves no free space between them,
    /// which saves a third of its memory.
    loading: HashMap<Arc<str>, Vec<ByKey>>,
    window_cost: usize,
    /// Bytes of all objects.
    pub(crate) used: u64,
    interner: StringInterner,
}

impl State {
    pub(crate) fn new() -> Self {
        Self {
            revision: 0,
            loaded_revision: 0,
            resources: HashMap::new(),
            loading: HashMap::new(),
            window_cost: 0,
            used: 0,
            interner: StringInterner::default(),
        }
    }

    /// Adds an object from the engine.
    pub(crate) fn load(&mut self, object: Object) {
        self.used += object_size(&object);
        self.loading.entry(object.key.resource.clone()).or_default().push(ByKey(object));
    }

    /// Ends loading at this revision.
    pub(crate) fn loaded(&mut self, revision: Revision) {
        self.revision = revision;
        self.loaded_revision = revision;
        for (name, objects) in std::mem::take(&mut self.loading) {
            self.resource_mut(&name).objects = objects.into_iter().collect();
        }
    }

    pub(crate) fn get(&self, key: &Key) -> Option<&Object> {
        self.resources.get(&key.resource)?.objects.get(key).map(|found| &found.0)
    }

    pub(crate) fn resource(&self, name: &str) -> Option<&Resource> {
        self.resources.get(name)
    }

    pub(crate) fn resource_mut(&mut self, name: &Arc<str>) -> &mut Resource {
        let loaded = self.loaded_revision;
        self.resources.entry(name.clone()).or_insert_with(|| Resource::new(loaded))
    }

    /// Returns the oldest revision from which the history of a resource is known.
    pub(crate) fn oldest(&self, resource: &str) -> Revision {
        self.resource(resource).map_or(self.loaded_revision, |resource| resource.watch_cache.start())
    }

    pub(crate) fn expired(&self, resource: &str, requested: Revision) -> Expired {
        Expired { requested, oldest: self.oldest(resource), current: self.revision }
    }

    /// Interns the parts of a key: each resource and namespace is stored once.
    pub(crate) fn intern_key(&mut self, key: Key) -> Key {
        Key {
            resource: self.interner.intern(key.resource),
            namespace: self.interner.intern(key.namespace),
            name: key.name,
        }
    }

    /// Publishes the events of a durable batch, evicts events beyond the limits, and returns the notifiers to wake.
    pub(crate) fn publish(&mut self, events: Vec<Event>, options: &Options) -> Vec<watch::Sender<Revision>> {
        let (mut notifiers, before) = (Vec::new(), self.revision);
        for event in events {
            let key = &event.object.key;
            self.revision = event.revision();
            self.window_cost += event.cost();
            let previous = event.previous.as_ref().map_or(0, |previous| object_size(previous));
            let after = if event.kind == EventKind::Put { object_size(&event.object) } else { 0 };
            self.used = self.used.saturating_sub(previous).saturating_add(after);
            let name = key.resource.clone();
            let resource = self.resource_mut(&name);
            resource.topics.record_event(key, event.revision(), before, &mut notifiers);
            match event.kind {
                EventKind::Put => resource.objects.replace(ByKey(event.object.clone())),
                EventKind::Delete => resource.objects.take(key),
            };
            resource.watch_cache.push(Arc::new(event));
            let evicted =
                if resource.watch_cache.len() > options.watch_cache_events { resource.evict_oldest() } else { 0 };
            self.window_cost -= evicted;
        }
        // The newest event of each resource is kept if possible, those of this batch in any case.
        self.shrink_watch_caches(options.watch_cache_bytes, |_| 1);
        self.shrink_watch_caches(options.watch_cache_bytes, |window| usize::from(window.newest() > before));
        notifiers
    }

    /// Evicts events of the resources with the costliest watch caches, down to a minimum number of each.
    fn shrink_watch_caches(&mut self, limit: usize, minimum: impl Fn(&WatchCache) -> usize) {
        while self.window_cost > limit {
            let costliest = self
                .resources
                .values_mut()
                .filter(|resource| resource.watch_cache.len() > minimum(&resource.watch_cache))
                .max_by_key(|resource| resource.watch_cache.cost());
            let Some(resource) = costliest else { return };
            let (mut excess, minimum) = (self.window_cost - limit, minimum(&resource.watch_cache));
            while excess > 0 && resource.watch_cache.len() > minimum {
                let evicted = resource.evict_oldest();
                self.window_cost -= evicted;
                excess = excess.saturating_sub(evicted);
            }
        }
    }
}

/// Interner of resource and namespace names.
#[derive(Debug, Default)]
struct StringInterner {
    shared: HashSet<Arc<str>>,
    /// Size at which unused strings are dropped.
    sweep_at: usize,
}

impl StringInterner {
    fn intern(&mut self, name: Arc<str>) -> Arc<str> {
        if let Some(shared) = self.shared.get(&name) {
            return shared.clone();
        }
        if self.shared.len() >= self.sweep_at {
            self.shared.retain(|name| Arc::strong_count(name) > 1);
            self.sweep_at = (self.shared.len() * 2).max(1024);
        }
        self.shared.insert(name.clone());
        name
    }
}
