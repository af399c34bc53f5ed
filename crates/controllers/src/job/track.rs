//! How a Job counts its Pods, each exactly once (`trackJobStatusAndRemoveFinalizers`).
//!
//! A Pod that has ended is noted in the status by its UID; once that is written, its finalizer is removed; once that is
//! done, it is counted, and its UID forgotten. Whatever breaks off in between is taken up again.

use super::facts::{Facts, condition, count, part};
use super::plan::{FAILING, Plan, SUCCEEDING, Todo};
use super::policy::Verdict;
use crate::pod_summary::PodSummary;
use k8s_openapi::api::batch::v1::{JobCondition, JobStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use std::collections::HashSet;

/// No more UIDs are noted at once: a status stays small.
const MOST: usize = 500;

/// What came of a plan.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Outcome {
    /// How many Pods were made, or deleted.
    pub(super) done: i32,
    pub(super) failed: bool,
}

#[derive(Debug)]
pub(super) struct Tracked<'a> {
    /// To be written before finalizers are removed.
    pub(super) status: JobStatus,
    /// Their finalizers are to be removed.
    pub(super) release: Vec<&'a PodSummary>,
    /// What the Job is when all are counted.
    pub(super) end: Option<JobCondition>,
    /// What is to be told: a reason and a message.
    pub(super) told: Vec<(&'static str, &'static str)>,
}

/// The status after a plan was carried out.
pub(super) fn track<'a>(facts: &Facts<'a>, plan: &Plan<'a>, outcome: Outcome) -> Tracked<'a> {
    let mut status = facts.status.clone();
    if status.start_time.is_none() && !facts.is_suspended() {
        status.start_time = Some(Time(facts.now));
    }
    let (mut active, mut terminating) = (count(facts.active()), facts.terminating());
    let mut ready = count(facts.active().into_iter().filter(|pod| pod.ready.is_some()));
    match &plan.todo {
        Todo::Nothing => {}
        Todo::Make(_) => active += outcome.done,
        Todo::End(pods) | Todo::Drop(pods) => {
            active -= outcome.done;
            terminating += outcome.done;
            ready -= count(pods.iter().take(usize::try_from(outcome.done).unwrap_or(0)).filter(|p| p.ready.is_some()));
        }
    }
    let mut told = Vec::new();
    let end = match &plan.ends {
        // Not before all its Pods are on their way out.
        Some(end) => Some(end.clone()).filter(|_| !outcome.failed),
        None if is_complete(facts, active) => {
            let message = "Reached expected number of succeeded pods";
            Some(facts.condition(SUCCEEDING, "True", "CompletionsReached", message))
        }
        None => {
            if !facts.is_deleted() {
                told.extend(suspend(facts, &mut status));
            }
            None
        }
    };
    status.active = Some(active).filter(|n| *n != 0);
    status.ready = Some(ready);
    status.terminating = Some(terminating);
    let (release, all) = note(facts, &mut status, end.as_ref());
    let end = end.map(|end| announce(facts, &mut status, end)).filter(|_| all);
    Tracked { status, release, end, told }
}

fn is_complete(facts: &Facts<'_>, active: i32) -> bool {
    active == 0 && facts.succeeded() >= facts.spec.completions.unwrap_or(1)
}

