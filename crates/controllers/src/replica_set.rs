//! ReplicaSets have as many Pods as they should (`pkg/controller/replicaset`).
//!
//! What is known of Pods comes from a watch. After its own writes the controller waits until the watch shows them
//! (revisions are ordered), so that it makes none twice: upstream's expectations.

mod counts;
mod rank;

use crate::members::{Member, Members};
use crate::recorder::Recorder;
use crate::watch::{Change, key, watch};
use crate::worker::{self, Controller, is_code};
use counts::status;
use futures::stream::{self, StreamExt};
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{ReplicaSet, ReplicaSetSpec};
use k8s_openapi::api::core::v1::{ObjectReference, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta, OwnerReference};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::runtime::watcher::Config;
use kube::{Api, Client};
use serde_json::json;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// No more Pods are made or deleted at once.
const BURST: usize = 500;
/// For how long the watch is waited for that shows what was written.
const PATIENCE: Duration = Duration::from_secs(10);
const COMPONENT: &str = "replicaset-controller";

pub(crate) enum Event {
    ReplicaSet(Change<ReplicaSet>),
    Pod(Change<Pod>),
}

/// What the controller itself has written, and not seen yet.
struct Written {
    revision: u64,
    until: Instant,
}

struct ReplicaSets {
    client: Client,
    recorder: Recorder,
    known: HashMap<String, ReplicaSet>,
    members: Members,
    written: HashMap<String, Written>,
    /// UIDs of Pods that it has deleted, until they are seen to go.
    deleted: HashSet<String>,
}

impl Controller for ReplicaSets {
    type Event = Event;
    const NAME: &'static str = "ReplicaSets";

    fn observe(&mut self, event: Event, _now: Instant) -> Vec<String> {
        match event {
            Event::ReplicaSet(Change::Set(set)) => {
                let key = key(&set.metadata);
                self.known.insert(key.clone(), *set);
                vec![key]
            }
            Event::ReplicaSet(Change::Gone(set)) => {
                let key = key(&set.metadata);
                self.known.remove(&key);
                self.written.remove(&key);
                vec![]
            }
            Event::ReplicaSet(Change::Listed(keys)) => {
                self.known.retain(|key, _| keys.contains(key));
                vec![]
            }
            Event::Pod(change) => {
                let begins = matches!(change, Change::Listed(_)) && !self.members.listed;
                let pods = self.members.change(change);
                for (namespace, pod) in &pods {
                    if !self.members.get(namespace, &pod.name).is_some_and(|now| now.uid == pod.uid && now.active) {
                        self.deleted.remove(&pod.uid);
                    }
                }
                if begins {
                    return self.known.keys().cloned().collect();
                }
                pods.iter().flat_map(|(namespace, pod)| self.concerned(namespace, pod)).collect()
            }
        }
    }

    async fn reconcile(&mut self, key: &str, now: Instant) -> Result<Option<Duration>, kube::Error> {
        let Some(set) = self.known.get(key).cloned().filter(|_| self.members.listed) else { return Ok(None) };
        if let Some(written) = self.written.get(key) {
            if self.members.revision < written.revision && now < written.until {
                return Ok(Some(written.until - now));
            }
            self.written.remove(key);
        }
        let Some(spec) = set.spec.clone() else { return Ok(None) };
        let mine = self.claim(&set, &spec).await?;
        let failure = if set.metadata.deletion_timestamp.is_none() {
            self.manage(key, &set, &spec, &mine, now).await?
        } else {
            None
        };
        // What was just made is counted once it is seen.
        self.report(&set, &spec, &mine, failure.as_ref()).await?;
        if let Some((_, error)) = failure {
            return Err(error);
        }
        Ok(counts::next_available(&mine, spec.min_ready_seconds.unwrap_or(0), Timestamp::now()))
    }
}

