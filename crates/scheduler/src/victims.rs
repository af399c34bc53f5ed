//! Selection of preemption victims: pure (`SelectVictimsOnNode`, `pickOneNodeForPreemption`).

use crate::{cache::AssignedPod, disruption_budgets, filter_and_score::FilterStatus};
use jiff::Timestamp;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use std::{cmp::Reverse, collections::BTreeMap, sync::Arc};

/// Assigned Pods, each with its `metadata.uid`.
pub(crate) type Pods<'a> = Vec<(&'a str, &'a AssignedPod)>;

/// Simulation of a node without some of its Pods.
pub(crate) trait NodeSimulation {
    fn remove_pod(&mut self, pod: &AssignedPod);
    fn add_pod(&mut self, pod: &AssignedPod);
    /// Runs the filters; returns why the node rejects the preemptor.
    fn run_filters(&mut self) -> Option<FilterStatus>;
}

/// Node on which the Pod would fit without the victims.
#[derive(Debug)]
pub(crate) struct Candidate<'a> {
    pub(crate) node: &'a str,
    /// Victims, the most important ones first.
    pub(crate) victims: Pods<'a>,
    /// Number of victims whose disruption violates a PodDisruptionBudget.
    pub(crate) pdb_violations: usize,
}

/// Sort key of `MoreImportantPod`: higher priority first, then the earlier start time.
fn importance(pod: &AssignedPod) -> (Reverse<i32>, Timestamp, &str, &str) {
    (Reverse(pod.priority), pod.start, &pod.info.namespace, &pod.name)
}

/// Selects a minimal set of victims (`SelectVictimsOnNode`): removes all potential victims, then reprieves one after
/// the other if the Pod still fits.
///
/// # Errors
/// Why the node rejects the Pod without any of them.
pub(crate) fn select_victims_on_node<'a>(
    node: &'a str,
    mut potential_victims: Pods<'a>,
    budgets_by_key: &BTreeMap<String, Arc<PodDisruptionBudget>>,
    simulation: &mut impl NodeSimulation,
) -> Result<Candidate<'a>, FilterStatus> {
    for (_, pod) in &potential_victims {
        simulation.remove_pod(pod);
    }
    if let Some(run_filters) = simulation.run_filters() {
        return Err(run_filters);
    }
    potential_victims.sort_by(|(_, a), (_, b)| importance(a).cmp(&importance(b)));
    let (violating, non_violating) = disruption_budgets::split_by_pdb_violation(potential_victims, budgets_by_key);
    let mut is_needed_victim = |(_, pod): &(&str, &AssignedPod)| {
        simulation.add_pod(pod);
        let is_needed_victim = simulation.run_filters().is_some();
        if is_needed_victim {
            simulation.remove_pod(pod);
        }
        is_needed_victim
    };
    let mut victims: Pods<'a> = violating.into_iter().filter(&mut is_needed_victim).collect();
    let pdb_violations = victims.len();
    victims.extend(non_violating.into_iter().filter(&mut is_needed_victim));
    victims.sort_by(|(_, a), (_, b)| importance(a).cmp(&importance(b)));
    Ok(Candidate { node, victims, pdb_violations })
}

/// Picks the node whose preemption disrupts the least; the first one of equals (`pickOneNodeForPreemption`).
pub(crate) fn pick_one_node<'a>(candidates: Vec<Candidate<'a>>) -> Option<Candidate<'a>> {
    candidates.into_iter().min_by_key(|candidate| {
        let priorities = || candidate.victims.iter().map(|(_, pod)| i64::from(pod.priority));
        let highest = priorities().max();
        let of_highest = candidate.victims.iter().filter(|(_, pod)| Some(i64::from(pod.priority)) == highest);
        (
            candidate.pdb_violations,
            highest,
            // Offset, so that every victim counts, with a negative priority, too.
            priorities().map(|priority| priority + (1 << 31)).sum::<i64>(),
            candidate.victims.len(),
            Reverse(of_highest.map(|(_, pod)| pod.start).min()),
        )
    })
}
