//! Writes and their errors.

use crate::{CommitError, Key, Object, QuotaAllowance, Revision, Template};
use std::{fmt, sync::Arc};
use thiserror::Error;

/// Precondition of a write. If it fails, the write has no effect and no revision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Precondition {
    /// The object does not exist: else [`WriteError::AlreadyExists`].
    Absent,
    /// The object is at this revision: else [`WriteError::Conflict`], or [`WriteError::NotFound`] if it does not
    /// exist.
    Revision(Revision),
    /// The object exists: else [`WriteError::NotFound`].
    Exists,
    /// No precondition. (A delete of a missing object is [`WriteError::NotFound`] all the same.)
    Any,
}

/// Operation of a write.
#[derive(Clone)]
pub enum WriteOperation {
    /// Creates or replaces the object.
    Put(Template),
    /// Deletes the object. The bytes are its last state with the revision of the delete, for watchers and for the
    /// caller.
    Delete(Template),
}

/// Write of one object, for [`Store::write`](crate::Store::write).
pub struct Write {
    /// Key of the object.
    pub key: Key,
    /// Precondition.
    pub precondition: Precondition,
    /// Operation.
    pub operation: WriteOperation,
    /// Quota that applies if the write grows the object.
    pub allowance: QuotaAllowance,
}

impl Write {
    /// Creates or replaces an object.
    pub fn put(key: Key, expect: Precondition, template: impl Into<Template>) -> Self {
        Self {
            key,
            precondition: expect,
            operation: WriteOperation::Put(template.into()),
            allowance: QuotaAllowance::default(),
        }
    }

    /// Deletes an object.
    pub fn delete(key: Key, expect: Precondition, template: impl Into<Template>) -> Self {
        Self {
            key,
            precondition: expect,
            operation: WriteOperation::Delete(template.into()),
            allowance: QuotaAllowance::default(),
        }
    }

    /// Sets the quota that applies.
    #[must_use]
    pub fn with_allowance(self, allowance: QuotaAllowance) -> Self {
        Self { allowance, ..self }
    }
}

impl fmt::Debug for Write {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let operation = match self.operation {
            WriteOperation::Put(_) => "Put",
            WriteOperation::Delete(_) => "Delete",
        };
        f.debug_struct("Write")
            .field("key", &self.key)
            .field("expect", &self.precondition)
            .field("operation", &operation)
            .finish()
    }
}

/// Error of a write.
#[derive(Clone, Debug, Error)]
pub enum WriteError {
    /// The object is at another revision than expected. Retryable after reading it again.
    #[error("{} is at revision {}, not at the expected one", current.key, current.revision)]
    Conflict {
        /// The object as it is.
        current: Object,
    },
    /// The object exists and was expected not to.
    #[error("{} already exists", current.key)]
    AlreadyExists {
        /// The object as it is.
        current: Object,
    },
    /// The object does not exist.
    #[error("the object does not exist")]
    NotFound,
    /// The key or the data is larger than the store takes.
    #[error("{field} has {size} bytes, and at most {limit} can be stored")]
    TooLarge {
        /// `key` or `data`.
        field: &'static str,
        /// Its size in bytes.
        size: usize,
        /// The largest size in bytes.
        limit: usize,
    },
    /// The write would exceed the quota of the store. Nothing was changed; the write may be retried when objects were
    /// deleted.
    #[error("the objects would take {size} bytes, and {limit} are allowed")]
    NoSpace {
        /// The bytes that all objects would take.
        size: u64,
        /// The bytes that they may take after this write.
        limit: u64,
    },
    /// The disk is full. Nothing was changed; the write may be retried when space is free.
    #[error("the disk that holds the store is full")]
    Full,
    /// The engine failed. Nothing was changed; the write may be retried.
    #[error("the store could not be written")]
    Engine(#[source] Arc<CommitError>),
    /// The store is closed. Whether a write that was queued then was done is unknown.
    #[error("the store is closed")]
    Closed,
}
