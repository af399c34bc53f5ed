//! Shared informer: one watch and one cache per kind, used by several components (client-go's `SharedInformer`).
//!
//! Subscribers receive each change with the object before and after it. A subscriber that lags behind receives
//! [`CacheEvent::Resync`] instead. Reads return the newest state that the watch has delivered.

mod store;

use crate::reflector::watch_lean;
use decode::Decode;
use futures::stream::{self, BoxStream, StreamExt};
use k8s_openapi::{Metadata, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use kube::{Api, Resource, runtime::watcher::Config};
use parking_lot::RwLock;
use std::{fmt::Debug, sync::Arc};
use store::Store;
use tokio::sync::{
    broadcast::{self, error::RecvError},
    watch,
};
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
    /// Whether the initial list is complete.
    synced: Arc<watch::Sender<bool>>,
}

impl<T> Clone for SharedInformer<T> {
    fn clone(&self) -> Self {
        Self { store: Arc::clone(&self.store), events: self.events.clone(), synced: Arc::clone(&self.synced) }
    }
}

impl<T> Debug for SharedInformer<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SharedInformer").field("synced", &*self.synced.borrow()).finish_non_exhaustive()
    }
}

impl<T: Cached> Default for SharedInformer<T> {
    fn default() -> Self {
        Self::new()
    }
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
        Self {
            store: Arc::new(RwLock::new(Store::new())),
            events: broadcast::channel(EVENT_CHANNEL_CAPACITY).0,
            synced: Arc::new(watch::channel(false).0),
        }
    }

    /// Lists and watches the objects until cancelled, and caches what `transform` makes of each.
    pub async fn run<K>(self, api: Api<K>, transform: fn(K) -> T, stop: CancellationToken)
    where
        K: k8s_openapi::Resource + Metadata<Ty = ObjectMeta> + Clone + Decode + Debug + Send + 'static,
    {
        self.run_filtered(api, Config::default(), transform, stop).await;
    }

    /// Like [`Self::run`], for the objects that `which` selects.
    pub async fn run_filtered<K>(self, api: Api<K>, which: Config, transform: fn(K) -> T, stop: CancellationToken)
    where
        K: k8s_openapi::Resource + Metadata<Ty = ObjectMeta> + Clone + Decode + Debug + Send + 'static,
    {
        let mut changes = watch_lean(api, which);
        while let Some(Some(change)) = stop.run_until_cancelled(changes.next()).await {
            // Events are sent under the lock, so that a new subscriber finds each change either in the cache or in its
            // events.
            let mut store = self.store.write();
            for seen in store.fold(change, transform) {
                // An error means that there is no subscriber.
                let _ = self.events.send(seen);
            }
            self.synced.send_if_modified(|synced| std::mem::replace(synced, store.has_synced()) != store.has_synced());
        }
    }

    /// Returns a stream of the changes from now on. If the initial list is complete already, it begins with
    /// [`CacheEvent::Resync`].
    pub fn subscribe(&self) -> BoxStream<'static, CacheEvent<T>> {
        let store = self.store.read();
        let (receiver, resync) = (self.events.subscribe(), store.has_synced().then_some(CacheEvent::Resync));
        let changes = stream::unfold(receiver, |mut receiver| async move {
            match receiver.recv().await {
                Ok(seen) => Some((seen, receiver)),
                Err(RecvError::Lagged(_)) => Some((CacheEvent::Resync, receiver)),
                Err(RecvError::Closed) => None,
            }
        });
        stream::iter(resync).chain(changes).boxed()
    }

    /// Returns an object.
    #[must_use]
    pub fn get(&self, namespace: &str, name: &str) -> Option<Arc<T>> {
        self.store.read().get(namespace, name)
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
        self.store.read().in_namespace(namespace).cloned().collect()
    }

    /// Returns the number of objects.
    #[must_use]
    pub fn len(&self) -> usize {
        self.store.read().len()
    }

    /// Returns whether there are no objects.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns all objects.
    #[must_use]
    pub fn all(&self) -> Vec<Arc<T>> {
        self.store.read().all().cloned().collect()
    }

    /// Returns the [`key`] of each object.
    #[must_use]
    pub fn keys(&self) -> Vec<String> {
        self.store.read().all().map(|object| key(object.as_ref())).collect()
    }

    /// Returns the highest `resourceVersion` that was observed.
    #[must_use]
    pub fn resource_version(&self) -> u64 {
        self.store.read().resource_version()
    }

    /// Returns whether the initial list is complete (`HasSynced`).
    #[must_use]
    pub fn has_synced(&self) -> bool {
        self.store.read().has_synced()
    }

    /// Waits until the initial list is complete (`WaitForCacheSync`).
    pub async fn wait_until_synced(&self) {
        // The sender lives as long as this informer.
        let _ = self.synced.subscribe().wait_for(|synced| *synced).await;
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

#[cfg(test)]
mod tests;
