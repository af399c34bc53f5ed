//! Why a store does not open, and why history cannot be had.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

use crate::{Key, Revision, TransformError};

/// Why a store did not open. Nothing that was ever acknowledged was changed.
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
    /// The store has lost or garbled something that was acknowledged. It is left as it is, for repair or restore.
    #[error("{} is damaged: {detail}", path.display())]
    Damaged {
        /// The file or directory that is damaged.
        path: PathBuf,
        /// What is wrong with it.
        detail: String,
    },
    /// Another process (or another store in this one) has the directory open.
    #[error("{} is in use by another process", path.display())]
    InUse {
        /// The store's directory.
        path: PathBuf,
    },
    /// Objects are stored in a form that no configured transformer reads. Nothing was changed.
    #[error("failed to read {} of {}: {}", count(objects.len()), path.display(), listed(objects))]
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
        /// What the system said.
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

/// An object that cannot be read.
#[derive(Debug)]
pub struct UnreadableObject {
    /// Which object.
    pub key: Key,
    /// Why.
    pub error: TransformError,
}

/// An error names so many objects at most.
const LISTED: usize = 20;

fn count(objects: usize) -> String {
    if objects == 1 { "1 object".to_owned() } else { format!("{objects} objects") }
}

fn listed(objects: &[UnreadableObject]) -> String {
    let mut texts: Vec<String> =
        objects.iter().take(LISTED).map(|object| format!("{}: {}", object.key, object.error)).collect();
    if let Some(more) = objects.len().checked_sub(LISTED).filter(|more| *more > 0) {
        texts.push(format!("and {more} more"));
    }
    texts.join("; ")
}

/// The wanted revision is not in the window of recent events (Kubernetes: 410 Gone, reason `Expired`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("revision {requested} is not available: the history goes from {oldest} to {current}")]
pub struct Expired {
    /// The revision that was asked for, or that a watcher had reached.
    pub requested: Revision,
    /// The oldest revision that can be had.
    pub oldest: Revision,
    /// The newest revision that can be had.
    pub current: Revision,
}
