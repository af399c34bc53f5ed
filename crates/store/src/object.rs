//! Object versions.

use crate::{Data, Key, Revision, Template};
use std::{ops::Deref, sync::Arc};

/// Fields of an [`Object`]; also the unit of storage of an engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Key of the object.
    pub key: Key,
    /// Revision of this version.
    pub revision: Revision,
    /// Revision of the creation.
    pub create_revision: Revision,
    /// Canonical JSON, which contains `revision` as its `resourceVersion`.
    pub data: Data,
    /// Whether the stored form is outdated ([`Transformer`](crate::Transformer)): it must be rewritten even without a
    /// change.
    pub is_stale: bool,
}

impl Record {
    /// Creates a version from a template.
    #[must_use]
    pub fn new(key: Key, revision: Revision, create_revision: Revision, template: &Template) -> Self {
        Self { key, revision, create_revision, data: Data::new(revision, create_revision, template), is_stale: false }
    }

    /// Returns the same version with other data, which does not contain its revision.
    pub(crate) fn with_data(&self, data: Vec<u8>) -> Self {
        Self::new(self.key.clone(), self.revision, self.create_revision, &Template::from(data))
    }

    /// Parses a stored version; `None` if it is invalid.
    pub(crate) fn from_entry(key: Key, entry: &[u8]) -> Option<Self> {
        let (data, revision, create_revision) = Data::from_entry(entry)?;
        Some(Self { key, revision, create_revision, data, is_stale: false })
    }
}

/// Object version, immutable and shared. A clone increments a reference count.
///
/// Its fields are those of [`Record`]: `object.key`, `object.revision`, `object.create_revision`, `object.data`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Object(Arc<Record>);

impl Deref for Object {
    type Target = Record;

    fn deref(&self) -> &Record {
        &self.0
    }
}

impl From<Record> for Object {
    fn from(record: Record) -> Self {
        Self(Arc::new(record))
    }
}
