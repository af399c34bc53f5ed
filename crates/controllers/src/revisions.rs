//! ControllerRevisions of DaemonSets and StatefulSets: who has which, and how they are written down.

use crate::cache::{Cache, Kept};
use crate::history::History;
use crate::members::controller;
use crate::pod_control::{Claims, claim_all, concerned, is_ending};
use crate::worker::{is_code, unless_gone};
use crate::written::{Revision, Written};
use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Those of one kind's objects.
pub(crate) struct Revisions {
    client: Client,
    pub(crate) known: Cache<ControllerRevision>,
    noted: Written,
}

/// What became of a revision that was to be written down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Noted {
    Done,
    /// It is there, though the watch has not shown it.
    Unseen,
    /// Its namespace goes: nothing can be made.
    Ending,
    /// Another template has its name: the next one must be called otherwise.
    Collided,
}

/// The keys of those that a revision is a matter of.
pub(crate) fn concerned_by<K: Claims + Kept>(
    known: &Cache<K>,
    past: &ControllerRevision,
    selects: impl Fn(&K, &BTreeMap<String, String>) -> bool,
) -> Vec<String> {
    let meta = &past.metadata;
    let owner = controller(meta.owner_references.as_deref().unwrap_or_default());
    let (none, labels) = (BTreeMap::new(), meta.labels.as_ref());
    concerned(known, past.namespace(), owner, |object| selects(object, labels.unwrap_or(&none)))
}

impl Revisions {
    pub(crate) fn new(client: Client, known: Cache<ControllerRevision>) -> Self {
        Self { client, known, noted: Written::default() }
    }

    fn api<K: Claims>(&self, owner: &K) -> Api<ControllerRevision> {
        Api::namespaced(self.client.clone(), owner.meta().namespace.as_deref().unwrap_or_default())
    }

    /// How long there is still to wait until what was written is seen.
    pub(crate) fn outstanding(&mut self, key: &str, now: Instant) -> Option<Duration> {
        self.noted.outstanding(key, self.known.revision(), now)
    }

    pub(crate) fn forget(&mut self, key: &str) {
        self.noted.forget(key);
    }

    /// The owner's, with those that it selects and nobody has.
    pub(crate) async fn of<K: Claims>(
        &self,
        owner: &K,
        selector: &LabelSelector,
    ) -> Result<Vec<Arc<ControllerRevision>>, kube::Error> {
        let all = self.known.in_namespace(owner.meta().namespace.as_deref().unwrap_or_default());
        claim_all(&self.api(owner), owner, selector, all).await
    }

    /// Makes the revision of the template, or gives it its number.
    pub(crate) async fn note<K: Claims>(
        &mut self,
        key: &str,
        owner: &K,
        history: &History,
        now: Instant,
    ) -> Result<Noted, kube::Error> {
        let (api, current) = (self.api(owner), &history.current);
        let name = current.metadata.name.as_deref().unwrap_or_default();
        let noted = match &history.is {
            Some(is) if is.revision == current.revision => return Ok(Noted::Done),
            Some(_) => {
                let patch = Patch::Merge(json!({"revision": current.revision}));
                api.patch(name, &PatchParams::default(), &patch).await
            }
            None => api.create(&PostParams::default(), current).await,
        };
        match noted {
            Ok(noted) => {
                let mut written = Revision::default();
                written.saw(&noted.metadata);
                self.noted.note(key, written, now);
                Ok(Noted::Done)
            }
            Err(e) if is_code(&e, 409) && history.is.is_none() => {
                let same = api.get_opt(name).await?.is_some_and(|there| there.data == current.data);
                Ok(if same { Noted::Unseen } else { Noted::Collided })
            }
            // A namespace that goes takes all with it.
            Err(e) if is_ending(&e) => Ok(Noted::Ending),
            Err(e) => Err(e),
        }
    }

    /// Deletes what is to be kept no longer.
    pub(crate) async fn prune<K: Claims>(
        &self,
        owner: &K,
        excess: Vec<Arc<ControllerRevision>>,
    ) -> Result<(), kube::Error> {
        for old in excess {
            let name = old.metadata.name.as_deref().unwrap_or_default();
            unless_gone(self.api(owner).delete(name, &DeleteParams::default()).await)?;
        }
        Ok(())
    }
}
