//! What a watcher is told.

use std::sync::OnceLock;

use bytes::Bytes;

use crate::{Object, Revision};

/// What happened to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EventKind {
    /// The object was created or replaced; [`Event::previous`] tells which.
    Put,
    /// The object was deleted.
    Delete,
}

/// One step of the history. All watchers share one allocation of it.
#[derive(Debug)]
pub struct Event {
    /// What happened.
    pub kind: EventKind,
    /// For `Put`, the new version. For `Delete`, the last version, encoded again at the revision of the delete.
    pub object: Object,
    /// The version before: `None` for a creation.
    pub previous: Option<Object>,
    /// The first watcher that needs an encoding derived from this event puts it here for all others:
    /// `event.frame.get_or_init(|| ...)`.
    pub frame: OnceLock<Bytes>,
}

impl Event {
    /// Bytes that an event costs apart from its data: allocations, keys, and its place in the window.
    const OVERHEAD_BYTES: usize = 320;

    pub(crate) fn new(kind: EventKind, object: Object, previous: Option<Object>) -> Self {
        Self { kind, object, previous, frame: OnceLock::new() }
    }

    /// The write that made this event.
    #[must_use]
    pub fn revision(&self) -> Revision {
        self.object.revision
    }

    /// What the event may cost in memory. The data counts twice: once for itself, once for a frame that holds it.
    /// `previous` may be the object of an earlier event, but that may be forgotten before this one.
    pub(crate) fn cost(&self) -> usize {
        let previous = self.previous.as_ref().map_or(0, |previous| previous.data.len());
        self.object.data.len() * 2 + previous + Self::OVERHEAD_BYTES
    }
}
