//! DaemonSets: a Pod on each node that should have one (`pkg/controller/daemon`).
//!
//! What is to be done is decided by [`plan`], what templates there were by [`crate::history`]; here it is carried out, and
//! told.

mod place;
mod plan;
#[cfg(test)]
mod tests;

use crate::cache::{Cache, Seen, key};
use crate::clients::Clients;
use crate::history::{HASH, History, Templated, hash_of, history};
use crate::members::Member;
use crate::pauses::Pauses;
use crate::pod_control::{PodControl, concerned, pod_of, selects};
use crate::revisions::{Noted, Revisions, concerned_by};
use crate::worker::{self, Controller, unless_gone};
use crate::written::{Revision, Written};
use futures::stream::{self, StreamExt};
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{ControllerRevision, DaemonSet, DaemonSetSpec, DaemonSetStatus};
use k8s_openapi::api::core::v1::Pod;
use kube::api::PostParams;
use kube::{Api, Client, Resource};
use place::Place;
pub(crate) use place::tied;
use plan::{Facts, Plan};
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

const COMPONENT: &str = "daemonset-controller";
/// How long a node waits at most after a Pod of it failed (`startDaemonSetController`).
const LAST_PAUSE: Duration = Duration::from_secs(900);

enum Event {
    DaemonSet(Seen<DaemonSet>),
    Pod(Seen<Member>),
    /// A node has come, gone or changed: that is a matter of all.
    Node,
    History(Seen<ControllerRevision>),
}

struct DaemonSets {
    client: Client,
    control: PodControl,
    known: Cache<DaemonSet>,
    pods: Cache<Member>,
    places: Cache<Place>,
    revisions: Revisions,
    made: Written,
    /// By DaemonSet, and by its generation and the node (`failedPodsBackoffKey`).
    pauses: Pauses,
}

impl Controller for DaemonSets {
    type Event = Event;
    const NAME: &'static str = "DaemonSets";

    fn observe(&mut self, event: Event, _now: Instant) -> Vec<String> {
        match event {
            Event::DaemonSet(Seen::One { after: Some(set), .. }) => vec![key(set.as_ref())],
            Event::DaemonSet(Seen::One { before, .. }) => {
                for gone in before.iter().map(|set| key(set.as_ref())) {
                    self.made.forget(&gone);
                    self.revisions.forget(&gone);
                    self.pauses.forget(&gone);
                }
                vec![]
            }
            Event::Pod(seen @ Seen::One { .. }) => seen.both().flat_map(|pod| self.concerned(pod)).collect(),
            Event::History(seen @ Seen::One { .. }) => {
                seen.both().flat_map(|past| concerned_by(&self.known, past, is_selected)).collect()
            }
            Event::DaemonSet(Seen::All) | Event::Pod(Seen::All) | Event::History(Seen::All) | Event::Node => {
                self.known.keys()
            }
        }
    }

    async fn reconcile(&mut self, key: &str, now: Instant) -> Result<Option<Duration>, kube::Error> {
        let listed = self.pods.listed() && self.places.listed() && self.revisions.known.listed();
        let Some(set) = self.known.at(key).filter(|_| listed) else { return Ok(None) };
        let Some(spec) = set.spec.as_ref().filter(|_| set.metadata.deletion_timestamp.is_none()) else {
            return Ok(None);
        };
        let outstanding = self.made.outstanding(key, self.pods.revision(), now);
        let outstanding = outstanding.or_else(|| self.revisions.outstanding(key, now));
        if outstanding.is_some() {
            return Ok(outstanding);
        }
        let collisions = set.status.as_ref().and_then(|status| status.collision_count);
        let templated = Templated { owner: set.as_ref(), template: &spec.template, collisions, label: HASH };
        let history = history(&templated, self.revisions.of(set.as_ref(), &spec.selector).await?);
        match self.revisions.note(key, set.as_ref(), &history, now).await? {
            Noted::Done => {}
            Noted::Unseen | Noted::Ending => return Ok(None),
            Noted::Collided => {
                let mut status = set.status.clone().unwrap_or_default();
                status.collision_count = Some(status.collision_count.unwrap_or(0).saturating_add(1));
                self.report(&set, status).await?;
                return Ok(None);
            }
        }
        let all = self.pods.in_namespace(set.metadata.namespace.as_deref().unwrap_or_default());
        let mine = self.control.claim(set.as_ref(), &spec.selector, all).await?;
        let places = self.places.all();
        let generation = set.metadata.generation.unwrap_or_default();
        let facts = Facts::new(spec, &places, &mine, hash_of(&history.current), Timestamp::now());
        let plan = facts.plan(|node| self.pauses.next(key, format!("{generation}/{node}"), now));
        let mut written = Revision::default();
        let failure = self.carry_out(&set, spec, &plan, &history, &mut written).await;
        self.made.note(key, written, now);
        let live = mine.iter().filter_map(|pod| pod.labels.get(HASH)).map(String::as_str).collect();
        let excess = history.excess(spec.revision_history_limit.unwrap_or(10), &live);
        self.revisions.prune(set.as_ref(), excess).await?;
        self.report(&set, facts.status(&set)).await?;
        if let Some(error) = failure {
            return Err(error);
        }
        let soon = mine.iter().filter(|pod| pod.ready.is_some() && !pod.terminating);
        let after = spec.min_ready_seconds.unwrap_or(0);
        let soon = soon.filter_map(|pod| pod.available_in(after, Timestamp::now())).min();
        Ok([plan.again, soon].into_iter().flatten().min())
    }
}

