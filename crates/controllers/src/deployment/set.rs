//! A ReplicaSet of a Deployment, as it is and as it shall be.

use super::limits::{most, replicas};
use k8s_openapi::api::apps::v1::{DeploymentSpec, ReplicaSet};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Counts the ReplicaSets of a Deployment in the order in which they were its newest.
pub(super) const REVISION: &str = "deployment.kubernetes.io/revision";
/// The revisions that it has been before.
const HISTORY: &str = "deployment.kubernetes.io/revision-history";
/// How many Pods its Deployment should have.
const DESIRED: &str = "deployment.kubernetes.io/desired-replicas";
/// How many Pods its Deployment may have.
const MAX: &str = "deployment.kubernetes.io/max-replicas";
/// What of a Deployment's annotations is its own.
const NOT_COPIED: [&str; 6] = [
    "kubectl.kubernetes.io/last-applied-configuration",
    REVISION,
    HISTORY,
    DESIRED,
    MAX,
    "deprecated.deployment.rollback.to",
];
/// The history is no longer than this.
const LONGEST_HISTORY: usize = 2000;

#[derive(Debug, Clone)]
pub(super) struct Set {
    /// As it is; nothing of one that is to be made.
    pub(super) is: Option<Arc<ReplicaSet>>,
    /// As it shall be.
    pub(super) shall: ReplicaSet,
    /// Whether it shall be gone.
    pub(super) gone: bool,
}

impl Set {
    pub(super) fn existing(is: &Arc<ReplicaSet>) -> Self {
        Self { is: Some(Arc::clone(is)), shall: (**is).clone(), gone: false }
    }

    pub(super) fn new(shall: ReplicaSet) -> Self {
        Self { is: None, shall, gone: false }
    }

    pub(super) fn name(&self) -> &str {
        self.shall.metadata.name.as_deref().unwrap_or_default()
    }

    /// How many Pods it shall have.
    pub(super) fn size(&self) -> i32 {
        self.shall.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(0)
    }

    /// How many Pods it has.
    pub(super) fn pods(&self) -> i32 {
        self.shall.status.as_ref().map_or(0, |status| status.replicas)
    }

    pub(super) fn ready(&self) -> i32 {
        self.shall.status.as_ref().and_then(|status| status.ready_replicas).unwrap_or(0)
    }

    pub(super) fn available(&self) -> i32 {
        self.shall.status.as_ref().and_then(|status| status.available_replicas).unwrap_or(0)
    }

    pub(super) fn terminating(&self) -> Option<i32> {
        self.shall.status.as_ref().and_then(|status| status.terminating_replicas)
    }

    /// Whether it shall be another than it is.
    pub(super) fn changes(&self) -> bool {
        self.is.as_ref().is_none_or(|is| **is != self.shall)
    }

    /// How many Pods it should have had so far, if that shall change.
    pub(super) fn scales_from(&self) -> Option<i32> {
        let before = self.is.as_ref().map_or(0, |is| is.spec.as_ref().and_then(|s| s.replicas).unwrap_or(0));
        Some(before).filter(|before| *before != self.size())
    }

    fn annotations(&mut self) -> &mut BTreeMap<String, String> {
        self.shall.metadata.annotations.get_or_insert_default()
    }

    fn annotation<N: std::str::FromStr>(&self, name: &str) -> Option<N> {
        self.shall.metadata.annotations.as_ref()?.get(name)?.parse().ok()
    }

    pub(super) fn revision(&self) -> i64 {
        self.annotation(REVISION).unwrap_or(0)
    }

    /// How many Pods its Deployment should have had when it was scaled.
    pub(super) fn desired(&self) -> Option<i32> {
        self.annotation(DESIRED)
    }

    /// How many Pods its Deployment might have had when it was scaled.
    pub(super) fn max(&self) -> Option<i32> {
        self.annotation(MAX)
    }

