//! Watch of a scope.

use crate::{Event, Expired, Revision, Scope, state::State};
use parking_lot::RwLock;
use std::sync::Arc;
use tokio::sync::watch;

/// Cursor in the watch cache of a resource.
///
/// It buffers nothing: a slow watcher costs nothing, and gets [`Expired`] when an event of its scope was evicted.
/// Every async method is cancel safe.
#[derive(Debug)]
pub struct Watch {
    state: Arc<RwLock<State>>,
    scope: Scope,
    notifier: watch::Receiver<Revision>,
    /// Index of the next event in the watch cache.
    next: u64,
    /// All events of the scope up to this revision were delivered.
    progress: Revision,
}

impl Watch {
    pub(crate) fn new(state: &Arc<RwLock<State>>, scope: Scope, from: Revision) -> Result<Self, Expired> {
        let mut guard = state.write();
        if from < guard.oldest(&scope.resource) {
            return Err(guard.expired(&scope.resource, from));
        }
        let now = guard.revision;
        let resource = guard.resource_mut(&scope.resource);
        let notifier = resource.topics.subscribe(&scope, now, resource.watch_cache.start());
        let next = resource.watch_cache.index_after(from);
        drop(guard);
        Ok(Self { state: state.clone(), scope, notifier, next, progress: from })
    }

    /// Returns the watched scope.
    #[must_use]
    pub fn scope(&self) -> &Scope {
        &self.scope
    }

    /// Returns the next event, as soon as there is one.
    ///
    /// # Errors
    ///
    /// Events of the scope were evicted from the watch cache: the client must list again.
    pub async fn next(&mut self) -> Result<Arc<Event>, Expired> {
        let mut events = Vec::with_capacity(1);
        loop {
            self.next_batch(&mut events, 1).await?;
            if let Some(event) = events.pop() {
                return Ok(event);
            }
        }
    }

    /// Waits for at least one event, then appends up to `max` (at least 1) available ones; returns their number.
    ///
    /// # Errors
    ///
    /// Events of the scope were evicted from the watch cache: the client must list again.
    pub async fn next_batch(&mut self, events: &mut Vec<Arc<Event>>, max: usize) -> Result<usize, Expired> {
        loop {
            // Marked as seen before the check, so that an event between check and wait is not missed.
            self.notifier.borrow_and_update();
            let count = self.try_next_batch(events, max.max(1))?;
            if count > 0 {
                return Ok(count);
            }
            if self.notifier.changed().await.is_err() {
                // The notifier is part of the state, which this watch holds.
                std::future::pending::<()>().await;
            }
        }
    }

    /// Appends up to `max` available events; returns their number.
    ///
    /// # Errors
    ///
    /// Events of the scope were evicted from the watch cache: the client must list again.
    pub fn try_next_batch(&mut self, events: &mut Vec<Arc<Event>>, max: usize) -> Result<usize, Expired> {
        let state = self.state.read();
        let Some(resource) = state.resource(&self.scope.resource) else {
            return Ok(0);
        };
        let topic = resource.topics.get(&self.scope);
        if topic.is_some_and(|topic| topic.has_no_events_after(self.progress)) {
            self.next = resource.watch_cache.end();
            self.progress = self.progress.max(state.revision);
            return Ok(0);
        }
        // Evicted events of other scopes are not missed.
        if self.next < resource.watch_cache.first() && topic.is_some_and(|topic| topic.is_cached_after(self.progress)) {
            self.next = resource.watch_cache.first();
        }
        let Some(window) = resource.watch_cache.events_from(self.next) else {
            return Err(state.expired(&self.scope.resource, self.progress));
        };
        let mut count = 0;
        for event in window {
            let key = &event.object.key;
            // A watch from a future revision starts there.
            if event.revision() > self.progress && self.scope.covers(&key.namespace, &key.name) {
                if count == max {
                    return Ok(count);
                }
                events.push(event.clone());
                count += 1;
            }
            self.next += 1;
            self.progress = self.progress.max(event.revision());
        }
        self.progress = self.progress.max(state.revision);
        Ok(count)
    }

    /// Returns the revision up to which all events were delivered, for bookmarks.
    ///
    /// Advances with the store even without events in this scope; never decreases. For a watch from a future revision,
    /// it is that revision until the store has reached it.
    pub fn progress(&mut self) -> Revision {
        // An expired watch is reported by the next call for events.
        let _ = self.try_next_batch(&mut Vec::new(), 0);
        self.progress
    }
}
