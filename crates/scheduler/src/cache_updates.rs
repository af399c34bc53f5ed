//! Updates of the scheduler's cache from informers.

use informer::{CacheEvent, Cached, SharedInformer, key};
use std::{
    collections::{BTreeMap, HashSet},
    sync::Arc,
};

/// Applies an event of an informer to a map of its objects by key. Returns the keys of new and changed objects.
///
/// The object is read from the informer's cache: after a resync, an event may be older than what is known.
pub(crate) fn apply_event<T: Cached>(
    known: &mut BTreeMap<String, Arc<T>>,
    informer: &SharedInformer<T>,
    event: &CacheEvent<T>,
) -> Vec<String> {
    let current = match event {
        CacheEvent::Changed { .. } => {
            let changed = event.objects().next().map(|object| key(object.as_ref()));
            let Some(key) = changed else { return Vec::new() };
            match informer.get_by_key(&key) {
                Some(object) => vec![object],
                None => {
                    known.remove(&key);
                    return Vec::new();
                }
            }
        }
        CacheEvent::Resync => {
            let all = informer.all();
            let keys: HashSet<String> = all.iter().map(|object| key(object.as_ref())).collect();
            known.retain(|key, _| keys.contains(key));
            all
        }
    };
    let keyed = current.into_iter().map(|object| (key(object.as_ref()), object));
    keyed.filter_map(|(key, object)| insert_changed(known, key, object)).collect()
}

fn insert_changed<T: PartialEq>(known: &mut BTreeMap<String, Arc<T>>, key: String, object: Arc<T>) -> Option<String> {
    let is_changed = known.get(&key).is_none_or(|before| **before != *object);
    known.insert(key.clone(), object);
    is_changed.then_some(key)
}
