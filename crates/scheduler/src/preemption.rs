//! Preemption for an unschedulable Pod: pure (plugin `DefaultPreemption`).

use crate::{
    cache::{AssignedPod, Cache, NodeInfo, NodeUsage, Termination},
    dynamic_resources::never_preempts,
    filter_and_score::{CycleState, FilterStatus},
    fit_error,
    nominator::PodRef,
    pod_index::PodInfo,
    victims::{Candidate, NodeSimulation, Pods, pick_one_node, select_victims_on_node},
};
use k8s_openapi::api::core::v1::Pod;
use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

/// Number of candidate nodes after which the search ends; a tenth of all nodes if that is more
/// (`minCandidateNodesAbsolute`, `minCandidateNodesPercentage`).
const MIN_CANDIDATE_NODES: usize = 100;

/// Preemption to carry out.
#[derive(Debug, Clone, PartialEq)]
pub struct Preemption {
    /// Nominated node.
    pub(crate) node: String,
    /// Pods to delete.
    pub(crate) victims: Vec<PodRef>,
    /// Pods of lower priority that lose their nomination to the node.
    pub(crate) lower_nominated: Vec<PodRef>,
    /// Message of the event and the condition; upstream's.
    pub(crate) message: String,
}

/// Preemption does not help.
#[derive(Debug)]
pub(crate) struct PreemptionFailure {
    /// Message of the event and the condition; upstream's.
    pub(crate) message: String,
    /// Whether the Pod keeps its nomination.
    pub(crate) keeps_nomination: bool,
}

/// Finds victims for a Pod that every node has rejected; `statuses` is in the order of [`Cache::nodes`].
///
/// # Errors
/// When there is no candidate, or the Pod may not preempt.
pub(crate) fn preempt(
    pod: &Pod,
    mut cycle_state: CycleState<'_>,
    cache: &Cache,
    statuses: &[FilterStatus],
) -> Result<Preemption, PreemptionFailure> {
    let uid = pod.metadata.uid.as_deref().unwrap_or_default();
    let priority = api::pod::priority(pod);
    if let Some(message) = ineligibility_reason(pod, uid, cache, statuses) {
        return Err(PreemptionFailure { message: fit_error::unschedulable(statuses, message), keeps_nomination: true });
    }
    let mut potential_victims = potential_victims_by_node(cache, priority);
    let (mut candidates, mut failed) = (Vec::new(), BTreeMap::new());
    let max_candidates = MIN_CANDIDATE_NODES.max(cache.node_count() / 10);
    let nominated_pods = cache.nominated_pods_by_node(uid, priority);
    let claim_users = claim_users(&cycle_state, cache);
    for (at, (node, node_info, used)) in cache.nodes().enumerate() {
        // The common case: all Pods have the same priority.
        let Some(pods) = potential_victims.remove(node).filter(|_| statuses[at].resolvable) else {
            continue;
        };
        let nominated_pods = nominated_pods.get(node).map(Vec::as_slice).unwrap_or_default();
        let used = used.cloned().unwrap_or_default();
        let mut dry_run = DryRun {
            cycle_state: &mut cycle_state,
            node,
            node_info,
            used,
            nominated_pods,
            claim_users,
            removed: vec![],
        };
        let selected = select_victims_on_node(node, pods, &cache.budgets, &mut dry_run);
        dry_run.restore();
        match selected {
            Ok(candidate) if !candidate.victims.is_empty() => candidates.push(candidate),
            Ok(_) => {}
            Err(status) => drop(failed.insert(at, status)),
        }
        if candidates.len() >= max_candidates && candidates.iter().any(|candidate| candidate.pdb_violations == 0) {
            break;
        }
    }
    match pick_one_node(candidates) {
        Some(candidate) => Ok(new_preemption(candidate, cache, priority, statuses)),
        None => {
            let message = fit_error::unschedulable(statuses, &no_candidate_message(statuses, &failed));
            Err(PreemptionFailure { message, keeps_nomination: false })
        }
    }
}

fn new_preemption(candidate: Candidate<'_>, cache: &Cache, priority: i32, statuses: &[FilterStatus]) -> Preemption {
    Preemption {
        node: candidate.node.to_owned(),
        victims: candidate.victims.iter().map(|(uid, assigned)| PodRef::of(uid, assigned)).collect(),
        lower_nominated: cache.lower_priority_nominated_pods(candidate.node, priority),
        message: fit_error::fit_error(statuses),
    }
}

