//! What readers see: the map of objects and the windows of recent events, always at one durable revision.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use tokio::sync::watch;

use crate::quota::footprint;
use crate::topics::Topics;
use crate::window::Window;
use crate::{Event, EventKind, Expired, Key, Object, Options, Revision};

/// An object that is known by its key: a map would keep each key twice.
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

/// One resource: its objects, its recent events, and who watches it.
#[derive(Debug)]
pub(crate) struct Resource {
    pub(crate) objects: BTreeSet<ByKey>,
    pub(crate) window: Window,
    pub(crate) topics: Topics,
}

impl Resource {
    fn new(start: Revision) -> Self {
        Self { objects: BTreeSet::new(), window: Window::new(start), topics: Topics::default() }
    }

    /// Forgets the oldest event of the window, and tells what it cost.
    fn forget_oldest(&mut self) -> usize {
        let Some(event) = self.window.drop_oldest() else { return 0 };
        self.topics.forget(&event.object.key, event.revision());
        event.cost()
    }
}

/// The state of the store at one revision.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) revision: Revision,
    /// The revision that was loaded: no history before it is known.
    loaded: Revision,
    resources: HashMap<Arc<str>, Resource>,
    /// What was loaded so far. A map that is made of all objects at once has no room left between them: a third of its
    /// memory, when they come in their order.
    loading: HashMap<Arc<str>, Vec<ByKey>>,
    window_cost: usize,
    /// The bytes that all objects take.
    pub(crate) used: u64,
    names: Names,
}

impl State {
    pub(crate) fn new() -> Self {
        Self {
            revision: 0,
            loaded: 0,
            resources: HashMap::new(),
            loading: HashMap::new(),
            window_cost: 0,
            used: 0,
            names: Names::default(),
        }
    }

    /// Puts an object that was loaded from the engine.
    pub(crate) fn load(&mut self, object: Object) {
        self.used += footprint(&object);
        self.loading.entry(object.key.resource.clone()).or_default().push(ByKey(object));
    }

    /// Ends loading: history begins here.
    pub(crate) fn loaded(&mut self, revision: Revision) {
        self.revision = revision;
        self.loaded = revision;
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
        let loaded = self.loaded;
        self.resources.entry(name.clone()).or_insert_with(|| Resource::new(loaded))
    }

    /// The oldest revision from which the history of a resource is known.
    pub(crate) fn oldest(&self, resource: &str) -> Revision {
        self.resource(resource).map_or(self.loaded, |resource| resource.window.start())
    }

    pub(crate) fn expired(&self, resource: &str, requested: Revision) -> Expired {
        Expired { requested, oldest: self.oldest(resource), current: self.revision }
    }

    /// The same key with parts that are shared among all objects: a resource or namespace is kept once.
    pub(crate) fn shared_key(&mut self, key: Key) -> Key {
        Key { resource: self.names.shared(key.resource), namespace: self.names.shared(key.namespace), name: key.name }
    }

    /// Publishes the events of a durable batch, forgets what exceeds the limits, and returns the bells to ring.
    pub(crate) fn publish(&mut self, events: Vec<Event>, options: &Options) -> Vec<watch::Sender<Revision>> {
        let (mut bells, before) = (Vec::new(), self.revision);
        for event in events {
            let key = &event.object.key;
            self.revision = event.revision();
            self.window_cost += event.cost();
            let previous = event.previous.as_ref().map_or(0, |previous| footprint(previous));
            let after = if event.kind == EventKind::Put { footprint(&event.object) } else { 0 };
            self.used = self.used.saturating_sub(previous).saturating_add(after);
            let name = key.resource.clone();
            let resource = self.resource_mut(&name);
            resource.topics.happened(key, event.revision(), before, &mut bells);
            match event.kind {
                EventKind::Put => resource.objects.replace(ByKey(event.object.clone())),
                EventKind::Delete => resource.objects.take(key),
            };
            resource.window.push(Arc::new(event));
            let forgotten = if resource.window.len() > options.window_events { resource.forget_oldest() } else { 0 };
            self.window_cost -= forgotten;
        }
        // The newest event of each resource stays if possible, and that of a resource of this batch in any case.
        self.shrink_windows(options.window_bytes, |_| 1);
        self.shrink_windows(options.window_bytes, |window| usize::from(window.newest() > before));
        bells
    }

    /// Forgets events of the resources with the costliest windows, but for so many of each.
    fn shrink_windows(&mut self, limit: usize, kept: impl Fn(&Window) -> usize) {
        while self.window_cost > limit {
            let costliest = self
                .resources
                .values_mut()
                .filter(|resource| resource.window.len() > kept(&resource.window))
                .max_by_key(|resource| resource.window.cost());
            let Some(resource) = costliest else { return };
            let (mut excess, kept) = (self.window_cost - limit, kept(&resource.window));
            while excess > 0 && resource.window.len() > kept {
                let forgotten = resource.forget_oldest();
                self.window_cost -= forgotten;
                excess = excess.saturating_sub(forgotten);
            }
        }
    }
}

/// Strings of which many objects have the same.
#[derive(Debug, Default)]
struct Names {
    shared: HashSet<Arc<str>>,
    /// The size at which names that nobody uses any more are dropped.
    sweep_at: usize,
}

impl Names {
    fn shared(&mut self, name: Arc<str>) -> Arc<str> {
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
