//! Reads objects of the store. The store knows only bytes: this is the one place above it that parses them for authentication,
//! authorization and admission.

use serde::de::DeserializeOwned;
use serde_json::Value;
use std::sync::Arc;
use store::{Key, Object, Scope, Store};

/// Returns an object; `None` also if it cannot be parsed. `namespace` is empty for a cluster-scoped object.
pub fn get(store: &Store, resource: impl Into<Arc<str>>, namespace: &str, name: &str) -> Option<Value> {
    try_get(store, resource, namespace, name).ok().flatten()
}

/// Returns an object, if it exists.
///
/// # Errors
/// If it cannot be parsed.
pub fn try_get(
    store: &Store,
    resource: impl Into<Arc<str>>,
    namespace: &str,
    name: &str,
) -> serde_json::Result<Option<Value>> {
    let found = store.get(&Key::new(resource, namespace, name));
    found.map(|object| serde_json::from_slice(&object.data)).transpose()
}

/// Returns the objects of a scope that can be parsed, in the order of their keys.
pub fn list<T: DeserializeOwned>(store: &Store, scope: &Scope) -> impl Iterator<Item = T> + use<T> {
    store.list(scope, None, None).objects.into_iter().filter_map(|object| parse(&object))
}

/// Parses an object.
pub fn parse<T: DeserializeOwned>(object: &Object) -> Option<T> {
    serde_json::from_slice(&object.data).ok()
}
