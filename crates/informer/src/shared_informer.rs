//! Shared informer: one watch and one cache per kind, used by several controllers (client-go's `SharedInformer`).
//!
//! Subscribers receive each change with the object before and after it. A subscriber that lags behind receives
//! [`CacheEvent::Resync`] instead. Reads return the newest state that the watch has delivered.

use crate::reflector::{WatchEvent, watch_lean};
use api::without_managed_fields::WithoutManagedFields;
use futures::stream::{self, BoxStream, StreamExt};
use k8s_openapi::{Metadata, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use kube::{Api, Resource, runtime::watcher::Config};
use parking_lot::RwLock;
use serde::de::DeserializeOwned;
use std::{
    collections::{BTreeMap, HashMap, HashSet},
    fmt::Debug,
    sync::Arc,
};
use tokio::sync::broadcast::{self, error::RecvError};
use tokio_util::sync::CancellationToken;

/// Number of events that are buffered for a busy subscriber.
const EVENT_CHANNEL_CAPACITY: usize = 256;

/// An object as the informer caches it, usually a summary of the full object.
pub trait Cached: PartialEq + Send + Sync + 'static {
    /// Namespace, empty for a cluster-scoped object.
    fn namespace(&self) -> &str;
    /// Name.
    fn name(&self) -> &str;
}

/// A change of the cache.
#[derive(Debug)]
pub enum CacheEvent<T> {
    /// One object was added, updated (both are set) or deleted.
    Changed {
        /// The object before the change; `None` if it was added.
        before: Option<Arc<T>>,
        /// The object after the change; `None` if it was deleted.
        after: Option<Arc<T>>,
    },
    /// The initial list is complete, or the subscriber lagged: any object may have changed.
    Resync,
}

impl<T> Clone for CacheEvent<T> {
    fn clone(&self) -> Self {
        match self {
            Self::Changed { before, after } => Self::Changed { before: before.clone(), after: after.clone() },
            Self::Resync => Self::Resync,
        }
    }
}

impl<T> CacheEvent<T> {
    /// Returns the object before and after the change, as far as they exist.
    pub fn objects(&self) -> impl Iterator<Item = &Arc<T>> {
        let both = match self {
            Self::Changed { before, after } => [before.as_ref(), after.as_ref()],
            Self::Resync => [None, None],
        };
        both.into_iter().flatten()
    }
}

/// Informer of a kind. Clones share the cache.
pub struct SharedInformer<T> {
    store: Arc<RwLock<Store<T>>>,
    events: broadcast::Sender<CacheEvent<T>>,
}

impl<T> Clone for SharedInformer<T> {
    fn clone(&self) -> Self {
        Self { store: Arc::clone(&self.store), events: self.events.clone() }
    }
}

struct Store<T> {
    by_namespace: HashMap<String, BTreeMap<String, Arc<T>>>,
    /// The highest `resourceVersion` that was observed.
    resource_version: u64,
    /// Whether the initial list is complete.
    synced: bool,
}

/// Full objects are cached unchanged.
impl<K> Cached for K
where
    K: Resource + PartialEq + Send + Sync + 'static,
{
    fn namespace(&self) -> &str {
        self.meta().namespace.as_deref().unwrap_or_default()
    }

    fn name(&self) -> &str {
        self.meta().name.as_deref().unwrap_or_default()
    }
}

impl<T: Cached> SharedInformer<T> {
    /// Creates an empty informer.
    #[must_use]
    pub fn new() -> Self {
        let store = Store { by_namespace: HashMap::new(), resource_version: 0, synced: false };
        Self { store: Arc::new(RwLock::new(store)), events: broadcast::channel(EVENT_CHANNEL_CAPACITY).0 }
    }

    /// Lists and watches the objects until cancelled, and caches what `transform` makes of each.
    pub async fn run<K>(self, api: Api<WithoutManagedFields<K>>, transform: fn(K) -> T, stop: CancellationToken)
    where
        K: k8s_openapi::Resource + Metadata<Ty = ObjectMeta> + Clone + DeserializeOwned + Debug + Send + 'static,
    {
        self.run_filtered(api, Config::default(), transform, stop).await;
    }

