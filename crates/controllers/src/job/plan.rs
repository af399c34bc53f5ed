//! Decides which Pods of a Job to create and delete (`syncJob`, `manageJob`).

use super::{
    backoff::{BackoffRecord, finish_time},
    indexes::Indexes,
    policies::{FailureAction, match_success_policy},
    snapshot::{JobSnapshot, condition, count, job_summary},
};
use crate::{int_or_string::saturating_sum, pod_summary::PodSummary, replica_set::pods_to_delete};
use jiff::SignedDuration;
use k8s_openapi::{api::batch::v1::JobCondition, apimachinery::pkg::apis::meta::v1::Time};
use std::{collections::BTreeMap, time::Duration};

/// Maximum number of Pods that one sync creates or deletes (`MaxPodCreateDeletePerSync`).
const MAX_POD_CREATE_DELETE_PER_SYNC: i32 = 500;
pub(super) const FAILURE_TARGET: &str = "FailureTarget";
pub(super) const SUCCESS_CRITERIA_MET: &str = "SuccessCriteriaMet";

#[derive(Debug, PartialEq)]
pub(super) enum PodAction<'a> {
    Nothing,
    /// The Job is finished: delete its active Pods, and count them.
    Terminate(Vec<&'a PodSummary>),
    /// Too many Pods are active, or the Job is suspended: delete these without counting them.
    Remove(Vec<&'a PodSummary>),
    Create(Vec<NewPod>),
}

/// A Pod to create: its index, and the failed Pods of the index before it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct NewPod {
    pub(super) index: Option<i32>,
    pub(super) failures: i32,
    pub(super) ignored: i32,
}

#[derive(Debug)]
pub(super) struct Plan<'a> {
    pub(super) action: PodAction<'a>,
    /// The condition that finishes the Job, if it is met.
    pub(super) finished: Option<JobCondition>,
    /// Delay of the next sync without an event.
    pub(super) requeue_after: Option<Duration>,
}

