//! A ReplicaSet of a Deployment: observed and planned state.

use super::limits::{max_replicas, replicas};
use k8s_openapi::api::apps::v1::{DeploymentSpec, ReplicaSet};
use std::{collections::BTreeMap, sync::Arc};

/// Annotation: revision of the ReplicaSet within its Deployment.
pub(super) const REVISION: &str = "deployment.kubernetes.io/revision";
/// Annotation: earlier revisions of the ReplicaSet.
const REVISION_HISTORY: &str = "deployment.kubernetes.io/revision-history";
/// Annotation: `spec.replicas` of the Deployment when it was last scaled.
const DESIRED_REPLICAS: &str = "deployment.kubernetes.io/desired-replicas";
/// Annotation: maximum number of Pods of the Deployment when it was last scaled.
const MAX_REPLICAS: &str = "deployment.kubernetes.io/max-replicas";
/// Annotations that are not copied from the Deployment (`annotationsToSkip`).
const ANNOTATIONS_TO_SKIP: [&str; 6] = [
    "kubectl.kubernetes.io/last-applied-configuration",
    REVISION,
    REVISION_HISTORY,
    DESIRED_REPLICAS,
    MAX_REPLICAS,
    "deprecated.deployment.rollback.to",
];
/// Maximum length of [`REVISION_HISTORY`] (`maxRevHistoryLengthInChars`).
const MAX_REVISION_HISTORY_LEN: usize = 2000;

#[derive(Debug, Clone)]
pub(super) struct PlannedReplicaSet {
    /// The observed state. `None` if it is to be created.
    pub(super) observed: Option<Arc<ReplicaSet>>,
    /// The planned state.
    pub(super) planned: ReplicaSet,
    /// Whether it is to be deleted.
    pub(super) deleted: bool,
}

impl PlannedReplicaSet {
    pub(super) fn existing(observed: &Arc<ReplicaSet>) -> Self {
        Self { observed: Some(Arc::clone(observed)), planned: (**observed).clone(), deleted: false }
    }

    pub(super) fn new(planned: ReplicaSet) -> Self {
        Self { observed: None, planned, deleted: false }
    }

    pub(super) fn name(&self) -> &str {
        self.planned.metadata.name.as_deref().unwrap_or_default()
    }

    /// Returns the planned `spec.replicas`.
    pub(super) fn spec_replicas(&self) -> i32 {
        self.planned.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(0)
    }

    /// Returns `status.replicas`.
    pub(super) fn status_replicas(&self) -> i32 {
        self.planned.status.as_ref().map_or(0, |status| status.replicas)
    }

    pub(super) fn ready_replicas(&self) -> i32 {
        self.planned.status.as_ref().and_then(|status| status.ready_replicas).unwrap_or(0)
    }

    pub(super) fn available_replicas(&self) -> i32 {
        self.planned.status.as_ref().and_then(|status| status.available_replicas).unwrap_or(0)
    }

    pub(super) fn terminating_replicas(&self) -> Option<i32> {
        self.planned.status.as_ref().and_then(|status| status.terminating_replicas)
    }

    /// Returns whether the planned state differs from the observed state.
    pub(super) fn is_changed(&self) -> bool {
        self.observed.as_ref().is_none_or(|observed| **observed != self.planned)
    }

    /// Returns the observed `spec.replicas` if the planned value differs.
    pub(super) fn scales_from(&self) -> Option<i32> {
        let before =
            self.observed.as_ref().map_or(0, |observed| observed.spec.as_ref().and_then(|s| s.replicas).unwrap_or(0));
        Some(before).filter(|before| *before != self.spec_replicas())
    }

    fn annotations(&mut self) -> &mut BTreeMap<String, String> {
        self.planned.metadata.annotations.get_or_insert_default()
    }

    fn annotation<N: std::str::FromStr>(&self, name: &str) -> Option<N> {
        self.planned.metadata.annotations.as_ref()?.get(name)?.parse().ok()
    }

    pub(super) fn revision(&self) -> i64 {
        self.annotation(REVISION).unwrap_or(0)
    }

    /// Returns the value of [`DESIRED_REPLICAS`].
    pub(super) fn desired_replicas_annotation(&self) -> Option<i32> {
        self.annotation(DESIRED_REPLICAS)
    }

    /// Returns the value of [`MAX_REPLICAS`].
    pub(super) fn max_replicas_annotation(&self) -> Option<i32> {
        self.annotation(MAX_REPLICAS)
    }

