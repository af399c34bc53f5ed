//! The cache of a shared informer.

use super::{CacheEvent, Cached, key};
use crate::reflector::WatchEvent;
use kube::Resource;
use std::{
    borrow::Borrow,
    cmp::Ordering,
    collections::{BTreeSet, HashMap, HashSet},
    sync::Arc,
};

/// Objects by namespace and name.
pub(super) struct Store<T> {
    by_namespace: HashMap<Box<str>, BTreeSet<ByName<T>>>,
    /// The highest `resourceVersion` that was observed.
    resource_version: u64,
    /// Whether the initial list is complete.
    synced: bool,
}

/// Object that is ordered by its name: a map would store each name twice.
struct ByName<T>(Arc<T>);

impl<T: Cached> Borrow<str> for ByName<T> {
    fn borrow(&self) -> &str {
        self.0.name()
    }
}

impl<T: Cached> PartialEq for ByName<T> {
    fn eq(&self, other: &Self) -> bool {
        self.0.name() == other.0.name()
    }
}

impl<T: Cached> Eq for ByName<T> {}

impl<T: Cached> PartialOrd for ByName<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<T: Cached> Ord for ByName<T> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.name().cmp(other.0.name())
    }
}

impl<T: Cached> Store<T> {
    pub(super) fn new() -> Self {
        Self { by_namespace: HashMap::new(), resource_version: 0, synced: false }
    }

    pub(super) fn get(&self, namespace: &str, name: &str) -> Option<Arc<T>> {
        self.find(namespace, name).cloned()
    }

    fn find(&self, namespace: &str, name: &str) -> Option<&Arc<T>> {
        self.by_namespace.get(namespace)?.get(name).map(|found| &found.0)
    }

    pub(super) fn in_namespace(&self, namespace: &str) -> impl Iterator<Item = &Arc<T>> {
        self.by_namespace.get(namespace).into_iter().flatten().map(|object| &object.0)
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &Arc<T>> {
        self.by_namespace.values().flatten().map(|object| &object.0)
    }

    pub(super) fn len(&self) -> usize {
        self.by_namespace.values().map(BTreeSet::len).sum()
    }

    pub(super) fn resource_version(&self) -> u64 {
        self.resource_version
    }

    pub(super) fn has_synced(&self) -> bool {
        self.synced
    }

    /// Applies a watch event; returns the changes.
    pub(super) fn fold<K: Resource>(&mut self, change: WatchEvent<K>, transform: fn(K) -> T) -> Vec<CacheEvent<T>> {
        match change {
            WatchEvent::Applied(object) => {
                self.observe_resource_version(object.as_ref());
                let object = Arc::new(transform(*object));
                // An update that does not change the cached form affects no subscriber, and subscribers may keep the
                // object that they have.
                if self.find(object.namespace(), object.name()).is_some_and(|before| *before == object) {
                    return vec![];
                }
                let before = self.replace(Arc::clone(&object));
                vec![CacheEvent::Changed { before, after: Some(object) }]
            }
            WatchEvent::Deleted(object) => {
                self.observe_resource_version(object.as_ref());
                let meta = object.meta();
                let namespace = meta.namespace.as_deref().unwrap_or_default();
                self.remove(namespace, meta.name.as_deref().unwrap_or_default()).into_iter().collect()
            }
            WatchEvent::Listed(keys) => {
                let mut seen = self.retain(&keys);
                if !std::mem::replace(&mut self.synced, true) {
                    seen.push(CacheEvent::Resync);
                }
                seen
            }
        }
    }

    fn observe_resource_version<K: Resource>(&mut self, object: &K) {
        let revision = object.meta().resource_version.as_deref().and_then(|r| r.parse().ok());
        self.resource_version = self.resource_version.max(revision.unwrap_or(0));
    }

    fn replace(&mut self, object: Arc<T>) -> Option<Arc<T>> {
        let namespace = match self.by_namespace.get_mut(object.namespace()) {
            Some(namespace) => namespace,
            None => self.by_namespace.entry(object.namespace().into()).or_default(),
        };
        namespace.replace(ByName(object)).map(|before| before.0)
    }

    fn retain(&mut self, keys: &HashSet<String>) -> Vec<CacheEvent<T>> {
        let gone: Vec<Arc<T>> = self.all().filter(|object| !keys.contains(&key(object.as_ref()))).cloned().collect();
        gone.iter().filter_map(|object| self.remove(object.namespace(), object.name())).collect()
    }

    fn remove(&mut self, namespace: &str, name: &str) -> Option<CacheEvent<T>> {
        let all = self.by_namespace.get_mut(namespace)?;
        let ByName(before) = all.take(name)?;
        if all.is_empty() {
            self.by_namespace.remove(namespace);
        }
        Some(CacheEvent::Changed { before: Some(before), after: None })
    }
}
