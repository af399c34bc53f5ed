//! Which Pods give way to those of a new revision: from the last to the partition, so many at once as may be missing.

use super::plan::{Facts, Plan, Step};
use crate::int_or_string::{Rounding, scaled_value};
use crate::pod_summary::PodSummary;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use std::sync::Arc;

/// All that there should be are there; none is too many.
pub(super) fn roll(facts: &Facts<'_>, plan: &mut Plan) {
    if !facts.is_rolling() {
        return;
    }
    let gone = if facts.several { several(facts) } else { one(facts) };
    plan.rolled = i32::try_from(gone.len()).unwrap_or(i32::MAX);
    plan.steps.extend(gone.into_iter().map(Step::Delete));
}

/// The last that has an old revision, if all after it serve.
fn one(facts: &Facts<'_>) -> Vec<Arc<PodSummary>> {
    let (start, end) = facts.range();
    let from = start.saturating_add(facts.partition());
    for ordinal in (from..end).rev() {
        match facts.pods.get(&ordinal) {
            Some(pod) if !facts.is_updated(pod) && !pod.terminating => return vec![Arc::clone(pod)],
            Some(pod) if facts.serves(pod) => {}
            _ => return vec![],
        }
    }
    vec![]
}

/// As many as may be missing beside those that are (`updateStatefulSetAfterInvariantEstablished`).
fn several(facts: &Facts<'_>) -> Vec<Arc<PodSummary>> {
    let (start, end) = facts.range();
    let serving = facts.pods.range(start..end).filter(|(_, pod)| facts.serves(pod)).count();
    let missing = facts.count() - i64::try_from(serving).unwrap_or(i64::MAX);
    let room = usize::try_from(i64::from(max_unavailable(facts)) - missing).unwrap_or(0);
    let from = start.saturating_add(facts.partition()).min(end);
    let old =
        || facts.pods.range(from..end).rev().map(|(_, pod)| pod).filter(|p| !facts.is_updated(p) && !p.terminating);
    if facts.in_turn() {
        return old().take(room).cloned().collect();
    }
    // Those that do not serve are missed by nobody. If they had to wait for themselves to serve, a template that cannot
    // run could never be put right.
    let broken = old().filter(|pod| !facts.serves(pod));
    broken.chain(old().filter(|pod| facts.serves(pod)).take(room)).cloned().collect()
}

/// `getStatefulSetMaxUnavailable`.
fn max_unavailable(facts: &Facts<'_>) -> i32 {
    let rolling = facts.spec.update_strategy.as_ref().and_then(|strategy| strategy.rolling_update.as_ref());
    let one = IntOrString::Int(1);
    let most = rolling.and_then(|rolling| rolling.max_unavailable.as_ref()).unwrap_or(&one);
    scaled_value(most, facts.spec.replicas.unwrap_or(1), Rounding::Down).max(1)
}
