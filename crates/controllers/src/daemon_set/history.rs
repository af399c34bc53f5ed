//! What a DaemonSet's template was, as `kubectl rollout undo` finds it (`constructHistory`).

use crate::deployment::hash;
use crate::pod_control::owner;
use k8s_openapi::api::apps::v1::{ControllerRevision, DaemonSet, DaemonSetSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::apimachinery::pkg::runtime::RawExtension;
use serde_json::{Value, json};
use std::collections::HashSet;
use std::sync::Arc;

/// Tells Pods of templates apart.
pub(super) const HASH: &str = "controller-revision-hash";

#[derive(Debug)]
pub(super) struct History {
    /// That of the template; it may have to be made, or to get a new number.
    pub(super) current: ControllerRevision,
    pub(super) is: Option<Arc<ControllerRevision>>,
    /// Oldest first.
    pub(super) old: Vec<Arc<ControllerRevision>>,
}

pub(super) fn history(set: &DaemonSet, spec: &DaemonSetSpec, all: Vec<Arc<ControllerRevision>>) -> History {
    let data = data(spec);
    let is_current = |r: &Arc<ControllerRevision>| r.data.as_ref().is_some_and(|known| known.0 == data);
    let (mut same, mut old): (Vec<_>, Vec<_>) = all.into_iter().partition(is_current);
    // Of several that are the same the newest counts; the others are history.
    same.sort_by_key(|r| r.revision);
    let is = same.pop();
    old.extend(same);
    old.sort_by_key(|r| r.revision);
    let next = old.last().map_or(0, |r| r.revision).saturating_add(1);
    let mut current = is.as_ref().map_or_else(|| snapshot(set, spec, data), |is| (**is).clone());
    current.revision = current.revision.max(next);
    History { current, is, old }
}

/// A strategic merge patch that brings the template back.
fn data(spec: &DaemonSetSpec) -> Value {
    let mut template = serde_json::to_value(&spec.template).unwrap_or_default();
    template["$patch"] = json!("replace");
    json!({"spec": {"template": template}})
}

fn snapshot(set: &DaemonSet, spec: &DaemonSetSpec, data: Value) -> ControllerRevision {
    let hash = hash(&spec.template, set.status.as_ref().and_then(|status| status.collision_count));
    let name = format!("{}-{hash}", set.metadata.name.as_deref().unwrap_or_default());
    let mut labels = spec.template.metadata.as_ref().and_then(|meta| meta.labels.clone()).unwrap_or_default();
    labels.insert(HASH.to_owned(), hash);
    ControllerRevision {
        metadata: ObjectMeta {
            name: Some(name),
            namespace: set.metadata.namespace.clone(),
            labels: Some(labels),
            annotations: set.metadata.annotations.clone(),
            owner_references: Some(vec![owner(set)]),
            ..ObjectMeta::default()
        },
        data: Some(RawExtension(data)),
        revision: 0,
    }
}

/// What tells the Pods of a revision.
pub(super) fn hash_of(revision: &ControllerRevision) -> &str {
    let labels = revision.metadata.labels.as_ref();
    labels.and_then(|labels| labels.get(HASH)).or(revision.metadata.name.as_ref()).map_or("", String::as_str)
}

impl History {
    /// The oldest beyond those that shall be kept, unless Pods have them.
    pub(super) fn excess(&self, limit: i32, live: &HashSet<&str>) -> Vec<Arc<ControllerRevision>> {
        let excess = self.old.len().saturating_sub(usize::try_from(limit).unwrap_or(0));
        self.old.iter().filter(|r| !live.contains(hash_of(r))).take(excess).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(image: &str) -> DaemonSet {
        let containers = json!([{"name": "c", "image": image}]);
        let template = json!({"metadata": {"labels": {"app": "d"}}, "spec": {"containers": containers}});
        serde_json::from_value(
            json!({"metadata": {"name": "d", "uid": "d"}, "spec": {"selector": {}, "template": template}}),
        )
        .unwrap()
    }

    fn made(image: &str, revision: i64) -> Arc<ControllerRevision> {
        let set = set(image);
        let mut made = history(&set, set.spec.as_ref().unwrap(), vec![]).current;
        made.revision = revision;
        Arc::new(made)
    }

    #[test]
    fn a_new_template_is_a_new_revision_and_an_old_one_the_newest_again() {
        let new = set("three");
        let found = history(&new, new.spec.as_ref().unwrap(), vec![made("two", 2), made("one", 1)]);
        assert_eq!((found.current.revision, found.is.is_none()), (3, true));
        assert_eq!(found.current.metadata.name.as_deref(), Some(format!("d-{}", hash_of(&found.current)).as_str()));
        let data = &found.current.data.as_ref().unwrap().0;
        assert_eq!(data["spec"]["template"]["$patch"], "replace");
        let back = set("one");
        let found = history(&back, back.spec.as_ref().unwrap(), vec![made("one", 1), made("two", 2)]);
        assert_eq!((found.current.revision, found.is.map(|is| is.revision), found.old.len()), (3, Some(1), 1));
    }

    #[test]
    fn the_oldest_are_forgotten_unless_pods_have_them() {
        let now = set("now");
        let all = vec![made("a", 1), made("b", 2), made("c", 3)];
        let (a, found) = (all[0].clone(), history(&now, now.spec.as_ref().unwrap(), all));
        let revisions = |live: &[&str]| -> Vec<i64> {
            found.excess(1, &live.iter().copied().collect()).iter().map(|r| r.revision).collect()
        };
        assert_eq!(revisions(&[]), [1, 2]);
        assert_eq!(revisions(&[hash_of(&a)]), [2, 3]);
        assert!(found.excess(10, &HashSet::new()).is_empty());
    }
}