/// Returns why the Pod may not preempt (`PodEligibleToPreemptOthers`).
fn ineligibility_reason(pod: &Pod, uid: &str, cache: &Cache, statuses: &[FilterStatus]) -> Option<&'static str> {
    if pod.spec.as_ref().is_some_and(never_preempts) {
        return Some(fit_error::NEVER_PREEMPTS);
    }
    let nominated = cache.nominated_node(uid)?;
    let node_status = cache.nodes().zip(statuses).find(|((node, ..), _)| *node == nominated)?.1;
    let is_terminating_victim = |assigned: &AssignedPod| {
        assigned.node == nominated
            && assigned.priority < api::pod::priority(pod)
            && matches!(assigned.termination, Termination::Preempted | Termination::PreemptionRequested)
    };
    // If preemption cannot help on the nominated node, the Pod may preempt on another one.
    let waits = node_status.resolvable && cache.assigned().any(|(_, assigned)| is_terminating_victim(assigned));
    waits.then_some(fit_error::WAITS_FOR_VICTIMS)
}

/// Formats why no node is a candidate: the failed simulations' reasons, else that preemption does not help.
fn no_candidate_message(statuses: &[FilterStatus], simulated: &BTreeMap<usize, FilterStatus>) -> String {
    let others = statuses.iter().enumerate().filter(|(at, _)| !simulated.contains_key(at));
    let others = others
        .map(|(_, status)| if status.resolvable { fit_error::NO_VICTIMS } else { fit_error::PREEMPTION_NOT_HELPFUL });
    let reasons = simulated.values().flat_map(|status| status.reasons.iter().map(String::as_str));
    fit_error::format_reasons(statuses.len(), reasons.chain(others))
}

fn potential_victims_by_node(cache: &Cache, priority: i32) -> HashMap<&str, Pods<'_>> {
    let mut potential_victims: HashMap<&str, Pods<'_>> = HashMap::new();
    if cache.has_lower_priority_pod(priority) {
        for (uid, assigned) in cache.assigned().filter(|(_, assigned)| assigned.priority < priority) {
            potential_victims.entry(&assigned.node).or_default().push((uid, assigned));
        }
    }
    potential_victims
}

/// Returns the number of Pods that use a `ReadWriteOncePod` claim of the Pod.
fn claim_users(cycle_state: &CycleState<'_>, cache: &Cache) -> usize {
    if !cycle_state.claim_in_use {
        return 0;
    }
    cache.assigned().filter(|(_, assigned)| cycle_state.shares_exclusive_claim(assigned)).count()
}

impl Termination {
    /// Reads the Pod's termination state (`podTerminatingByPreemption`).
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

/// Simulation of preemption on one node (`DryRunPreemption`).
struct DryRun<'r, 'a> {
    cycle_state: &'r mut CycleState<'a>,
    node: &'r str,
    node_info: &'r NodeInfo,
    used: NodeUsage,
    /// Nominated Pods of the node: the preemptor has to fit with and without them.
    nominated_pods: &'r [&'r AssignedPod],
    claim_users: usize,
    /// Pods that are removed in the simulation.
    removed: Vec<Arc<PodInfo>>,
}

impl DryRun<'_, '_> {
    /// Restores the cycle state for the next node.
    fn restore(self) {
        for info in &self.removed {
            self.cycle_state.constraints.adjust(info, self.node, 1);
        }
    }
}

impl NodeSimulation for DryRun<'_, '_> {
    fn remove_pod(&mut self, pod: &AssignedPod) {
        self.used.subtract(pod);
        self.cycle_state.constraints.adjust(&pod.info, self.node, -1);
        self.removed.push(Arc::clone(&pod.info));
        self.claim_users -= usize::from(self.claim_users > 0 && self.cycle_state.shares_exclusive_claim(pod));
    }

    fn add_pod(&mut self, pod: &AssignedPod) {
        self.used.add(pod);
        self.cycle_state.constraints.adjust(&pod.info, self.node, 1);
        if let Some(at) = self.removed.iter().rposition(|info| Arc::ptr_eq(info, &pod.info)) {
            self.removed.swap_remove(at);
        }
        self.claim_users += usize::from(self.cycle_state.shares_exclusive_claim(pod));
    }

    fn run_filters(&mut self) -> Option<FilterStatus> {
        self.cycle_state.claim_in_use = self.claim_users > 0;
        self.cycle_state
            .run_filters_with_nominated_pods(self.nominated_pods, self.node, self.node_info, Some(&self.used))
            .err()
    }
}

#[cfg(test)]
mod tests;
