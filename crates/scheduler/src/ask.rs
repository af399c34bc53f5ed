//! What a Pod asks of a node, why a node refuses it, and how good a node is: pure.
//!
//! The filters and their words are those of upstream's default plugins, in their order; the first that refuses a node
//! speaks for it.

use crate::cluster::{NodeFacts, Placed, Used};
use crate::message;
use crate::neighbours::Neighbours;
use crate::storage::{Claims, Orders};
use api::affinity::{matches_node, matches_term};
use api::host_port::{HostPort, host_ports};
use api::quantity::Amount;
use api::resources::{self, Amounts, Side};
use api::taint;
use k8s_openapi::api::core::v1::{PodSpec, Taint, Toleration};
use std::collections::BTreeSet;

/// Why a node is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refusal {
    /// One for each thing that is missing.
    pub(crate) reasons: Vec<String>,
    /// Whether removing Pods from the node could help.
    pub(crate) resolvable: bool,
}

/// What a Pod asks for, worked out once for all nodes.
pub(crate) struct Ask<'a> {
    spec: &'a PodSpec,
    requests: Amounts,
    ports: Vec<HostPort>,
    tolerations: &'a [Toleration],
    /// When every term of the required affinity names nodes: only these are looked at.
    named: Option<BTreeSet<&'a str>>,
    claims: Claims<'a>,
    /// Whether another Pod has a claim that only one may have.
    pub(crate) is_claimed: bool,
    pub(crate) neighbours: Neighbours<'a>,
}

/// How good a node is: fields in the order of their weight.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Rank {
    /// The more taints it would rather not have Pods for, the worse.
    taints: std::cmp::Reverse<usize>,
    /// The sum of the weights of the preferred affinity that it matches.
    preferred: i64,
    /// How much it and the Pods near the node like each other.
    liking: i64,
    /// The more Pods its domains have already, the worse.
    crowding: std::cmp::Reverse<i64>,
    /// How much CPU and memory is left, in thousandths of what it has.
    free: i64,
}

impl<'a> Ask<'a> {
    pub(crate) fn of(spec: &'a PodSpec, claims: Claims<'a>, is_claimed: bool, neighbours: Neighbours<'a>) -> Self {
        let mut requests = resources::pod(spec, Side::Requests);
        requests.retain(|_, amount| *amount > Amount::ZERO);
        Self {
            requests,
            ports: host_ports(spec),
            tolerations: spec.tolerations.as_deref().unwrap_or_default(),
            named: named_nodes(spec),
            claims,
            is_claimed,
            neighbours,
            spec,
        }
    }

    /// The same as [`Self::filter`], whether those come for which a place is kept there, or not.
    pub(crate) fn filter_beside(
        &mut self,
        kept: &[&Placed],
        name: &str,
        facts: &NodeFacts,
        used: Option<&Used>,
    ) -> Result<Orders, Refusal> {
        if !kept.is_empty() {
            let mut with = used.cloned().unwrap_or_default();
            kept.iter().for_each(|placed| with.add(placed));
            let is_claimed = self.is_claimed;
            self.is_claimed |= kept.iter().any(|placed| self.wants_claim_of(placed));
            self.shift(kept, name, 1);
            let beside = self.filter(name, facts, Some(&with));
            self.shift(kept, name, -1);
            self.is_claimed = is_claimed;
            beside?;
        }
        self.filter(name, facts, used)
    }

    /// Whether the other one has a claim that this Pod wants for itself.
    pub(crate) fn wants_claim_of(&self, other: &Placed) -> bool {
        self.claims.exclusive().any(|claim| other.claims.contains(&claim))
    }

    /// Lets Pods count on a node as they do not, or no more: 1 or -1.
    fn shift(&mut self, pods: &[&Placed], node: &str, by: i64) {
        pods.iter().for_each(|placed| self.neighbours.shift(&placed.traits, node, by));
    }

    /// What is to be done before it may go to this node, or why it may not.
    pub(crate) fn filter(&self, name: &str, facts: &NodeFacts, used: Option<&Used>) -> Result<Orders, Refusal> {
        if let Some(reason) = self.refused_by(name, facts) {
            return Err(Refusal { reasons: vec![reason.to_owned()], resolvable: false });
        }
        let held = used.map(|u| u.ports.as_slice()).unwrap_or_default();
        if self.ports.iter().any(|want| held.iter().any(|have| want.conflicts(have))) {
            return Err(Refusal { reasons: vec![message::PORTS.into()], resolvable: true });
        }
        if let Some(refusal) = self.filter_resources(facts, used) {
            return Err(refusal);
        }
        if self.is_claimed {
            return Err(Refusal { reasons: vec![message::CLAIMED.into()], resolvable: true });
        }
        let orders = self.claims.at(&facts.node).map_err(|reasons| Refusal { reasons, resolvable: false })?;
        self.neighbours.refuse(&facts.node).map_or(Ok(orders), Err)
    }

