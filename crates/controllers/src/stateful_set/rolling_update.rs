//! Which Pods give way to those of a new revision: from the last to the partition, so many at once as may be missing.

use super::plan::{Plan, StatefulSetSnapshot, Step};
use crate::int_or_string::{Rounding, scaled_value};
use crate::pod_summary::PodSummary;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use std::sync::Arc;

/// All that there should be are there; none is too many.
pub(super) fn roll_out(snapshot: &StatefulSetSnapshot<'_>, plan: &mut Plan) {
    if !snapshot.is_rolling() {
        return;
    }
    let gone = if snapshot.max_unavailable_enabled { pods_to_replace(snapshot) } else { next_outdated_pod(snapshot) };
    plan.rolled = i32::try_from(gone.len()).unwrap_or(i32::MAX);
    plan.steps.extend(gone.into_iter().map(Step::DeletePod));
}

/// The last that has an old revision, if all after it serve.
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

/// As many as may be missing beside those that are (`updateStatefulSetAfterInvariantEstablished`).
fn pods_to_replace(snapshot: &StatefulSetSnapshot<'_>) -> Vec<Arc<PodSummary>> {
    let (start, end) = snapshot.range();
    let serving = snapshot.pods.range(start..end).filter(|(_, pod)| snapshot.is_healthy(pod)).count();
    let missing = snapshot.count() - i64::try_from(serving).unwrap_or(i64::MAX);
    let room = usize::try_from(i64::from(max_unavailable(snapshot)) - missing).unwrap_or(0);
    let from = start.saturating_add(snapshot.partition()).min(end);
    let old = || {
        snapshot.pods.range(from..end).rev().map(|(_, pod)| pod).filter(|p| !snapshot.is_updated(p) && !p.terminating)
    };
    if snapshot.is_monotonic() {
        return old().take(room).cloned().collect();
    }
    // Those that do not serve are missed by nobody. If they had to wait for themselves to serve, a template that cannot
    // run could never be put right.
    let broken = old().filter(|pod| !snapshot.is_healthy(pod));
    broken.chain(old().filter(|pod| snapshot.is_healthy(pod)).take(room)).cloned().collect()
}

/// `getStatefulSetMaxUnavailable`.
fn max_unavailable(snapshot: &StatefulSetSnapshot<'_>) -> i32 {
    let rolling = snapshot.spec.update_strategy.as_ref().and_then(|strategy| strategy.rolling_update.as_ref());
    let one = IntOrString::Int(1);
    let most = rolling.and_then(|rolling| rolling.max_unavailable.as_ref()).unwrap_or(&one);
    scaled_value(most, snapshot.spec.replicas.unwrap_or(1), Rounding::Down).max(1)
}
