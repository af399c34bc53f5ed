//! Snapshot of a Job and its Pods, with derived counts.

use super::{
    backoff::BackoffRecord,
    indexes::Indexes,
    policies::{FailureAction, match_pod_failure_policy},
};
use crate::{
    clock::truncate_to_seconds,
    pod_summary::{JobPodSummary, PodSummary},
};
use jiff::Timestamp;
use k8s_openapi::api::batch::v1::{Job, JobCondition, JobSpec, JobStatus};
use std::sync::Arc;

pub(super) struct JobSnapshot<'a> {
    pub(super) job: &'a Job,
    pub(super) spec: &'a JobSpec,
    pub(super) status: JobStatus,
    /// The Pods that the Job controls.
    pub(super) pods: &'a [Arc<PodSummary>],
    pub(super) backoff: BackoffRecord,
    pub(super) now: Timestamp,
}

/// Returns the Job part of a Pod's summary.
pub(super) fn job_summary(pod: &PodSummary) -> &JobPodSummary {
    const NOTHING: &JobPodSummary = &JobPodSummary {
        tracked: false,
        index: None,
        failures: 0,
        ignored: 0,
        exits: Vec::new(),
        conditions: Vec::new(),
        finished: None,
        restarts: 0,
    };
    pod.job.as_deref().unwrap_or(NOTHING)
}

/// Returns a condition if it is true.
pub(super) fn condition<'a>(status: &'a JobStatus, type_: &str) -> Option<&'a JobCondition> {
    status.conditions.iter().flatten().find(|c| c.type_ == type_ && c.status == "True")
}

/// Returns whether the Job is complete or failed (`IsJobFinished`).
pub(super) fn is_finished(status: &JobStatus) -> bool {
    condition(status, "Complete").is_some() || condition(status, "Failed").is_some()
}

fn uncounted(uids: Option<&Vec<String>>, uid: &str) -> bool {
    uids.is_some_and(|uids| uids.iter().any(|u| u == uid))
}

impl<'a> JobSnapshot<'a> {
    pub(super) fn new(
        job: &'a Job,
        spec: &'a JobSpec,
        pods: &'a [Arc<PodSummary>],
        backoff: BackoffRecord,
        now: Timestamp,
    ) -> Self {
        let mut status = job.status.clone().unwrap_or_default();
        status.uncounted_terminated_pods.get_or_insert_default();
        let now = truncate_to_seconds(now);
        Self { job, spec, status, pods, backoff, now }
    }

    pub(super) fn is_indexed(&self) -> bool {
        self.spec.completion_mode.as_deref() == Some("Indexed")
    }

    pub(super) fn has_backoff_limit_per_index(&self) -> bool {
        self.spec.backoff_limit_per_index.is_some()
    }

    pub(super) fn is_suspended(&self) -> bool {
        self.spec.suspend == Some(true)
    }

    pub(super) fn is_deleting(&self) -> bool {
        self.job.metadata.deletion_timestamp.is_some()
    }

    /// Returns whether Pods are replaced only when they are terminal (`onlyReplaceFailedPods`).
    pub(super) fn only_replace_failed_pods(&self) -> bool {
        self.spec.pod_replacement_policy.as_deref() == Some("Failed") || self.spec.pod_failure_policy.is_some()
    }

    pub(super) fn completions(&self) -> i32 {
        self.spec.completions.unwrap_or(0)
    }

    pub(super) fn parallelism(&self) -> i32 {
        self.spec.parallelism.unwrap_or(1)
    }

    /// Returns the completion index of a Pod, if it is below `completions`.
    pub(super) fn index(&self, pod: &PodSummary) -> Option<i32> {
        job_summary(pod).index.filter(|index| *index < self.completions())
    }

