//! What is to be done for a Deployment (`syncDeployment`): its ReplicaSets as they shall be, and its status.

use super::limits::is_rolling;
use super::rollout::Rollout;
use super::set::Set;
use super::status::late;
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{Deployment, DeploymentSpec, DeploymentStatus, ReplicaSet};
use std::sync::Arc;

#[derive(Debug)]
pub(super) struct Plan {
    /// The ReplicaSets that are to be made, changed or removed.
    pub(super) changes: Vec<Set>,
    pub(super) status: DeploymentStatus,
    /// Which of its ReplicaSets is the newest, counted from the first.
    pub(super) revision: Option<String>,
    /// When to look again without a change.
    pub(super) again: Option<Timestamp>,
}

/// `sets` are the Deployment's; `old_pods_run` says whether Pods of others than this one still run.
pub(super) fn plan(
    deployment: &Deployment,
    spec: &DeploymentSpec,
    sets: &[Arc<ReplicaSet>],
    old_pods_run: impl Fn(Option<&Set>) -> bool,
    now: Timestamp,
) -> Plan {
    let mut rollout = Rollout::new(deployment, spec, sets, now);
    let ending = deployment.metadata.deletion_timestamp.is_some();
    if !ending {
        rollout.note_pause();
    }
    rollout.sync_newest();
    let paused = spec.paused == Some(true);
    let status = if ending {
        rollout.counted()
    } else if paused || rollout.is_scaled() {
        rollout.scale();
        if paused {
            rollout.clean_up();
        }
        rollout.counted()
    } else if is_rolling(spec) {
        rollout.roll();
        rollout.judged()
    } else {
        let running = old_pods_run(rollout.newest());
        rollout.recreate(running);
        rollout.judged()
    };
    let again = if ending { None } else { late(deployment, spec, &status) };
    let changes = rollout.sets.into_iter().filter(|set| set.gone || set.changes()).collect();
    Plan { changes, status, revision: rollout.revision, again }
}

/// The status after the new ReplicaSet could not be made.
pub(super) fn failed(
    deployment: &Deployment,
    spec: &DeploymentSpec,
    message: String,
    now: Timestamp,
) -> DeploymentStatus {
    let mut rollout = Rollout::new(deployment, spec, &[], now);
    rollout.could_not_make(message);
    rollout.status
}
