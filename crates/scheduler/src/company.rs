//! Near whom a Pod may be: required and preferred affinity between Pods, its own and that of those that are placed
//! (the plugin `InterPodAffinity`): pure.

use crate::ask::Refusal;
use crate::cluster::Cluster;
use crate::crowd::{Places, Traits};
use crate::message;
use crate::term::Term;
use k8s_openapi::api::core::v1::Node;
use std::collections::HashMap;

/// A label of nodes and its value, with the Pods that count there.
type Counts<'a> = HashMap<(&'a str, &'a str), i64>;

/// What the placed Pods mean to one that is to be placed, worked out once for all nodes.
pub(crate) struct Company<'a> {
    cluster: &'a Cluster,
    /// Where those are that are all that it needs.
    needed: Counts<'a>,
    /// Where those are that it shuns.
    shunned: Counts<'a>,
    /// Where those are that shun it.
    shunning: Counts<'a>,
    /// By weight, who likes it and whom it likes.
    liked: Counts<'a>,
    /// The first of a group whose Pods need each other goes anywhere.
    needs_its_like: bool,
}

impl<'a> Company<'a> {
    pub(crate) fn of(me: &Traits, cluster: &'a Cluster) -> Self {
        let needs_its_like = me.terms.as_ref().is_some_and(|terms| terms.are_met_by(me, &cluster.namespaces));
        let (needed, shunned, shunning, liked) = Default::default();
        let mut company = Self { cluster, needed, shunned, shunning, liked, needs_its_like };
        if me.terms.is_some() {
            cluster.crowd.kinds().for_each(|(other, places)| company.count(me, other, places));
        } else {
            cluster.crowd.choosy().for_each(|(other, places)| company.count(me, other, places));
        }
        company
    }

    /// Counts others at their nodes, or a negative number of them no more.
    pub(crate) fn count(&mut self, me: &Traits, other: &Traits, places: &Places) {
        let (cluster, namespaces) = (self.cluster, &self.cluster.namespaces);
        if let Some(terms) = me.terms.as_deref() {
            if terms.are_met_by(other, namespaces) {
                terms.needs.iter().for_each(|term| add(&mut self.needed, term, 1, places, cluster));
            }
            for term in terms.shuns.iter().filter(|term| term.means(other, namespaces)) {
                add(&mut self.shunned, term, 1, places, cluster);
            }
            for (weight, term) in terms.likes.iter().filter(|(_, term)| term.means(other, namespaces)) {
                add(&mut self.liked, term, *weight, places, cluster);
            }
        }
        if let Some(terms) = other.terms.as_deref() {
            for term in terms.shuns.iter().filter(|term| term.means(me, namespaces)) {
                add(&mut self.shunning, term, 1, places, cluster);
            }
            for (weight, term) in terms.pull().filter(|(_, term)| term.means(me, namespaces)) {
                add(&mut self.liked, term, weight, places, cluster);
            }
        }
    }

    /// Why the Pod may not go to this node.
    pub(crate) fn refuses(&self, me: &Traits, node: &Node) -> Option<Refusal> {
        let labels = node.metadata.labels.as_ref();
        let label = |term: &Term| labels.and_then(|labels| labels.get_key_value(&*term.topology_key));
        let counts = |counts: &Counts<'_>, term: &Term| label(term).map(|(key, value)| count(counts, key, value));
        let is_first = self.needs_its_like && self.needed.is_empty();
        let (needs, shuns) = me.terms.as_ref().map_or((&[][..], &[][..]), |terms| (&*terms.needs, &*terms.shuns));
        let is_met = |term: &Term| counts(&self.needed, term).is_some_and(|n| is_first || n > 0);
        if !needs.iter().all(is_met) {
            return Some(Refusal { reasons: vec![message::COMPANY.into()], resolvable: false });
        }
        if shuns.iter().any(|term| counts(&self.shunned, term).is_some_and(|n| n > 0)) {
            return Some(Refusal { reasons: vec![message::SHUNNED.into()], resolvable: true });
        }
        let is_shunned = |(key, value): (&String, &String)| count(&self.shunning, key, value) > 0;
        if !self.shunning.is_empty() && labels.into_iter().flatten().any(is_shunned) {
            return Some(Refusal { reasons: vec![message::SHUNNING.into()], resolvable: true });
        }
        None
    }

    /// How much the Pod and those near this node like each other.
    pub(crate) fn liking(&self, node: &Node) -> i64 {
        if self.liked.is_empty() {
            return 0;
        }
        let labels = node.metadata.labels.iter().flatten();
        labels.map(|(key, value)| count(&self.liked, key, value)).sum()
    }
}

fn count(counts: &Counts<'_>, key: &str, value: &str) -> i64 {
    counts.get(&(key, value)).copied().unwrap_or(0)
}

fn add<'a>(counts: &mut Counts<'a>, term: &Term, weight: i64, places: &Places, cluster: &'a Cluster) {
    for (node, pods) in places {
        let labels = cluster.node(node).and_then(|node| node.metadata.labels.as_ref());
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
#[path = "affinity_tests.rs"]
mod tests;
