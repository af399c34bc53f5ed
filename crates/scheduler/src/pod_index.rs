//! Index of the assigned Pods for inter-Pod affinity and topology spread. Replicas share one entry, which is stored
//! and matched once.

use crate::affinity_term::AffinityTerms;
use api::selector::LabelRequirements;
use k8s_openapi::api::core::v1::Pod;
use std::{
    collections::{HashMap, HashSet},
    hash::{Hash, Hasher},
    sync::Arc,
};

/// Fields of a Pod that affinity terms and selectors match, and its own affinity terms.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct PodInfo {
    pub(crate) namespace: Box<str>,
    /// Sorted by key.
    labels: Box<[(Box<str>, Box<str>)]>,
    /// Whether the Pod has a deletion timestamp.
    pub(crate) is_terminating: bool,
    pub(crate) terms: Option<Box<AffinityTerms>>,
}

/// Number of Pods by node.
pub(crate) type PodsPerNode = HashMap<Box<str>, i64>;

/// Assigned Pods, grouped by equal `PodInfo`.
#[derive(Debug, Default)]
pub(crate) struct PodIndex {
    groups: HashMap<Arc<PodInfo>, PodsPerNode>,
    /// Groups that have affinity terms (upstream's `HavePodsWithAffinityList`).
    with_affinity: HashSet<Arc<PodInfo>>,
}

/// `terms` is left out: the other fields distinguish nearly all Pods, and are cheaper to hash.
impl Hash for PodInfo {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (&self.namespace, &self.labels, self.is_terminating).hash(state);
    }
}

impl PodInfo {
    pub(crate) fn of(pod: &Pod) -> Self {
        let labels = pod.metadata.labels.iter().flatten();
        let mut info = Self {
            namespace: pod.metadata.namespace.as_deref().unwrap_or_default().into(),
            labels: labels.map(|(key, value)| (key.as_str().into(), value.as_str().into())).collect(),
            is_terminating: pod.metadata.deletion_timestamp.is_some(),
            terms: None,
        };
        info.terms = AffinityTerms::of(pod, &info);
        info
    }

    /// Returns whether this still describes the Pod. Its affinity is immutable once it is assigned.
    pub(crate) fn is_current_for(&self, pod: &Pod) -> bool {
        let labels = pod.metadata.labels.iter().flatten().map(|(key, value)| (key.as_str(), value.as_str()));
        self.is_terminating == pod.metadata.deletion_timestamp.is_some()
            && *self.namespace == *pod.metadata.namespace.as_deref().unwrap_or_default()
            && labels.eq(self.labels.iter().map(|(key, value)| (&**key, &**value)))
    }

    pub(crate) fn has_labels(&self) -> bool {
        !self.labels.is_empty()
    }

    pub(crate) fn label(&self, key: &str) -> Option<&str> {
        let at = self.labels.binary_search_by(|(other, _)| (**other).cmp(key)).ok()?;
        Some(&*self.labels[at].1)
    }

    pub(crate) fn is_selected_by(&self, selector: &LabelRequirements) -> bool {
        selector.matches(|key| self.label(key))
    }
}

impl PodIndex {
    pub(crate) fn insert(&mut self, info: Arc<PodInfo>, node: &str) -> Arc<PodInfo> {
        let known = self.groups.get_key_value(&info).map(|(known, _)| Arc::clone(known));
        let info = known.unwrap_or(info);
        if info.terms.is_some() {
            self.with_affinity.insert(Arc::clone(&info));
        }
        *self.groups.entry(Arc::clone(&info)).or_default().entry(node.into()).or_default() += 1;
        info
    }

    pub(crate) fn remove(&mut self, info: &Arc<PodInfo>, node: &str) {
        let Some(pods_per_node) = self.groups.get_mut(info) else {
            return;
        };
        if let Some(here) = pods_per_node.get_mut(node) {
            *here -= 1;
            if *here == 0 {
                pods_per_node.remove(node);
            }
        }
        if pods_per_node.is_empty() {
            self.groups.remove(info);
            self.with_affinity.remove(info);
        }
    }

    pub(crate) fn groups(&self) -> impl Iterator<Item = (&PodInfo, &PodsPerNode)> {
        self.groups.iter().map(|(info, pods_per_node)| (&**info, pods_per_node))
    }

    /// Returns the groups with affinity terms.
    pub(crate) fn with_affinity(&self) -> impl Iterator<Item = (&PodInfo, &PodsPerNode)> {
        let known = self.with_affinity.iter().filter_map(|info| self.groups.get_key_value(info));
        known.map(|(info, pods_per_node)| (&**info, pods_per_node))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn info(app: &str, changes: &serde_json::Value) -> PodInfo {
        let mut pod =
            json!({ "metadata": { "namespace": "x", "labels": { "app": app } }, "spec": { "containers": [] } });
        for (field, value) in changes.as_object().into_iter().flatten() {
            pod["spec"][field] = value.clone();
        }
        PodInfo::of(&serde_json::from_value(pod).expect("a Pod"))
    }

    #[test]
    fn equal_pods_share_one_index_group() {
        let mut index = PodIndex::default();
        let term = json!({ "affinity": { "podAntiAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": [
            { "topologyKey": "zone", "labelSelector": {} } ] } } });
        let first = index.insert(Arc::new(info("a", &term)), "n1");
        assert!(Arc::ptr_eq(&first, &index.insert(Arc::new(info("a", &term)), "n2")));
        let plain = index.insert(Arc::new(info("a", &json!({}))), "n1");
        assert_eq!((index.groups().count(), index.with_affinity().count()), (2, 1));
        assert_eq!(index.groups[&first], PodsPerNode::from([("n1".into(), 1), ("n2".into(), 1)]));
        for node in ["n1", "n2"] {
            index.remove(&first, node);
        }
        assert_eq!((index.groups().count(), index.with_affinity().count()), (1, 0));
        index.remove(&plain, "n1");
        assert!(index.groups.is_empty() && index.with_affinity.is_empty());
    }
}
