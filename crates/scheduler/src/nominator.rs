//! Nominated Pods: pure (`backend/queue/nominator.go`).
//!
//! A Pod of lower or equal priority is not scheduled where a nominated Pod would no longer fit.

use crate::{
    cache::{AssignedPod, Cache, Uid},
    pod_index::PodInfo,
};
use api::resources::{self, ResourceField};
use k8s_openapi::api::core::v1::Pod;
use std::{collections::HashMap, sync::Arc};

/// Nominations by Pod.
#[derive(Debug, Default)]
pub(crate) struct Nominator(HashMap<Uid, Nomination>);

#[derive(Debug)]
struct Nomination {
    /// The Pod, as assigned to its nominated node.
    assigned: AssignedPod,
    /// Whether the API has reported this nomination: until then, watch events may be older than it.
    is_reported: bool,
}

/// Reference to a Pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PodRef {
    pub(crate) uid: Uid,
    pub(crate) namespace: String,
    pub(crate) name: String,
}

impl PodRef {
    pub(crate) fn of(uid: &str, assigned: &AssignedPod) -> Self {
        Self {
            uid: uid.to_owned(),
            namespace: assigned.info.namespace.clone().into(),
            name: (*assigned.name).to_owned(),
        }
    }
}

impl Cache {
    /// Nominates a Pod to a node.
    pub(crate) fn add_nominated_pod(&mut self, uid: &str, pod: &Pod, node: &str) {
        self.insert_nominated_pod(uid, pod, node, false);
    }

    fn insert_nominated_pod(&mut self, uid: &str, pod: &Pod, node: &str, is_reported: bool) {
        if let Some(spec) = &pod.spec {
            let (requests, info) =
                (resources::pod_resources(spec, ResourceField::Requests), Arc::new(PodInfo::of(pod)));
            let assigned = AssignedPod::of(pod, spec, requests, node, info);
            self.nominator.0.insert(uid.to_owned(), Nomination { assigned, is_reported });
        }
    }

    /// Updates the nomination from a pending Pod's status; returns whether a nominated node was freed.
    pub(crate) fn update_nominated_pod(&mut self, uid: &str, pod: &Pod) -> bool {
        let reported = pod.status.as_ref().and_then(|status| status.nominated_node_name.as_deref());
        let reported = reported.filter(|node| !node.is_empty());
        let current = self.nominator.0.get(uid).map(|current| (current.assigned.node.as_str(), current.is_reported));
        match (current, reported) {
            (Some((node, false)), reported) if reported != Some(node) => false,
            (Some(_), None) => self.delete_nominated_pod(uid).is_some(),
            (Some((node, _)), Some(reported)) => {
                let moved = node != reported;
                self.insert_nominated_pod(uid, pod, reported, true);
                moved
            }
            (None, Some(reported)) => {
                self.insert_nominated_pod(uid, pod, reported, true);
                false
            }
            (None, None) => false,
        }
    }

    /// Returns the Pod's nominated node.
    #[must_use]
    pub fn nominated_node(&self, uid: &str) -> Option<&str> {
        self.nominator.0.get(uid).map(|nomination| nomination.assigned.node.as_str())
    }

    /// Removes the Pod's nomination; returns its node.
    pub(crate) fn delete_nominated_pod(&mut self, uid: &str) -> Option<String> {
        self.nominator.0.remove(uid).map(|nomination| nomination.assigned.node)
    }

    /// Removes nominations of Pods that are not listed; returns whether there were any.
    pub(crate) fn retain_nominated_pods(&mut self, listed: impl Fn(&str) -> bool) -> bool {
        let before = self.nominator.0.len();
        self.nominator.0.retain(|uid, _| listed(uid));
        self.nominator.0.len() < before
    }

    /// Returns by node the nominated Pods of at least this priority.
    pub(crate) fn nominated_pods_by_node(&self, uid: &str, priority: i32) -> HashMap<&str, Vec<&AssignedPod>> {
        let mut by_node: HashMap<&str, Vec<&AssignedPod>> = HashMap::new();
        for (other, Nomination { assigned, .. }) in &self.nominator.0 {
            if other != uid && assigned.priority >= priority {
                by_node.entry(&assigned.node).or_default().push(assigned);
            }
        }
        by_node
    }

    /// Returns the nominated Pods of the node with a lower priority.
    pub(crate) fn lower_priority_nominated_pods(&self, node: &str, priority: i32) -> Vec<PodRef> {
        let on_node = self.nominator.0.iter().map(|(uid, nomination)| (uid, &nomination.assigned));
        let on_node = on_node.filter(|(_, assigned)| assigned.node == node && assigned.priority < priority);
        let mut lower_nominated: Vec<PodRef> = on_node.map(|(uid, assigned)| PodRef::of(uid, assigned)).collect();
        lower_nominated.sort_by(|a, b| a.uid.cmp(&b.uid));
        lower_nominated
    }
}

#[cfg(test)]
mod tests;
