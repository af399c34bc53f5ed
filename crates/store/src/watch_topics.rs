//! Change notification by scope: watchers of one scope share a notifier, which events of other scopes do not wake.

use crate::{Key, Revision, Scope};
use std::{collections::HashMap, sync::Arc};
use tokio::sync::watch;

/// Shared state of the watchers of a scope.
#[derive(Debug)]
pub(crate) struct Topic {
    notifier: watch::Sender<Revision>,
    /// Revision of the last event of the scope, at most.
    last_event: Revision,
    /// Revision of the scope's newest event that was evicted from the watch cache, at most.
    last_evicted: Revision,
}

impl Topic {
    /// Returns whether the scope has no event after a revision.
    pub(crate) fn has_no_events_after(&self, revision: Revision) -> bool {
        self.last_event <= revision
    }

    /// Returns whether the watch cache has every event of the scope after a revision.
    pub(crate) fn is_cached_after(&self, revision: Revision) -> bool {
        self.last_evicted <= revision
    }
}

/// Namespace and name of a scope.
type ScopeKey = (Option<Arc<str>>, Option<Arc<str>>);

fn scope_key(scope: &Scope) -> ScopeKey {
    (scope.namespace.clone(), scope.name.clone())
}

/// Watched scopes of a resource.
#[derive(Debug, Default)]
pub(crate) struct Topics {
    topics: HashMap<ScopeKey, Topic>,
    /// Number of topics at which those without watchers are dropped.
    sweep_at: usize,
}

impl Topics {
    /// Minimum of `sweep_at`.
    const MIN_SWEEP: usize = 16;

    /// Subscribes to a scope; `now` is the store's revision, `start` that of the watch cache.
    pub(crate) fn subscribe(&mut self, scope: &Scope, now: Revision, start: Revision) -> watch::Receiver<Revision> {
        if self.topics.len() >= self.sweep_at {
            self.topics.retain(|_, topic| topic.notifier.receiver_count() > 0);
            self.sweep_at = (self.topics.len() * 2).max(Self::MIN_SWEEP);
        }
        // Earlier events of the scope are not tracked.
        let new = || Topic { notifier: watch::Sender::new(now), last_event: now, last_evicted: start };
        self.topics.entry(scope_key(scope)).or_insert_with(new).notifier.subscribe()
    }

    /// Returns the topic of a watched scope.
    pub(crate) fn get(&self, scope: &Scope) -> Option<&Topic> {
        self.topics.get(&scope_key(scope))
    }

    /// Records an event of an object, in a batch that began after revision `before`; adds the notifiers to wake, each
    /// once.
    pub(crate) fn record_event(
        &mut self,
        key: &Key,
        revision: Revision,
        before: Revision,
        notifiers: &mut Vec<watch::Sender<Revision>>,
    ) {
        self.for_each_covering(key, |topic| {
            if topic.has_no_events_after(before) {
                notifiers.push(topic.notifier.clone());
            }
            topic.last_event = revision;
        });
    }

    /// Records that an event of an object was evicted from the watch cache.
    pub(crate) fn record_eviction(&mut self, key: &Key, revision: Revision) {
        self.for_each_covering(key, |topic| topic.last_evicted = revision);
    }

    /// Calls `change` for every watched scope that covers an object.
    fn for_each_covering(&mut self, key: &Key, mut change: impl FnMut(&mut Topic)) {
        for namespace in [None, Some(&key.namespace)] {
            for name in [None, Some(&key.name)] {
                if let Some(topic) = self.topics.get_mut(&(namespace.cloned(), name.cloned())) {
                    change(topic);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(namespace: &str, name: &str) -> Key {
        Key::new("pods", namespace, name)
    }

    #[test]
    fn event_notifies_only_covering_scopes() {
        let (mut topics, pods) = (Topics::default(), Scope::resource("pods"));
        let scopes = [
            (pods.clone(), true),
            (pods.clone().in_namespace("a"), true),
            (pods.clone().in_namespace("b"), false),
            (pods.clone().named("x"), true),
            (pods.clone().named("y"), false),
            (pods.clone().in_namespace("a").named("x"), true),
            (pods.clone().in_namespace("b").named("x"), false),
        ];
        let watched: Vec<_> =
            scopes.iter().map(|(scope, covers)| (topics.subscribe(scope, 1, 0), scope, *covers)).collect();
        let mut notifiers = Vec::new();
        for revision in [2, 3] {
            topics.record_event(&pod("a", "x"), revision, 1, &mut notifiers);
        }
        assert_eq!(notifiers.len(), 4, "each rings once for a batch");
        for notifier in notifiers {
            notifier.send_replace(3);
        }
        for (notifier, scope, covers) in watched {
            assert_eq!(notifier.has_changed().unwrap(), covers, "{scope:?}");
            assert_eq!(topics.get(scope).unwrap().has_no_events_after(1), !covers, "{scope:?}");
        }
    }

    #[test]
    fn evicted_events_of_other_scopes_are_not_missed() {
        let (mut topics, scope) = (Topics::default(), Scope::resource("pods").named("x"));
        let _bell = topics.subscribe(&scope, 9, 3);
        topics.record_eviction(&pod("a", "y"), 4);
        assert!(topics.get(&scope).unwrap().is_cached_after(3));
        topics.record_eviction(&pod("a", "x"), 5);
        assert!(!topics.get(&scope).unwrap().is_cached_after(4) && topics.get(&scope).unwrap().is_cached_after(5));
    }

    #[test]
    fn unwatched_topics_are_dropped() {
        let mut topics = Topics::default();
        for i in 0..1000 {
            let _ = topics.subscribe(&Scope::resource("pods").named(i.to_string()), 1, 0);
        }
        assert!(topics.topics.len() <= Topics::MIN_SWEEP + 1, "{}", topics.topics.len());
    }
}
