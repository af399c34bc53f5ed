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
}

impl Record {
    /// One version of an object, of a template that is filled in for it.
    #[must_use]
    pub fn new(key: Key, revision: Revision, create_revision: Revision, template: &Template) -> Self {
        Self { key, revision, create_revision, data: Data::new(revision, create_revision, template) }
    }

    /// The version that an engine kept. `None` if it is none.
    pub(crate) fn from_entry(key: Key, entry: &[u8]) -> Option<Self> {
        let (data, revision, create_revision) = Data::from_entry(entry)?;
        Some(Self { key, revision, create_revision, data })
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
