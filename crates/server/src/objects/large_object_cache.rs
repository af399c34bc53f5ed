//! Cache of recently written large objects in decoded form: clients that apply the same object repeatedly would decode it
//! each time, only to find it unchanged.

use crate::{objects::managed_object::ManagedObject, proxy::webhook::WebhookClient};
use errors::ApiError;
use kinds::Kind;
use parking_lot::Mutex;
use std::{collections::HashMap, sync::Arc};
use store::{Key, Object, Revision};

/// Maximum size of all cached objects, in bytes of JSON. Decoded, they take about five times as much.
const MAX_SIZE: usize = 2 << 20;
/// Minimum size of a cached object, in bytes of JSON: smaller ones are decoded fast.
const MIN_OBJECT_SIZE: usize = 4 << 10;

/// Cache of decoded objects, each at its latest known revision.
#[derive(Default)]
pub(crate) struct LargeObjectCache(Mutex<LruCache>);

#[derive(Default)]
struct LruCache {
    objects: HashMap<Key, Entry>,
    size: usize,
    /// Counter of accesses, for LRU eviction.
    clock: u64,
}

struct Entry {
    revision: Revision,
    live: Arc<ManagedObject>,
    size: usize,
    used: u64,
}

/// Whether the kind has a single version, which is also the stored form.
fn has_single_version(kind: &dyn Kind) -> bool {
    !kind.is_custom() && !kind.info().converted
}

impl LargeObjectCache {
    /// Returns a stored object in the kind's version, decoded or from the cache.
    pub(crate) async fn live(
        &self,
        webhooks: &WebhookClient,
        kind: &dyn Kind,
        stored: &Object,
    ) -> Result<Arc<ManagedObject>, ApiError> {
        let is_cacheable = has_single_version(kind) && stored.data.len() >= MIN_OBJECT_SIZE;
        if let Some(live) = is_cacheable.then(|| self.0.lock().find(&stored.key, stored.revision)).flatten() {
            return Ok(live);
        }
        let live = Arc::new(ManagedObject::decode(webhooks, kind, stored).await?);
        if is_cacheable {
            self.0.lock().keep(stored, Arc::clone(&live));
        }
        Ok(live)
    }

    /// Caches an object that was written; its `resourceVersion` is updated.
    pub(crate) fn wrote(&self, kind: &dyn Kind, stored: &Object, live: Arc<ManagedObject>) {
        let is_cacheable = has_single_version(kind) && stored.data.len() >= MIN_OBJECT_SIZE;
        // Only an object without other references can be changed.
        if let Some(mut live) = Arc::into_inner(live).filter(|_| is_cacheable) {
            live.object["metadata"]["resourceVersion"] = stored.revision.to_string().into();
            self.0.lock().keep(stored, Arc::new(live));
        }
    }
}

impl LruCache {
    fn find(&mut self, key: &Key, revision: Revision) -> Option<Arc<ManagedObject>> {
        self.clock += 1;
        let entry = self.objects.get_mut(key).filter(|entry| entry.revision == revision)?;
        entry.used = self.clock;
        Some(Arc::clone(&entry.live))
    }

    fn keep(&mut self, stored: &Object, live: Arc<ManagedObject>) {
        self.clock += 1;
        let entry = Entry { revision: stored.revision, live, size: stored.data.len(), used: self.clock };
        // A slow request must not replace a newer revision.
        if self.objects.get(&stored.key).is_some_and(|known| known.revision > entry.revision) {
            return;
        }
        self.size += entry.size;
        self.size -= self.objects.insert(stored.key.clone(), entry).map_or(0, |old| old.size);
        while self.size > MAX_SIZE
            && let Some(oldest) = self.objects.iter().min_by_key(|(_, entry)| entry.used).map(|(key, _)| key.clone())
        {
            self.size -= self.objects.remove(&oldest).map_or(0, |entry| entry.size);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use store::Record;

    fn stored(name: &str, revision: Revision, size: usize) -> Object {
        let key = Key::new("pods", "default", name);
        Object::from(Record::new(key, revision, 1, &vec![b' '; size].into()))
    }

    fn live(object: &Object) -> Arc<ManagedObject> {
        let object = json!({"metadata": {"name": object.key.name.as_ref(), "resourceVersion": object.revision}});
        Arc::new(ManagedObject { object, ..ManagedObject::default() })
    }

    #[test]
    fn cached_object_is_found_at_latest_revision_only() {
        let (mut cache, old, new) =
            (LruCache::default(), stored("a", 2, MIN_OBJECT_SIZE), stored("a", 3, MIN_OBJECT_SIZE));
        for object in [&old, &new, &old] {
            cache.keep(object, live(object));
        }
        assert!(cache.find(&old.key, 2).is_none());
        assert_eq!(cache.find(&new.key, 3).unwrap().object, live(&new).object);
        assert!(cache.find(&stored("b", 3, 0).key, 3).is_none());
        assert_eq!(cache.size, MIN_OBJECT_SIZE);
    }

    #[test]
    fn least_recently_used_object_is_evicted() {
        let (mut cache, third) = (LruCache::default(), MAX_SIZE / 3);
        let all: Vec<Object> = ["a", "b", "c"].map(|name| stored(name, 2, third)).into();
        all.iter().for_each(|object| cache.keep(object, live(object)));
        assert!(cache.find(&all[0].key, 2).is_some());
        let another = stored("d", 3, third);
        cache.keep(&another, live(&another));
        let found: Vec<bool> = all.iter().chain([&another]).map(|o| cache.find(&o.key, o.revision).is_some()).collect();
        assert_eq!((found, cache.size), (vec![true, false, true, true], 3 * third));
        // An object beyond the maximum evicts all others and itself.
        let huge = stored("e", 4, MAX_SIZE + 1);
        cache.keep(&huge, live(&huge));
        assert!(cache.objects.is_empty() && cache.size == 0);
    }
}
