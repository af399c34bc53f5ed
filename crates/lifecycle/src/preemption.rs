//! Preemption victims for a critical Pod (`pkg/kubelet/preemption`, as in 1.35).
//!
//! Preempts as little as possible: Guaranteed Pods only for what all other Pods could not free, and Burstable Pods only
//! for what all BestEffort Pods could not free; in each class the fewest Pods, and the smaller ones.

use crate::Eviction;
use api::{
    pod::is_critical,
    resources::{self, Amounts, QosClass, ResourceField},
};
use k8s_openapi::api::core::v1::Pod;
use std::sync::Arc;

const REASON: &str = "Preempting";
const MESSAGE: &str = "Preempted in order to admit critical pod";
const CONDITION: &str = "Pod was preempted by Kubelet to accommodate a critical pod.";

/// An insufficient resource, in millicores or bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct InsufficientResource {
    pub(crate) resource: String,
    pub(crate) requested: i64,
    pub(crate) used: i64,
    pub(crate) capacity: i64,
}

/// Admission after the preemption of other Pods.
#[derive(Debug, Clone, PartialEq)]
pub struct Preemption {
    /// The first insufficient resource.
    pub resource: String,
    /// The victims.
    pub pods: Vec<Arc<Pod>>,
    /// The eviction of each victim.
    pub eviction: Eviction,
}

/// All preemptable Pods together do not free enough, with upstream's message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no set of running pods found to reclaim resources: {0}")]
pub(crate) struct NoVictimsError(String);

/// Amounts to free, by resource.
type Requirements = Vec<(String, i64)>;
/// Sort key, the smallest first: remaining distance, memory and CPU requests.
type Rank = (f64, i64, i64);

/// Selects the victims.
pub(crate) fn select_victims(
    pod: &Pod,
    insufficient: &[InsufficientResource],
    others: &[Arc<Pod>],
) -> Result<Preemption, NoVictimsError> {
    let requirements: Requirements =
        insufficient.iter().map(|l| (l.resource.clone(), l.requested - (l.capacity - l.used))).collect();
    let pods_of_class = |class| -> Vec<Arc<Pod>> {
        let spec = |other: &Arc<Pod>| other.spec.as_ref().map(resources::qos_class);
        others.iter().filter(|other| spec(other) == Some(class) && is_preemptable(pod, other)).cloned().collect()
    };
    let (best_effort, burstable, guaranteed) =
        (pods_of_class(QosClass::BestEffort), pods_of_class(QosClass::Burstable), pods_of_class(QosClass::Guaranteed));
    let unmet = remaining(&requirements, [&best_effort[..], &burstable, &guaranteed].concat().iter());
    if !unmet.is_empty() {
        return Err(NoVictimsError(text(&unmet)));
    }
    let last = pods_to_preempt_by_distance(guaranteed, remaining(&requirements, best_effort.iter().chain(&burstable)));
    let second = pods_to_preempt_by_distance(burstable, remaining(&requirements, best_effort.iter().chain(&last)));
    let first = pods_to_preempt_by_distance(best_effort, remaining(&requirements, second.iter().chain(&last)));
    let eviction = Eviction {
        reason: REASON.to_owned(),
        message: MESSAGE.to_owned(),
        disruption_target: true,
        disruption_message: Some(CONDITION.to_owned()),
        ..Eviction::default()
    };
    let resource = insufficient.first().map(|l| l.resource.clone()).unwrap_or_default();
    Ok(Preemption { resource, pods: [first, second, last].concat(), eviction })
}

/// Returns whether a Pod may be preempted for this one (`Preemptable`).
fn is_preemptable(pod: &Pod, other: &Pod) -> bool {
    let priority = |pod: &Pod| pod.spec.as_ref().and_then(|s| s.priority);
    let higher = priority(pod).zip(priority(other)).is_some_and(|(ours, other)| ours > other);
    is_critical(pod) && !is_critical(other) || higher
}

fn request(pod: &Pod, resource: &str) -> i64 {
    if resource == "pods" {
        return 1;
    }
    let all =
        pod.spec.as_ref().map_or_else(Amounts::new, |spec| resources::pod_resources(spec, ResourceField::Requests));
    all.get(resource).map_or(0, |amount| if resource == "cpu" { amount.milli() } else { amount.value() })
}

/// Returns the requirements that remain without these Pods.
fn remaining<'a>(requirements: &Requirements, victims: impl Iterator<Item = &'a Arc<Pod>> + Clone) -> Requirements {
    let rest_of = |(resource, amount): &(String, i64)| {
        let freed: i64 = victims.clone().map(|pod| request(pod, resource)).fold(0, i64::saturating_add);
        (resource.clone(), amount.saturating_sub(freed))
    };
    requirements.iter().map(rest_of).filter(|(_, amount)| *amount > 0).collect()
}

/// Selects as few Pods as satisfy the requirements: at each step the Pod with the smallest remaining distance, and of
/// equal ones the smaller.
fn pods_to_preempt_by_distance(mut pods: Vec<Arc<Pod>>, mut requirements: Requirements) -> Vec<Arc<Pod>> {
    let mut chosen = Vec::new();
    while !requirements.is_empty() && !pods.is_empty() {
        let rank = |pod: &Arc<Pod>| (distance(&requirements, pod), request(pod, "memory"), request(pod, "cpu"));
        let ranks: Vec<Rank> = pods.iter().map(rank).collect();
        let compare = |a: Rank, b: Rank| a.0.total_cmp(&b.0).then((a.1, a.2).cmp(&(b.1, b.2)));
        // Of equal Pods the last one, as upstream does.
        let best = (0..pods.len()).rev().min_by(|a, b| compare(ranks[*a], ranks[*b])).unwrap_or(0);
        let pod = pods.swap_remove(best);
        requirements = remaining(&requirements, std::iter::once(&pod));
        chosen.push(pod);
    }
    chosen
}

/// Returns the distance to the requirements without this Pod: the sum of the squared remaining fractions of each
/// resource.
fn distance(requirements: &Requirements, pod: &Pod) -> f64 {
    let rest_of = |(resource, amount): &(String, i64)| {
        let rest = amount.saturating_sub(request(pod, resource)).max(0);
        (rest as f64 / *amount as f64).powi(2)
    };
    requirements.iter().map(rest_of).sum()
}

fn text(requirements: &Requirements) -> String {
    let each: String =
        requirements.iter().map(|(resource, amount)| format!("(res: {resource}, q: {amount}), ")).collect();
    format!("[{each}]")
}
