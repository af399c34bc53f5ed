//! Pending deletions: Pods that a controller has deleted and that its informer still shows.
//!
//! The answer to an immediate deletion carries no `resourceVersion` that expectations could wait for. Until the
//! informer shows the deletion, such a Pod counts as terminating.

use crate::{
    informer::{CacheEvent, SharedInformer},
    pod_summary::PodSummary,
};
use std::{collections::HashSet, sync::Arc};

/// UIDs of the Pods.
#[derive(Debug, Default)]
pub(crate) struct PendingDeletions(HashSet<String>);

impl PendingDeletions {
    pub(crate) fn insert(&mut self, pod: &PodSummary) {
        self.0.insert(pod.uid.clone());
    }

    /// Forgets the Pods whose deletion the informer has shown.
    pub(crate) fn observe(&mut self, seen: &CacheEvent<PodSummary>, members: &SharedInformer<PodSummary>) {
        if matches!(seen, CacheEvent::Resync) {
            // It is unknown which Pods are gone. Deleting a Pod twice does no harm.
            self.0.clear();
        }
        for pod in seen.objects() {
            let current = members.get(&pod.namespace, &pod.name);
            if !current.is_some_and(|current| current.is_same(pod) && current.active) {
                self.0.remove(&pod.uid);
            }
        }
    }

    /// Returns the Pods, with those that are pending deletion marked as terminating.
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
