//! Lists: of now, and of a recent moment.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use crate::state::{ByKey, Resource, State};
use crate::{Expired, Key, Object, Revision, Scope};

/// The objects of a scope at one revision, in the order of their namespaces and names.
#[derive(Clone, Debug)]
pub struct Listing {
    /// The objects, at most as many as were asked for.
    pub objects: Vec<Object>,
    /// The revision at which the list is exact; a watch from here continues it without a gap.
    pub revision: Revision,
    /// How many objects of the scope come after the last one.
    pub remaining: usize,
}

impl Listing {
    /// Whether more objects come after the last one.
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

pub(crate) fn list(state: &State, scope: &Scope, after: Option<&Key>, limit: Option<usize>) -> Listing {
    let Some(resource) = state.resource(&scope.resource) else {
        return Listing { objects: Vec::new(), revision: state.revision, remaining: 0 };
    };
    Listing::collect(now(resource, scope, after), limit, state.revision)
}

/// The current objects with newer events undone: one that changed since is as it was before its first change.
pub(crate) fn list_at(
    state: &State,
    scope: &Scope,
    revision: Revision,
    after: Option<&Key>,
    limit: Option<usize>,
) -> Result<Listing, Expired> {
    if revision < state.oldest(&scope.resource) || revision > state.revision {
        return Err(state.expired(&scope.resource, revision));
    }
    let Some(resource) = state.resource(&scope.resource) else {
        return Ok(Listing { objects: Vec::new(), revision, remaining: 0 });
    };
    let mut before: BTreeMap<&Key, Option<&Object>> = BTreeMap::new();
    for event in resource.window.after(revision) {
        let key = &event.object.key;
        if scope.covers(&key.namespace, &key.name) {
            before.entry(key).or_insert(event.previous.as_ref());
        }
    }
    let unchanged = now(resource, scope, after).filter(|object| !before.contains_key(&object.key));
    let undone = before.range::<Key, _>(span(scope, after)).filter_map(|(_, object)| *object);
    Ok(Listing::collect(merge(unchanged, undone), limit, revision))
}

/// The objects that a scope covers and that come after a key.
fn now<'a>(resource: &'a Resource, scope: &'a Scope, after: Option<&Key>) -> impl Iterator<Item = &'a Object> {
    let objects = resource.objects.range::<Key, _>(span(scope, after)).map(|ByKey(object)| object);
    objects
        .take_while(move |object| scope.namespace.as_ref().is_none_or(|wanted| *wanted == object.key.namespace))
        .filter(move |object| scope.covers(&object.key.namespace, &object.key.name))
}

/// Where what a scope covers can be, after a key.
fn span(scope: &Scope, after: Option<&Key>) -> (Bound<Key>, Bound<Key>) {
    let empty: Arc<str> = Arc::from("");
    let first = Key {
        namespace: scope.namespace.clone().unwrap_or_else(|| empty.clone()),
        name: if scope.namespace.is_some() { scope.name.clone().unwrap_or(empty) } else { empty },
        resource: scope.resource.clone(),
    };
    // One object is looked up, not searched for.
    let is_one = scope.namespace.is_some() && scope.name.is_some();
    match after.filter(|after| **after >= first) {
        // Behind it there is nothing.
        Some(_) if is_one => (Bound::Included(first.clone()), Bound::Excluded(first)),
        Some(after) => (Bound::Excluded(after.clone()), Bound::Unbounded),
        None if is_one => (Bound::Included(first.clone()), Bound::Included(first)),
        None => (Bound::Included(first), Bound::Unbounded),
    }
}

/// Two iterators in the order of keys, without a common key, as one.
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
