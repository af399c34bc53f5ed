//! How evenly Pods lie in the domains of a cluster (the plugin `PodTopologySpread`): pure.

use crate::ask::Refusal;
use crate::cluster::{Cluster, NodeFacts};
use crate::crowd::{Places, Traits};
use crate::message;
use crate::term::{narrowed, same_labels};
use api::affinity::matches_node;
use api::selector::Selector;
use api::taint;
use k8s_openapi::api::core::v1::{Node, PodSpec, TopologySpreadConstraint};
use std::collections::HashMap;

/// A Pod's constraints, with the Pods that they count, worked out once for all nodes.
pub(crate) struct Spread<'a> {
    /// `DoNotSchedule`.
    required: Vec<Rule<'a>>,
    /// `ScheduleAnyway`.
    preferred: Vec<Rule<'a>>,
}

struct Rule<'a> {
    constraint: &'a TopologySpreadConstraint,
    selector: Option<Selector>,
    /// The nodes whose Pods are counted, each with its domain.
    nodes: HashMap<&'a str, &'a str>,
    /// How many Pods each domain has.
    domains: HashMap<&'a str, i64>,
    /// How many the emptiest has.
    least: i64,
    /// 1 when the Pod is one of those that are counted.
    itself: i64,
}

pub(crate) fn is_required(constraint: &TopologySpreadConstraint) -> bool {
    constraint.when_unsatisfiable == "DoNotSchedule"
}

impl<'a> Spread<'a> {
    pub(crate) fn of(spec: &'a PodSpec, me: &Traits, cluster: &'a Cluster) -> Self {
        let all = spec.topology_spread_constraints.iter().flatten();
        let (required, preferred): (Vec<_>, Vec<_>) = all.partition(|constraint| is_required(constraint));
        let rules = |all: &[&'a TopologySpreadConstraint]| {
            all.iter().map(|constraint| Rule::of(constraint, all, spec, me, cluster)).collect()
        };
        Self { required: rules(&required), preferred: rules(&preferred) }
    }

    /// Counts others at their nodes, or a negative number of them no more.
    pub(crate) fn count(&mut self, me: &Traits, other: &Traits, places: &Places) {
        for rule in self.required.iter_mut().chain(&mut self.preferred) {
            rule.count(me, other, places);
            rule.level();
        }
    }

    /// Why the Pod may not go to this node.
    pub(crate) fn refuses(&self, node: &Node) -> Option<Refusal> {
        self.required.iter().find_map(|rule| {
            let Some(pods) = rule.pods(node) else {
                return Some(Refusal { reasons: vec![message::NO_DOMAIN.into()], resolvable: false });
            };
            let is_even = pods + rule.itself - rule.least <= i64::from(rule.constraint.max_skew);
            (!is_even).then(|| Refusal { reasons: vec![message::UNEVEN.into()], resolvable: true })
        })
    }

    /// How many Pods its domains have already, the fewer the better. A node in none of a constraint's is the last choice.
    pub(crate) fn crowding(&self, node: &Node) -> i64 {
        self.preferred.iter().map(|rule| rule.pods(node)).sum::<Option<i64>>().unwrap_or(i64::MAX)
    }
}

impl<'a> Rule<'a> {
    fn of(
        constraint: &'a TopologySpreadConstraint,
        all: &[&TopologySpreadConstraint],
        spec: &PodSpec,
        me: &Traits,
        cluster: &'a Cluster,
    ) -> Self {
        let nodes = cluster.nodes().filter(|(_, facts, _)| {
            let has_all = all.iter().all(|other| domain(&facts.node, other).is_some());
            has_all && includes(constraint, spec, facts)
        });
        let nodes: HashMap<&str, &str> =
            nodes.filter_map(|(name, facts, _)| Some((name, domain(&facts.node, constraint)?))).collect();
        let domains = nodes.values().map(|domain| (*domain, 0)).collect();
        let keys = constraint.match_label_keys.as_deref().unwrap_or_default();
        let selector = narrowed(constraint.label_selector.as_ref(), same_labels(me, keys, "In"));
        let mut rule = Self { constraint, selector, nodes, domains, least: 0, itself: 0 };
        rule.itself = i64::from(rule.selects(me));
        for (other, places) in cluster.crowd.kinds() {
            rule.count(me, other, places);
        }
        rule.level();
        rule
    }

    fn selects(&self, other: &Traits) -> bool {
        self.selector.as_ref().is_some_and(|selector| other.are_selected_by(selector))
    }

    /// Counts others at their nodes, or a negative number of them no more.
    fn count(&mut self, me: &Traits, other: &Traits, places: &Places) {
        if other.leaves || other.namespace != me.namespace || !self.selects(other) {
            return;
        }
        for (node, pods) in places {
            if let Some(count) = self.nodes.get(&**node).and_then(|domain| self.domains.get_mut(domain)) {
                *count += pods;
            }
        }
    }

    fn level(&mut self) {
        let wanted = usize::try_from(self.constraint.min_domains.unwrap_or(1)).unwrap_or(1);
        let least = self.domains.values().min().filter(|_| self.domains.len() >= wanted);
        self.least = least.copied().unwrap_or(0);
    }

    /// How many Pods the node's domain has; one without any node that counts has none.
    fn pods(&self, node: &Node) -> Option<i64> {
        domain(node, self.constraint).map(|domain| self.domains.get(domain).copied().unwrap_or(0))
    }
}

fn domain<'n>(node: &'n Node, constraint: &TopologySpreadConstraint) -> Option<&'n str> {
    node.metadata.labels.as_ref()?.get(&constraint.topology_key).map(String::as_str)
}

/// Whether the Pods of the node are counted.
fn includes(constraint: &TopologySpreadConstraint, spec: &PodSpec, facts: &NodeFacts) -> bool {
    if constraint.node_affinity_policy.as_deref() != Some("Ignore") && !matches_node(spec, &facts.node) {
        return false;
    }
    let taints = facts.node.spec.as_ref().and_then(|s| s.taints.as_deref()).unwrap_or_default();
    let tolerations = spec.tolerations.as_deref().unwrap_or_default();
    constraint.node_taints_policy.as_deref() != Some("Honor")
        || taint::untolerated(taints, tolerations, &["NoSchedule", "NoExecute"]).is_none()
}

#[cfg(test)]
#[path = "spread_tests.rs"]
mod tests;
