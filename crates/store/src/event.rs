//! Watch events.

use crate::{Object, Revision};
use bytes::Bytes;
use std::sync::OnceLock;

/// Type of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EventKind {
    /// The object was created or replaced; [`Event::previous`] distinguishes them.
    Put,
    /// The object was deleted.
    Delete,
}

/// Event of the history, shared by all watchers.
#[derive(Debug)]
pub struct Event {
    /// Type of the event.
    pub kind: EventKind,
    /// For `Put`, the new version. For `Delete`, the last version, encoded again at the revision of the delete.
    pub object: Object,
    /// Previous version; `None` for a creation.
    pub previous: Option<Object>,
    /// Cache of an encoding that all watchers share: `event.frame.get_or_init(|| ...)`.
    pub frame: OnceLock<Bytes>,
}

impl Event {
    /// Bytes of an event apart from its data: allocations, keys, and its slot in the watch cache.
    const OVERHEAD_BYTES: usize = 320;

    pub(crate) fn new(kind: EventKind, object: Object, previous: Option<Object>) -> Self {
        Self { kind, object, previous, frame: OnceLock::new() }
    }

    /// Returns the revision of the event.
    #[must_use]
    pub fn revision(&self) -> Revision {
        self.object.revision
    }

    /// Returns the maximum memory cost of the event. The data counts twice: once for itself, once for a frame that
    /// contains it. `previous` may be shared with an earlier event, which may be evicted first.
    pub(crate) fn cost(&self) -> usize {
        let previous = self.previous.as_ref().map_or(0, |previous| previous.data.len());
        self.object.data.len() * 2 + previous + Self::OVERHEAD_BYTES
    }
}
