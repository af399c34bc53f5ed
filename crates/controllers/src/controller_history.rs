//! Revision history of a workload's template, which `kubectl rollout undo` uses (`pkg/controller/history`,
//! `constructHistory`).

use crate::{
    deployment::hash,
    pod_control::{ControllerObject, new_controller_ref},
};
use k8s_openapi::{
    api::{apps::v1::ControllerRevision, core::v1::PodTemplateSpec},
    apimachinery::pkg::{apis::meta::v1::ObjectMeta, runtime::RawExtension},
};
use serde_json::{Value, json};
use std::{collections::HashSet, sync::Arc};

/// Label of Pods: the revision of their template.
pub(crate) const CONTROLLER_REVISION_HASH: &str = "controller-revision-hash";

/// A template and its owner.
pub(crate) struct RevisionSource<'a, K> {
    pub(crate) owner: &'a K,
    pub(crate) template: &'a PodTemplateSpec,
    /// The owner's `collisionCount`.
    pub(crate) collisions: Option<i32>,
    /// The label of a revision that holds its hash.
    pub(crate) label: &'static str,
}

#[derive(Debug)]
pub(crate) struct RevisionHistory {
    /// The revision of the current template. It may have to be created, or to be renumbered.
    pub(crate) current: ControllerRevision,
    pub(crate) existing: Option<Arc<ControllerRevision>>,
    /// Revisions of other templates, oldest first.
    pub(crate) old: Vec<Arc<ControllerRevision>>,
}

pub(crate) fn construct_history<K: ControllerObject>(
    source: &RevisionSource<'_, K>,
    all: Vec<Arc<ControllerRevision>>,
) -> RevisionHistory {
    let data = template_patch(source.template);
    let is_current = |r: &Arc<ControllerRevision>| r.data.as_ref().is_some_and(|known| known.0 == data);
    let (mut same, mut old): (Vec<_>, Vec<_>) = all.into_iter().partition(is_current);
    // The newest of equal revisions is the current one.
    same.sort_by_key(|r| r.revision);
    let existing = same.pop();
    old.extend(same);
    old.sort_by_key(|r| r.revision);
    let next = old.last().map_or(0, |r| r.revision).saturating_add(1);
    let mut current = existing.as_ref().map_or_else(|| new_revision(source, data), |existing| (**existing).clone());
    current.revision = current.revision.max(next);
    RevisionHistory { current, existing, old }
}

/// Returns a strategic merge patch that restores the template.
fn template_patch(template: &PodTemplateSpec) -> Value {
    let mut template = serde_json::to_value(template).unwrap_or_default();
    template["$patch"] = json!("replace");
    json!({"spec": {"template": template}})
}

/// Returns the template that a revision restores.
pub(crate) fn revision_template(revision: &ControllerRevision) -> Option<PodTemplateSpec> {
    let template = revision.data.as_ref()?.0.pointer("/spec/template")?;
    decode::from_value(template).ok()
}

fn new_revision<K: ControllerObject>(source: &RevisionSource<'_, K>, data: Value) -> ControllerRevision {
    let (hash, meta) = (hash(source.template, source.collisions), source.owner.meta());
    let name = format!("{}-{hash}", meta.name.as_deref().unwrap_or_default());
    let mut labels = source.template.metadata.as_ref().and_then(|meta| meta.labels.clone()).unwrap_or_default();
    labels.insert(source.label.to_owned(), hash);
    ControllerRevision {
        metadata: ObjectMeta {
            name: Some(name),
            namespace: meta.namespace.clone(),
            labels: Some(labels),
            annotations: meta.annotations.clone(),
            owner_references: Some(vec![new_controller_ref(source.owner)]),
            ..ObjectMeta::default()
        },
        data: Some(RawExtension(data)),
        revision: 0,
    }
}

/// Returns the value of the Pods' revision label for a DaemonSet's revision.
pub(crate) fn revision_hash(revision: &ControllerRevision) -> &str {
    let labels = revision.metadata.labels.as_ref();
    labels
        .and_then(|labels| labels.get(CONTROLLER_REVISION_HASH))
        .or(revision.metadata.name.as_ref())
        .map_or("", String::as_str)
}

