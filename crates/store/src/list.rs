//! Lists at the current and at recent revisions.

use crate::{
    Expired, Key, Object, Revision, Scope,
    state::{ByKey, Resource, State},
};
use std::{collections::BTreeMap, ops::Bound, sync::Arc};

/// Objects of a scope at one revision, sorted by namespace and name.
#[derive(Clone, Debug)]
pub struct List {
    /// Objects, at most `limit`.
    pub objects: Vec<Object>,
    /// Revision of the list; a watch from here continues it without a gap.
    pub revision: Revision,
    /// Number of objects of the scope after the last one (`remainingItemCount`).
    pub remaining: usize,
}

impl List {
    /// Returns whether there are objects after the last one.
    #[must_use]
    pub fn more(&self) -> bool {
        self.remaining > 0
    }

    fn collect<'a>(objects: impl Iterator<Item = &'a Object>, limit: Option<usize>, revision: Revision) -> Self {
        let mut objects = objects.fuse();
        let taken = match limit {
            Some(limit) => objects.by_ref().take(limit).cloned().collect(),
            None => objects.by_ref().cloned().collect(),
        };
        Self { objects: taken, revision, remaining: objects.count() }
    }
}

pub(crate) fn list(state: &State, scope: &Scope, after: Option<&Key>, limit: Option<usize>) -> List {
    let Some(resource) = state.resource(&scope.resource) else {
        return List { objects: Vec::new(), revision: state.revision, remaining: 0 };
    };
    List::collect(current_objects(resource, scope, after), limit, state.revision)
}

/// Lists at an earlier revision: reverts newer events of the watch cache on the current objects.
pub(crate) fn list_at(
    state: &State,
    scope: &Scope,
    revision: Revision,
    after: Option<&Key>,
    limit: Option<usize>,
) -> Result<List, Expired> {
    if revision < state.oldest(&scope.resource) || revision > state.revision {
        return Err(state.expired(&scope.resource, revision));
    }
    let Some(resource) = state.resource(&scope.resource) else {
        return Ok(List { objects: Vec::new(), revision, remaining: 0 });
    };
    let mut objects_before: BTreeMap<&Key, Option<&Object>> = BTreeMap::new();
    for event in resource.watch_cache.after(revision) {
        let key = &event.object.key;
        if scope.covers(&key.namespace, &key.name) {
            objects_before.entry(key).or_insert(event.previous.as_ref());
        }
    }
    let unchanged = current_objects(resource, scope, after).filter(|object| !objects_before.contains_key(&object.key));
    let reverted = objects_before.range::<Key, _>(key_range(scope, after)).filter_map(|(_, object)| *object);
    Ok(List::collect(merge(unchanged, reverted), limit, revision))
}

/// Returns the current objects of a scope after a key.
fn current_objects<'a>(
    resource: &'a Resource,
    scope: &'a Scope,
    after: Option<&Key>,
) -> impl Iterator<Item = &'a Object> {
    let objects = resource.objects.range::<Key, _>(key_range(scope, after)).map(|ByKey(object)| object);
    objects
        .take_while(move |object| scope.namespace.as_ref().is_none_or(|expected| *expected == object.key.namespace))
        .filter(move |object| scope.covers(&object.key.namespace, &object.key.name))
}

/// Returns the key range of a scope, after a key.
fn key_range(scope: &Scope, after: Option<&Key>) -> (Bound<Key>, Bound<Key>) {
    let empty: Arc<str> = Arc::from("");
    let first = Key {
        namespace: scope.namespace.clone().unwrap_or_else(|| empty.clone()),
        name: if scope.namespace.is_some() { scope.name.clone().unwrap_or(empty) } else { empty },
        resource: scope.resource.clone(),
    };
    // The range of a single object is exact.
    let is_one = scope.namespace.is_some() && scope.name.is_some();
    match after.filter(|after| **after >= first) {
        // Nothing follows the single object.
        Some(_) if is_one => (Bound::Included(first.clone()), Bound::Excluded(first)),
        Some(after) => (Bound::Excluded(after.clone()), Bound::Unbounded),
        None if is_one => (Bound::Included(first.clone()), Bound::Included(first)),
        None => (Bound::Included(first), Bound::Unbounded),
    }
}

/// Merges two iterators that are sorted by key and have no common key.
fn merge<'a>(
    left: impl Iterator<Item = &'a Object>,
    right: impl Iterator<Item = &'a Object>,
) -> impl Iterator<Item = &'a Object> {
    let mut left = left.peekable();
    let mut right = right.peekable();
    std::iter::from_fn(move || {
        let take_left = match (left.peek(), right.peek()) {
            (Some(left), Some(right)) => left.key < right.key,
            (left, _) => left.is_some(),
        };
        if take_left { left.next() } else { right.next() }
    })
}
