//! Decides the desired ReplicaSets and the status of a Deployment (`syncDeployment`).

use super::{limits::is_rolling, replica_set::PlannedReplicaSet, rollout_state::Rollout, status::progress_check_at};
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{Deployment, DeploymentSpec, DeploymentStatus, ReplicaSet};
use std::sync::Arc;

#[derive(Debug)]
pub(super) struct Plan {
    /// ReplicaSets to create, patch or delete.
    pub(super) changed: Vec<PlannedReplicaSet>,
    pub(super) status: DeploymentStatus,
    /// Value of the Deployment's revision annotation.
    pub(super) revision: Option<String>,
    /// When to sync again without an event.
    pub(super) requeue_at: Option<Timestamp>,
}

/// Plans a sync (`syncDeployment`). `sets` are the Deployment's ReplicaSets; `old_pods_running` returns whether Pods of
/// others than the new ReplicaSet run.
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

/// Returns the status after the creation of the new ReplicaSet failed.
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
