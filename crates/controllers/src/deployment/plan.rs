//! What is to be done for a Deployment (`syncDeployment`): its ReplicaSets as they shall be, and its status.

use super::limits::is_rolling;
use super::replica_set::PlannedReplicaSet;
use super::rollout::Rollout;
use super::status::progress_check_at;
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{Deployment, DeploymentSpec, DeploymentStatus, ReplicaSet};
use std::sync::Arc;

#[derive(Debug)]
pub(super) struct Plan {
    /// The ReplicaSets that are to be made, changed or removed.
    pub(super) changed: Vec<PlannedReplicaSet>,
    pub(super) status: DeploymentStatus,
    /// Which of its ReplicaSets is the newest, counted from the first.
    pub(super) revision: Option<String>,
    /// When to look again without a change.
    pub(super) requeue_at: Option<Timestamp>,
}

/// `sets` are the Deployment's; `old_pods_running` says whether Pods of others than this one still run.
pub(super) fn plan(
    deployment: &Deployment,
    spec: &DeploymentSpec,
    sets: &[Arc<ReplicaSet>],
    old_pods_running: impl Fn(Option<&PlannedReplicaSet>) -> bool,
    now: Timestamp,
) -> Plan {
    let mut rollout = Rollout::new(deployment, spec, sets, now);
    let is_deleting = deployment.metadata.deletion_timestamp.is_some();
    if !is_deleting {
        rollout.check_paused_conditions();
    }
    rollout.sync_new_replica_set();
    let paused = spec.paused == Some(true);
    let status = if is_deleting {
        rollout.calculate_status()
    } else if paused || rollout.is_scaled() {
        rollout.scale();
        if paused {
            rollout.cleanup_deployment();
        }
        rollout.calculate_status()
    } else if is_rolling(spec) {
        rollout.rollout_rolling();
        rollout.rollout_status()
    } else {
        let running = old_pods_running(rollout.new_replica_set());
        rollout.rollout_recreate(running);
        rollout.rollout_status()
    };
    let requeue_at = if is_deleting { None } else { progress_check_at(deployment, spec, &status) };
    let changed = rollout.sets.into_iter().filter(|set| set.deleted || set.is_changed()).collect();
    Plan { changed, status, revision: rollout.revision, requeue_at }
}

/// The status after the new ReplicaSet could not be made.
pub(super) fn create_error_status(
    deployment: &Deployment,
    spec: &DeploymentSpec,
    message: String,
    now: Timestamp,
) -> DeploymentStatus {
    let mut rollout = Rollout::new(deployment, spec, &[], now);
    rollout.set_create_error_condition(message);
    rollout.status
}