    /// What no Pod that goes could change.
    fn refused_by(&self, name: &str, facts: &NodeFacts) -> Option<&'static str> {
        if self.named.as_ref().is_some_and(|named| !named.contains(name)) {
            return Some(message::NOT_NAMED);
        }
        let spec = facts.node.spec.as_ref();
        let cordon =
            Taint { key: message::UNSCHEDULABLE_TAINT.into(), effect: "NoSchedule".into(), ..Default::default() };
        let tolerated = || self.tolerations.iter().any(|t| taint::tolerates(t, &cordon));
        if spec.and_then(|s| s.unschedulable).unwrap_or(false) && !tolerated() {
            return Some(message::CORDONED);
        }
        let taints = spec.and_then(|s| s.taints.as_deref()).unwrap_or_default();
        if taint::untolerated(taints, self.tolerations, &["NoSchedule", "NoExecute"]).is_some() {
            return Some(message::TAINTED);
        }
        (!matches_node(self.spec, &facts.node)).then_some(message::AFFINITY)
    }

    fn filter_resources(&self, facts: &NodeFacts, used: Option<&Used>) -> Option<Refusal> {
        let (mut reasons, mut resolvable) = (Vec::new(), true);
        let room = facts.allocatable.get("pods").map_or(0, |a| a.value());
        if used.map_or(0, |u| u.pods) + 1 > room {
            reasons.push(message::TOO_MANY_PODS.into());
        }
        for (resource, request) in &self.requests {
            let allocatable = facts.allocatable.get(resource).copied().unwrap_or_default();
            let taken = used.and_then(|u| u.requests.get(resource)).copied().unwrap_or_default();
            if *request > allocatable.minus(taken) {
                reasons.push(message::insufficient(resource));
                // An empty node would be too small.
                resolvable &= *request <= allocatable;
            }
        }
        (!reasons.is_empty()).then_some(Refusal { reasons, resolvable })
    }

    pub(crate) fn rank(&self, facts: &NodeFacts, used: Option<&Used>) -> Rank {
        let taints = facts.node.spec.as_ref().and_then(|s| s.taints.as_deref()).unwrap_or_default();
        let disliked = taints
            .iter()
            .filter(|t| t.effect == "PreferNoSchedule")
            .filter(|t| !self.tolerations.iter().any(|x| taint::tolerates(x, t)))
            .count();
        let affinity = self.spec.affinity.as_ref().and_then(|a| a.node_affinity.as_ref());
        let preferred = affinity.and_then(|a| a.preferred_during_scheduling_ignored_during_execution.as_ref());
        let preferred = preferred.into_iter().flatten();
        // A Pod that asks for nothing still takes something: upstream's guess keeps such Pods from piling up.
        let free = [("cpu", Amount::milli_units(100)), ("memory", Amount::units(200 << 20))]
            .map(|(resource, least)| {
                let has = facts.allocatable.get(resource).copied().unwrap_or_default().milli();
                let taken = used.and_then(|u| u.requests.get(resource)).copied().unwrap_or_default();
                let want = self.requests.get(resource).copied().unwrap_or(least);
                let left = has.saturating_sub(taken.plus(want).milli()).max(0);
                i64::try_from(i128::from(left) * 1000 / i128::from(has.max(1))).unwrap_or(0)
            })
            .iter()
            .sum();
        let (liking, crowding) = self.neighbours.rank(&facts.node);
        Rank {
            taints: std::cmp::Reverse(disliked),
            preferred: preferred
                .filter(|p| matches_term(&p.preference, &facts.node))
                .map(|p| i64::from(p.weight))
                .sum(),
            liking,
            crowding,
            free,
        }
    }
}

/// The nodes that the required affinity names, when each of its terms names some by `metadata.name`.
fn named_nodes(spec: &PodSpec) -> Option<BTreeSet<&str>> {
    let affinity = spec.affinity.as_ref()?.node_affinity.as_ref()?;
    let terms = &affinity.required_during_scheduling_ignored_during_execution.as_ref()?.node_selector_terms;
    if terms.is_empty() {
        return None;
    }
    let mut names = BTreeSet::new();
    for term in terms {
        let fields = term.match_fields.iter().flatten();
        let by_name = fields.filter(|f| f.key == "metadata.name" && f.operator == "In");
        let mut of_term: Option<BTreeSet<&str>> = None;
        for field in by_name {
            let values: BTreeSet<_> = field.values.iter().flatten().map(String::as_str).collect();
            of_term = Some(match of_term {
                None => values,
                Some(others) => others.intersection(&values).copied().collect(),
            });
        }
        names.extend(of_term?);
    }
    Some(names)
}
