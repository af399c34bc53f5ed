//! Pods that a controller has deleted, until they are seen to go.
//!
//! What deletes nothing gracefully tells no revision that the watch could be waited for: until the watch shows it, such a
//! Pod counts as going.

use crate::informer::{CacheEvent, SharedInformer};
use crate::pod_summary::PodSummary;
use std::collections::HashSet;
use std::sync::Arc;

/// UIDs of Pods.
#[derive(Debug, Default)]
pub(crate) struct PendingDeletions(HashSet<String>);

impl PendingDeletions {
    pub(crate) fn insert(&mut self, pod: &PodSummary) {
        self.0.insert(pod.uid.clone());
    }

    /// What the watch shows is known.
    pub(crate) fn observe(&mut self, seen: &CacheEvent<PodSummary>, members: &SharedInformer<PodSummary>) {
        if matches!(seen, CacheEvent::Resync) {
            // Which of them have gone is not known: what is asked for twice does no harm.
            self.0.clear();
        }
        for pod in seen.objects() {
            let now = members.get(&pod.namespace, &pod.name);
            if !now.is_some_and(|now| now.is_same(pod) && now.active) {
                self.0.remove(&pod.uid);
            }
        }
    }

    /// The Pods, with those as going that are.
    pub(crate) fn mark_terminating(&self, pods: Vec<Arc<PodSummary>>) -> Vec<Arc<PodSummary>> {
        let mark = |pod: Arc<PodSummary>| {
            if !self.0.contains(&pod.uid) {
                return pod;
            }
            Arc::new(PodSummary { active: false, terminating: true, ..(*pod).clone() })
        };
        pods.into_iter().map(mark).collect()
    }
}
