//! Parsed terms of inter-Pod affinity: pure (`AffinityTerm` of `pkg/scheduler/framework`).

use crate::{namespace_labels::NamespaceLabels, pod_index::PodInfo};
use api::selector::LabelRequirements;
use k8s_openapi::{
    api::core::v1::{Pod, PodAffinityTerm, WeightedPodAffinityTerm},
    apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement},
};

/// Weight of required affinity terms of assigned Pods in the score (`hardPodAffinityWeight`).
const HARD_POD_AFFINITY_WEIGHT: i64 = 1;

/// Affinity and anti-affinity terms of a Pod.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct AffinityTerms {
    /// Required affinity terms.
    pub(crate) required_affinity: Box<[AffinityTerm]>,
    /// Required anti-affinity terms.
    pub(crate) required_anti_affinity: Box<[AffinityTerm]>,
    /// Preferred terms with their weights; anti-affinity terms have negative ones.
    pub(crate) preferred: Box<[(i64, AffinityTerm)]>,
}

/// Affinity term with a parsed selector.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct AffinityTerm {
    /// Node label whose value is the topology domain.
    pub(crate) topology_key: Box<str>,
    namespaces: Box<[String]>,
    /// Selects further namespaces by their labels.
    namespace_selector: Option<LabelRequirements>,
    /// Selects Pods; `None` matches no Pod.
    selector: Option<LabelRequirements>,
}

impl AffinityTerms {
    /// Parses the Pod's terms; `None` if it has none.
    pub(crate) fn of(pod: &Pod, owner: &PodInfo) -> Option<Box<Self>> {
        let affinity = pod.spec.as_ref()?.affinity.as_ref()?;
        let (affinity, anti_affinity) = (affinity.pod_affinity.as_ref(), affinity.pod_anti_affinity.as_ref());
        let parse = |terms: Option<&Vec<PodAffinityTerm>>| -> Box<[AffinityTerm]> {
            terms.into_iter().flatten().map(|term| AffinityTerm::of(term, owner)).collect()
        };
        let weighted = |sign: i64, terms: Option<&Vec<WeightedPodAffinityTerm>>| -> Vec<(i64, AffinityTerm)> {
            let terms = terms.into_iter().flatten();
            terms
                .map(|term| (sign * i64::from(term.weight), AffinityTerm::of(&term.pod_affinity_term, owner)))
                .collect()
        };
        let mut preferred =
            weighted(1, affinity.and_then(|a| a.preferred_during_scheduling_ignored_during_execution.as_ref()));
        preferred.extend(weighted(
            -1,
            anti_affinity.and_then(|a| a.preferred_during_scheduling_ignored_during_execution.as_ref()),
        ));
        let terms = Self {
            required_affinity: parse(
                affinity.and_then(|a| a.required_during_scheduling_ignored_during_execution.as_ref()),
            ),
            required_anti_affinity: parse(
                anti_affinity.and_then(|a| a.required_during_scheduling_ignored_during_execution.as_ref()),
            ),
            preferred: preferred.into(),
        };
        (terms != Self::default()).then(|| Box::new(terms))
    }

    /// Returns whether the other Pod matches all required affinity terms (`podMatchesAllAffinityTerms`).
    pub(crate) fn match_all_required(&self, other: &PodInfo, namespaces: &NamespaceLabels) -> bool {
        !self.required_affinity.is_empty() && self.required_affinity.iter().all(|term| term.matches(other, namespaces))
    }

    /// Returns the terms that score incoming Pods once this Pod is assigned.
    pub(crate) fn scoring_terms(&self) -> impl Iterator<Item = (i64, &AffinityTerm)> {
        let required_affinity = self.required_affinity.iter().map(|term| (HARD_POD_AFFINITY_WEIGHT, term));
        required_affinity.chain(self.preferred.iter().map(|(weight, term)| (*weight, term)))
    }
}

impl AffinityTerm {
    fn of(term: &PodAffinityTerm, owner: &PodInfo) -> Self {
        let mut namespaces = term.namespaces.clone().unwrap_or_default();
        if namespaces.is_empty() && term.namespace_selector.is_none() {
            namespaces.push(owner.namespace.to_string());
        }
        let keys = |keys: &'_ Option<Vec<String>>| keys.clone().unwrap_or_default();
        let matching = label_key_requirements(owner, &keys(&term.match_label_keys), "In");
        let mismatching = label_key_requirements(owner, &keys(&term.mismatch_label_keys), "NotIn");
        Self {
            topology_key: term.topology_key.as_str().into(),
            namespaces: namespaces.into(),
            namespace_selector: term.namespace_selector.as_ref().and_then(|s| LabelRequirements::from_object(s).ok()),
            selector: selector_with_requirements(term.label_selector.as_ref(), matching.chain(mismatching)),
        }
    }

    /// Returns whether the term matches this Pod.
    pub(crate) fn matches(&self, other: &PodInfo, namespaces: &NamespaceLabels) -> bool {
        let by_label = |selector: &LabelRequirements| selector.matches(|key| namespaces.label(&other.namespace, key));
        let is_there = self.namespaces.iter().any(|name| **name == *other.namespace)
            || self.namespace_selector.as_ref().is_some_and(by_label);
        is_there && self.selector.as_ref().is_some_and(|selector| other.is_selected_by(selector))
    }
}

/// Returns the requirements of `matchLabelKeys` or `mismatchLabelKeys`. Upstream's API server merges them into the
/// selector.
pub(crate) fn label_key_requirements<'a>(
    owner: &PodInfo,
    keys: &[String],
    operator: &'a str,
) -> impl Iterator<Item = LabelSelectorRequirement> + use<'a> {
    let requirements = keys.iter().filter_map(|key| owner.label(key).map(|value| (key.clone(), value.to_owned())));
    let requirements: Vec<_> = requirements.collect();
    requirements.into_iter().map(move |(key, value)| LabelSelectorRequirement {
        key,
        operator: operator.to_owned(),
        values: Some(vec![value]),
    })
}

/// Parses a selector with further requirements; `None` if it is invalid, which API validation rejects.
pub(crate) fn selector_with_requirements(
    selector: Option<&LabelSelector>,
    by: impl Iterator<Item = LabelSelectorRequirement>,
) -> Option<LabelRequirements> {
    let mut selector = selector?.clone();
    selector.match_expressions.get_or_insert_default().extend(by);
    LabelRequirements::from_object(&selector).ok()
}
