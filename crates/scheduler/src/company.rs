//! Near whom a Pod may be: required and preferred affinity between Pods, its own and that of those that are placed
//! (the plugin `InterPodAffinity`): pure.

use crate::cluster::Cluster;
use crate::crowd::{Places, Traits};
use crate::fit::Refusal;
use crate::message;
use crate::term::Term;
use k8s_openapi::api::core::v1::Node;
use std::collections::HashMap;

/// A label of nodes and its value, with the Pods that count there.
type Counts<'a> = HashMap<(&'a str, &'a str), i64>;

/// What the placed Pods mean to one that is to be placed, worked out once for all nodes.
pub(crate) struct Company<'a> {
    /// Where those are that are all that it needs.
    needed: Counts<'a>,
    /// Where those are that it shuns.
    shunned: Counts<'a>,
    /// Where those are that shun it.
    shunning: Counts<'a>,
    /// By weight, who likes it and whom it likes.
    liked: Counts<'a>,
    /// The first of a group whose Pods need each other goes anywhere.
    is_first: bool,
}

impl<'a> Company<'a> {
    pub(crate) fn of(me: &Traits, cluster: &'a Cluster) -> Self {
        let mut company = Self {
            needed: Counts::new(),
            shunned: Counts::new(),
            shunning: Counts::new(),
            liked: Counts::new(),
            is_first: false,
        };
        if me.terms.is_some() {
            for (other, places) in cluster.crowd.kinds() {
                company.see(me, other, places, cluster);
            }
        }
        for (_, terms, places) in cluster.crowd.choosy() {
            for term in terms.shuns.iter().filter(|term| term.means(me, &cluster.namespaces)) {
                add(&mut company.shunning, term, 1, places, cluster);
            }
            for (weight, term) in terms.pull().filter(|(_, term)| term.means(me, &cluster.namespaces)) {
                add(&mut company.liked, term, weight, places, cluster);
            }
        }
        let met_by_itself = me.terms.as_ref().is_some_and(|terms| terms.are_met_by(me, &cluster.namespaces));
        company.is_first = company.needed.is_empty() && met_by_itself;
        company
    }

    fn see(&mut self, me: &Traits, other: &Traits, places: &Places, cluster: &'a Cluster) {
        let Some(terms) = me.terms.as_deref() else {
            return;
        };
        if terms.are_met_by(other, &cluster.namespaces) {
            for term in &terms.needs {
                add(&mut self.needed, term, 1, places, cluster);
            }
        }
        for term in terms.shuns.iter().filter(|term| term.means(other, &cluster.namespaces)) {
            add(&mut self.shunned, term, 1, places, cluster);
        }
        for (weight, term) in terms.likes.iter().filter(|(_, term)| term.means(other, &cluster.namespaces)) {
            add(&mut self.liked, term, *weight, places, cluster);
        }
    }

    /// Why the Pod may not go to this node.
    pub(crate) fn refuses(&self, me: &Traits, node: &Node) -> Option<Refusal> {
        let labels = node.metadata.labels.as_ref();
        let label = |term: &Term| labels.and_then(|labels| labels.get_key_value(&*term.topology_key));
        let counts = |counts: &Counts<'_>, term: &Term| label(term).map(|(key, value)| count(counts, key, value));
        let (needs, shuns) = me.terms.as_ref().map_or((&[][..], &[][..]), |terms| (&*terms.needs, &*terms.shuns));
        let is_met = |term: &Term| counts(&self.needed, term).is_some_and(|n| self.is_first || n > 0);
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
            *counts.entry((key, value)).or_default() += weight * pods;
        }
    }
}

#[cfg(test)]
#[path = "affinity_tests.rs"]
mod tests;
