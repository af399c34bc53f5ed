//! Status of a Deployment: replica counts, and the conditions `Available`, `Progressing` and `ReplicaFailure`.

use super::{
    limits::{max_unavailable, replicas},
    replica_set::PlannedReplicaSet,
    rollout_state::Rollout,
};
use crate::int_or_string::saturating_sum;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::{
    api::apps::v1::{Deployment, DeploymentCondition, DeploymentSpec, DeploymentStatus},
    apimachinery::pkg::apis::meta::v1::Time,
};

const PROGRESSING: &str = "Progressing";
const AVAILABLE: &str = "Available";
const REPLICA_FAILURE: &str = "ReplicaFailure";
/// The rollout has exceeded its progress deadline.
const PROGRESS_DEADLINE_EXCEEDED: &str = "ProgressDeadlineExceeded";
/// The rollout is complete.
const NEW_REPLICA_SET_AVAILABLE: &str = "NewReplicaSetAvailable";
const DEPLOYMENT_PAUSED: &str = "DeploymentPaused";

pub(super) fn condition<'a>(status: &'a DeploymentStatus, type_: &str) -> Option<&'a DeploymentCondition> {
    status.conditions.iter().flatten().find(|c| c.type_ == type_)
}

/// Sets a condition (`SetDeploymentCondition`). Same status and reason leave it unchanged.
fn set(status: &mut DeploymentStatus, mut new: DeploymentCondition) {
    let known = condition(status, &new.type_).cloned();
    if known.as_ref().is_some_and(|known| known.status == new.status && known.reason == new.reason) {
        return;
    }
    if let Some(known) = known.filter(|known| known.status == new.status) {
        new.last_transition_time = known.last_transition_time;
    }
    remove(status, &new.type_);
    status.conditions.get_or_insert_default().push(new);
}

fn remove(status: &mut DeploymentStatus, type_: &str) {
    if let Some(conditions) = &mut status.conditions {
        conditions.retain(|c| c.type_ != type_);
    }
    status.conditions = status.conditions.take().filter(|c| !c.is_empty());
}

fn is_reason(condition: Option<&DeploymentCondition>, reason: &str) -> bool {
    condition.is_some_and(|c| c.reason.as_deref() == Some(reason))
}

/// Returns `progressDeadlineSeconds`, `None` if unlimited.
fn deadline(spec: &DeploymentSpec) -> Option<SignedDuration> {
    let seconds = spec.progress_deadline_seconds.filter(|seconds| *seconds != i32::MAX)?;
    Some(SignedDuration::from_secs(i64::from(seconds)))
}

/// Returns whether the rollout is complete (`DeploymentComplete`).
pub(super) fn is_complete(deployment: &Deployment, spec: &DeploymentSpec, status: &DeploymentStatus) -> bool {
    let desired = Some(replicas(spec));
    let number = |n: Option<i32>| Some(n.unwrap_or(0));
    number(status.updated_replicas) == desired
        && number(status.replicas) == desired
        && number(status.available_replicas) == desired
        && status.observed_generation >= deployment.metadata.generation
}

/// Returns whether the rollout has progressed: more updated, fewer old, or more ready or available Pods
/// (`DeploymentProgressing`).
fn is_progress(old_status: &DeploymentStatus, after: &DeploymentStatus) -> bool {
    let number = |n: Option<i32>| n.unwrap_or(0);
    let old = |s: &DeploymentStatus| number(s.replicas).saturating_sub(number(s.updated_replicas));
    number(after.updated_replicas) > number(old_status.updated_replicas)
        || old(after) < old(old_status)
        || number(after.ready_replicas) > number(old_status.ready_replicas)
        || number(after.available_replicas) > number(old_status.available_replicas)
}