/// Why Pods could not be made or deleted: a reason, and the error.
type Failure = (&'static str, kube::Error);

impl ReplicaSets {
    /// The ReplicaSets that a Pod is a matter of: its own, or all that select it when it has none.
    fn concerned(&self, namespace: &str, pod: &Member) -> Vec<String> {
        if let Some(owner) = &pod.controller {
            let key = format!("{namespace}/{}", owner.name);
            let is_own = owner.kind == "ReplicaSet" && self.known.contains_key(&key);
            return is_own.then_some(key).into_iter().collect();
        }
        let all = self.known.iter().filter(|(_, set)| set.metadata.namespace.as_deref() == Some(namespace));
        let selects = |set: &ReplicaSet| set.spec.as_ref().is_some_and(|spec| selects(&spec.selector, &pod.labels));
        all.filter(|(_, set)| selects(set)).map(|(key, _)| key.clone()).collect()
    }

    /// The Pods of a ReplicaSet: those that it controls, but for those that it no longer selects, and those that it
    /// selects and nobody controls.
    async fn claim(&self, set: &ReplicaSet, spec: &ReplicaSetSpec) -> Result<Vec<Member>, kube::Error> {
        let namespace = set.metadata.namespace.as_deref().unwrap_or_default();
        let uid = set.metadata.uid.as_deref().unwrap_or_default();
        let ending = set.metadata.deletion_timestamp.is_some();
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), namespace);
        let mut mine = Vec::new();
        for pod in self.members.in_namespace(namespace) {
            let selected = selects(&spec.selector, &pod.labels);
            match &pod.controller {
                Some(owner) if owner.uid != uid => {}
                Some(_) if selected => {
                    let going = self.deleted.contains(&pod.uid);
                    let (active, terminating) = (pod.active && !going, pod.terminating || going);
                    mine.push(Member { active, terminating, ..pod.clone() });
                }
                Some(_) if ending => {}
                Some(_) => {
                    // Owners are merged by their UID; that of the Pod makes sure that it is this one.
                    let owners = json!([{"$patch": "delete", "uid": uid}]);
                    let patch = json!({"metadata": {"uid": pod.uid, "ownerReferences": owners}});
                    gone_is_fine(pods.patch(&pod.name, &PatchParams::default(), &Patch::Strategic(patch)).await)?;
                }
                None if selected && pod.active && !ending => {
                    let patch = json!({"metadata": {"uid": pod.uid, "ownerReferences": [owner(set)]}});
                    gone_is_fine(pods.patch(&pod.name, &PatchParams::default(), &Patch::Strategic(patch)).await)?;
                    mine.push(pod.clone());
                }
                None => {}
            }
        }
        Ok(mine)
    }

    /// Makes or deletes Pods until there are as many as there should be.
    async fn manage(
        &mut self,
        key: &str,
        set: &ReplicaSet,
        spec: &ReplicaSetSpec,
        mine: &[Member],
        now: Instant,
    ) -> Result<Option<Failure>, kube::Error> {
        let active: Vec<&Member> = mine.iter().filter(|m| m.active).collect();
        let wanted = usize::try_from(spec.replicas.unwrap_or(1)).unwrap_or(0);
        let mut written = Written { revision: 0, until: now + PATIENCE };
        let failure = if active.len() < wanted {
            self.make(set, spec, (wanted - active.len()).min(BURST), &mut written).await
        } else if active.len() > wanted {
            let excess = (active.len() - wanted).min(BURST);
            self.delete(set, rank::first_to_go(active, mine, excess), &mut written).await
        } else {
            None
        };
        if written.revision > 0 {
            self.written.insert(key.to_owned(), written);
        }
        Ok(failure)
    }

    /// Makes Pods, first one, then twice as many each time: what fails once is not tried a thousand times.
    async fn make(
        &self,
        set: &ReplicaSet,
        spec: &ReplicaSetSpec,
        mut missing: usize,
        written: &mut Written,
    ) -> Option<Failure> {
        let pods: Api<Pod> =
            Api::namespaced(self.client.clone(), set.metadata.namespace.as_deref().unwrap_or_default());
        let (pod, params, about) = (pod_of(set, spec), PostParams::default(), reference(set));
        let mut batch = 1;
        while missing > 0 {
            let count = batch.min(missing);
            let made = stream::iter(0..count).map(|_| pods.create(&params, &pod)).buffered(count);
            let made: Vec<Result<Pod, kube::Error>> = made.collect().await;
            let mut failure = None;
            for result in made {
                match result {
                    Ok(pod) => {
                        written.saw(&pod.metadata);
                        let name = pod.metadata.name.unwrap_or_default();
                        self.recorder.tell(&about, false, "SuccessfulCreate", &format!("Created pod: {name}")).await;
                    }
                    // A namespace that goes takes its ReplicaSets with it.
                    Err(e) if is_ending(&e) => return None,
                    Err(e) => failure = Some(e),
                }
            }
            if let Some(e) = failure {
                let message = format!("Error creating: {}", said(&e));
                self.recorder.tell(&about, true, "FailedCreate", &message).await;
                return Some(("FailedCreate", e));
            }
            missing -= count;
            batch *= 2;
        }
        None
    }

    async fn delete(&mut self, set: &ReplicaSet, excess: Vec<&Member>, written: &mut Written) -> Option<Failure> {
        let pods: Api<Pod> =
            Api::namespaced(self.client.clone(), set.metadata.namespace.as_deref().unwrap_or_default());
        let about = reference(set);
        for pod in excess {
            let params = DeleteParams {
                preconditions: Some(Preconditions { uid: Some(pod.uid.clone()), resource_version: None }),
                ..DeleteParams::default()
            };
            match pods.delete(&pod.name, &params).await {
                Ok(deleted) => {
                    if let Some(pod) = deleted.left() {
                        written.saw(&pod.metadata);
                    }
                    self.deleted.insert(pod.uid.clone());
                    let message = format!("Deleted pod: {}", pod.name);
                    self.recorder.tell(&about, false, "SuccessfulDelete", &message).await;
                }
                Err(e) if is_code(&e, 404) || is_code(&e, 409) => {}
                Err(e) => {
                    let message = format!("Error deleting: {}", said(&e));
                    self.recorder.tell(&about, true, "FailedDelete", &message).await;
                    return Some(("FailedDelete", e));
                }
            }
        }
        None
    }

    /// Writes the status, if it is another.
    async fn report(
        &self,
        set: &ReplicaSet,
        spec: &ReplicaSetSpec,
        mine: &[Member],
        failure: Option<&Failure>,
    ) -> Result<(), kube::Error> {
        let now = Timestamp::now();
        let status = status(set, spec, mine, failure.map(|(reason, e)| (*reason, said(e))), now);
        if set.status.as_ref() == Some(&status) {
            return Ok(());
        }
        let sets: Api<ReplicaSet> =
            Api::namespaced(self.client.clone(), set.metadata.namespace.as_deref().unwrap_or_default());
        let mut new = set.clone();
        new.status = Some(status);
        let name = set.metadata.name.as_deref().unwrap_or_default();
        match sets.replace_status(name, &PostParams::default(), &new).await {
            // It has changed, or gone, meanwhile: the watch says so.
            Err(e) if is_code(&e, 404) || is_code(&e, 409) => Ok(()),
            other => other.map(drop),
        }
    }
}

