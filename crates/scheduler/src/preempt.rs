//! Whether a Pod that fits nowhere would fit if others went: pure (the plugin `DefaultPreemption`).

use crate::ask::{Ask, Refusal};
use crate::cluster::{Cluster, Leaving, NodeFacts, Placed, Used};
use crate::crowd::Traits;
use crate::message;
use crate::missing::never_preempts;
use crate::nominations::Named;
use crate::victims::{Candidate, Pods, Trial, choose, select};
use k8s_openapi::api::core::v1::Pod;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// With so many nodes to choose from no more are looked for, or with a tenth of all if that is more.
const ENOUGH: usize = 100;

/// The room that is to be made for a Pod.
#[derive(Debug, Clone, PartialEq)]
pub struct Preemption {
    /// The node that it is nominated to.
    pub(crate) node: String,
    /// All that have to go.
    pub(crate) victims: Vec<Named>,
    /// Those that lose their nomination to the node.
    pub(crate) outranked: Vec<Named>,
    /// What its user is told; upstream's.
    pub(crate) message: String,
}

/// Why none is made.
#[derive(Debug)]
pub(crate) struct NoRoom {
    /// What its user is told; upstream's.
    pub(crate) why: String,
    /// Whether the place that is kept for the Pod, if any, stays so.
    pub(crate) keeps_place: bool,
}

/// The room for a Pod that every node has refused, one refusal for each in the order of [`Cluster::nodes`].
///
/// # Errors
/// When nobody goes for it.
pub(crate) fn preempt(
    pod: &Pod,
    mut ask: Ask<'_>,
    cluster: &Cluster,
    refusals: &[Refusal],
) -> Result<Preemption, NoRoom> {
    let uid = pod.metadata.uid.as_deref().unwrap_or_default();
    let priority = api::pod::priority(pod);
    if let Some(why) = not_eligible(pod, uid, cluster, refusals) {
        return Err(NoRoom { why: message::unschedulable(refusals, why), keeps_place: true });
    }
    let mut lower = lower_by_node(cluster, priority);
    let (mut candidates, mut too_small) = (Vec::new(), BTreeMap::new());
    let enough = ENOUGH.max(cluster.node_count() / 10);
    let kept = cluster.kept_from(uid, priority);
    let claimants = claimants(&ask, cluster);
    for (at, (node, facts, used)) in cluster.nodes().enumerate() {
        // Usually there is none: all Pods are of one priority.
        let Some(pods) = lower.remove(node).filter(|_| refusals[at].resolvable) else {
            continue;
        };
        let beside = kept.get(node).map(Vec::as_slice).unwrap_or_default();
        let used = used.cloned().unwrap_or_default();
        let mut trial = Room { ask: &mut ask, node, facts, used, beside, claimants, taken: vec![] };
        let selected = select(node, pods, &cluster.budgets, &mut trial);
        trial.end();
        match selected {
            Ok(candidate) if !candidate.victims.is_empty() => candidates.push(candidate),
            Ok(_) => {}
            Err(refusal) => drop(too_small.insert(at, refusal)),
        }
        if candidates.len() >= enough && candidates.iter().any(|candidate| candidate.violations == 0) {
            break;
        }
    }
    match choose(candidates) {
        Some(candidate) => Ok(order(candidate, cluster, priority, refusals)),
        None => {
            let why = message::unschedulable(refusals, &no_help(refusals, &too_small));
            Err(NoRoom { why, keeps_place: false })
        }
    }
}

fn order(candidate: Candidate<'_>, cluster: &Cluster, priority: i32, refusals: &[Refusal]) -> Preemption {
    Preemption {
        node: candidate.node.to_owned(),
        victims: candidate.victims.iter().map(|(uid, placed)| Named::of(uid, placed)).collect(),
        outranked: cluster.outranked(candidate.node, priority),
        message: message::refused(refusals),
    }
}

