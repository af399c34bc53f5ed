//! One version of one object.

use std::ops::Deref;
use std::sync::Arc;

use crate::{Data, Key, Revision};

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
