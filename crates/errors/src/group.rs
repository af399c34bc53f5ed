//! Resources and kinds with their API group, as errors name them (upstream's `schema.GroupResource` and `schema.GroupKind`).

use std::fmt;

/// A resource and its API group; shown as `deployments.apps`, or `pods` in the core group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GroupResource<'a> {
    /// API group; empty for the core group.
    pub group: &'a str,
    /// Plural name; with a subresource as in `pods/binding`, where upstream names it so.
    pub resource: &'a str,
}

impl<'a> GroupResource<'a> {
    /// Returns the resource of a group.
    #[must_use]
    pub const fn new(group: &'a str, resource: &'a str) -> Self {
        Self { group, resource }
    }

    /// Returns a resource of the core group.
    #[must_use]
    pub const fn core(resource: &'a str) -> Self {
        Self::new("", resource)
    }
}

impl fmt::Display for GroupResource<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_qualified(f, self.resource, self.group)
    }
}

/// A kind and its API group; shown as `Deployment.apps`, or `Pod` in the core group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GroupKind<'a> {
    /// API group; empty for the core group.
    pub group: &'a str,
    /// Kind.
    pub kind: &'a str,
}

impl<'a> GroupKind<'a> {
    /// Returns the kind of a group.
    #[must_use]
    pub const fn new(group: &'a str, kind: &'a str) -> Self {
        Self { group, kind }
    }
}

impl fmt::Display for GroupKind<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_qualified(f, self.kind, self.group)
    }
}

fn write_qualified(f: &mut fmt::Formatter<'_>, name: &str, group: &str) -> fmt::Result {
    f.write_str(name)?;
    if group.is_empty() { Ok(()) } else { write!(f, ".{group}") }
}
