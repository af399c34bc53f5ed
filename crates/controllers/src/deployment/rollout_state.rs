//! Working state of a sync: a Deployment and its planned ReplicaSets.

use super::{replica_set::PlannedReplicaSet, template};
use crate::{clock::truncate_to_seconds, int_or_string::saturating_sum};
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{Deployment, DeploymentSpec, DeploymentStatus, ReplicaSet};
use std::sync::Arc;

/// A Deployment and its planned ReplicaSets. The methods of the strategies change the plan.
pub(super) struct Rollout<'a> {
    pub(super) deployment: &'a Deployment,
    pub(super) spec: &'a DeploymentSpec,
    /// Sorted by age, oldest first.
    pub(super) sets: Vec<PlannedReplicaSet>,
    /// Index of the ReplicaSet with the Deployment's current template.
    pub(super) new: Option<usize>,
    /// The observed status, with conditions that this sync has set.
    pub(super) status: DeploymentStatus,
    /// Value of the Deployment's revision annotation, if known.
    pub(super) revision: Option<String>,
    pub(super) now: Timestamp,
}

impl<'a> Rollout<'a> {
    pub(super) fn new(
        deployment: &'a Deployment,
        spec: &'a DeploymentSpec,
        sets: &[Arc<ReplicaSet>],
        now: Timestamp,
    ) -> Self {
        let mut sets: Vec<PlannedReplicaSet> = sets.iter().map(PlannedReplicaSet::existing).collect();
        let age = |set: &PlannedReplicaSet| set.planned.metadata.creation_timestamp.as_ref().map(|t| t.0);
        sets.sort_by(|a, b| age(a).cmp(&age(b)).then_with(|| a.name().cmp(b.name())));
        let new = sets.iter().position(|set| {
            let template = set.planned.spec.as_ref().and_then(|s| s.template.as_ref());
            template.is_some_and(|template| template::equal_ignore_hash(template, &spec.template))
        });
        let status = deployment.status.clone().unwrap_or_default();
        let now = truncate_to_seconds(now);
        Self { deployment, spec, sets, new, status, revision: None, now }
    }

    pub(super) fn name(&self) -> &str {
        self.deployment.metadata.name.as_deref().unwrap_or_default()
    }

    pub(super) fn new_replica_set(&self) -> Option<&PlannedReplicaSet> {
        self.sets.get(self.new?)
    }

    /// Returns the indexes of the ReplicaSets with other templates, oldest first.
    pub(super) fn old_replica_sets(&self) -> Vec<usize> {
        (0..self.sets.len()).filter(|i| Some(*i) != self.new).collect()
    }

    /// Returns the sum of their planned `spec.replicas`.
    pub(super) fn total_spec_replicas(&self, indexes: &[usize]) -> i32 {
        saturating_sum(indexes.iter().map(|i| self.sets[*i].spec_replicas()))
    }

    pub(super) fn all(&self) -> Vec<usize> {
        (0..self.sets.len()).collect()
    }

    /// Returns those whose planned `spec.replicas` is not 0.
    pub(super) fn active(&self, indexes: &[usize]) -> Vec<usize> {
        indexes.iter().copied().filter(|i| self.sets[*i].spec_replicas() > 0).collect()
    }
}
