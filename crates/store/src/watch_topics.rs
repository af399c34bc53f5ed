//! Who is to be woken: the watchers of one scope share a bell, which rings for nobody else's events.

use std::collections::HashMap;
use std::sync::Arc;

use tokio::sync::watch;

use crate::{Key, Revision, Scope};

/// What the watchers of one scope of a resource have in common.
#[derive(Debug)]
pub(crate) struct Topic {
    bell: watch::Sender<Revision>,
    /// There is no event of the scope after this revision.
    last: Revision,
    /// The newest event of the scope that the window has forgotten is not after this revision.
    forgotten: Revision,
}

impl Topic {
    /// Whether nothing happened in the scope after a revision.
    pub(crate) fn is_silent_after(&self, revision: Revision) -> bool {
        self.last <= revision
    }

    /// Whether every event of the scope after a revision is in the window still.
    pub(crate) fn is_kept_after(&self, revision: Revision) -> bool {
        self.forgotten <= revision
    }
}

/// The part of a scope that tells it from the others of its resource.
type Part = (Option<Arc<str>>, Option<Arc<str>>);

fn part(scope: &Scope) -> Part {
    (scope.namespace.clone(), scope.name.clone())
}

/// The scopes of one resource that are watched.
#[derive(Debug, Default)]
pub(crate) struct Topics {
    topics: HashMap<Part, Topic>,
    /// How many there may be before those that nobody watches any more are dropped.
    sweep_at: usize,
}

impl Topics {
    /// The least number of topics that is worth a look.
    const FEW: usize = 16;

    /// A bell of a scope, for one more watcher; `now` is the store's revision, `start` that after which the window has all.
    pub(crate) fn subscribe(&mut self, scope: &Scope, now: Revision, start: Revision) -> watch::Receiver<Revision> {
        if self.topics.len() >= self.sweep_at {
            self.topics.retain(|_, topic| topic.bell.receiver_count() > 0);
            self.sweep_at = (self.topics.len() * 2).max(Self::FEW);
        }
        // What happened before anybody watched is not known.
        let new = || Topic { bell: watch::Sender::new(now), last: now, forgotten: start };
        self.topics.entry(part(scope)).or_insert_with(new).bell.subscribe()
    }

    /// The topic of a scope that somebody watches.
    pub(crate) fn get(&self, scope: &Scope) -> Option<&Topic> {
        self.topics.get(&part(scope))
    }

    /// Something happened to an object, in a batch that began after revision `before`; adds the bells to ring, each once.
    pub(crate) fn happened(
        &mut self,
        key: &Key,
        revision: Revision,
        before: Revision,
        bells: &mut Vec<watch::Sender<Revision>>,
    ) {
        self.each(key, |topic| {
            if topic.is_silent_after(before) {
                bells.push(topic.bell.clone());
            }
            topic.last = revision;
        });
    }

    /// The window forgets what happened to an object.
    pub(crate) fn forget(&mut self, key: &Key, revision: Revision) {
        self.each(key, |topic| topic.forgotten = revision);
    }

    /// Every watched scope that covers an object.
    fn each(&mut self, key: &Key, mut change: impl FnMut(&mut Topic)) {
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
    fn only_scopes_that_cover_an_object_are_rung_for() {
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
        let mut bells = Vec::new();
        for revision in [2, 3] {
            topics.happened(&pod("a", "x"), revision, 1, &mut bells);
        }
        assert_eq!(bells.len(), 4, "each rings once for a batch");
        for bell in bells {
            bell.send_replace(3);
        }
        for (bell, scope, covers) in watched {
            assert_eq!(bell.has_changed().unwrap(), covers, "{scope:?}");
            assert_eq!(topics.get(scope).unwrap().is_silent_after(1), !covers, "{scope:?}");
        }
    }

    #[test]
    fn what_is_forgotten_of_other_objects_is_missed_by_nobody() {
        let (mut topics, scope) = (Topics::default(), Scope::resource("pods").named("x"));
        let _bell = topics.subscribe(&scope, 9, 3);
        topics.forget(&pod("a", "y"), 4);
        assert!(topics.get(&scope).unwrap().is_kept_after(3));
        topics.forget(&pod("a", "x"), 5);
        assert!(!topics.get(&scope).unwrap().is_kept_after(4) && topics.get(&scope).unwrap().is_kept_after(5));
    }

    #[test]
    fn topics_that_nobody_watches_go() {
        let mut topics = Topics::default();
        for i in 0..1000 {
            let _ = topics.subscribe(&Scope::resource("pods").named(i.to_string()), 1, 0);
        }
        assert!(topics.topics.len() <= Topics::FEW + 1, "{}", topics.topics.len());
    }
}
