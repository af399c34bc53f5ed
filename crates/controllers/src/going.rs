//! Pods that a controller has deleted, until they are seen to go.
//!
//! What deletes nothing gracefully tells no revision that the watch could be waited for: until the watch shows it, such a
//! Pod counts as going.

use crate::cache::{Cache, Seen};
use crate::members::Member;
use std::collections::HashSet;
use std::sync::Arc;

/// UIDs of Pods.
#[derive(Debug, Default)]
pub(crate) struct Going(HashSet<String>);

impl Going {
    pub(crate) fn note(&mut self, pod: &Member) {
        self.0.insert(pod.uid.clone());
    }

    /// What the watch shows is known.
    pub(crate) fn saw(&mut self, seen: &Seen<Member>, members: &Cache<Member>) {
        if matches!(seen, Seen::All) {
            // Which of them have gone is not known: what is asked for twice does no harm.
            self.0.clear();
        }
        for pod in seen.both() {
            let now = members.get(&pod.namespace, &pod.name);
            if !now.is_some_and(|now| now.is(pod) && now.active) {
                self.0.remove(&pod.uid);
            }
        }
    }

    /// The Pods, with those as going that are.
    pub(crate) fn among(&self, pods: Vec<Arc<Member>>) -> Vec<Arc<Member>> {
        let going = |pod: Arc<Member>| {
            if !self.0.contains(&pod.uid) {
                return pod;
            }
            Arc::new(Member { active: false, terminating: true, ..(*pod).clone() })
        };
        pods.into_iter().map(going).collect()
    }
}
