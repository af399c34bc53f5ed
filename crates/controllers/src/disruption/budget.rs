//! Status of a PodDisruptionBudget (`trySync`).

use crate::{
    clock::truncate_to_seconds,
    int_or_string::{Rounding, scaled_value},
    pod_summary::PodSummary,
};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::{
    api::policy::v1::{PodDisruptionBudget, PodDisruptionBudgetSpec, PodDisruptionBudgetStatus},
    apimachinery::pkg::{
        apis::meta::v1::{Condition, Time},
        util::intstr::IntOrString,
    },
};
use std::{collections::BTreeMap, sync::Arc};

/// Time after which an evicted Pod that still exists counts as healthy again (`DeletionTimeout`).
const DELETION_TIMEOUT: SignedDuration = SignedDuration::from_mins(2);
const DISRUPTION_ALLOWED: &str = "DisruptionAllowed";

/// Returns whether the budget depends on the scale of the Pods' controllers.
pub(super) fn needs_scale(spec: &PodDisruptionBudgetSpec) -> bool {
    spec.max_unavailable.is_some() || matches!(spec.min_available, Some(IntOrString::String(_)))
}

#[derive(Debug)]
pub(super) struct BudgetSync {
    pub(super) status: PodDisruptionBudgetStatus,
    /// Evicted Pods that were not deleted in time.
    pub(super) not_deleted: Vec<Arc<PodSummary>>,
    /// When the first entry of `disruptedPods` expires.
    pub(super) requeue_at: Option<Timestamp>,
}

/// Computes the status. `pods` are those that the budget selects, `scale` the expected scale if [`needs_scale`].
pub(super) fn sync_budget(
    budget: &PodDisruptionBudget,
    spec: &PodDisruptionBudgetSpec,
    pods: &[Arc<PodSummary>],
    scale: i32,
    now: Timestamp,
) -> BudgetSync {
    let (expected, desired) = expected_and_desired(spec, pods, scale);
    let old_status = budget.status.clone().unwrap_or_default();
    let (mut disrupted, mut not_deleted, mut requeue_at) = (BTreeMap::new(), Vec::new(), None);
    let named = old_status.disrupted_pods.clone().unwrap_or_default();
    for pod in pods.iter().filter(|pod| !pod.terminating) {
        let Some(at) = named.get(&pod.name) else { continue };
        let due = at.0.checked_add(DELETION_TIMEOUT).unwrap_or(Timestamp::MAX);
        if due < now {
            not_deleted.push(Arc::clone(pod));
        } else {
            disrupted.insert(pod.name.clone(), at.clone());
            requeue_at = Some(requeue_at.map_or(due, |a: Timestamp| a.min(due)));
        }
    }
    let healthy = pods.iter().filter(|p| !p.terminating && !disrupted.contains_key(&p.name) && p.ready.is_some());
    let healthy = i32::try_from(healthy.count()).unwrap_or(i32::MAX);
    let left = healthy.saturating_sub(desired);
    let mut status = PodDisruptionBudgetStatus {
        current_healthy: healthy,
        desired_healthy: desired,
        expected_pods: expected,
        // Without Pods no disruption is allowed: a first Pod must be counted before it can be evicted.
        disruptions_allowed: if expected > 0 { left.max(0) } else { 0 },
        disrupted_pods: Some(disrupted).filter(|pods| !pods.is_empty()),
        observed_generation: budget.metadata.generation,
        conditions: old_status.conditions,
    };
    let enough = status.disruptions_allowed > 0;
    let (value, reason) = if enough { ("True", "SufficientPods") } else { ("False", "InsufficientPods") };
    set_condition(&mut status, value, reason, String::new(), now);
    BudgetSync { status, not_deleted, requeue_at }
}

/// Returns the status if the expected number of Pods is unknown: no disruption is allowed (`failSafe`).
pub(super) fn failed_status(
    budget: &PodDisruptionBudget,
    message: String,
    now: Timestamp,
) -> PodDisruptionBudgetStatus {
    let mut status = budget.status.clone().unwrap_or_default();
    status.disruptions_allowed = 0;
    set_condition(&mut status, "False", "SyncFailed", message, now);
    status
}

/// Returns the expected number of Pods, and the desired number of healthy ones.
fn expected_and_desired(spec: &PodDisruptionBudgetSpec, pods: &[Arc<PodSummary>], scale: i32) -> (i32, i32) {
    let all = i32::try_from(pods.len()).unwrap_or(i32::MAX);
    match (&spec.max_unavailable, &spec.min_available) {
        (Some(max_unavailable), _) => {
            (scale, scale.saturating_sub(scaled_value(max_unavailable, scale, Rounding::Up)).max(0))
        }
        (None, Some(IntOrString::Int(min_available))) => (all, *min_available),
        (None, Some(min_available)) => (scale, scaled_value(min_available, scale, Rounding::Up)),
        (None, None) => (0, 0),
    }
}