/// Whether it is suspended is a condition once it was.
fn suspend(facts: &Facts<'_>, status: &mut JobStatus) -> Option<(&'static str, &'static str)> {
    let known = status.conditions.iter().flatten().find(|c| c.type_ == "Suspended").map(|c| c.status == "True");
    match (facts.is_suspended(), known) {
        (true, None | Some(false)) => {
            set(status, facts.condition("Suspended", "True", "JobSuspended", "Job suspended"));
            Some(("Suspended", "Job suspended"))
        }
        (false, Some(true)) => {
            set(status, facts.condition("Suspended", "False", "JobResumed", "Job resumed"));
            // The deadline counts from here.
            status.start_time = Some(Time(facts.now));
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

/// Notes who has ended; gives whose finalizers may go, and whether these are all.
fn note<'a>(facts: &Facts<'a>, status: &mut JobStatus, end: Option<&JobCondition>) -> (Vec<&'a PodSummary>, bool) {
    let tracked: Vec<&PodSummary> = facts.pods.iter().map(AsRef::as_ref).filter(|pod| part(pod).tracked).collect();
    forget(status, &tracked.iter().map(|pod| pod.uid.as_str()).collect());
    let waiting = facts.waiting_for_another();
    let mut indexes = facts.succeeded_indexes();
    let mut uncounted = status.uncounted_terminated_pods.clone().unwrap_or_default();
    let mut noted = uncounted.succeeded.iter().flatten().count() + uncounted.failed.iter().flatten().count();
    let (mut release, mut all) = (Vec::new(), true);
    for pod in tracked {
        let failed = facts.is_failed(pod);
        let waits = part(pod).index.is_some_and(|index| waiting.get(&index).is_some_and(|w| w.is_same(pod)));
        let ended = facts.is_deleted() || end.is_some() || pod.phase == "Succeeded" || (failed && !waits);
        if !ended {
            continue;
        }
        if noted >= MOST {
            all = false;
            break;
        }
        release.push(pod);
        let counts = facts.index(pod).is_some() || !facts.is_indexed();
        if pod.phase == "Succeeded" && !facts.is_uncounted_failure(pod) {
            if !facts.is_indexed() && !facts.is_uncounted_success(pod) {
                uncounted.succeeded.get_or_insert_default().push(pod.uid.clone());
                noted += 1;
            } else if let Some(index) = facts.index(pod) {
                indexes.add(index);
            }
        } else if failed || end.is_some_and(|end| end.type_ != SUCCEEDING) {
            // Whoever still runs when the Job fails has failed too.
            if counts && !facts.is_uncounted_failure(pod) && facts.verdict(pod) != Verdict::Ignored {
                uncounted.failed.get_or_insert_default().push(pod.uid.clone());
                noted += 1;
            }
        }
    }
    status.uncounted_terminated_pods = Some(uncounted);
    if facts.is_indexed() {
        let text = |indexes: &super::indexes::Indexes| Some(indexes.to_string()).filter(|text| !text.is_empty());
        status.succeeded = Some(indexes.total()).filter(|n| *n != 0);
        status.completed_indexes = text(&indexes);
        status.failed_indexes = facts.failed_indexes().map(|failed| failed.to_string());
    }
    (release, all)
}

/// Tells that the Job will end; gives what it is then.
fn announce(facts: &Facts<'_>, status: &mut JobStatus, end: JobCondition) -> JobCondition {
    let last = match end.type_.as_str() {
        FAILING => "Failed",
        SUCCEEDING => "Complete",
        _ => return end,
    };
    if condition(status, &end.type_).is_none() {
        status.conditions.get_or_insert_default().push(end.clone());
    }
    facts.condition(last, "True", &end.reason.unwrap_or_default(), &end.message.unwrap_or_default())
}

/// Counts those that are noted and hold no finalizer any more; `held` are the UIDs of those that do.
fn forget(status: &mut JobStatus, held: &HashSet<&str>) {
    let some = |n: i32| Some(n).filter(|n| *n != 0);
    let mut uncounted = status.uncounted_terminated_pods.take().unwrap_or_default();
    let split = |uids: Option<Vec<String>>| {
        let uids = uids.unwrap_or_default();
        let before = count(&uids);
        let left: Vec<String> = uids.into_iter().filter(|uid| held.contains(uid.as_str())).collect();
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

/// The status once finalizers are removed; `held` are the UIDs of Pods that hold theirs. Gives whether the Job has
/// ended: not before all are counted and gone.
pub(super) fn settle(status: &mut JobStatus, end: Option<&JobCondition>, held: &HashSet<&str>) -> bool {
    forget(status, held);
    let uncounted = status.uncounted_terminated_pods.as_ref();
    let waits = uncounted.is_some_and(|u| u.succeeded.is_some() || u.failed.is_some());
    let Some(end) = end.filter(|_| !waits && status.terminating.unwrap_or(0) == 0) else { return false };
    set(status, end.clone());
    if end.type_ == "Complete" {
        status.completion_time.clone_from(&end.last_transition_time);
    }
    true
}
