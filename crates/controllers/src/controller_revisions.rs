//! ControllerRevisions of DaemonSets and StatefulSets: claims, writes and pruning.

use crate::{
    controller_history::RevisionHistory,
    expectations::{Expectations, ExpectedVersion},
    pod_control::{ControllerObject, affected_owners, claim_objects, is_namespace_terminating},
    pod_summary::controller_of,
    worker::{ignore_not_found_or_conflict, is_code},
};
use informer::{Cached, SharedInformer};
use k8s_openapi::{api::apps::v1::ControllerRevision, apimachinery::pkg::apis::meta::v1::LabelSelector};
use kube::{
    Api, Client,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use serde_json::json;
use std::{collections::BTreeMap, sync::Arc, time::Duration};
use tokio::time::Instant;

/// The ControllerRevisions of one kind of owner.
pub(crate) struct Revisions {
    client: Client,
    pub(crate) informer: SharedInformer<ControllerRevision>,
    expectations: Expectations,
}

/// Outcome of writing the current revision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RevisionSync {
    Synced,
    /// It exists, although the informer has not observed it yet.
    NotObserved,
    /// The namespace is terminating: nothing can be created.
    NamespaceTerminating,
    /// Hash collision: a revision of another template has the name. The owner's `collisionCount` must be incremented.
    Collision,
}

/// Returns the keys of the owners that a revision affects.
pub(crate) fn affected_by_revision<K: ControllerObject + Cached>(
    known: &SharedInformer<K>,
    revision: &ControllerRevision,
    selects: impl Fn(&K, &BTreeMap<String, String>) -> bool,
) -> Vec<String> {
    let meta = &revision.metadata;
    let owner = controller_of(meta.owner_references.as_deref().unwrap_or_default());
    let (none, labels) = (BTreeMap::new(), meta.labels.as_ref());
    affected_owners(known, revision.namespace(), owner, |object| selects(object, labels.unwrap_or(&none)))
}

impl Revisions {
    pub(crate) fn new(client: Client, informer: SharedInformer<ControllerRevision>) -> Self {
        Self { client, informer, expectations: Expectations::default() }
    }

    fn api<K: ControllerObject>(&self, owner: &K) -> Api<ControllerRevision> {
        Api::namespaced(self.client.clone(), owner.meta().namespace.as_deref().unwrap_or_default())
    }

    /// Returns the time until the expectation of a key expires.
    pub(crate) fn remaining_wait(&self, key: &str, now: Instant) -> Option<Duration> {
        self.expectations.remaining_wait(key, self.informer.resource_version(), now)
    }

    pub(crate) fn delete(&self, key: &str) {
        self.expectations.delete(key);
    }

    /// Returns the owner's revisions, after adopting matching orphans.
    pub(crate) async fn claim<K: ControllerObject>(
        &self,
        owner: &K,
        selector: &LabelSelector,
    ) -> Result<Vec<Arc<ControllerRevision>>, kube::Error> {
        let all = self.informer.in_namespace(owner.meta().namespace.as_deref().unwrap_or_default());
        claim_objects(&self.api(owner), owner, selector, all).await
    }

    /// Creates the revision of the current template, or updates its revision number.
    pub(crate) async fn sync_current<K: ControllerObject>(
        &self,
        key: &str,
        owner: &K,
        history: &RevisionHistory,
    ) -> Result<RevisionSync, kube::Error> {
        let (api, current) = (self.api(owner), &history.current);
        let name = current.metadata.name.as_deref().unwrap_or_default();
        let written = match &history.existing {
            Some(existing) if existing.revision == current.revision => return Ok(RevisionSync::Synced),
            Some(_) => {
                let patch = Patch::Merge(json!({"revision": current.revision}));
                api.patch(name, &PatchParams::default(), &patch).await
            }
            None => api.create(&PostParams::default(), current).await,
        };
        match written {
            Ok(revision) => {
                let mut expected = ExpectedVersion::default();
                expected.observe(&revision.metadata);
                self.expectations.set(key, expected);
                Ok(RevisionSync::Synced)
            }
            Err(e) if is_code(&e, 409) && history.existing.is_none() => {
                let same = api.get_opt(name).await?.is_some_and(|there| there.data == current.data);
                Ok(if same { RevisionSync::NotObserved } else { RevisionSync::Collision })
            }
            // The namespace controller deletes the rest.
            Err(e) if is_namespace_terminating(&e) => Ok(RevisionSync::NamespaceTerminating),
            Err(e) => Err(e),
        }
    }

    /// Deletes the excess revisions.
    pub(crate) async fn prune<K: ControllerObject>(
        &self,
        owner: &K,
        excess: Vec<Arc<ControllerRevision>>,
    ) -> Result<(), kube::Error> {
        for old in excess {
            let name = old.metadata.name.as_deref().unwrap_or_default();
            ignore_not_found_or_conflict(self.api(owner).delete(name, &DeleteParams::default()).await)?;
        }
        Ok(())
    }
}