/// Returns the value of the Pods' revision label for a StatefulSet's revision.
pub(crate) fn revision_name(revision: &ControllerRevision) -> &str {
    revision.metadata.name.as_deref().unwrap_or_default()
}

impl RevisionHistory {
    /// Returns the oldest revisions beyond the limit that no Pod uses. Used revisions count towards the limit
    /// (DaemonSets).
    pub(crate) fn excess(&self, limit: i32, live: &HashSet<&str>) -> Vec<Arc<ControllerRevision>> {
        let excess = self.old.len().saturating_sub(usize::try_from(limit).unwrap_or(0));
        self.old.iter().filter(|r| !live.contains(revision_hash(r))).take(excess).cloned().collect()
    }

    /// Returns the oldest unused revisions beyond the limit. Used revisions do not count towards it (StatefulSets). A
    /// negative limit keeps all.
    pub(crate) fn unused_excess(&self, limit: i32, live: &HashSet<&str>) -> Vec<Arc<ControllerRevision>> {
        let unused = || self.old.iter().filter(|r| !live.contains(revision_name(r)));
        let excess = unused().count().saturating_sub(usize::try_from(limit).unwrap_or(usize::MAX));
        unused().take(excess).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::apps::v1::DaemonSet;

    fn set(image: &str) -> DaemonSet {
        let containers = json!([{"name": "c", "image": image}]);
        let template = json!({"metadata": {"labels": {"app": "d"}}, "spec": {"containers": containers}});
        serde_json::from_value(
            json!({"metadata": {"name": "d", "uid": "d"}, "spec": {"selector": {}, "template": template}}),
        )
        .unwrap()
    }

    fn found(set: &DaemonSet, all: Vec<Arc<ControllerRevision>>) -> RevisionHistory {
        let template = &set.spec.as_ref().unwrap().template;
        construct_history(
            &RevisionSource { owner: set, template, collisions: None, label: CONTROLLER_REVISION_HASH },
            all,
        )
    }

    fn made(image: &str, revision: i64) -> Arc<ControllerRevision> {
        let mut made = found(&set(image), vec![]).current;
        made.revision = revision;
        Arc::new(made)
    }

    #[test]
    fn known_template_becomes_the_newest_revision_again() {
        let new = set("three");
        let past = found(&new, vec![made("two", 2), made("one", 1)]);
        assert_eq!((past.current.revision, past.existing.is_none()), (3, true));
        assert_eq!(past.current.metadata.name.as_deref(), Some(format!("d-{}", revision_hash(&past.current)).as_str()));
        let data = &past.current.data.as_ref().unwrap().0;
        assert_eq!(data["spec"]["template"]["$patch"], "replace");
        let back = set("one");
        let past = found(&back, vec![made("one", 1), made("two", 2)]);
        assert_eq!((past.current.revision, past.existing.map(|is| is.revision), past.old.len()), (3, Some(1), 1));
    }

    #[test]
    fn oldest_unused_revisions_are_pruned() {
        let now = set("now");
        let all = vec![made("a", 1), made("b", 2), made("c", 3)];
        let (a, past) = (all[0].clone(), found(&now, all));
        let revisions = |live: &[&str]| -> Vec<i64> {
            past.excess(1, &live.iter().copied().collect()).iter().map(|r| r.revision).collect()
        };
        assert_eq!(revisions(&[]), [1, 2]);
        assert_eq!(revisions(&[revision_hash(&a)]), [2, 3]);
        assert!(past.excess(10, &HashSet::new()).is_empty());
        let unused = |limit: i32, live: &[&str]| -> Vec<i64> {
            past.unused_excess(limit, &live.iter().copied().collect()).iter().map(|r| r.revision).collect()
        };
        assert_eq!(unused(1, &[]), [1, 2]);
        assert_eq!(unused(1, &[revision_name(&a)]), [2]);
        assert_eq!(unused(0, &[revision_name(&a)]), [2, 3]);
    }

    #[test]
    fn revision_restores_its_template() {
        let template = set("one").spec.unwrap().template;
        assert_eq!(revision_template(&made("one", 1)), Some(template));
        assert_eq!(revision_template(&ControllerRevision::default()), None);
    }
}
