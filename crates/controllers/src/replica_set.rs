//! ReplicaSets have as many Pods as they should (`pkg/controller/replicaset`).

mod counts;
mod rank;

use crate::cache::{Cache, Seen, key};
use crate::clients::Clients;
use crate::members::Member;
use crate::pod_control::{Failure, PodControl, pod_of, said, selects};
use crate::worker::{self, Controller, is_code};
use crate::written::{Revision, Written};
use counts::status;
use futures::stream::{self, StreamExt};
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{ReplicaSet, ReplicaSetSpec};
use kube::api::PostParams;
use kube::{Api, Client, Resource};
pub(crate) use rank::first_to_go;
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// No more Pods are made or deleted at once.
const BURST: usize = 500;
const COMPONENT: &str = "replicaset-controller";

pub(crate) enum Event {
    ReplicaSet(Seen<ReplicaSet>),
    Pod(Seen<Member>),
}

struct ReplicaSets {
    client: Client,
    pods: PodControl,
    known: Cache<ReplicaSet>,
    members: Cache<Member>,
    written: Written,
    /// UIDs of Pods that it has deleted, until they are seen to go.
    deleted: HashSet<String>,
}

impl Controller for ReplicaSets {
    type Event = Event;
    const NAME: &'static str = "ReplicaSets";

    fn observe(&mut self, event: Event, _now: Instant) -> Vec<String> {
        match event {
            Event::ReplicaSet(Seen::One { after: Some(set), .. }) => vec![key(set.as_ref())],
            Event::ReplicaSet(Seen::One { before, .. }) => {
                before.iter().for_each(|set| self.written.forget(&key(set.as_ref())));
                vec![]
            }
            Event::ReplicaSet(Seen::All) | Event::Pod(Seen::All) => {
                // Which of them have gone is not known: what is asked for twice does no harm.
                self.deleted.clear();
                self.known.keys()
            }
            Event::Pod(seen) => {
                for pod in seen.both() {
                    let now = self.members.get(&pod.namespace, &pod.name);
                    if !now.is_some_and(|now| now.is(pod) && now.active) {
                        self.deleted.remove(&pod.uid);
                    }
                }
                seen.both().flat_map(|pod| self.concerned(pod)).collect()
            }
        }
    }

    async fn reconcile(&mut self, key: &str, now: Instant) -> Result<Option<Duration>, kube::Error> {
        let Some(set) = self.known.at(key).filter(|_| self.members.listed()) else { return Ok(None) };
        if let Some(left) = self.written.outstanding(key, self.members.revision(), now) {
            return Ok(Some(left));
        }
        let Some(spec) = set.spec.as_ref() else { return Ok(None) };
        let mine = self.claim(&set, spec).await?;
        let failure = if set.metadata.deletion_timestamp.is_none() {
            self.manage(key, &set, spec, &mine, now).await
        } else {
            None
        };
        // What was just made is counted once it is seen.
        self.report(&set, spec, &mine, failure.as_ref()).await?;
        if let Some((_, error)) = failure {
            return Err(error);
        }
        Ok(counts::next_available(&mine, spec.min_ready_seconds.unwrap_or(0), Timestamp::now()))
    }
}

impl ReplicaSets {
    /// The ReplicaSets that a Pod is a matter of: its own, or all that select it when it has none.
    fn concerned(&self, pod: &Member) -> Vec<String> {
        if let Some(owner) = &pod.controller {
            let own = self.known.get(&pod.namespace, &owner.name).filter(|_| owner.kind == "ReplicaSet");
            return own.iter().map(|set| key(set.as_ref())).collect();
        }
        let selects = |set: &ReplicaSet| set.spec.as_ref().is_some_and(|spec| selects(&spec.selector, &pod.labels));
        let all = self.known.in_namespace(&pod.namespace).into_iter();
        all.filter(|set| selects(set)).map(|set| key(set.as_ref())).collect()
    }

    /// The Pods of a ReplicaSet. Those that it has deleted, and that are not seen to go yet, count as going.
    async fn claim(&self, set: &ReplicaSet, spec: &ReplicaSetSpec) -> Result<Vec<Arc<Member>>, kube::Error> {
        let all = self.members.in_namespace(set.metadata.namespace.as_deref().unwrap_or_default());
        let mine = self.pods.claim(set, &spec.selector, all).await?;
        let going = |pod: Arc<Member>| {
            if !self.deleted.contains(&pod.uid) {
                return pod;
            }
            Arc::new(Member { active: false, terminating: true, ..(*pod).clone() })
        };
        Ok(mine.into_iter().map(going).collect())
    }

    /// Makes or deletes Pods until there are as many as there should be.
    async fn manage(
        &mut self,
        key: &str,
        set: &ReplicaSet,
        spec: &ReplicaSetSpec,
        mine: &[Arc<Member>],
        now: Instant,
    ) -> Option<Failure> {
        let active: Vec<&Member> = mine.iter().map(AsRef::as_ref).filter(|m: &&Member| m.active).collect();
        let wanted = usize::try_from(spec.replicas.unwrap_or(1)).unwrap_or(0);
        let (mut written, about) = (Revision::default(), set.object_ref(&()));
        let mut failure = None;
        if active.len() < wanted {
            let count = (wanted - active.len()).min(BURST);
            // Upstream leaves out the dash of a name that would be too long with it.
            let name = format!("{}-", set.metadata.name.as_deref().unwrap_or_default());
            let pod = pod_of(set, &spec.template.clone().unwrap_or_default(), name);
            failure = self.pods.make(&about, &vec![pod; count], &mut written).await.1;
        } else if active.len() > wanted {
            let excess = (active.len() - wanted).min(BURST);
            for pod in first_to_go(active, excess) {
                match self.pods.delete(&about, pod, &mut written).await {
                    Ok(true) => drop(self.deleted.insert(pod.uid.clone())),
                    Ok(false) => {}
                    Err(e) => {
                        failure = Some(e);
                        break;
                    }
                }
            }
        }
        self.written.note(key, written, now);
        failure
    }

    /// Writes the status, if it is another.
    async fn report(
        &self,
        set: &ReplicaSet,
        spec: &ReplicaSetSpec,
        mine: &[Arc<Member>],
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

/// It hears of changes from now on, not only once it runs.
pub(crate) fn run(
    clients: Clients,
    known: Cache<ReplicaSet>,
    members: Cache<Member>,
    stop: CancellationToken,
) -> impl Future<Output = ()> + Send {
    let events = stream::select(known.changes().map(Event::ReplicaSet), members.changes().map(Event::Pod));
    let client = clients.of("replicaset-controller");
    let controller = ReplicaSets {
        pods: PodControl::new(client.clone(), COMPONENT),
        client,
        known,
        members,
        written: Written::default(),
        deleted: HashSet::new(),
    };
    // What it does at once is large: it lies on the heap.
    Box::pin(worker::run(controller, events.boxed(), stop))
}
