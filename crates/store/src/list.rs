//! Lists: of now, and of a recent moment.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use crate::key::Place;
use crate::state::State;
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
    let objects = in_scope(&resource.objects, scope, after).map(|(_, object)| object);
    Listing::collect(objects, limit, state.revision)
}

/// The current map with newer events undone: an object that changed since is as it was before its first change.
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
    let mut before: BTreeMap<Place, Option<Object>> = BTreeMap::new();
    for event in resource.window.after(revision) {
        let key = &event.object.key;
        if scope.covers(&key.namespace, &key.name) {
            before.entry(key.place()).or_insert_with(|| event.previous.clone());
        }
    }
    let unchanged = in_scope(&resource.objects, scope, after).filter(|(place, _)| !before.contains_key(*place));
    let undone = in_scope(&before, scope, after).filter_map(|(place, object)| Some((place, object.as_ref()?)));
    let objects = merge(unchanged, undone);
    Ok(Listing::collect(objects, limit, revision))
}

/// The entries of a map that a scope covers and that come after a key.
fn in_scope<'a, T>(
    map: &'a BTreeMap<Place, T>,
    scope: &'a Scope,
    after: Option<&Key>,
) -> impl Iterator<Item = (&'a Place, &'a T)> {
    let empty: Arc<str> = Arc::from("");
    let first = Place {
        namespace: scope.namespace.clone().unwrap_or_else(|| empty.clone()),
        name: if scope.namespace.is_some() { scope.name.clone().unwrap_or(empty) } else { empty },
    };
    let start = match after.map(Key::place) {
        Some(after) if after >= first => Bound::Excluded(after),
        _ => Bound::Included(first.clone()),
    };
    // One object is looked up, not searched for; behind it there is nothing.
    let only = scope.namespace.is_some() && scope.name.is_some();
    let nothing = only && matches!(start, Bound::Excluded(_));
    let end = if only && !nothing { Bound::Included(first) } else { Bound::Unbounded };
    map.range((start, end))
        .take_while(move |_| !nothing)
        .take_while(move |(place, _)| scope.namespace.as_ref().is_none_or(|namespace| *namespace == place.namespace))
        .filter(move |(place, _)| scope.covers(&place.namespace, &place.name))
}

/// Two iterators in the order of places, without a common place, as one.
fn merge<'a>(
    left: impl Iterator<Item = (&'a Place, &'a Object)>,
    right: impl Iterator<Item = (&'a Place, &'a Object)>,
) -> impl Iterator<Item = &'a Object> {
    let mut left = left.peekable();
    let mut right = right.peekable();
    std::iter::from_fn(move || {
        let take_left = match (left.peek(), right.peek()) {
            (Some((left, _)), Some((right, _))) => left < right,
            (left, _) => left.is_some(),
        };
        let next = if take_left { left.next() } else { right.next() };
        next.map(|(_, object)| object)
    })
}
