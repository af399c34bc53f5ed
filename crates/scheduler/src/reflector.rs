//! Reflector: a watch that relists periodically, and the state of its list.

use api::{object_key::object_key, without_managed_fields::WithoutManagedFields};
use futures::stream::{self, BoxStream, StreamExt};
use k8s_openapi::{Metadata, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use kube::{
    Api, Resource,
    runtime::{
        WatchStreamExt,
        watcher::{Config, Error, Event, watcher},
    },
};
use serde::de::DeserializeOwned;
use std::{
    collections::{BTreeMap, HashSet},
    time::Duration,
};

/// Interval between two lists: a new list repairs lost events.
const RELIST_INTERVAL: Duration = Duration::from_secs(600);

/// State of a kind's list.
#[derive(Debug, Default)]
pub(crate) struct ListState {
    /// Keys of the list in progress.
    pub(crate) seen: HashSet<String>,
    /// Whether the initial list is complete (`HasSynced`). Nothing is scheduled before, for the cache is incomplete.
    pub(crate) synced: bool,
}

impl ListState {
    /// Applies a watch event to `store`, which holds `transform` of each object by key. Returns the key of an object
    /// that is new or changed.
    pub(crate) fn apply_event<K: Metadata<Ty = ObjectMeta>, T: PartialEq>(
        &mut self,
        store: &mut BTreeMap<String, T>,
        event: Event<WithoutManagedFields<K>>,
        transform: impl Fn(K) -> T,
    ) -> Option<String> {
        let object = match event {
            Event::Init => {
                self.seen.clear();
                return None;
            }
            Event::InitDone => {
                let seen = std::mem::take(&mut self.seen);
                store.retain(|key, _| seen.contains(key));
                self.synced = true;
                return None;
            }
            Event::Delete(WithoutManagedFields(object)) => {
                store.remove(&object_key(object.metadata()));
                return None;
            }
            Event::InitApply(WithoutManagedFields(object)) => {
                self.seen.insert(object_key(object.metadata()));
                object
            }
            Event::Apply(WithoutManagedFields(object)) => object,
        };
        let (key, transformed) = (object_key(object.metadata()), transform(object));
        let is_changed = store.get(&key) != Some(&transformed);
        store.insert(key.clone(), transformed);
        is_changed.then_some(key)
    }
}

/// Watches all objects of a kind, with a backoff after an error.
pub(crate) fn relisting_watch<K>(api: Api<K>) -> BoxStream<'static, Result<Event<K>, Error>>
where
    K: Resource + Clone + DeserializeOwned + std::fmt::Debug + Send + 'static,
{
    let watch = move || {
        let events = watcher(api.clone(), Config::default()).default_backoff();
        events.take_until(tokio::time::sleep(RELIST_INTERVAL))
    };
    stream::repeat_with(watch).flatten().boxed()
}