impl DaemonSets {
    /// The DaemonSets that a Pod is a matter of: its own, or all that select it when it has none.
    fn concerned(&self, pod: &Member) -> Vec<String> {
        concerned(&self.known, &pod.namespace, pod.controller.as_ref(), |set| is_selected(set, &pod.labels))
    }

    async fn carry_out(
        &self,
        set: &DaemonSet,
        spec: &DaemonSetSpec,
        plan: &Plan,
        history: &History,
        written: &mut Revision,
    ) -> Option<kube::Error> {
        let about = set.object_ref(&());
        for (node, pod) in &plan.ended {
            let (failed, name) = (pod.phase == "Failed", key(pod.as_ref()));
            let (reason, word, what) = if failed {
                ("FailedDaemonPod", "failed", "kill")
            } else {
                ("SucceededDaemonPod", "succeeded", "delete")
            };
            let message = format!("Found {word} daemon pod {name} on node {node}, will try to {what} it");
            self.control.recorder.tell(&about, failed, reason, &message).await;
        }
        let pods: Vec<Pod> = plan.make.iter().map(|node| pod(set, spec, hash_of(&history.current), node)).collect();
        if let (_, Some((_, error))) = self.control.make(&about, &pods, written).await {
            return Some(error);
        }
        for pod in &plan.delete {
            if let Err((_, error)) = self.control.delete(&about, pod, written).await {
                return Some(error);
            }
        }
        None
    }

    /// Writes the status, if it is another.
    async fn report(&self, set: &DaemonSet, status: DaemonSetStatus) -> Result<(), kube::Error> {
        if set.status.as_ref() == Some(&status) {
            return Ok(());
        }
        let mut new = set.clone();
        new.status = Some(status);
        let api: Api<DaemonSet> =
            Api::namespaced(self.client.clone(), set.metadata.namespace.as_deref().unwrap_or_default());
        let name = set.metadata.name.as_deref().unwrap_or_default();
        // It has changed, or gone, meanwhile: the watch says so.
        unless_gone(api.replace_status(name, &PostParams::default(), &new).await)
    }
}

fn is_selected(set: &DaemonSet, labels: &BTreeMap<String, String>) -> bool {
    set.spec.as_ref().is_some_and(|spec| selects(&spec.selector, labels))
}

/// A Pod for a node.
fn pod(set: &DaemonSet, spec: &DaemonSetSpec, hash: &str, node: &str) -> Pod {
    let name = format!("{}-", set.metadata.name.as_deref().unwrap_or_default());
    let mut pod = pod_of(set, &spec.template, name);
    pod.metadata.labels.get_or_insert_default().insert(HASH.to_owned(), hash.to_owned());
    place::tie(pod.spec.get_or_insert_default(), node);
    pod
}

/// It hears of changes from now on, not only once it runs.
pub(crate) fn run(
    clients: Clients,
    revisions: Cache<ControllerRevision>,
    pods: Cache<Member>,
    stop: CancellationToken,
) -> impl Future<Output = ()> + Send {
    let (known, places) = (Cache::<DaemonSet>::new(), Cache::<Place>::new());
    let of_sets = stream::select(known.changes().map(Event::DaemonSet), revisions.changes().map(Event::History));
    let others = stream::select(pods.changes().map(Event::Pod), places.changes().map(|_| Event::Node));
    let events = stream::select(of_sets, others).boxed();
    let watched = futures::future::join(
        known.clone().follow(Api::all(clients.shared()), |set| set, stop.clone()),
        places.clone().follow(Api::all(clients.shared()), Place::of, stop.clone()),
    );
    let client = clients.of("daemon-set-controller");
    let controller = DaemonSets {
        control: PodControl::new(client.clone(), COMPONENT),
        revisions: Revisions::new(client.clone(), revisions),
        client,
        known,
        pods,
        places,
        made: Written::default(),
        pauses: Pauses::of_at_most(LAST_PAUSE),
    };
    let works = worker::run(controller, events, stop);
    // What they do at once is large: it lies on the heap.
    Box::pin(async move {
        futures::join!(watched, works);
    })
}
