//! The places that are kept for Pods which others had to leave for: pure (`backend/queue/nominator.go`).
//!
//! A Pod of lower or the same priority does not go where a nominated one would not fit any more.

use crate::cluster::{Cluster, Placed, Uid};
use crate::crowd::Traits;
use api::resources::{self, Side};
use k8s_openapi::api::core::v1::Pod;
use std::collections::HashMap;
use std::sync::Arc;

/// By Pod.
#[derive(Debug, Default)]
pub(crate) struct Nominations(HashMap<Uid, Nomination>);

#[derive(Debug)]
struct Nomination {
    /// What it will be on its node.
    placed: Placed,
    /// Whether the API has shown it: what is on its way there is newer than what comes from there.
    is_written: bool,
}

/// Which Pod it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Named {
    pub(crate) uid: Uid,
    pub(crate) namespace: String,
    pub(crate) name: String,
}

impl Named {
    pub(crate) fn of(uid: &str, placed: &Placed) -> Self {
        Self { uid: uid.to_owned(), namespace: placed.traits.namespace.clone().into(), name: (*placed.name).to_owned() }
    }
}

impl Cluster {
    /// Keeps a place for a Pod.
    pub(crate) fn nominate(&mut self, uid: &str, pod: &Pod, node: &str) {
        self.insert_nomination(uid, pod, node, false);
    }

    fn insert_nomination(&mut self, uid: &str, pod: &Pod, node: &str, is_written: bool) {
        if let Some(spec) = &pod.spec {
            let (requests, traits) = (resources::pod(spec, Side::Requests), Arc::new(Traits::of(pod)));
            let placed = Placed::of(pod, spec, requests, node, traits);
            self.nominations.0.insert(uid.to_owned(), Nomination { placed, is_written });
        }
    }

    /// Takes what the API says of a waiting Pod; says whether it gives up a place.
    pub(crate) fn observe_nomination(&mut self, uid: &str, pod: &Pod) -> bool {
        let told = pod.status.as_ref().and_then(|status| status.nominated_node_name.as_deref());
        let told = told.filter(|node| !node.is_empty());
        let known = self.nominations.0.get(uid).map(|known| (known.placed.node.as_str(), known.is_written));
        match (known, told) {
            (Some((node, false)), told) if told != Some(node) => false,
            (Some(_), None) => self.withdraw(uid).is_some(),
            (Some((node, _)), Some(told)) => {
                let moves = node != told;
                self.insert_nomination(uid, pod, told, true);
                moves
            }
            (None, Some(told)) => {
                self.insert_nomination(uid, pod, told, true);
                false
            }
            (None, None) => false,
        }
    }

    /// Where a place is kept for a Pod.
    #[must_use]
    pub fn nominated_node(&self, uid: &str) -> Option<&str> {
        self.nominations.0.get(uid).map(|nomination| nomination.placed.node.as_str())
    }

    /// Gives up a Pod's place, and says where it was.
    pub(crate) fn withdraw(&mut self, uid: &str) -> Option<String> {
        self.nominations.0.remove(uid).map(|nomination| nomination.placed.node)
    }

    /// Gives up the places of Pods that are not listed; says whether there were any.
    pub(crate) fn retain_nominations(&mut self, listed: impl Fn(&str) -> bool) -> bool {
        let before = self.nominations.0.len();
        self.nominations.0.retain(|uid, _| listed(uid));
        self.nominations.0.len() < before
    }

    /// Those, by node, for which places are kept that a Pod of this priority has to respect.
    pub(crate) fn kept_from(&self, uid: &str, priority: i32) -> HashMap<&str, Vec<&Placed>> {
        let mut kept: HashMap<&str, Vec<&Placed>> = HashMap::new();
        for (other, Nomination { placed, .. }) in &self.nominations.0 {
            if other != uid && placed.priority >= priority {
                kept.entry(&placed.node).or_default().push(placed);
            }
        }
        kept
    }

    /// The Pods that lose their place on a node to one of this priority.
    pub(crate) fn outranked(&self, node: &str, priority: i32) -> Vec<Named> {
        let here = self.nominations.0.iter().map(|(uid, nomination)| (uid, &nomination.placed));
        let here = here.filter(|(_, placed)| placed.node == node && placed.priority < priority);
        let mut outranked: Vec<Named> = here.map(|(uid, placed)| Named::of(uid, placed)).collect();
        outranked.sort_by(|a, b| a.uid.cmp(&b.uid));
        outranked
    }
}

#[cfg(test)]
#[path = "nominations_tests.rs"]
mod tests;