    /// Like [`Self::run`], for the objects that `which` selects.
    pub async fn run_filtered<K>(
        self,
        api: Api<WithoutManagedFields<K>>,
        which: Config,
        transform: fn(K) -> T,
        stop: CancellationToken,
    ) where
        K: k8s_openapi::Resource + Metadata<Ty = ObjectMeta> + Clone + DeserializeOwned + Debug + Send + 'static,
    {
        let mut changes = watch_lean(api, which);
        while let Some(Some(change)) = stop.run_until_cancelled(changes.next()).await {
            for seen in self.store.write().fold(change, transform) {
                // An error means that there is no subscriber.
                let _ = self.events.send(seen);
            }
        }
    }

    /// Returns a stream of the changes from now on.
    pub fn subscribe(&self) -> BoxStream<'static, CacheEvent<T>> {
        let changes = stream::unfold(self.events.subscribe(), |mut receiver| async move {
            match receiver.recv().await {
                Ok(seen) => Some((seen, receiver)),
                Err(RecvError::Lagged(_)) => Some((CacheEvent::Resync, receiver)),
                Err(RecvError::Closed) => None,
            }
        });
        changes.boxed()
    }

    /// Returns an object.
    #[must_use]
    pub fn get(&self, namespace: &str, name: &str) -> Option<Arc<T>> {
        self.store.read().by_namespace.get(namespace)?.get(name).cloned()
    }

    /// Returns an object by its [`key`].
    #[must_use]
    pub fn get_by_key(&self, key: &str) -> Option<Arc<T>> {
        let (namespace, name) = key.split_once('/').unwrap_or(("", key));
        self.get(namespace, name)
    }

    /// Returns the objects of a namespace, sorted by name.
    #[must_use]
    pub fn in_namespace(&self, namespace: &str) -> Vec<Arc<T>> {
        let store = self.store.read();
        store.by_namespace.get(namespace).into_iter().flat_map(BTreeMap::values).cloned().collect()
    }

    /// Returns the number of objects.
    #[must_use]
    pub fn len(&self) -> usize {
        self.store.read().by_namespace.values().map(BTreeMap::len).sum()
    }

    /// Returns all objects.
    #[must_use]
    pub fn all(&self) -> Vec<Arc<T>> {
        self.store.read().by_namespace.values().flat_map(BTreeMap::values).cloned().collect()
    }

    /// Returns the [`key`] of each object.
    #[must_use]
    pub fn keys(&self) -> Vec<String> {
        self.store.read().by_namespace.values().flat_map(BTreeMap::values).map(|object| key(object.as_ref())).collect()
    }

    /// Returns the highest `resourceVersion` that was observed.
    #[must_use]
    pub fn resource_version(&self) -> u64 {
        self.store.read().resource_version
    }

    /// Returns whether the initial list is complete (`HasSynced`).
    #[must_use]
    pub fn has_synced(&self) -> bool {
        self.store.read().synced
    }
}

/// Returns the key `namespace/name`, or `name` of a cluster-scoped object.
#[must_use]
pub fn key<T: Cached>(object: &T) -> String {
    match object.namespace() {
        "" => object.name().to_owned(),
        namespace => format!("{namespace}/{}", object.name()),
    }
}

