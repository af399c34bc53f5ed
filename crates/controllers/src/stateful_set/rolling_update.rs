//! Rolling update: deletes Pods of old revisions from the last ordinal to the partition, within `maxUnavailable`.

use super::plan::{Plan, StatefulSetSnapshot, Step};
use crate::{
    int_or_string::{Rounding, scaled_value},
    pod_summary::PodSummary,
};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use std::sync::Arc;

/// Plans the rolling update. The set must have all its replicas and no condemned Pods.
pub(super) fn roll_out(snapshot: &StatefulSetSnapshot<'_>, plan: &mut Plan) {
    if !snapshot.is_rolling() {
        return;
    }
    let gone = if snapshot.max_unavailable_enabled { pods_to_replace(snapshot) } else { next_outdated_pod(snapshot) };
    plan.rolled = i32::try_from(gone.len()).unwrap_or(i32::MAX);
    plan.steps.extend(gone.into_iter().map(Step::DeletePod));
}

/// Returns the last Pod of an old revision, if all Pods after it are healthy.
fn next_outdated_pod(snapshot: &StatefulSetSnapshot<'_>) -> Vec<Arc<PodSummary>> {
    let (start, end) = snapshot.range();
    let from = start.saturating_add(snapshot.partition());
    for ordinal in (from..end).rev() {
        match snapshot.pods.get(&ordinal) {
            Some(pod) if !snapshot.is_updated(pod) && !pod.terminating => return vec![Arc::clone(pod)],
            Some(pod) if snapshot.is_healthy(pod) => {}
            _ => return vec![],
        }
    }
    vec![]
}

/// Returns as many Pods of old revisions as `maxUnavailable` allows (`updateStatefulSetAfterInvariantEstablished`).
fn pods_to_replace(snapshot: &StatefulSetSnapshot<'_>) -> Vec<Arc<PodSummary>> {
    let (start, end) = snapshot.range();
    let serving = snapshot.pods.range(start..end).filter(|(_, pod)| snapshot.is_healthy(pod)).count();
    let missing = snapshot.count() - i64::try_from(serving).unwrap_or(i64::MAX);
    let remaining = usize::try_from(i64::from(max_unavailable(snapshot)) - missing).unwrap_or(0);
    let from = start.saturating_add(snapshot.partition()).min(end);
    let old = || {
        snapshot.pods.range(from..end).rev().map(|(_, pod)| pod).filter(|p| !snapshot.is_updated(p) && !p.terminating)
    };
    if snapshot.is_monotonic() {
        return old().take(remaining).cloned().collect();
    }
    // Unhealthy Pods are always replaced. If they had to become healthy first, a template that cannot run could never
    // be corrected.
    let unhealthy = old().filter(|pod| !snapshot.is_healthy(pod));
    unhealthy.chain(old().filter(|pod| snapshot.is_healthy(pod)).take(remaining)).cloned().collect()
}

/// Returns `maxUnavailable`, at least 1 (`getStatefulSetMaxUnavailable`).
fn max_unavailable(snapshot: &StatefulSetSnapshot<'_>) -> i32 {
    let rolling = snapshot.spec.update_strategy.as_ref().and_then(|strategy| strategy.rolling_update.as_ref());
    let one = IntOrString::Int(1);
    let max_unavailable = rolling.and_then(|rolling| rolling.max_unavailable.as_ref()).unwrap_or(&one);
    scaled_value(max_unavailable, snapshot.spec.replicas.unwrap_or(1), Rounding::Down).max(1)
}
