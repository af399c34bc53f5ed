//! Counts the Pods of a Job exactly once (`trackJobStatusAndRemoveFinalizers`).
//!
//! The UID of a terminal Pod is written to `uncountedTerminatedPods`; then the Pod's finalizer is removed; then the
//! Pod is counted and its UID removed. An interrupted sync is resumed from the written status.

use super::{
    plan::{FAILURE_TARGET, Plan, PodAction, SUCCESS_CRITERIA_MET},
    policies::FailureAction,
    snapshot::{JobSnapshot, condition, count, job_summary},
};
use crate::pod_summary::PodSummary;
use k8s_openapi::{
    api::batch::v1::{JobCondition, JobStatus},
    apimachinery::pkg::apis::meta::v1::Time,
};
use std::collections::HashSet;

/// Maximum number of UIDs in the status (`MaxUncountedPods`).
const MAX_UNCOUNTED_PODS: usize = 500;

/// Result of applying a plan.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Outcome {
    /// Number of created or deleted Pods.
    pub(super) done: i32,
    pub(super) failed: bool,
}

#[derive(Debug)]
pub(super) struct TrackedStatus<'a> {
    /// Status to write before finalizers are removed.
    pub(super) status: JobStatus,
    /// Pods whose finalizers are to be removed.
    pub(super) release: Vec<&'a PodSummary>,
    /// Final condition of the Job, once all Pods are counted.
    pub(super) end: Option<JobCondition>,
    /// Reasons and messages of Events.
    pub(super) events: Vec<(&'static str, &'static str)>,
}

/// Returns the status after a plan was applied.
pub(super) fn track_job_status<'a>(snapshot: &JobSnapshot<'a>, plan: &Plan<'a>, outcome: Outcome) -> TrackedStatus<'a> {
    let mut status = snapshot.status.clone();
    if status.start_time.is_none() && !snapshot.is_suspended() {
        status.start_time = Some(Time(snapshot.now));
    }
    let (mut active, mut terminating) = (count(snapshot.active()), snapshot.terminating());
    let mut ready = count(snapshot.active().into_iter().filter(|pod| pod.ready.is_some()));
    match &plan.action {
        PodAction::Nothing => {}
        PodAction::Create(_) => active += outcome.done,
        PodAction::Terminate(pods) | PodAction::Remove(pods) => {
            active -= outcome.done;
            terminating += outcome.done;
            ready -= count(pods.iter().take(usize::try_from(outcome.done).unwrap_or(0)).filter(|p| p.ready.is_some()));
        }
    }
    let mut events = Vec::new();
    let end = match &plan.finished {
        // All active Pods must be deleted first.
        Some(end) => Some(end.clone()).filter(|_| !outcome.failed),
        None if is_complete(snapshot, active) => {
            let message = "Reached expected number of succeeded pods";
            Some(snapshot.condition(SUCCESS_CRITERIA_MET, "True", "CompletionsReached", message))
        }
        None => {
            if !snapshot.is_deleting() {
                events.extend(update_suspended_condition(snapshot, &mut status));
            }
            None
        }
    };
    status.active = Some(active).filter(|n| *n != 0);
    status.ready = Some(ready);
    status.terminating = Some(terminating);
    let (release, all) = record_uncounted(snapshot, &mut status, end.as_ref());
    let end = end.map(|end| set_interim_condition(snapshot, &mut status, end)).filter(|_| all);
    TrackedStatus { status, release, end, events }
}

fn is_complete(snapshot: &JobSnapshot<'_>, active: i32) -> bool {
    active == 0 && snapshot.succeeded() >= snapshot.spec.completions.unwrap_or(1)
}

/// Sets the condition `Suspended` when the Job is suspended, or resumed after that.
fn update_suspended_condition(
    snapshot: &JobSnapshot<'_>,
    status: &mut JobStatus,
) -> Option<(&'static str, &'static str)> {
    let known = status.conditions.iter().flatten().find(|c| c.type_ == "Suspended").map(|c| c.status == "True");
    match (snapshot.is_suspended(), known) {
        (true, None | Some(false)) => {
            set(status, snapshot.condition("Suspended", "True", "JobSuspended", "Job suspended"));
            Some(("Suspended", "Job suspended"))
        }
        (false, Some(true)) => {
            set(status, snapshot.condition("Suspended", "False", "JobResumed", "Job resumed"));
            // The active deadline is counted from here.
            status.start_time = Some(Time(snapshot.now));
            Some(("Resumed", "Job resumed"))
        }
        _ => None,
    }
}

fn set(status: &mut JobStatus, new: JobCondition) {
    let conditions = status.conditions.get_or_insert_default();
    match conditions.iter_mut().find(|c| c.type_ == new.type_) {
        Some(known) => *known = new,
        None => conditions.push(new),
    }
}

