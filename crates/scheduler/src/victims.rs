//! Which Pods of a node go, and on which node Pods go: pure (`SelectVictimsOnNode`, `pickOneNodeForPreemption`).

use crate::ask::Refusal;
use crate::budgets;
use crate::cluster::Placed;
use jiff::Timestamp;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// Pods on nodes, each with its `metadata.uid`.
pub(crate) type Pods<'a> = Vec<(&'a str, &'a Placed)>;

/// A node with some of its Pods taken away, for a try.
pub(crate) trait Trial {
    fn take(&mut self, pod: &Placed);
    fn give_back(&mut self, pod: &Placed);
    /// Why the Pod does not fit there.
    fn refusal(&mut self) -> Option<Refusal>;
}

/// A node where the Pod would fit without these.
#[derive(Debug)]
pub(crate) struct Candidate<'a> {
    pub(crate) node: &'a str,
    /// The most important ones first.
    pub(crate) victims: Pods<'a>,
    /// How many of them a budget protects.
    pub(crate) violations: usize,
}

/// The higher its priority and the longer it runs, the more important is a Pod.
fn importance(pod: &Placed) -> (Reverse<i32>, Timestamp, &str, &str) {
    (Reverse(pod.priority), pod.start, &pod.traits.namespace, &pod.name)
}

/// As few Pods as can be, of those that may go; one after the other is kept, if the Pod fits beside it.
///
/// # Errors
/// Why it does not fit when all are gone.
pub(crate) fn select<'a>(
    node: &'a str,
    mut lower: Pods<'a>,
    all_budgets: &BTreeMap<String, PodDisruptionBudget>,
    trial: &mut impl Trial,
) -> Result<Candidate<'a>, Refusal> {
    for (_, pod) in &lower {
        trial.take(pod);
    }
    if let Some(refusal) = trial.refusal() {
        return Err(refusal);
    }
    lower.sort_by(|(_, a), (_, b)| importance(a).cmp(&importance(b)));
    let (protected, others) = budgets::split(lower, all_budgets);
    let mut goes = |(_, pod): &(&str, &Placed)| {
        trial.give_back(pod);
        let goes = trial.refusal().is_some();
        if goes {
            trial.take(pod);
        }
        goes
    };
    let mut victims: Pods<'a> = protected.into_iter().filter(&mut goes).collect();
    let violations = victims.len();
    victims.extend(others.into_iter().filter(&mut goes));
    victims.sort_by(|(_, a), (_, b)| importance(a).cmp(&importance(b)));
    Ok(Candidate { node, victims, violations })
}

/// The node where it hurts the least; of equals the first one.
pub(crate) fn choose<'a>(candidates: Vec<Candidate<'a>>) -> Option<Candidate<'a>> {
    candidates.into_iter().min_by_key(|candidate| {
        let priorities = || candidate.victims.iter().map(|(_, pod)| i64::from(pod.priority));
        let highest = priorities().max();
        let of_highest = candidate.victims.iter().filter(|(_, pod)| Some(i64::from(pod.priority)) == highest);
        (
            candidate.violations,
            highest,
            // Each counts, also one of a negative priority.
            priorities().map(|priority| priority + (1 << 31)).sum::<i64>(),
            candidate.victims.len(),
            Reverse(of_highest.map(|(_, pod)| pod.start).min()),
        )
    })
}