impl<T: Cached> Store<T> {
    fn fold<K: Resource>(&mut self, change: WatchEvent<K>, transform: fn(K) -> T) -> Vec<CacheEvent<T>> {
        match change {
            WatchEvent::Applied(object) => {
                self.observe_resource_version(object.as_ref());
                let object = Arc::new(transform(*object));
                let all = self.by_namespace.entry(object.namespace().to_owned()).or_default();
                let before = all.insert(object.name().to_owned(), Arc::clone(&object));
                // An update that does not change the cached form affects no controller.
                if before.as_deref() == Some(&*object) {
                    return vec![];
                }
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

    fn retain(&mut self, keys: &HashSet<String>) -> Vec<CacheEvent<T>> {
        let all = self.by_namespace.values().flat_map(BTreeMap::values);
        let gone: Vec<Arc<T>> = all.filter(|object| !keys.contains(&key(object.as_ref()))).cloned().collect();
        gone.iter().filter_map(|object| self.remove(object.namespace(), object.name())).collect()
    }

    fn remove(&mut self, namespace: &str, name: &str) -> Option<CacheEvent<T>> {
        let all = self.by_namespace.get_mut(namespace)?;
        let before = all.remove(name)?;
        if all.is_empty() {
            self.by_namespace.remove(namespace);
        }
        Some(CacheEvent::Changed { before: Some(before), after: None })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::ConfigMap;

    #[derive(Debug, PartialEq)]
    struct Slim(String, Option<String>);

    impl Cached for Slim {
        fn namespace(&self) -> &'static str {
            "x"
        }
        fn name(&self) -> &str {
            &self.0
        }
    }

    fn transform(map: ConfigMap) -> Slim {
        Slim(map.metadata.name.unwrap_or_default(), map.data.and_then(|d| d.get("a").cloned()))
    }

    fn map(name: &str, resource_version: u64, a: &str) -> Box<ConfigMap> {
        Box::new(ConfigMap {
            metadata: ObjectMeta {
                name: Some(name.into()),
                namespace: Some("x".into()),
                resource_version: Some(resource_version.to_string()),
                ..ObjectMeta::default()
            },
            data: Some([("a".to_owned(), a.to_owned())].into()),
            ..ConfigMap::default()
        })
    }

    fn published(informer: &SharedInformer<Slim>, change: WatchEvent<ConfigMap>) -> Vec<String> {
        let seen = informer.store.write().fold(change, transform);
        let show = |one: &Option<Arc<Slim>>| one.as_ref().map_or("-", |s| s.1.as_deref().unwrap_or("")).to_owned();
        let line = |seen: &CacheEvent<Slim>| match seen {
            CacheEvent::Changed { before, after } => format!("{} > {}", show(before), show(after)),
            CacheEvent::Resync => "all".to_owned(),
        };
        seen.iter().map(line).collect()
    }

    #[test]
    fn informer_publishes_changes_before_and_after() {
        let informer = SharedInformer::new();
        assert_eq!(published(&informer, WatchEvent::Applied(map("m", 3, "one"))), ["- > one"]);
        assert_eq!(published(&informer, WatchEvent::Applied(map("m", 4, "one"))), [""; 0]);
        assert_eq!(published(&informer, WatchEvent::Applied(map("m", 5, "two"))), ["one > two"]);
        assert_eq!(informer.resource_version(), 5);
        assert_eq!(published(&informer, WatchEvent::Applied(map("n", 6, "three"))), ["- > three"]);
        assert!(!informer.has_synced());
        assert_eq!(published(&informer, WatchEvent::Listed(["x/m".to_owned()].into())), ["three > -", "all"]);
        assert!(informer.has_synced() && informer.keys() == ["x/m"]);
        assert_eq!(published(&informer, WatchEvent::Listed(["x/m".to_owned()].into())), [""; 0]);
        assert_eq!(published(&informer, WatchEvent::Deleted(map("m", 9, "two"))), ["two > -"]);
        assert!(informer.resource_version() == 9 && informer.in_namespace("x").is_empty());
    }

    #[tokio::test]
    async fn lagging_subscriber_receives_resync() {
        let informer: SharedInformer<Slim> = SharedInformer::new();
        let mut changes = informer.subscribe();
        for _ in 0..=EVENT_CHANNEL_CAPACITY {
            informer.events.send(CacheEvent::Changed { before: None, after: None }).unwrap();
        }
        assert!(matches!(changes.next().await, Some(CacheEvent::Resync)));
        assert!(matches!(changes.next().await, Some(CacheEvent::Changed { .. })));
    }
}
