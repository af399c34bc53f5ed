//! What a Pod says of others by its inter-Pod affinity, read once: pure (`pkg/scheduler/framework`, `AffinityTerm`).

use crate::crowd::Traits;
use crate::namespaces::Namespaces;
use api::selector::Selector;
use k8s_openapi::api::core::v1::{Pod, PodAffinityTerm, WeightedPodAffinityTerm};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};

/// How much a Pod that needs another draws that one to it (`hardPodAffinityWeight`).
const DRAWN: i64 = 1;

/// Everything that a Pod says of others.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Terms {
    /// Others that must be near.
    pub(crate) needs: Box<[Term]>,
    /// Others that must not be near.
    pub(crate) shuns: Box<[Term]>,
    /// Others that had better be near, or far where the weight is negative.
    pub(crate) likes: Box<[(i64, Term)]>,
}

/// Which others are meant, and what is near.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Term {
    /// Nodes with the same value of this label are near to each other.
    pub(crate) topology_key: Box<str>,
    namespaces: Box<[String]>,
    /// Namespaces beside the listed ones; without it there are none.
    namespace_selector: Option<Selector>,
    /// Without it nobody is meant.
    selector: Option<Selector>,
}

impl Terms {
    /// What a Pod of these labels and this namespace says, if it says anything.
    pub(crate) fn of(pod: &Pod, me: &Traits) -> Option<Box<Self>> {
        let affinity = pod.spec.as_ref()?.affinity.as_ref()?;
        let (near, far) = (affinity.pod_affinity.as_ref(), affinity.pod_anti_affinity.as_ref());
        let read = |terms: Option<&Vec<PodAffinityTerm>>| -> Box<[Term]> {
            terms.into_iter().flatten().map(|term| Term::of(term, me)).collect()
        };
        let weigh = |sign: i64, terms: Option<&Vec<WeightedPodAffinityTerm>>| -> Vec<(i64, Term)> {
            let terms = terms.into_iter().flatten();
            terms.map(|term| (sign * i64::from(term.weight), Term::of(&term.pod_affinity_term, me))).collect()
        };
        let mut likes = weigh(1, near.and_then(|a| a.preferred_during_scheduling_ignored_during_execution.as_ref()));
        likes.extend(weigh(-1, far.and_then(|a| a.preferred_during_scheduling_ignored_during_execution.as_ref())));
        let terms = Self {
            needs: read(near.and_then(|a| a.required_during_scheduling_ignored_during_execution.as_ref())),
            shuns: read(far.and_then(|a| a.required_during_scheduling_ignored_during_execution.as_ref())),
            likes: likes.into(),
        };
        (terms != Self::default()).then(|| Box::new(terms))
    }

    /// Whether the other one is all that is needed.
    pub(crate) fn are_met_by(&self, other: &Traits, namespaces: &Namespaces) -> bool {
        !self.needs.is_empty() && self.needs.iter().all(|term| term.means(other, namespaces))
    }

    /// What draws others to this Pod once it has its node, and what keeps them off.
    pub(crate) fn pull(&self) -> impl Iterator<Item = (i64, &Term)> {
        let needs = self.needs.iter().map(|term| (DRAWN, term));
        needs.chain(self.likes.iter().map(|(weight, term)| (*weight, term)))
    }
}

impl Term {
    fn of(term: &PodAffinityTerm, me: &Traits) -> Self {
        let mut namespaces = term.namespaces.clone().unwrap_or_default();
        if namespaces.is_empty() && term.namespace_selector.is_none() {
            namespaces.push(me.namespace.to_string());
        }
        let keys = |keys: &'_ Option<Vec<String>>| keys.clone().unwrap_or_default();
        let alike = same_labels(me, &keys(&term.match_label_keys), "In");
        let unlike = same_labels(me, &keys(&term.mismatch_label_keys), "NotIn");
        Self {
            topology_key: term.topology_key.as_str().into(),
            namespaces: namespaces.into(),
            namespace_selector: term.namespace_selector.as_ref().and_then(|s| Selector::from_object(s).ok()),
            selector: narrowed(term.label_selector.as_ref(), alike.chain(unlike)),
        }
    }

    /// Whether the term is about this Pod.
    pub(crate) fn means(&self, other: &Traits, namespaces: &Namespaces) -> bool {
        let by_label = |selector: &Selector| selector.matches(|key| namespaces.label(&other.namespace, key));
        let is_there = self.namespaces.iter().any(|name| **name == *other.namespace)
            || self.namespace_selector.as_ref().is_some_and(by_label);
        is_there && self.selector.as_ref().is_some_and(|selector| other.are_selected_by(selector))
    }
}

/// What `matchLabelKeys` and `mismatchLabelKeys` stand for. Upstream's API server writes it into the selector.
pub(crate) fn same_labels<'a>(
    me: &Traits,
    keys: &[String],
    operator: &'a str,
) -> impl Iterator<Item = LabelSelectorRequirement> + use<'a> {
    let mine = keys.iter().filter_map(|key| me.label(key).map(|value| (key.clone(), value.to_owned())));
    let mine: Vec<_> = mine.collect();
    mine.into_iter().map(move |(key, value)| LabelSelectorRequirement {
        key,
        operator: operator.to_owned(),
        values: Some(vec![value]),
    })
}

/// A selector with further requirements. None that cannot be understood selects anybody, which the API refuses anyway.
pub(crate) fn narrowed(
    selector: Option<&LabelSelector>,
    by: impl Iterator<Item = LabelSelectorRequirement>,
) -> Option<Selector> {
    let mut selector = selector?.clone();
    selector.match_expressions.get_or_insert_default().extend(by);
    Selector::from_object(&selector).ok()
}