impl JobSnapshot<'_> {
    pub(super) fn condition(&self, type_: &str, status: &str, reason: &str, message: &str) -> JobCondition {
        JobCondition {
            type_: type_.to_owned(),
            status: status.to_owned(),
            reason: Some(reason.to_owned()).filter(|r| !r.is_empty()),
            message: Some(message.to_owned()).filter(|m| !m.is_empty()),
            last_probe_time: Some(Time(self.now)),
            last_transition_time: Some(Time(self.now)),
        }
    }

    /// Returns the condition that finishes the Job, if it is met.
    fn finished_condition(&self) -> Option<JobCondition> {
        if let Some(met) = condition(&self.status, SUCCESS_CRITERIA_MET) {
            return Some(met.clone());
        }
        let text = |c: &Option<String>| c.clone().unwrap_or_default();
        if let Some(target) = condition(&self.status, FAILURE_TARGET) {
            return Some(self.condition("Failed", "True", &text(&target.reason), &text(&target.message)));
        }
        let failing = |reason, message: &str| Some(self.condition(FAILURE_TARGET, "True", reason, message));
        let actions = self.pods.iter().filter(|pod| self.is_failed(pod)).map(|pod| self.failure_action(pod));
        for action in actions {
            if let FailureAction::FailJob(message) = action {
                return failing("PodFailurePolicy", &message);
            }
        }
        if self.failed() > self.spec.backoff_limit.unwrap_or(6) || self.past_backoff_limit_on_failure() {
            return failing("BackoffLimitExceeded", "Job has reached the specified backoff limit");
        }
        if self.deadline().is_some_and(|left| !left.is_positive()) {
            return failing("DeadlineExceeded", "Job was active longer than specified deadline");
        }
        if !self.is_indexed() {
            return None;
        }
        let indexes = self.succeeded_indexes();
        if let Some(failed) = self.failed_indexes() {
            if self.spec.max_failed_indexes.is_some_and(|limit| failed.total() > limit) {
                let message = "Job has exceeded the specified maximal number of failed indexes";
                return failing("MaxFailedIndexesExceeded", message);
            }
            if !failed.is_empty() && failed.total() + indexes.total() >= self.completions() {
                return failing("FailedIndexes", "Job has failed indexes");
            }
        }
        let message = match_success_policy(self.spec.success_policy.as_ref(), self.completions(), &indexes)?;
        Some(self.condition(SUCCESS_CRITERIA_MET, "True", "SuccessPolicy", &message))
    }

    /// Returns whether container restarts exceed the back-off limit (`pastBackoffLimitOnFailure`).
    fn past_backoff_limit_on_failure(&self) -> bool {
        let policy = self.spec.template.spec.as_ref().and_then(|spec| spec.restart_policy.as_deref());
        let running = self.pods.iter().filter(|pod| matches!(pod.phase.as_str(), "Running" | "Pending"));
        let restarts = saturating_sum(running.map(|pod| job_summary(pod).restarts));
        policy == Some("OnFailure") && restarts >= self.spec.backoff_limit.unwrap_or(6).max(1)
    }

    /// Returns the time until the active deadline.
    fn deadline(&self) -> Option<SignedDuration> {
        let seconds = self.spec.active_deadline_seconds.filter(|_| !self.is_suspended())?;
        let start = self.status.start_time.as_ref()?.0;
        Some(SignedDuration::from_secs(seconds).saturating_sub(self.now.duration_since(start)))
    }

    /// Returns the last failed Pod of each index that has no replacement yet. It is kept until the replacement
    /// exists, which copies its failure count (`getPodsWithDelayedDeletionPerIndex`).
    pub(super) fn pods_with_delayed_deletion_per_index(&self) -> BTreeMap<i32, &PodSummary> {
        let mut last: BTreeMap<i32, &PodSummary> = BTreeMap::new();
        let Some(failed) = self.failed_indexes() else { return last };
        let (active, succeeded) = (self.active_indexes(), self.succeeded_indexes());
        let order =
            |pod: &PodSummary| (job_summary(pod).failures.saturating_add(job_summary(pod).ignored), finish_time(pod));
        for pod in self.pods.iter().filter(|pod| job_summary(pod).tracked && self.is_failed(pod)) {
            let Some(index) = self.index(pod) else { continue };
            if active.has(index) || succeeded.has(index) || failed.has(index) {
                continue;
            }
            let known = last.entry(index).or_insert(pod);
            if order(pod) >= order(known) {
                *known = pod;
            }
        }
        last
    }

    fn active_indexes(&self) -> Indexes {
        self.active().into_iter().filter_map(|pod| job_summary(pod).index).collect()
    }
}

pub(super) fn plan<'a>(snapshot: &JobSnapshot<'a>) -> Plan<'a> {
    if let Some(condition) = snapshot.finished_condition() {
        return Plan {
            action: PodAction::Terminate(snapshot.active()),
            finished: Some(condition),
            requeue_after: None,
        };
    }
    let deadline = snapshot.deadline().and_then(|left| Duration::try_from(left).ok());
    if snapshot.is_deleting() {
        return Plan { action: PodAction::Nothing, finished: None, requeue_after: deadline };
    }
    let (action, backoff) = manage_job(snapshot);
    let requeue_after = [deadline, backoff].into_iter().flatten().min();
    Plan { action, finished: None, requeue_after }
}

/// Returns the Pods to create or delete, and the remaining back-off (`manageJob`).
fn manage_job<'a>(snapshot: &JobSnapshot<'a>) -> (PodAction<'a>, Option<Duration>) {
    let active = snapshot.active();
    let active_count = count(&active);
    if snapshot.is_suspended() {
        let excess = active_pods_for_removal(snapshot, active, active_count);
        return (if excess.is_empty() { PodAction::Nothing } else { PodAction::Remove(excess) }, None);
    }
    let desired = match snapshot.spec.completions {
        // A work queue Job starts no more Pods after the first success.
        None if snapshot.succeeded() > 0 => active_count,
        None => snapshot.parallelism(),
        Some(completions) => completions.saturating_sub(snapshot.succeeded()).min(snapshot.parallelism()).max(0),
    };
    let excess = active_pods_for_removal(snapshot, active, (active_count - desired).max(0));
    if !excess.is_empty() {
        return (PodAction::Remove(excess), None);
    }
    let ending = if snapshot.only_replace_failed_pods() { snapshot.terminating() } else { 0 };
    let missing = (desired - ending - active_count).min(MAX_POD_CREATE_DELETE_PER_SYNC);
    if missing <= 0 {
        return (PodAction::Nothing, None);
    }
    if snapshot.has_backoff_limit_per_index() {
        return create_pods_with_delay_per_index(snapshot, missing);
    }
    let backoff = snapshot.backoff.after(&snapshot.newly_succeeded(), &snapshot.newly_failed());
    if let Some(left) = backoff.remaining(snapshot.now) {
        return (PodAction::Nothing, Some(left));
    }
    let new = |index| NewPod { index, failures: 0, ignored: 0 };
    let all = if snapshot.is_indexed() {
        first_pending_indexes(snapshot, missing).into_iter().map(|index| new(Some(index))).collect()
    } else {
        (0..missing).map(|_| new(None)).collect()
    };
    (PodAction::Create(all), None)
}