    /// Sets `spec.replicas` and the annotations (`scaleReplicaSet`). Returns whether `spec.replicas` changes.
    pub(super) fn scale(&mut self, size: i32, deployment: &DeploymentSpec) -> bool {
        let changes = self.spec_replicas() != size;
        self.planned.spec.get_or_insert_default().replicas = Some(size);
        self.set_replicas_annotations(deployment);
        changes
    }

    /// Scales unless `spec.replicas` has the value already (`scaleReplicaSetAndRecordEvent`).
    pub(super) fn scale_if_needed(&mut self, size: i32, deployment: &DeploymentSpec) -> bool {
        self.spec_replicas() != size && self.scale(size, deployment)
    }

    pub(super) fn set_replicas_annotations(&mut self, deployment: &DeploymentSpec) {
        let desired = replicas(deployment);
        let max = max_replicas(deployment);
        self.annotations().insert(DESIRED_REPLICAS.to_owned(), desired.to_string());
        self.annotations().insert(MAX_REPLICAS.to_owned(), max.to_string());
    }

    /// Copies the Deployment's annotations and sets the revision; an earlier revision is appended to the history
    /// (`SetNewReplicaSetAnnotations`).
    pub(super) fn set_new_replica_set_annotations(
        &mut self,
        deployment: Option<&BTreeMap<String, String>>,
        revision: i64,
    ) {
        for (name, value) in deployment.into_iter().flatten() {
            if !ANNOTATIONS_TO_SKIP.contains(&name.as_str()) {
                self.annotations().insert(name.clone(), value.clone());
            }
        }
        let old_revision = self.annotations().get(REVISION).cloned();
        let Ok(known) = old_revision.as_deref().map_or(Ok(0), str::parse::<i64>) else { return };
        if known >= revision {
            return;
        }
        self.annotations().insert(REVISION.to_owned(), revision.to_string());
        let Some(old_revision) = old_revision else { return };
        let history = self.annotations().get(REVISION_HISTORY).cloned().unwrap_or_default();
        let mut all: Vec<&str> = history.split(',').filter(|r| !r.is_empty()).chain([old_revision.as_str()]).collect();
        while all.len() > 1 && all.iter().map(|r| r.len() + 1).sum::<usize>() > MAX_REVISION_HISTORY_LEN + 1 {
            all.remove(0);
        }
        let history = all.join(",");
        self.annotations().insert(REVISION_HISTORY.to_owned(), history);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn annotations(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
    }

    fn set(pairs: &[(&str, &str)]) -> PlannedReplicaSet {
        let mut set = ReplicaSet::default();
        set.metadata.annotations = Some(annotations(pairs));
        PlannedReplicaSet::existing(&Arc::new(set))
    }

    #[test]
    fn revision_history_keeps_earlier_revisions() {
        let mut again = set(&[(REVISION, "1")]);
        again.set_new_replica_set_annotations(None, 3);
        assert_eq!(again.planned.metadata.annotations, Some(annotations(&[(REVISION, "3"), (REVISION_HISTORY, "1")])));
        again.set_new_replica_set_annotations(None, 5);
        assert_eq!(
            again.planned.metadata.annotations,
            Some(annotations(&[(REVISION, "5"), (REVISION_HISTORY, "1,3")]))
        );
        again.set_new_replica_set_annotations(None, 4);
        assert_eq!(again.revision(), 5);
    }

    #[test]
    fn deployment_annotations_are_copied_except_skipped_ones() {
        let mut new = set(&[]);
        new.set_new_replica_set_annotations(
            Some(&annotations(&[("kubernetes.io/change-cause", "why"), (REVISION, "9"), (MAX_REPLICAS, "1")])),
            1,
        );
        let expected = annotations(&[("kubernetes.io/change-cause", "why"), (REVISION, "1")]);
        assert_eq!(new.planned.metadata.annotations, Some(expected));
        assert!(new.is_changed());
    }

    #[test]
    fn long_revision_history_is_truncated() {
        let long: Vec<String> = (1..600).map(|n| n.to_string()).collect();
        let mut old = set(&[(REVISION, "600"), (REVISION_HISTORY, &long.join(","))]);
        old.set_new_replica_set_annotations(None, 601);
        let history = old.planned.metadata.annotations.unwrap()[REVISION_HISTORY].clone();
        assert!(history.len() <= MAX_REVISION_HISTORY_LEN && history.ends_with(",599,600"), "{history}");
    }
}