    /// `scaleReplicaSet`; gives whether its size changes.
    pub(super) fn scale(&mut self, size: i32, deployment: &DeploymentSpec) -> bool {
        let changes = self.size() != size;
        self.shall.spec.get_or_insert_default().replicas = Some(size);
        self.note_replicas(deployment);
        changes
    }

    /// `scaleReplicaSetAndRecordEvent`: one that has that size already is left alone.
    pub(super) fn scale_if_another(&mut self, size: i32, deployment: &DeploymentSpec) -> bool {
        self.size() != size && self.scale(size, deployment)
    }

    pub(super) fn note_replicas(&mut self, deployment: &DeploymentSpec) {
        let desired = replicas(deployment);
        let max = most(deployment);
        self.annotations().insert(DESIRED.to_owned(), desired.to_string());
        self.annotations().insert(MAX.to_owned(), max.to_string());
    }

    /// `SetNewReplicaSetAnnotations`: those of its Deployment, and its revision; one that was the newest before
    /// remembers as which.
    pub(super) fn annotate(&mut self, deployment: Option<&BTreeMap<String, String>>, revision: i64) {
        for (name, value) in deployment.into_iter().flatten() {
            if !NOT_COPIED.contains(&name.as_str()) {
                self.annotations().insert(name.clone(), value.clone());
            }
        }
        let before = self.annotations().get(REVISION).cloned();
        let Ok(known) = before.as_deref().map_or(Ok(0), str::parse::<i64>) else { return };
        if known >= revision {
            return;
        }
        self.annotations().insert(REVISION.to_owned(), revision.to_string());
        let Some(before) = before else { return };
        let history = self.annotations().get(HISTORY).cloned().unwrap_or_default();
        let mut all: Vec<&str> = history.split(',').filter(|r| !r.is_empty()).chain([before.as_str()]).collect();
        while all.len() > 1 && all.iter().map(|r| r.len() + 1).sum::<usize>() > LONGEST_HISTORY + 1 {
            all.remove(0);
        }
        let history = all.join(",");
        self.annotations().insert(HISTORY.to_owned(), history);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn annotations(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
    }

    fn set(pairs: &[(&str, &str)]) -> Set {
        let mut set = ReplicaSet::default();
        set.metadata.annotations = Some(annotations(pairs));
        Set::existing(&Arc::new(set))
    }

    #[test]
    fn one_that_becomes_the_newest_again_remembers_as_which_it_was_before() {
        let mut again = set(&[(REVISION, "1")]);
        again.annotate(None, 3);
        assert_eq!(again.shall.metadata.annotations, Some(annotations(&[(REVISION, "3"), (HISTORY, "1")])));
        again.annotate(None, 5);
        assert_eq!(again.shall.metadata.annotations, Some(annotations(&[(REVISION, "5"), (HISTORY, "1,3")])));
        again.annotate(None, 4);
        assert_eq!(again.revision(), 5);
    }

    #[test]
    fn annotations_of_the_deployment_are_copied_but_for_those_that_are_its_own() {
        let mut new = set(&[]);
        new.annotate(Some(&annotations(&[("kubernetes.io/change-cause", "why"), (REVISION, "9"), (MAX, "1")])), 1);
        let expected = annotations(&[("kubernetes.io/change-cause", "why"), (REVISION, "1")]);
        assert_eq!(new.shall.metadata.annotations, Some(expected));
        assert!(new.changes());
    }

    #[test]
    fn a_long_history_forgets_its_beginning() {
        let long: Vec<String> = (1..600).map(|n| n.to_string()).collect();
        let mut old = set(&[(REVISION, "600"), (HISTORY, &long.join(","))]);
        old.annotate(None, 601);
        let history = old.shall.metadata.annotations.unwrap()[HISTORY].clone();
        assert!(history.len() <= LONGEST_HISTORY && history.ends_with(",599,600"), "{history}");
    }
}
