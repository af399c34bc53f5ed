//! Pending deletions: Pods that a controller has deleted and that its informer still shows.
//!
//! The answer to an immediate deletion carries no `resourceVersion` that expectations could wait for. Until the
//! informer shows the deletion, such a Pod counts as terminating.

use crate::{
    informer::{CacheEvent, SharedInformer},
    pod_summary::PodSummary,
};
use parking_lot::Mutex;
use std::{collections::HashSet, sync::Arc};

/// UIDs of the Pods.
#[derive(Debug, Default)]
pub(crate) struct PendingDeletions(Mutex<HashSet<String>>);

impl PendingDeletions {
    /// Adds a Pod that was deleted, unless the informer has shown the deletion already.
    pub(crate) fn insert(&self, pod: &PodSummary, members: &SharedInformer<PodSummary>) {
        self.0.lock().insert(pod.uid.clone());
        self.forget_observed(pod, members);
    }

    /// Forgets the Pods whose deletion the informer has shown.
    pub(crate) fn observe(&self, seen: &CacheEvent<PodSummary>, members: &SharedInformer<PodSummary>) {
        if matches!(seen, CacheEvent::Resync) {
            // It is unknown which Pods are gone. Deleting a Pod twice does no harm.
            self.0.lock().clear();
        }
        for pod in seen.objects() {
            self.forget_observed(pod, members);
        }
    }

    fn forget_observed(&self, pod: &PodSummary, members: &SharedInformer<PodSummary>) {
        let current = members.get(&pod.namespace, &pod.name);
        if !current.is_some_and(|current| current.is_same(pod) && current.active) {
            self.0.lock().remove(&pod.uid);
        }
    }

    /// Returns the Pods, with those that are pending deletion marked as terminating.
    pub(crate) fn mark_terminating(&self, pods: Vec<Arc<PodSummary>>) -> Vec<Arc<PodSummary>> {
        let pending = self.0.lock();
        let mark = |pod: Arc<PodSummary>| {
            if !pending.contains(&pod.uid) {
                return pod;
            }
            Arc::new(PodSummary { active: false, terminating: true, ..(*pod).clone() })
        };
        pods.into_iter().map(mark).collect()
    }
}
