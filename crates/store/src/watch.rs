//! Following the history of a scope.

use std::sync::Arc;

use parking_lot::RwLock;
use tokio::sync::watch;

use crate::state::State;
use crate::{Event, Expired, Revision, Scope};

/// A cursor in the window of a resource's recent events.
///
/// It buffers nothing: a watcher that is slow costs nothing, and learns that it is [`Expired`] when the window has
/// moved past an event of its scope. Every method that is async may be dropped at any await without losing an event.
#[derive(Debug)]
pub struct Watch {
    state: Arc<RwLock<State>>,
    scope: Scope,
    bell: watch::Receiver<Revision>,
    /// The index in the window of the next event to look at.
    next: u64,
    /// Events up to here were delivered, or are none of this watcher's business.
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
        let bell = resource.topics.subscribe(&scope, now, resource.window.start());
        let next = resource.window.index_after(from);
        drop(guard);
        Ok(Self { state: state.clone(), scope, bell, next, progress: from })
    }

    /// What this watch covers.
    #[must_use]
    pub fn scope(&self) -> &Scope {
        &self.scope
    }

    /// The next event, as soon as there is one.
    ///
    /// # Errors
    ///
    /// The window has moved past this watcher, which must list again.
    pub async fn next(&mut self) -> Result<Arc<Event>, Expired> {
        let mut events = Vec::with_capacity(1);
        loop {
            self.next_batch(&mut events, 1).await?;
            if let Some(event) = events.pop() {
                return Ok(event);
            }
        }
    }

    /// Waits until there is at least one event, then appends up to `max` (at least 1) of those that are there, and
    /// says how many.
    ///
    /// # Errors
    ///
    /// The window has moved past this watcher, which must list again.
    pub async fn next_batch(&mut self, events: &mut Vec<Arc<Event>>, max: usize) -> Result<usize, Expired> {
        loop {
            // Before looking, so that what comes between looking and waiting wakes.
            self.bell.borrow_and_update();
            let count = self.try_next_batch(events, max.max(1))?;
            if count > 0 {
                return Ok(count);
            }
            if self.bell.changed().await.is_err() {
                // The bell lives in the state, which this watch holds: it cannot be gone.
                std::future::pending::<()>().await;
            }
        }
    }

    /// Appends up to `max` events that are there now, and says how many.
    ///
    /// # Errors
    ///
    /// The window has moved past this watcher, which must list again.
    pub fn try_next_batch(&mut self, events: &mut Vec<Arc<Event>>, max: usize) -> Result<usize, Expired> {
        let state = self.state.read();
        let Some(resource) = state.resource(&self.scope.resource) else {
            return Ok(0);
        };
        let topic = resource.topics.get(&self.scope);
        if topic.is_some_and(|topic| topic.is_silent_after(self.progress)) {
            self.next = resource.window.end();
            self.progress = self.progress.max(state.revision);
            return Ok(0);
        }
        // What was forgotten meanwhile of others is missed by nobody.
        if self.next < resource.window.first() && topic.is_some_and(|topic| topic.is_kept_after(self.progress)) {
            self.next = resource.window.first();
        }
        let Some(window) = resource.window.events_from(self.next) else {
            return Err(state.expired(&self.scope.resource, self.progress));
        };
        let mut count = 0;
        for event in window {
            let key = &event.object.key;
            // A watch from the future begins there.
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

    /// Every event up to this revision was delivered, so that a bookmark may say it.
    ///
    /// Moves on with the store even when nothing happens in this scope; never goes back. For a watch that was
    /// opened from a future revision, it is that revision until the store has reached it.
    pub fn progress(&mut self) -> Revision {
        // Who has fallen out of the window learns it from the next call for events.
        let _ = self.try_next_batch(&mut Vec::new(), 0);
        self.progress
    }
}
