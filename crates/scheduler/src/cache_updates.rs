//! Updates of the scheduler's cache from informers.

use informer::{CacheEvent, Cached, SharedInformer, key};
use k8s_openapi::{Metadata, apimachinery::pkg::apis::meta::v1::ObjectMeta};
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
    apply(known, informer, event, |_, _| true)
}

/// Like [`apply_event`], for objects of which changes are assumed: one that is not newer than the known one is ignored,
/// because that may be an assumed change of it (`AssumeCache.add`).
pub(crate) fn apply_event_to_assumed<T: Cached + Metadata<Ty = ObjectMeta>>(
    known: &mut BTreeMap<String, Arc<T>>,
    informer: &SharedInformer<T>,
    event: &CacheEvent<T>,
) -> Vec<String> {
    apply(known, informer, event, is_newer)
}

fn apply<T: Cached>(
    known: &mut BTreeMap<String, Arc<T>>,
    informer: &SharedInformer<T>,
    event: &CacheEvent<T>,
    is_newer: fn(&T, &T) -> bool,
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
    keyed.filter_map(|(key, object)| insert_changed(known, key, object, is_newer)).collect()
}

fn insert_changed<T: PartialEq>(
    known: &mut BTreeMap<String, Arc<T>>,
    key: String,
    object: Arc<T>,
    is_newer: fn(&T, &T) -> bool,
) -> Option<String> {
    let before = known.get(&key);
    if before.is_some_and(|before| !is_newer(&object, before)) {
        return None;
    }
    let is_changed = before.is_none_or(|before| **before != *object);
    known.insert(key.clone(), object);
    is_changed.then_some(key)
}

/// Whether an object is another one than the known one, or a later version of it.
fn is_newer<T: Metadata<Ty = ObjectMeta>>(object: &T, known: &T) -> bool {
    let (object, known) = (object.metadata(), known.metadata());
    let version = |metadata: &ObjectMeta| metadata.resource_version.as_ref().and_then(|v| v.parse::<u64>().ok());
    object.uid != known.uid || version(object).is_none_or(|new| version(known).is_none_or(|old| new > old))
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::PersistentVolumeClaim;
    use serde_json::json;

    fn claim(uid: &str, version: &str, node: Option<&str>) -> Arc<PersistentVolumeClaim> {
        let annotations = node.map(|node| json!({"volume.kubernetes.io/selected-node": node}));
        let metadata = json!({"name": "c", "uid": uid, "resourceVersion": version, "annotations": annotations});
        Arc::new(serde_json::from_value(json!({"metadata": metadata})).expect("a claim"))
    }

    #[test]
    fn assumed_object_is_replaced_by_a_newer_one_only() {
        let assumed = claim("1", "5", Some("n"));
        for (case, object, is_replaced) in [
            ("the version on which the assumption is based", claim("1", "5", None), false),
            ("an earlier version", claim("1", "4", None), false),
            ("the written version", claim("1", "6", Some("n")), true),
            ("a later version by another writer", claim("1", "10", None), true),
            ("another object of this name", claim("2", "3", None), true),
        ] {
            let mut known = BTreeMap::from([("c".to_owned(), Arc::clone(&assumed))]);
            let changed = insert_changed(&mut known, "c".to_owned(), Arc::clone(&object), is_newer);
            let expected = if is_replaced { &object } else { &assumed };
            assert_eq!((changed.is_some(), &known["c"]), (is_replaced, expected), "{case}");
        }
    }
}
