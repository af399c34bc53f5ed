//! Who is placed where, as far as it matters to other Pods. Replicas are alike: what they have in common is kept once,
//! and compared once.

use crate::term::Terms;
use api::selector::Selector;
use k8s_openapi::api::core::v1::Pod;
use std::collections::{HashMap, HashSet};
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// What others may ask of a Pod, and what it says of others.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Traits {
    pub(crate) namespace: Box<str>,
    /// Sorted.
    labels: Box<[(Box<str>, Box<str>)]>,
    /// Whether it is being deleted.
    pub(crate) leaves: bool,
    pub(crate) terms: Option<Box<Terms>>,
}

/// How many of a kind each node has.
pub(crate) type Places = HashMap<Box<str>, i64>;

/// All placed Pods.
#[derive(Debug, Default)]
pub(crate) struct Crowd {
    kinds: HashMap<Arc<Traits>, Places>,
    /// Those of `kinds` that say something of others: without any, nobody needs to be asked.
    choosy: HashSet<Arc<Traits>>,
}

/// Who says the same is found by the rest.
impl Hash for Traits {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (&self.namespace, &self.labels, self.leaves).hash(state);
    }
}

impl Traits {
    pub(crate) fn of(pod: &Pod) -> Self {
        let labels = pod.metadata.labels.iter().flatten();
        let mut traits = Self {
            namespace: pod.metadata.namespace.as_deref().unwrap_or_default().into(),
            labels: labels.map(|(key, value)| (key.as_str().into(), value.as_str().into())).collect(),
            leaves: pod.metadata.deletion_timestamp.is_some(),
            terms: None,
        };
        traits.terms = Terms::of(pod, &traits);
        traits
    }

    /// Whether they are still those of the Pod, whose affinity does not change once it is placed.
    pub(crate) fn are_of(&self, pod: &Pod) -> bool {
        let labels = pod.metadata.labels.iter().flatten().map(|(key, value)| (key.as_str(), value.as_str()));
        self.leaves == pod.metadata.deletion_timestamp.is_some()
            && *self.namespace == *pod.metadata.namespace.as_deref().unwrap_or_default()
            && labels.eq(self.labels.iter().map(|(key, value)| (&**key, &**value)))
    }

    pub(crate) fn have_labels(&self) -> bool {
        !self.labels.is_empty()
    }

    pub(crate) fn label(&self, key: &str) -> Option<&str> {
        let at = self.labels.binary_search_by(|(other, _)| (**other).cmp(key)).ok()?;
        Some(&*self.labels[at].1)
    }

    pub(crate) fn are_selected_by(&self, selector: &Selector) -> bool {
        selector.matches(|key| self.label(key))
    }
}

impl Crowd {
    pub(crate) fn join(&mut self, traits: Arc<Traits>, node: &str) -> Arc<Traits> {
        let known = self.kinds.get_key_value(&traits).map(|(known, _)| Arc::clone(known));
        let traits = known.unwrap_or(traits);
        if traits.terms.is_some() {
            self.choosy.insert(Arc::clone(&traits));
        }
        *self.kinds.entry(Arc::clone(&traits)).or_default().entry(node.into()).or_default() += 1;
        traits
    }

    pub(crate) fn leave(&mut self, traits: &Arc<Traits>, node: &str) {
        let Some(places) = self.kinds.get_mut(traits) else {
            return;
        };
        if let Some(here) = places.get_mut(node) {
            *here -= 1;
            if *here == 0 {
                places.remove(node);
            }
        }
        if places.is_empty() {
            self.kinds.remove(traits);
            self.choosy.remove(traits);
        }
    }

    pub(crate) fn kinds(&self) -> impl Iterator<Item = (&Traits, &Places)> {
        self.kinds.iter().map(|(traits, places)| (&**traits, places))
    }

    /// Those that say something of others.
    pub(crate) fn choosy(&self) -> impl Iterator<Item = (&Traits, &Places)> {
        let known = self.choosy.iter().filter_map(|traits| self.kinds.get_key_value(traits));
        known.map(|(traits, places)| (&**traits, places))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn traits(app: &str, changes: &serde_json::Value) -> Traits {
        let mut pod =
            json!({ "metadata": { "namespace": "x", "labels": { "app": app } }, "spec": { "containers": [] } });
        for (field, value) in changes.as_object().into_iter().flatten() {
            pod["spec"][field] = value.clone();
        }
        Traits::of(&serde_json::from_value(pod).expect("a Pod"))
    }

    #[test]
    fn those_that_are_alike_are_kept_once_and_leave_nothing_behind() {
        let mut crowd = Crowd::default();
        let term = json!({ "affinity": { "podAntiAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": [
            { "topologyKey": "zone", "labelSelector": {} } ] } } });
        let first = crowd.join(Arc::new(traits("a", &term)), "n1");
        assert!(Arc::ptr_eq(&first, &crowd.join(Arc::new(traits("a", &term)), "n2")));
        let plain = crowd.join(Arc::new(traits("a", &json!({}))), "n1");
        assert_eq!((crowd.kinds().count(), crowd.choosy().count()), (2, 1));
        assert_eq!(crowd.kinds[&first], Places::from([("n1".into(), 1), ("n2".into(), 1)]));
        for node in ["n1", "n2"] {
            crowd.leave(&first, node);
        }
        assert_eq!((crowd.kinds().count(), crowd.choosy().count()), (1, 0));
        crowd.leave(&plain, "n1");
        assert!(crowd.kinds.is_empty() && crowd.choosy.is_empty());
    }
}