/// Creates Pods with a back-off for each index (`getPodCreationInfoForIndependentIndexes`).
fn create_pods_with_delay_per_index<'a>(snapshot: &JobSnapshot<'a>, missing: i32) -> (PodAction<'a>, Option<Duration>) {
    let waiting = snapshot.pods_with_delayed_deletion_per_index();
    let (mut all, mut next) = (Vec::new(), None);
    for index in first_pending_indexes(snapshot, missing) {
        let Some(pod) = waiting.get(&index) else {
            all.push(NewPod { index: Some(index), failures: 0, ignored: 0 });
            continue;
        };
        let (failures, ignored) = (job_summary(pod).failures, job_summary(pod).ignored);
        if let Some(left) =
            BackoffRecord::of_index(failures.saturating_add(ignored).saturating_add(1), finish_time(pod))
                .remaining(snapshot.now)
        {
            next = Some(next.map_or(left, |n: Duration| n.min(left)));
            continue;
        }
        let counts = snapshot.failure_action(pod) != FailureAction::Ignore;
        let (failures, ignored) =
            if counts { (failures.saturating_add(1), ignored) } else { (failures, ignored.saturating_add(1)) };
        all.push(NewPod { index: Some(index), failures, ignored });
    }
    (if all.is_empty() { PodAction::Nothing } else { PodAction::Create(all) }, next)
}

/// Returns the first indexes without a Pod (`firstPendingIndexes`).
fn first_pending_indexes(snapshot: &JobSnapshot<'_>, count: i32) -> Vec<i32> {
    let (active, succeeded, failed) =
        (snapshot.active_indexes(), snapshot.succeeded_indexes(), snapshot.failed_indexes());
    let ending = snapshot.pods.iter().filter(|pod| pod.terminating && snapshot.only_replace_failed_pods());
    let ending: Indexes = ending.filter(|pod| !pod.is_terminal()).filter_map(|pod| job_summary(pod).index).collect();
    let taken = Indexes::any_of([&active, &succeeded, &ending].into_iter().chain(&failed));
    taken.missing(snapshot.completions()).take(usize::try_from(count).unwrap_or(0)).collect()
}

/// Returns the active Pods to delete: those with an invalid or duplicate index, and at least `least`
/// (`activePodsForRemoval`).
fn active_pods_for_removal<'a>(
    snapshot: &JobSnapshot<'_>,
    active: Vec<&'a PodSummary>,
    min_deletions: i32,
) -> Vec<&'a PodSummary> {
    let min_deletions = usize::try_from(min_deletions.min(MAX_POD_CREATE_DELETE_PER_SYNC)).unwrap_or(0);
    let (mut removed, mut remaining) = (Vec::new(), active);
    if snapshot.is_indexed() {
        let mut of_index: BTreeMap<Option<i32>, Vec<&PodSummary>> = BTreeMap::new();
        for pod in remaining.drain(..) {
            of_index.entry(snapshot.index(pod)).or_default().push(pod);
        }
        for (index, pods) in of_index {
            let excess = if index.is_some() { pods.len() - 1 } else { pods.len() };
            let mut sorted = pods_to_delete(pods.clone(), pods.len());
            remaining.extend(sorted.split_off(excess));
            removed.extend(sorted);
        }
    }
    if removed.len() < min_deletions {
        removed.extend(pods_to_delete(remaining, min_deletions - removed.len()));
    }
    removed
}
