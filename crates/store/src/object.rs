//! One version of one object.

use std::ops::Deref;
use std::sync::Arc;

use crate::{Data, Key, Revision, Template};

/// The parts of an [`Object`]; also what an engine keeps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// The object's name.
    pub key: Key,
    /// The write that made this version.
    pub revision: Revision,
    /// The write that created the object.
    pub create_revision: Revision,
    /// The canonical JSON, which already holds `revision` as its `resourceVersion`.
    pub data: Data,
    /// Whether the engine keeps it in an outdated form ([`Transformer`](crate::Transformer)): it must be written again even
    /// if nothing changes.
    pub is_stale: bool,
}

impl Record {
    /// One version of an object, of a template that is filled in for it.
    #[must_use]
    pub fn new(key: Key, revision: Revision, create_revision: Revision, template: &Template) -> Self {
        Self { key, revision, create_revision, data: Data::new(revision, create_revision, template), is_stale: false }
    }

    /// The same version with other data, which does not name its revision.
    pub(crate) fn with_data(&self, data: Vec<u8>) -> Self {
        Self::new(self.key.clone(), self.revision, self.create_revision, &Template::from(data))
    }

    /// The version that an engine kept. `None` if it is none.
    pub(crate) fn from_entry(key: Key, entry: &[u8]) -> Option<Self> {
        let (data, revision, create_revision) = Data::from_entry(entry)?;
        Some(Self { key, revision, create_revision, data, is_stale: false })
    }
}

/// One version of one object: immutable and shared. A clone costs one reference count.
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