impl Rollout<'_> {
    fn condition(&self, type_: &str, status: &str, reason: &str, message: String) -> DeploymentCondition {
        DeploymentCondition {
            type_: type_.to_owned(),
            status: status.to_owned(),
            reason: Some(reason.to_owned()),
            message: Some(message),
            last_update_time: Some(Time(self.now)),
            last_transition_time: Some(Time(self.now)),
        }
    }

    fn set_progressing(&mut self, status: &str, reason: &str, message: String) {
        if deadline(self.spec).is_some() {
            let new = self.condition(PROGRESSING, status, reason, message);
            set(&mut self.status, new);
        }
    }

    pub(super) fn set_found_condition(&mut self, name: &str) {
        if condition(&self.status, PROGRESSING).is_none() {
            self.set_progressing("True", "FoundNewReplicaSet", format!("Found new replica set \"{name}\""));
        }
    }

    pub(super) fn set_created_condition(&mut self, name: &str) {
        self.set_progressing("True", "NewReplicaSetCreated", format!("Created new replica set \"{name}\""));
    }

    pub(super) fn set_create_error_condition(&mut self, message: String) {
        self.set_progressing("False", "ReplicaSetCreateError", message);
    }

    /// Sets `Progressing` when the Deployment is paused or resumed (`checkPausedConditions`).
    pub(super) fn check_paused_conditions(&mut self) {
        let known = condition(&self.status, PROGRESSING);
        if is_reason(known, PROGRESS_DEADLINE_EXCEEDED) {
            return;
        }
        match (self.spec.paused == Some(true), is_reason(known, DEPLOYMENT_PAUSED)) {
            (true, false) => self.set_progressing("Unknown", DEPLOYMENT_PAUSED, "Deployment is paused".to_owned()),
            (false, true) => self.set_progressing("Unknown", "DeploymentResumed", "Deployment is resumed".to_owned()),
            _ => {}
        }
    }

    /// Returns replica counts and `Available` (`calculateStatus`).
    pub(super) fn calculate_status(&self) -> DeploymentStatus {
        let some = |n: i32| Some(n).filter(|n| *n != 0);
        let sum = |count: fn(&PlannedReplicaSet) -> i32| saturating_sum(self.sets.iter().map(count));
        let (available, size) = (sum(PlannedReplicaSet::available_replicas), sum(PlannedReplicaSet::spec_replicas));
        // A ReplicaSet that was never synced has an unknown number of terminating Pods.
        let made = || self.sets.iter().filter(|set| set.observed.is_some());
        let mut status = DeploymentStatus {
            observed_generation: self.deployment.metadata.generation,
            replicas: some(sum(PlannedReplicaSet::status_replicas)),
            updated_replicas: some(self.new_replica_set().map_or(0, PlannedReplicaSet::status_replicas)),
            ready_replicas: some(sum(PlannedReplicaSet::ready_replicas)),
            available_replicas: some(available),
            unavailable_replicas: some(size.saturating_sub(available).max(0)),
            terminating_replicas: made()
                .map(PlannedReplicaSet::terminating_replicas)
                .try_fold(0, |all, n| Some(i32::saturating_add(all, n?))),
            collision_count: self.status.collision_count,
            conditions: self.status.conditions.clone(),
        };
        let enough = available >= replicas(self.spec).saturating_sub(max_unavailable(self.spec));
        let (value, reason, message) = if enough {
            ("True", "MinimumReplicasAvailable", "Deployment has minimum availability.")
        } else {
            ("False", "MinimumReplicasUnavailable", "Deployment does not have minimum availability.")
        };
        set(&mut status, self.condition(AVAILABLE, value, reason, message.to_owned()));
        status
    }

    /// Returns [`Self::calculate_status`] with `Progressing` and `ReplicaFailure` (`syncRolloutStatus`).
    pub(super) fn rollout_status(&self) -> DeploymentStatus {
        let mut status = self.calculate_status();
        if deadline(self.spec).is_none() {
            remove(&mut status, PROGRESSING);
        }
        let known = condition(&self.status, PROGRESSING);
        let was_done = status.replicas == status.updated_replicas && is_reason(known, NEW_REPLICA_SET_AVAILABLE);
        if deadline(self.spec).is_some() && !was_done {
            self.update_progressing(&mut status, known);
        }
        match self.failure() {
            Some(failure) => set(&mut status, failure),
            None => remove(&mut status, REPLICA_FAILURE),
        }
        status
    }

    fn update_progressing(&self, status: &mut DeploymentStatus, known: Option<&DeploymentCondition>) {
        let subject = match self.new_replica_set() {
            Some(new) => format!("ReplicaSet \"{}\"", new.name()),
            None => format!("Deployment \"{}\"", self.name()),
        };
        let new =
            |value, reason, progress: &str| self.condition(PROGRESSING, value, reason, format!("{subject} {progress}"));
        if is_complete(self.deployment, self.spec, status) {
            set(status, new("True", NEW_REPLICA_SET_AVAILABLE, "has successfully progressed."));
        } else if is_progress(&self.status, status) {
            let mut progress = new("True", "ReplicaSetUpdated", "is progressing.");
            if let Some(known) = known {
                if known.status == "True" {
                    progress.last_transition_time = known.last_transition_time.clone();
                }
                // Replace the condition, because the deadline is counted from its update time.
                remove(status, PROGRESSING);
            }
            set(status, progress);
        } else if self.is_timed_out(status) {
            set(status, new("False", PROGRESS_DEADLINE_EXCEEDED, "has timed out progressing."));
        }
    }

    /// Returns whether the progress deadline has passed (`DeploymentTimedOut`).
    fn is_timed_out(&self, status: &DeploymentStatus) -> bool {
        match condition(status, PROGRESSING) {
            Some(c) if is_reason(Some(c), NEW_REPLICA_SET_AVAILABLE) => false,
            Some(c) if is_reason(Some(c), PROGRESS_DEADLINE_EXCEEDED) => true,
            Some(c) => progress_deadline_at(self.spec, c).is_some_and(|due| due < self.now),
            None => false,
        }
    }

    /// Returns the first `ReplicaFailure` condition, the new ReplicaSet's before those of others.
    fn failure(&self) -> Option<DeploymentCondition> {
        let conditions = |set: &PlannedReplicaSet| {
            set.planned.status.as_ref().and_then(|s| s.conditions.clone()).unwrap_or_default()
        };
        let all = self.new_replica_set().into_iter().chain(&self.sets);
        let failure = all.flat_map(conditions).find(|c| c.type_ == REPLICA_FAILURE)?;
        Some(DeploymentCondition {
            type_: failure.type_,
            status: failure.status,
            reason: failure.reason,
            message: failure.message,
            last_update_time: failure.last_transition_time.clone(),
            last_transition_time: failure.last_transition_time,
        })
    }
}

fn progress_deadline_at(spec: &DeploymentSpec, progressing: &DeploymentCondition) -> Option<Timestamp> {
    let since = progressing.last_update_time.as_ref()?.0;
    since.checked_add(deadline(spec)?).ok()
}

/// Returns when the progress deadline passes (`requeueStuckDeployment`).
pub(super) fn progress_check_at(
    deployment: &Deployment,
    spec: &DeploymentSpec,
    status: &DeploymentStatus,
) -> Option<Timestamp> {
    let progressing = condition(status, PROGRESSING)?;
    let settled = is_complete(deployment, spec, status) || is_reason(Some(progressing), PROGRESS_DEADLINE_EXCEEDED);
    if settled || spec.paused == Some(true) {
        return None;
    }
    progress_deadline_at(spec, progressing)?.checked_add(SignedDuration::from_secs(1)).ok()
}
