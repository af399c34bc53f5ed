//! Working state of a sync: a Deployment and its planned ReplicaSets.

use super::{
    limits::{max_replicas, replicas},
    replica_set::{PlannedReplicaSet, REVISION},
    template::{self, POD_TEMPLATE_HASH},
};
use crate::{clock::truncate_to_seconds, int_or_string::saturating_sum, pod_control::new_controller_ref};
use jiff::Timestamp;
use k8s_openapi::{
    api::apps::v1::{Deployment, DeploymentSpec, DeploymentStatus, ReplicaSet, ReplicaSetSpec},
    apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta},
};
use std::{collections::BTreeMap, sync::Arc};

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

    fn next_revision(&self) -> i64 {
        self.old_replica_sets().iter().map(|i| self.sets[*i].revision()).max().unwrap_or(0).saturating_add(1)
    }

    /// Updates annotations, revision and `minReadySeconds` of the new ReplicaSet, if it exists.
    pub(super) fn sync_new_replica_set(&mut self) {
        let (Some(new), revision) = (self.new, self.next_revision()) else { return };
        let (annotations, after) = (self.deployment.metadata.annotations.as_ref(), self.spec.min_ready_seconds);
        let set = &mut self.sets[new];
        set.set_new_replica_set_annotations(annotations, revision);
        if let Some(spec) = set.planned.spec.as_mut()
            && spec.min_ready_seconds.unwrap_or(0) != after.unwrap_or(0)
        {
            spec.min_ready_seconds = after;
        }
        self.revision = set.planned.metadata.annotations.as_ref().and_then(|a| a.get(REVISION).cloned());
        let name = set.name().to_owned();
        self.set_found_condition(&name);
    }

    /// Creates the new ReplicaSet unless it exists (`getNewReplicaSet`).
    pub(super) fn create_new_replica_set(&mut self) {
        if self.new.is_some() {
            return;
        }
        let revision = self.next_revision();
        let mut set = PlannedReplicaSet::new(self.build_new_replica_set());
        set.set_new_replica_set_annotations(self.deployment.metadata.annotations.as_ref(), revision);
        set.set_replicas_annotations(self.spec);
        let (new, name) = (self.sets.len(), set.name().to_owned());
        self.sets.push(set);
        self.new = Some(new);
        let size = self.new_rs_new_replicas();
        self.sets[new].scale(size, self.spec);
        self.revision = Some(revision.to_string());
        self.set_created_condition(&name);
    }

    fn build_new_replica_set(&self) -> ReplicaSet {
        let hash = template::hash(&self.spec.template, self.status.collision_count);
        let hashed = |labels: Option<BTreeMap<String, String>>| {
            let mut labels = labels.unwrap_or_default();
            labels.insert(POD_TEMPLATE_HASH.to_owned(), hash.clone());
            Some(labels)
        };
        let mut template = self.spec.template.clone();
        let meta = template.metadata.get_or_insert_default();
        meta.labels = hashed(meta.labels.take());
        let labels = meta.labels.clone();
        let selector = LabelSelector {
            match_labels: hashed(self.spec.selector.match_labels.clone()),
            match_expressions: self.spec.selector.match_expressions.clone(),
        };
        ReplicaSet {
            metadata: ObjectMeta {
                name: Some(format!("{}-{hash}", self.name())),
                namespace: self.deployment.metadata.namespace.clone(),
                owner_references: Some(vec![new_controller_ref(self.deployment)]),
                labels,
                ..ObjectMeta::default()
            },
            spec: Some(ReplicaSetSpec {
                replicas: Some(0),
                min_ready_seconds: self.spec.min_ready_seconds,
                selector,
                template: Some(template),
            }),
            status: None,
        }
    }

    /// Returns `spec.replicas` of the new ReplicaSet for this step of the rollout (`NewRSNewReplicas`).
    pub(super) fn new_rs_new_replicas(&self) -> i32 {
        let size = self.new_replica_set().map_or(0, PlannedReplicaSet::spec_replicas);
        if !super::limits::is_rolling(self.spec) {
            return replicas(self.spec);
        }
        let remaining = max_replicas(self.spec).saturating_sub(self.total_spec_replicas(&self.all()));
        if remaining <= 0 { size } else { size.saturating_add(remaining.min(replicas(self.spec).saturating_sub(size))) }
    }

    /// Deletes the oldest old ReplicaSets without Pods beyond `revisionHistoryLimit` (`cleanupDeployment`).
    pub(super) fn cleanup_deployment(&mut self) {
        let Some(limit) = self.spec.revision_history_limit.filter(|limit| *limit != i32::MAX) else { return };
        let alive = |set: &PlannedReplicaSet| set.planned.metadata.deletion_timestamp.is_none();
        let mut old: Vec<usize> = self.old_replica_sets().into_iter().filter(|i| alive(&self.sets[*i])).collect();
        old.sort_by_key(|i| self.sets[*i].revision());
        let excess = old.len().saturating_sub(usize::try_from(limit).unwrap_or(0));
        for i in old.into_iter().take(excess) {
            let set = &mut self.sets[i];
            let observed = set.planned.status.as_ref().and_then(|s| s.observed_generation).unwrap_or(0);
            let is_observed = set.planned.metadata.generation.unwrap_or(0) <= observed;
            set.deleted = set.status_replicas() == 0 && set.spec_replicas() == 0 && is_observed;
        }
    }
}
