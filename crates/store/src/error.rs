//! Errors of opening a store and of reading its history.

use crate::{Key, Revision, TransformError};
use std::{io, path::PathBuf};
use thiserror::Error;

/// Error of opening a store. Acknowledged data was not changed.
#[derive(Debug, Error)]
pub enum OpenError {
    /// The store was written by a newer version of this software.
    #[error("{} has format {found}, and this version reads formats up to {supported}: use a newer version", path.display())]
    UnknownFormat {
        /// The store's directory.
        path: PathBuf,
        /// The format of the store.
        found: u32,
        /// The newest format that is understood.
        supported: u32,
    },
    /// Acknowledged data is lost or corrupt. The store is not changed, for repair or restore.
    #[error("{} is damaged: {detail}", path.display())]
    Damaged {
        /// The file or directory that is damaged.
        path: PathBuf,
        /// The problem.
        detail: String,
    },
    /// Another process (or another store in this one) has the directory open.
    #[error("{} is in use by another process", path.display())]
    InUse {
        /// The store's directory.
        path: PathBuf,
    },
    /// Objects are stored in a form that no configured transformer reads. Nothing was changed.
    #[error("failed to read {} of {}: {}", format_count(objects.len()), path.display(), format_objects(objects))]
    Unreadable {
        /// The store's directory.
        path: PathBuf,
        /// The objects, in the order of their keys.
        objects: Vec<UnreadableObject>,
    },
    /// The files could not be read or made.
    #[error("cannot open {}", path.display())]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// The system's error.
        #[source]
        source: io::Error,
    },
}

impl OpenError {
    pub(crate) fn damaged(path: impl Into<PathBuf>, detail: impl Into<String>) -> Self {
        Self::Damaged { path: path.into(), detail: detail.into() }
    }

    /// For `map_err`: an I/O error at `path`.
    pub(crate) fn io(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { path, source }
    }
}

/// Unreadable object.
#[derive(Debug)]
pub struct UnreadableObject {
    /// Which object.
    pub key: Key,
    /// Why.
    pub error: TransformError,
}

/// Maximum number of objects in an error message.
const MAX_LISTED: usize = 20;

fn format_count(objects: usize) -> String {
    if objects == 1 { "1 object".to_owned() } else { format!("{objects} objects") }
}

fn format_objects(objects: &[UnreadableObject]) -> String {
    let mut texts: Vec<String> =
        objects.iter().take(MAX_LISTED).map(|object| format!("{}: {}", object.key, object.error)).collect();
    if let Some(remaining) = objects.len().checked_sub(MAX_LISTED).filter(|count| *count > 0) {
        texts.push(format!("and {remaining} more"));
    }
    texts.join("; ")
}

/// The requested revision is not in the watch cache (Kubernetes: 410 Gone, reason `Expired`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("revision {requested} is not available: the history goes from {oldest} to {current}")]
pub struct Expired {
    /// Requested revision, or the one that a watcher had reached.
    pub requested: Revision,
    /// Oldest available revision.
    pub oldest: Revision,
    /// Newest available revision.
    pub current: Revision,
}
