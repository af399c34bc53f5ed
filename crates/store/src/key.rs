//! What objects are called, and which of them a list or a watch covers.

use std::fmt;
use std::sync::Arc;

/// The name of one object. Lists are in the order of the keys of one resource: by namespace, then by name.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    /// The namespace; empty for an object of cluster scope.
    pub namespace: Arc<str>,
    /// The object's name within its resource and namespace.
    pub name: Arc<str>,
    /// The group-resource: `pods`, `leases.coordination.k8s.io`. The last, for keys of one resource are compared most.
    pub resource: Arc<str>,
}

impl Key {
    /// The longest key that the store takes: the sum of its three parts, in bytes.
    pub const MAX_BYTES: usize = 4096;

    /// Names an object. `namespace` is empty for an object of cluster scope.
    pub fn new(resource: impl Into<Arc<str>>, namespace: impl Into<Arc<str>>, name: impl Into<Arc<str>>) -> Self {
        Self { resource: resource.into(), namespace: namespace.into(), name: name.into() }
    }

    /// The sum of the lengths of the key's parts, in bytes.
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

/// Which objects a list or a watch covers: those of one resource, optionally of one namespace, optionally of one name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Scope {
    /// The group-resource.
    pub resource: Arc<str>,
    /// Only this namespace. `Some("")` covers objects of cluster scope only, `None` covers every namespace.
    pub namespace: Option<Arc<str>>,
    /// Only objects of this name.
    pub name: Option<Arc<str>>,
}

impl Scope {
    /// All objects of a resource.
    pub fn resource(resource: impl Into<Arc<str>>) -> Self {
        Self { resource: resource.into(), namespace: None, name: None }
    }

    /// Narrows the scope to one namespace.
    #[must_use]
    pub fn in_namespace(mut self, namespace: impl Into<Arc<str>>) -> Self {
        self.namespace = Some(namespace.into());
        self
    }

    /// Narrows the scope to objects of one name.
    #[must_use]
    pub fn named(mut self, name: impl Into<Arc<str>>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Whether the scope covers this key.
    #[must_use]
    pub fn contains(&self, key: &Key) -> bool {
        self.resource == key.resource && self.covers(&key.namespace, &key.name)
    }

    /// Like [`Scope::contains`], for a key that is known to be of the scope's resource.
    pub(crate) fn covers(&self, namespace: &str, name: &str) -> bool {
        self.namespace.as_deref().is_none_or(|wanted| wanted == namespace)
            && self.name.as_deref().is_none_or(|wanted| wanted == name)
    }
}