impl Written {
    fn saw(&mut self, meta: &ObjectMeta) {
        let revision = meta.resource_version.as_deref().and_then(|r| r.parse().ok());
        self.revision = self.revision.max(revision.unwrap_or(0));
    }
}

/// Whether a label selector selects these labels; one that is empty selects nothing here.
pub(crate) fn selects(selector: &LabelSelector, labels: &BTreeMap<String, String>) -> bool {
    let is_empty = selector.match_labels.as_ref().is_none_or(BTreeMap::is_empty)
        && selector.match_expressions.as_ref().is_none_or(Vec::is_empty);
    let parsed = api::selector::Selector::from_object(selector);
    !is_empty && parsed.is_ok_and(|s| s.matches(|key| labels.get(key).map(String::as_str)))
}

fn owner(set: &ReplicaSet) -> OwnerReference {
    OwnerReference {
        api_version: "apps/v1".to_owned(),
        kind: "ReplicaSet".to_owned(),
        name: set.metadata.name.clone().unwrap_or_default(),
        uid: set.metadata.uid.clone().unwrap_or_default(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    }
}

fn reference(set: &ReplicaSet) -> ObjectReference {
    ObjectReference {
        api_version: Some("apps/v1".to_owned()),
        kind: Some("ReplicaSet".to_owned()),
        name: set.metadata.name.clone(),
        namespace: set.metadata.namespace.clone(),
        uid: set.metadata.uid.clone(),
        resource_version: set.metadata.resource_version.clone(),
        ..Default::default()
    }
}

/// A Pod as the template has it.
fn pod_of(set: &ReplicaSet, spec: &ReplicaSetSpec) -> Pod {
    let template = spec.template.clone().unwrap_or_default();
    let meta = template.metadata.unwrap_or_default();
    // Upstream leaves out the dash of a name that would be too long with it.
    let name = format!("{}-", set.metadata.name.as_deref().unwrap_or_default());
    Pod {
        metadata: ObjectMeta {
            generate_name: Some(name),
            labels: meta.labels,
            annotations: meta.annotations,
            finalizers: meta.finalizers,
            owner_references: Some(vec![owner(set)]),
            ..Default::default()
        },
        spec: template.spec,
        status: None,
    }
}

fn is_ending(error: &kube::Error) -> bool {
    let kube::Error::Api(status) = error else { return false };
    let causes = status.details.iter().flat_map(|d| &d.causes);
    causes.into_iter().any(|cause| cause.reason == "NamespaceTerminating")
}

/// What the API server said.
fn said(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => status.message.clone(),
        other => other.to_string(),
    }
}

fn gone_is_fine<T>(result: Result<T, kube::Error>) -> Result<(), kube::Error> {
    match result {
        Err(e) if is_code(&e, 404) || is_code(&e, 409) || is_code(&e, 422) => Ok(()),
        other => other.map(drop),
    }
}

pub(crate) async fn run(client: Client, stop: CancellationToken) {
    let sets = watch(Api::<ReplicaSet>::all(client.clone()), Config::default()).map(Event::ReplicaSet);
    let pods = watch(Api::<Pod>::all(client.clone()), Config::default()).map(Event::Pod);
    let controller = ReplicaSets {
        recorder: Recorder::new(client.clone(), COMPONENT),
        client,
        known: HashMap::new(),
        members: Members::default(),
        written: HashMap::new(),
        deleted: HashSet::new(),
    };
    // What it does at once is large: it lies on the heap.
    Box::pin(worker::run(controller, stream::select(sets, pods).boxed(), stop)).await;
}
