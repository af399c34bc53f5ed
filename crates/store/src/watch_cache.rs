//! Watch cache: the recent events of one resource.

use crate::{Event, Revision};
use std::{collections::VecDeque, sync::Arc};

/// Events of one resource after the revision `start`, oldest first.
///
/// Each event has an index that never changes, so that a watcher's cursor is a number and needs no search.
#[derive(Debug)]
pub(crate) struct WatchCache {
    events: VecDeque<Arc<Event>>,
    /// Index of the oldest event.
    base: u64,
    start: Revision,
    cost: usize,
}

impl WatchCache {
    pub(crate) fn new(start: Revision) -> Self {
        Self { events: VecDeque::new(), base: 0, start, cost: 0 }
    }

    /// Returns the revision after which all events are cached.
    pub(crate) fn start(&self) -> Revision {
        self.start
    }

    /// Returns the memory cost of the events, in bytes.
    pub(crate) fn cost(&self) -> usize {
        self.cost
    }

    /// Returns the revision of the newest event.
    pub(crate) fn newest(&self) -> Revision {
        self.events.back().map_or(self.start, |event| event.revision())
    }

    pub(crate) fn len(&self) -> usize {
        self.events.len()
    }

    pub(crate) fn push(&mut self, event: Arc<Event>) {
        self.cost += event.cost();
        self.events.push_back(event);
    }

    /// Evicts and returns the oldest event.
    pub(crate) fn evict_oldest(&mut self) -> Option<Arc<Event>> {
        let event = self.events.pop_front()?;
        self.base += 1;
        self.start = event.revision();
        self.cost -= event.cost();
        if self.events.len() < self.events.capacity() / 4 {
            self.events.shrink_to(self.events.len() * 2);
        }
        Some(event)
    }

    /// Returns the index of the first event after a revision that is not before `start`.
    pub(crate) fn index_after(&self, revision: Revision) -> u64 {
        self.base + self.events.partition_point(|event| event.revision() <= revision) as u64
    }

    /// Index of the oldest event.
    pub(crate) fn first(&self) -> u64 {
        self.base
    }

    /// Returns the index of the next event to be added.
    pub(crate) fn end(&self) -> u64 {
        self.base + self.events.len() as u64
    }

    /// Returns the events from an index on; `None` if some of them were evicted.
    pub(crate) fn events_from(&self, index: u64) -> Option<impl Iterator<Item = &Arc<Event>>> {
        let offset = usize::try_from(index.checked_sub(self.base)?).ok()?;
        Some(self.events.range(offset.min(self.events.len())..))
    }

    /// Returns the events after a revision that is not before `start`.
    pub(crate) fn after(&self, revision: Revision) -> impl Iterator<Item = &Arc<Event>> {
        let offset = self.events.partition_point(|event| event.revision() <= revision);
        self.events.range(offset..)
    }
}
