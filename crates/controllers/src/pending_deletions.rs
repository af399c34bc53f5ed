//! Pending deletions: Pods that a controller has deleted and that its informer still shows.
//!
//! The answer to an immediate deletion carries no `resourceVersion` that expectations could wait for. Until the
//! informer shows the deletion, such a Pod counts as terminating.

use crate::pod_summary::PodSummary;
use informer::{CacheEvent, SharedInformer};
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

    /// Returns the Pods of a namespace, with those that are pending deletion marked as terminating.
    ///
    /// The pending deletions are read first. The other way around, a deletion that the informer shows in between would
    /// be forgotten, while its Pod is active in the older snapshot.
    pub(crate) fn pods_in_namespace(
        &self,
        members: &SharedInformer<PodSummary>,
        namespace: &str,
    ) -> Vec<Arc<PodSummary>> {
        let pending = self.0.lock();
        let mark = |pod: Arc<PodSummary>| {
            if !pending.contains(&pod.uid) {
                return pod;
            }
            Arc::new(PodSummary { active: false, terminating: true, ..(*pod).clone() })
        };
        members.in_namespace(namespace).into_iter().map(mark).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fake_api::FakeApi;
    use futures::StreamExt;
    use serde_json::json;
    use tokio_util::sync::CancellationToken;

    #[tokio::test]
    async fn snapshot_marks_deletions_that_are_observed_later() {
        let (api, members, deletions) = (FakeApi::new(), SharedInformer::new(), PendingDeletions::default());
        for name in ["a", "b"] {
            api.put(&format!("api/v1/namespaces/x/pods/{name}"), json!({"metadata": {"name": name, "namespace": "x"}}));
        }
        let mut changes = members.subscribe();
        let pods = kube::Api::all(api.client());
        tokio::spawn(members.clone().run(pods, PodSummary::from_pod, CancellationToken::new()));
        while !members.has_synced() {
            changes.next().await;
        }
        let pod = members.get("x", "a").unwrap();
        deletions.insert(&pod, &members);
        let snapshot = deletions.pods_in_namespace(&members, "x");
        api.delete("api/v1/namespaces/x/pods/a");
        while members.get("x", "a").is_some() {
            let seen = changes.next().await.unwrap();
            deletions.observe(&seen, &members);
        }
        let marked: Vec<(&str, bool)> = snapshot.iter().map(|pod| (pod.name.as_str(), pod.terminating)).collect();
        assert_eq!(marked, [("a", true), ("b", false)]);
        assert_eq!((deletions.pods_in_namespace(&members, "x").len(), deletions.0.lock().len()), (1, 0));
    }
}