    pub(super) fn active(&self) -> Vec<&'a PodSummary> {
        self.pods.iter().map(AsRef::as_ref).filter(|pod: &&PodSummary| pod.active).collect()
    }

    pub(super) fn terminating(&self) -> i32 {
        count(self.pods.iter().filter(|pod| pod.terminating && !pod.is_terminal()))
    }

    /// Returns whether a Pod counts as failed (`isPodFailed`).
    pub(super) fn is_failed(&self, pod: &PodSummary) -> bool {
        let only_when_ended = self.only_replace_failed_pods();
        pod.phase == "Failed" || (!only_when_ended && pod.terminating && pod.phase != "Succeeded")
    }

    pub(super) fn failure_action(&self, pod: &PodSummary) -> FailureAction {
        match_pod_failure_policy(self.spec.pod_failure_policy.as_ref(), pod)
    }

    pub(super) fn is_uncounted_success(&self, pod: &PodSummary) -> bool {
        uncounted(self.status.uncounted_terminated_pods.as_ref().and_then(|u| u.succeeded.as_ref()), &pod.uid)
    }

    pub(super) fn is_uncounted_failure(&self, pod: &PodSummary) -> bool {
        uncounted(self.status.uncounted_terminated_pods.as_ref().and_then(|u| u.failed.as_ref()), &pod.uid)
    }

    /// Returns the Pods with the tracking finalizer and a valid index.
    fn uncounted_pods(&self) -> impl Iterator<Item = &'a PodSummary> {
        let valid = |pod: &&PodSummary| job_summary(pod).tracked && (!self.is_indexed() || self.index(pod).is_some());
        self.pods.iter().map(AsRef::as_ref).filter(valid)
    }

    pub(super) fn newly_succeeded(&self) -> Vec<&'a PodSummary> {
        self.uncounted_pods().filter(|pod| pod.phase == "Succeeded" && !self.is_uncounted_success(pod)).collect()
    }

    pub(super) fn newly_failed(&self) -> Vec<&'a PodSummary> {
        self.uncounted_pods().filter(|pod| self.is_failed(pod) && !self.is_uncounted_failure(pod)).collect()
    }

    pub(super) fn succeeded(&self) -> i32 {
        if self.is_indexed() {
            return self.succeeded_indexes().total();
        }
        let waiting = self.status.uncounted_terminated_pods.as_ref().and_then(|u| u.succeeded.as_ref());
        let known = self.status.succeeded.unwrap_or(0);
        known.saturating_add(count(waiting.into_iter().flatten()) + count(self.newly_succeeded()))
    }

    pub(super) fn failed(&self) -> i32 {
        let waiting = self.status.uncounted_terminated_pods.as_ref().and_then(|u| u.failed.as_ref());
        let new = self.newly_failed().into_iter().filter(|pod| self.failure_action(pod) != FailureAction::Ignore);
        self.status.failed.unwrap_or(0).saturating_add(count(waiting.into_iter().flatten()) + count(new))
    }

    /// Returns the completed indexes of the status.
    pub(super) fn recorded_completed_indexes(&self) -> Indexes {
        Indexes::parse(self.status.completed_indexes.as_deref().unwrap_or(""), self.completions())
    }

    pub(super) fn succeeded_indexes(&self) -> Indexes {
        let new = self.uncounted_pods().filter(|pod| pod.phase == "Succeeded");
        Indexes::any_of([&self.recorded_completed_indexes(), &new.filter_map(|pod| self.index(pod)).collect()])
    }

    /// Returns the failed indexes; `None` without `backoffLimitPerIndex`.
    pub(super) fn failed_indexes(&self) -> Option<Indexes> {
        let limit = self.spec.backoff_limit_per_index?;
        let known = Indexes::parse(self.status.failed_indexes.as_deref().unwrap_or(""), self.completions());
        let fails = |pod: &&PodSummary| {
            self.is_failed(pod)
                && match self.failure_action(pod) {
                    FailureAction::FailIndex => true,
                    FailureAction::Ignore => false,
                    FailureAction::Count | FailureAction::FailJob(_) => job_summary(pod).failures >= limit,
                }
        };
        let new = self.uncounted_pods().filter(fails).filter_map(|pod| self.index(pod)).collect();
        Some(Indexes::any_of([&known, &new]))
    }
}

pub(super) fn count<I: IntoIterator>(items: I) -> i32 {
    i32::try_from(items.into_iter().count()).unwrap_or(i32::MAX)
}