fn set_condition(status: &mut PodDisruptionBudgetStatus, value: &str, reason: &str, message: String, now: Timestamp) {
    let observed_generation = status.observed_generation;
    let conditions = status.conditions.get_or_insert_default();
    let known = conditions.iter().position(|c| c.type_ == DISRUPTION_ALLOWED);
    let since = known.map(|at| conditions.remove(at)).filter(|c| c.status == value).map(|c| c.last_transition_time);
    conditions.push(Condition {
        type_: DISRUPTION_ALLOWED.to_owned(),
        status: value.to_owned(),
        reason: reason.to_owned(),
        message,
        observed_generation,
        last_transition_time: since.unwrap_or_else(|| Time(truncate_to_seconds(now))),
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    const NOW: i64 = 1_000;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn pods(ready: usize, others: usize) -> Vec<Arc<PodSummary>> {
        let pod =
            |n: usize| PodSummary { name: format!("p{n}"), ready: (n < ready).then(|| at(1)), ..PodSummary::default() };
        (0..ready + others).map(|n| Arc::new(pod(n))).collect()
    }

    fn budget(spec: Value, status: Value) -> PodDisruptionBudget {
        let status = if status.is_null() {
            json!({"currentHealthy": 0, "desiredHealthy": 0, "disruptionsAllowed": 0, "expectedPods": 0})
        } else {
            status
        };
        serde_json::from_value(json!({"metadata": {"generation": 3}, "spec": spec, "status": status})).unwrap()
    }

    /// Checks expected, desired and healthy Pods, and allowed disruptions.
    #[track_caller]
    fn check(spec: Value, pods: &[Arc<PodSummary>], scale: i32, expected: [i32; 4]) {
        let budget = budget(spec, Value::Null);
        let status = sync_budget(&budget, budget.spec.as_ref().unwrap(), pods, scale, at(NOW)).status;
        let got = [status.expected_pods, status.desired_healthy, status.current_healthy, status.disruptions_allowed];
        assert_eq!(got, expected);
        let condition = &status.conditions.unwrap()[0];
        let words = if expected[3] > 0 { ("True", "SufficientPods") } else { ("False", "InsufficientPods") };
        assert_eq!((condition.status.as_str(), condition.reason.as_str()), words);
        assert_eq!((condition.observed_generation, status.observed_generation), (Some(3), Some(3)));
    }

    #[test]
    fn disruptions_allowed_are_healthy_pods_beyond_desired() {
        check(json!({"minAvailable": 2}), &pods(3, 0), 0, [3, 2, 3, 1]);
        check(json!({"minAvailable": 2}), &pods(2, 1), 0, [3, 2, 2, 0]);
        check(json!({"minAvailable": 2}), &pods(1, 0), 0, [1, 2, 1, 0]);
        check(json!({"minAvailable": "50%"}), &pods(3, 0), 3, [3, 2, 3, 1]);
        check(json!({"maxUnavailable": 1}), &pods(3, 0), 3, [3, 2, 3, 1]);
        check(json!({"maxUnavailable": "30%"}), &pods(4, 0), 4, [4, 2, 4, 2]);
        check(json!({"maxUnavailable": 9}), &pods(2, 0), 2, [2, 0, 2, 2]);
        check(json!({"minAvailable": 0}), &[], 0, [0, 0, 0, 0]);
    }

    #[test]
    fn terminating_and_evicted_pods_are_not_healthy() {
        let evicted = |second: i64| json!({"p0": at(second).to_string(), "gone": at(second).to_string()});
        let status = |second| json!({"currentHealthy": 3, "desiredHealthy": 1, "disruptionsAllowed": 2, "expectedPods": 3, "disruptedPods": evicted(second)});
        let mut all = pods(3, 0);
        all[2] = Arc::new(PodSummary { terminating: true, ..(*all[2]).clone() });
        let young = budget(json!({"minAvailable": 1}), status(NOW - 100));
        let sync = sync_budget(&young, young.spec.as_ref().unwrap(), &all, 0, at(NOW));
        assert_eq!((sync.status.current_healthy, sync.status.disruptions_allowed), (1, 0));
        let names: Vec<String> = sync.status.disrupted_pods.unwrap().into_keys().collect();
        assert_eq!((names, sync.requeue_at), (vec!["p0".to_owned()], Some(at(NOW + 20))));
        let old = budget(json!({"minAvailable": 1}), status(NOW - 121));
        let sync = sync_budget(&old, old.spec.as_ref().unwrap(), &all, 0, at(NOW));
        assert_eq!((sync.status.current_healthy, sync.not_deleted.len(), sync.requeue_at), (2, 1, None));
        assert_eq!(sync.status.disrupted_pods, None);
    }

    #[test]
    fn unknown_expected_scale_allows_no_disruption() {
        let status = failed_status(&budget(json!({"maxUnavailable": 1}), Value::Null), "why".into(), at(NOW));
        let condition = &status.conditions.unwrap()[0];
        assert_eq!((condition.reason.as_str(), condition.message.as_str()), ("SyncFailed", "why"));
    }
}