/// Adds terminal Pods to `uncountedTerminatedPods`. Returns those whose finalizers may be removed, and whether these
/// are all.
fn record_uncounted<'a>(
    snapshot: &JobSnapshot<'a>,
    status: &mut JobStatus,
    end: Option<&JobCondition>,
) -> (Vec<&'a PodSummary>, bool) {
    let tracked: Vec<&PodSummary> =
        snapshot.pods.iter().map(AsRef::as_ref).filter(|pod| job_summary(pod).tracked).collect();
    flush_uncounted(status, &tracked.iter().map(|pod| pod.uid.as_str()).collect());
    let waiting = snapshot.pods_with_delayed_deletion_per_index();
    let mut indexes = snapshot.succeeded_indexes();
    let mut uncounted = status.uncounted_terminated_pods.clone().unwrap_or_default();
    let mut counted = uncounted.succeeded.iter().flatten().count() + uncounted.failed.iter().flatten().count();
    let (mut release, mut all) = (Vec::new(), true);
    for pod in tracked {
        let failed = snapshot.is_failed(pod);
        let waits = job_summary(pod).index.is_some_and(|index| waiting.get(&index).is_some_and(|w| w.is_same(pod)));
        let ended = snapshot.is_deleting() || end.is_some() || pod.phase == "Succeeded" || (failed && !waits);
        if !ended {
            continue;
        }
        if counted >= MAX_UNCOUNTED_PODS {
            all = false;
            break;
        }
        release.push(pod);
        let counts = snapshot.index(pod).is_some() || !snapshot.is_indexed();
        if pod.phase == "Succeeded" && !snapshot.is_uncounted_failure(pod) {
            if !snapshot.is_indexed() && !snapshot.is_uncounted_success(pod) {
                uncounted.succeeded.get_or_insert_default().push(pod.uid.clone());
                counted += 1;
            } else if let Some(index) = snapshot.index(pod) {
                indexes.add(index);
            }
        } else if failed || end.is_some_and(|end| end.type_ != SUCCESS_CRITERIA_MET) {
            // Pods that still run when the Job fails count as failed.
            if counts && !snapshot.is_uncounted_failure(pod) && snapshot.failure_action(pod) != FailureAction::Ignore {
                uncounted.failed.get_or_insert_default().push(pod.uid.clone());
                counted += 1;
            }
        }
    }
    status.uncounted_terminated_pods = Some(uncounted);
    if snapshot.is_indexed() {
        let text = |indexes: &super::indexes::Indexes| Some(indexes.to_string()).filter(|text| !text.is_empty());
        status.succeeded = Some(indexes.total()).filter(|n| *n != 0);
        status.completed_indexes = text(&indexes);
        status.failed_indexes = snapshot.failed_indexes().map(|failed| failed.to_string());
    }
    (release, all)
}

/// Sets the interim condition, `FailureTarget` or `SuccessCriteriaMet`. Returns the final condition.
fn set_interim_condition(snapshot: &JobSnapshot<'_>, status: &mut JobStatus, end: JobCondition) -> JobCondition {
    let last = match end.type_.as_str() {
        FAILURE_TARGET => "Failed",
        SUCCESS_CRITERIA_MET => "Complete",
        _ => return end,
    };
    if condition(status, &end.type_).is_none() {
        status.conditions.get_or_insert_default().push(end.clone());
    }
    snapshot.condition(last, "True", &end.reason.unwrap_or_default(), &end.message.unwrap_or_default())
}

/// Counts the recorded Pods that have no finalizer any more; `pods_with_finalizer` are the UIDs of the others.
fn flush_uncounted(status: &mut JobStatus, pods_with_finalizer: &HashSet<&str>) {
    let some = |n: i32| Some(n).filter(|n| *n != 0);
    let mut uncounted = status.uncounted_terminated_pods.take().unwrap_or_default();
    let split = |uids: Option<Vec<String>>| {
        let uids = uids.unwrap_or_default();
        let before = count(&uids);
        let left: Vec<String> = uids.into_iter().filter(|uid| pods_with_finalizer.contains(uid.as_str())).collect();
        (before - count(&left), Some(left).filter(|left| !left.is_empty()))
    };
    let (succeeded, left) = split(uncounted.succeeded.take());
    uncounted.succeeded = left;
    let (failed, left) = split(uncounted.failed.take());
    uncounted.failed = left;
    status.succeeded = some(status.succeeded.unwrap_or(0).saturating_add(succeeded));
    status.failed = some(status.failed.unwrap_or(0).saturating_add(failed));
    status.uncounted_terminated_pods = Some(uncounted);
}

/// Updates the status after finalizers were removed; `pods_with_finalizer` are the UIDs of Pods that still have one.
/// Returns whether the Job is finished, which requires that all Pods are counted and gone.
pub(super) fn finalize_status(
    status: &mut JobStatus,
    end: Option<&JobCondition>,
    pods_with_finalizer: &HashSet<&str>,
) -> bool {
    flush_uncounted(status, pods_with_finalizer);
    let uncounted = status.uncounted_terminated_pods.as_ref();
    let waits = uncounted.is_some_and(|u| u.succeeded.is_some() || u.failed.is_some());
    let Some(end) = end.filter(|_| !waits && status.terminating.unwrap_or(0) == 0) else { return false };
    set(status, end.clone());
    if end.type_ == "Complete" {
        status.completion_time.clone_from(&end.last_transition_time);
    }
    true
}
