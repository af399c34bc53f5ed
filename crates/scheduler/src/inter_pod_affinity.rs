//! Inter-Pod affinity and anti-affinity, required and preferred, of the Pod and of assigned Pods (plugin
//! `InterPodAffinity`). Does no I/O.

use crate::{
    affinity_term::AffinityTerm,
    cache::Cache,
    filter_and_score::FilterStatus,
    fit_error,
    pod_index::{PodInfo, PodsPerNode},
};
use k8s_openapi::api::core::v1::Node;
use std::collections::HashMap;

/// Number (or weight) of matching Pods by topology key and value.
type Counts<'a> = HashMap<(&'a str, &'a str), i64>;

/// State of the plugin, computed once for all nodes.
pub(crate) struct InterPodAffinity<'a> {
    cache: &'a Cache,
    /// Pods that match all required affinity terms of the Pod.
    affinity_counts: Counts<'a>,
    /// Pods that match a required anti-affinity term of the Pod.
    anti_affinity_counts: Counts<'a>,
    /// Pods whose required anti-affinity terms match the Pod.
    existing_anti_affinity_counts: Counts<'a>,
    /// Sum of the weights of preferred terms, of the Pod and of assigned Pods.
    scores: Counts<'a>,
    /// Whether the Pod matches its own affinity: the first Pod of a group may run anywhere.
    matches_own_affinity: bool,
}

impl<'a> InterPodAffinity<'a> {
    pub(crate) fn of(pod: &PodInfo, cache: &'a Cache) -> Self {
        let matches_own_affinity =
            pod.terms.as_ref().is_some_and(|terms| terms.match_all_required(pod, &cache.namespaces));
        let (affinity_counts, anti_affinity_counts, existing_anti_affinity_counts, scores) = Default::default();
        let mut counts = Self {
            cache,
            affinity_counts,
            anti_affinity_counts,
            existing_anti_affinity_counts,
            scores,
            matches_own_affinity,
        };
        if pod.terms.is_some() {
            cache.pod_index.groups().for_each(|(other, pods_per_node)| counts.count(pod, other, pods_per_node));
        } else {
            cache.pod_index.with_affinity().for_each(|(other, pods_per_node)| counts.count(pod, other, pods_per_node));
        }
        counts
    }

    /// Adds Pods to the counts of their nodes' domains; negative numbers remove them.
    pub(crate) fn count(&mut self, pod: &PodInfo, other: &PodInfo, pods_per_node: &PodsPerNode) {
        let (cache, namespaces) = (self.cache, &self.cache.namespaces);
        if let Some(terms) = pod.terms.as_deref() {
            if terms.match_all_required(other, namespaces) {
                terms
                    .required_affinity
                    .iter()
                    .for_each(|term| add_to_domains(&mut self.affinity_counts, term, 1, pods_per_node, cache));
            }
            for term in terms.required_anti_affinity.iter().filter(|term| term.matches(other, namespaces)) {
                add_to_domains(&mut self.anti_affinity_counts, term, 1, pods_per_node, cache);
            }
            for (weight, term) in terms.preferred.iter().filter(|(_, term)| term.matches(other, namespaces)) {
                add_to_domains(&mut self.scores, term, *weight, pods_per_node, cache);
            }
        }
        if let Some(terms) = other.terms.as_deref() {
            for term in terms.required_anti_affinity.iter().filter(|term| term.matches(pod, namespaces)) {
                add_to_domains(&mut self.existing_anti_affinity_counts, term, 1, pods_per_node, cache);
            }
            for (weight, term) in terms.scoring_terms().filter(|(_, term)| term.matches(pod, namespaces)) {
                add_to_domains(&mut self.scores, term, weight, pods_per_node, cache);
            }
        }
    }

    /// Filter: returns why the node is rejected.
    pub(crate) fn filter(&self, pod: &PodInfo, node: &Node) -> Option<FilterStatus> {
        let labels = node.metadata.labels.as_ref();
        let node_label = |term: &AffinityTerm| labels.and_then(|labels| labels.get_key_value(&*term.topology_key));
        let counts =
            |counts: &Counts<'_>, term: &AffinityTerm| node_label(term).map(|(key, value)| count(counts, key, value));
        let is_first = self.matches_own_affinity && self.affinity_counts.is_empty();
        let (affinity, anti_affinity) = pod
            .terms
            .as_ref()
            .map_or((&[][..], &[][..]), |terms| (&*terms.required_affinity, &*terms.required_anti_affinity));
        let is_satisfied = |term: &AffinityTerm| counts(&self.affinity_counts, term).is_some_and(|n| is_first || n > 0);
        if !affinity.iter().all(is_satisfied) {
            return Some(FilterStatus { reasons: vec![fit_error::POD_AFFINITY.into()], resolvable: false });
        }
        if anti_affinity.iter().any(|term| counts(&self.anti_affinity_counts, term).is_some_and(|n| n > 0)) {
            return Some(FilterStatus { reasons: vec![fit_error::POD_ANTI_AFFINITY.into()], resolvable: true });
        }
        let is_rejected = |(key, value): (&String, &String)| count(&self.existing_anti_affinity_counts, key, value) > 0;
        if !self.existing_anti_affinity_counts.is_empty() && labels.into_iter().flatten().any(is_rejected) {
            return Some(FilterStatus { reasons: vec![fit_error::EXISTING_ANTI_AFFINITY.into()], resolvable: true });
        }
        None
    }

    /// Score: returns the sum of the weights for the node's domains.
    pub(crate) fn score(&self, node: &Node) -> i64 {
        if self.scores.is_empty() {
            return 0;
        }
        let labels = node.metadata.labels.iter().flatten();
        labels.map(|(key, value)| count(&self.scores, key, value)).sum()
    }
}

fn count(counts: &Counts<'_>, key: &str, value: &str) -> i64 {
    counts.get(&(key, value)).copied().unwrap_or(0)
}

fn add_to_domains<'a>(
    counts: &mut Counts<'a>,
    term: &AffinityTerm,
    weight: i64,
    pods_per_node: &PodsPerNode,
    cache: &'a Cache,
) {
    for (node, pods) in pods_per_node {
        let labels = cache.node(node).and_then(|node| node.metadata.labels.as_ref());
        if let Some((key, value)) = labels.and_then(|labels| labels.get_key_value(&*term.topology_key)) {
            let sum = counts.entry((key, value)).or_default();
            *sum += weight * pods;
            if *sum == 0 {
                counts.remove(&(key.as_str(), value.as_str()));
            }
        }
    }
}

#[cfg(test)]
mod tests;