/// `PodEligibleToPreemptOthers`.
fn not_eligible(pod: &Pod, uid: &str, cluster: &Cluster, refusals: &[Refusal]) -> Option<&'static str> {
    if pod.spec.as_ref().is_some_and(never_preempts) {
        return Some(message::NEVER_PREEMPTS);
    }
    let nominated = cluster.nominated_node(uid)?;
    let refusal = cluster.nodes().zip(refusals).find(|((node, ..), _)| *node == nominated)?.1;
    let makes_room = |placed: &Placed| {
        placed.node == nominated
            && placed.priority < api::pod::priority(pod)
            && matches!(placed.leaving, Leaving::Preempted | Leaving::Ordered)
    };
    // Who waits for a node that will not take it, whoever goes, may look for another one.
    let waits = refusal.resolvable && cluster.placed().any(|(_, placed)| makes_room(placed));
    waits.then_some(message::WAITS_FOR_VICTIMS)
}

/// Why no node would take the Pod if others went. Some were looked at without all of these.
fn no_help(refusals: &[Refusal], looked_at: &BTreeMap<usize, Refusal>) -> String {
    let others = refusals.iter().enumerate().filter(|(at, _)| !looked_at.contains_key(at));
    let others = others.map(|(_, refusal)| if refusal.resolvable { message::NO_VICTIMS } else { message::NO_HELP });
    let reasons = looked_at.values().flat_map(|refusal| refusal.reasons.iter().map(String::as_str));
    message::counted(refusals.len(), reasons.chain(others))
}

fn lower_by_node(cluster: &Cluster, priority: i32) -> HashMap<&str, Pods<'_>> {
    let mut lower: HashMap<&str, Pods<'_>> = HashMap::new();
    if cluster.has_lower(priority) {
        for (uid, placed) in cluster.placed().filter(|(_, placed)| placed.priority < priority) {
            lower.entry(&placed.node).or_default().push((uid, placed));
        }
    }
    lower
}

/// How many Pods have a claim that the Pod wants for itself.
fn claimants(ask: &Ask<'_>, cluster: &Cluster) -> usize {
    if !ask.is_claimed {
        return 0;
    }
    cluster.placed().filter(|(_, placed)| ask.wants_claim_of(placed)).count()
}

impl Leaving {
    /// What the API says of a Pod (`podTerminatingByPreemption`).
    pub(crate) fn of(pod: &Pod) -> Self {
        if pod.metadata.deletion_timestamp.is_none() {
            return Self::No;
        }
        let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
        let target = conditions.iter().find(|condition| condition.type_ == "DisruptionTarget");
        let is_preempted =
            target.is_some_and(|c| c.status == "True" && c.reason.as_deref() == Some("PreemptionByScheduler"));
        if is_preempted { Self::Preempted } else { Self::Deleted }
    }
}

/// What a node would be without some of its Pods.
struct Room<'r, 'a> {
    ask: &'r mut Ask<'a>,
    node: &'r str,
    facts: &'r NodeFacts,
    used: Used,
    /// Those for which places are kept there: the Pod has to fit with them, and without.
    beside: &'r [&'r Placed],
    claimants: usize,
    /// What those mean to others that are taken away.
    taken: Vec<Arc<Traits>>,
}

impl Room<'_, '_> {
    /// All are where they were, for the next node.
    fn end(self) {
        for traits in &self.taken {
            self.ask.neighbours.shift(traits, self.node, 1);
        }
    }
}

impl Trial for Room<'_, '_> {
    fn take(&mut self, pod: &Placed) {
        self.used.subtract(pod);
        self.ask.neighbours.shift(&pod.traits, self.node, -1);
        self.taken.push(Arc::clone(&pod.traits));
        self.claimants -= usize::from(self.claimants > 0 && self.ask.wants_claim_of(pod));
    }

    fn give_back(&mut self, pod: &Placed) {
        self.used.add(pod);
        self.ask.neighbours.shift(&pod.traits, self.node, 1);
        if let Some(at) = self.taken.iter().rposition(|traits| Arc::ptr_eq(traits, &pod.traits)) {
            self.taken.swap_remove(at);
        }
        self.claimants += usize::from(self.ask.wants_claim_of(pod));
    }

    fn refusal(&mut self) -> Option<Refusal> {
        self.ask.is_claimed = self.claimants > 0;
        self.ask.filter_beside(self.beside, self.node, self.facts, Some(&self.used)).err()
    }
}

#[cfg(test)]
#[path = "preempt_tests.rs"]
mod tests;
