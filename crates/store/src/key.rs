//! Keys of objects, and scopes of lists and watches.

use std::{fmt, sync::Arc};

/// Key of an object. Keys of one resource are sorted by namespace, then by name.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    /// Namespace; empty for a cluster-scoped object.
    pub namespace: Arc<str>,
    /// Name within resource and namespace.
    pub name: Arc<str>,
    /// Group-resource: `pods`, `leases.coordination.k8s.io`. The last field, for most comparisons are between keys of
    /// one resource.
    pub resource: Arc<str>,
}

impl Key {
    /// Maximum size of a key: the sum of its three parts, in bytes.
    pub const MAX_BYTES: usize = 4096;

    /// Creates a key. `namespace` is empty for a cluster-scoped object.
    pub fn new(resource: impl Into<Arc<str>>, namespace: impl Into<Arc<str>>, name: impl Into<Arc<str>>) -> Self {
        Self { resource: resource.into(), namespace: namespace.into(), name: name.into() }
    }

    /// Returns the sum of the lengths of the key's parts, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.resource.len() + self.namespace.len() + self.name.len()
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.namespace.is_empty() {
            write!(f, "{}/{}", self.resource, self.name)
        } else {
            write!(f, "{}/{}/{}", self.resource, self.namespace, self.name)
        }
    }
}

/// Scope of a list or watch: one resource, optionally one namespace, optionally one name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Scope {
    /// Group-resource.
    pub resource: Arc<str>,
    /// Only this namespace. `Some("")` covers cluster-scoped objects only, `None` covers every namespace.
    pub namespace: Option<Arc<str>>,
    /// Only objects of this name.
    pub name: Option<Arc<str>>,
}

impl Scope {
    /// Returns the scope of all objects of a resource.
    pub fn resource(resource: impl Into<Arc<str>>) -> Self {
        Self { resource: resource.into(), namespace: None, name: None }
    }

    /// Restricts the scope to one namespace.
    #[must_use]
    pub fn in_namespace(mut self, namespace: impl Into<Arc<str>>) -> Self {
        self.namespace = Some(namespace.into());
        self
    }

    /// Restricts the scope to objects of one name.
    #[must_use]
    pub fn named(mut self, name: impl Into<Arc<str>>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Returns whether the scope contains the key.
    #[must_use]
    pub fn contains(&self, key: &Key) -> bool {
        self.resource == key.resource && self.covers(&key.namespace, &key.name)
    }

    /// Like [`Scope::contains`], for a key that is known to be of the scope's resource.
    pub(crate) fn covers(&self, namespace: &str, name: &str) -> bool {
        self.namespace.as_deref().is_none_or(|expected| expected == namespace)
            && self.name.as_deref().is_none_or(|expected| expected == name)
    }
}
