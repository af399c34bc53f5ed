//! StatefulSets: Pods with numbers, each with a name and claims of its own, one after the other
//! (`pkg/controller/statefulset`).
//!
//! What is to be done is decided by [`plan`], which Pods give way to new ones by [`rollout`], who owns claims by
//! [`retention`]; it is carried out in [`carry_out`].

mod carry_out;
mod identity;
mod plan;
mod retention;
mod rollout;
mod status;
#[cfg(test)]
mod tests;

use crate::cache::{Cache, Seen, key};
use crate::clients::Clients;
use crate::going::Going;
use crate::history::{History, Templated, history, name_of};
use crate::members::Member;
use crate::pauses::Pauses;
use crate::pod_control::{PodControl, concerned, owner, selects};
use crate::revisions::{Noted, Revisions, concerned_by};
use crate::worker::{self, Controller, unless_gone};
use crate::written::Written;
use futures::stream::{self, StreamExt};
use identity::{claim_name, ordinal};
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{ControllerRevision, StatefulSet, StatefulSetSpec, StatefulSetStatus};
use kube::api::PostParams;
use kube::{Api, Client};
use plan::{Facts, revision};
use retention::Claim;
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

const COMPONENT: &str = "statefulset-controller";
/// What a revision says its hash in.
const REVISION_HASH: &str = "controller.kubernetes.io/hash";
/// How long a Pod that ended waits at most to be made again: as its containers would in CrashLoopBackOff.
const LAST_PAUSE: Duration = Duration::from_secs(300);

enum Event {
    StatefulSet(Seen<StatefulSet>),
    Pod(Seen<Member>),
    Claim(Seen<Claim>),
    History(Seen<ControllerRevision>),
}

struct StatefulSets {
    client: Client,
    control: PodControl,
    known: Cache<StatefulSet>,
    pods: Cache<Member>,
    claims: Cache<Claim>,
    revisions: Revisions,
    /// Writes of Pods, and of claims.
    made: Written,
    claimed: Written,
    going: Going,
    /// By set, and by revision and number: a Pod that its node refuses is not made again at once each time.
    pauses: Pauses,
    /// Whether several Pods may be replaced at once (`MaxUnavailableStatefulSet`).
    several: bool,
}

impl Controller for StatefulSets {
    type Event = Event;
    const NAME: &'static str = "StatefulSets";

    fn observe(&mut self, event: Event, _now: Instant) -> Vec<String> {
        match event {
            Event::StatefulSet(Seen::One { after: Some(set), .. }) => vec![key(set.as_ref())],
            Event::StatefulSet(Seen::One { before, .. }) => {
                for gone in before.iter().map(|set| key(set.as_ref())) {
                    self.made.forget(&gone);
                    self.claimed.forget(&gone);
                    self.revisions.forget(&gone);
                    self.pauses.forget(&gone);
                }
                vec![]
            }
            Event::Pod(seen) => {
                self.going.saw(&seen, &self.pods);
                match seen {
                    Seen::All => self.known.keys(),
                    one @ Seen::One { .. } => one.both().flat_map(|pod| self.concerned(pod)).collect(),
                }
            }
            Event::Claim(seen @ Seen::One { .. }) => seen.both().flat_map(|claim| self.claiming(claim)).collect(),
            Event::History(seen @ Seen::One { .. }) => {
                seen.both().flat_map(|past| concerned_by(&self.known, past, is_selected)).collect()
            }
            Event::StatefulSet(Seen::All) | Event::Claim(Seen::All) | Event::History(Seen::All) => self.known.keys(),
        }
    }

    async fn reconcile(&mut self, key: &str, now: Instant) -> Result<Option<Duration>, kube::Error> {
        let listed = self.pods.listed() && self.claims.listed() && self.revisions.known.listed();
        let Some(set) = self.known.at(key).filter(|_| listed) else { return Ok(None) };
        let Some(spec) = set.spec.as_ref() else { return Ok(None) };
        let outstanding = self.made.outstanding(key, self.pods.revision(), now);
        let outstanding = outstanding.or_else(|| self.claimed.outstanding(key, self.claims.revision(), now));
        let outstanding = outstanding.or_else(|| self.revisions.outstanding(key, now));
        if outstanding.is_some() {
            return Ok(outstanding);
        }
        let collisions = set.status.as_ref().and_then(|status| status.collision_count);
        let templated = Templated { owner: set.as_ref(), template: &spec.template, collisions, label: REVISION_HASH };
        let history = history(&templated, self.revisions.of(set.as_ref(), &spec.selector).await?);
        // Of one that goes, what it was is not to come back.
        let ending = set.metadata.deletion_timestamp.is_some();
        let noted = if ending { Noted::Done } else { self.revisions.note(key, set.as_ref(), &history, now).await? };
        match noted {
            Noted::Done => Box::pin(self.sync(key, &set, spec, &history, now)).await,
            Noted::Unseen | Noted::Ending => Ok(None),
            Noted::Collided => {
                let mut status = set.status.clone().unwrap_or_default();
                status.collision_count = Some(collisions.unwrap_or(0).saturating_add(1));
                self.report(&set, status).await?;
                Ok(None)
            }
        }
    }
}

fn name(set: &StatefulSet) -> &str {
    set.metadata.name.as_deref().unwrap_or_default()
}

fn namespace(set: &StatefulSet) -> &str {
    set.metadata.namespace.as_deref().unwrap_or_default()
}

fn is_selected(set: &StatefulSet, labels: &BTreeMap<String, String>) -> bool {
    set.spec.as_ref().is_some_and(|spec| selects(&spec.selector, labels))
}

fn is_member(set: &StatefulSet, pod: &Member) -> bool {
    ordinal(name(set), &pod.name).is_some() && is_selected(set, &pod.labels)
}

impl StatefulSets {
    fn concerned(&self, pod: &Member) -> Vec<String> {
        concerned(&self.known, &pod.namespace, pod.controller.as_ref(), |set| is_member(set, pod))
    }

    /// The sets whose Pods have such a claim.
    fn claiming(&self, claim: &Claim) -> Vec<String> {
        let has = |set: &StatefulSet| {
            let templates = set.spec.iter().flat_map(|spec| spec.volume_claim_templates.iter().flatten());
            let number = claim.name.rsplit_once('-').and_then(|(_, number)| number.parse().ok());
            let mut names = templates.filter_map(|template| Some(claim_name(template, name(set), number?)));
            names.any(|name| name == claim.name)
        };
        let all = self.known.in_namespace(&claim.namespace).into_iter();
        all.filter(|set| has(set)).map(|set| key(set.as_ref())).collect()
    }

    async fn sync(
        &mut self,
        key: &str,
        set: &StatefulSet,
        spec: &StatefulSetSpec,
        history: &History,
        now: Instant,
    ) -> Result<Option<Duration>, kube::Error> {
        let all = self.pods.in_namespace(namespace(set));
        let mine = self.going.among(self.control.claim_if(set, |pod| is_member(set, pod), all).await?);
        let had = set.status.as_ref().and_then(|status| status.current_revision.as_deref());
        let mut past = history.is.iter().chain(&history.old).map(AsRef::as_ref);
        let current = past.find(|revision| Some(name_of(revision)) == had).unwrap_or(&history.current);
        let facts = Facts {
            name: name(set),
            spec,
            owner: owner(set),
            ending: set.metadata.deletion_timestamp.is_some(),
            pods: mine.iter().filter_map(|pod| Some((ordinal(name(set), &pod.name)?, Arc::clone(pod)))).collect(),
            claims: self.claims_of(set, spec),
            current: name_of(current),
            update: name_of(&history.current),
            several: self.several,
            now: Timestamp::now(),
        };
        let revision_name = name_of(&history.current);
        let plan = facts.plan(|ordinal| self.pauses.next(key, format!("{revision_name}/{ordinal}"), now));
        let done = self.carry_out(key, set, current, &history.current, &plan.steps, now).await;
        let rolled = if done.is_ok() { plan.rolled } else { 0 };
        let collisions = set.status.as_ref().and_then(|status| status.collision_count).unwrap_or(0);
        let reported = self.report(set, status::status(set, &facts, rolled, collisions)).await;
        // There is a bigger matter to report than that the status could not be.
        done?;
        reported?;
        if facts.ending {
            return Ok(None);
        }
        let mut live: HashSet<&str> = mine.iter().map(|pod| revision(pod)).collect();
        live.insert(name_of(current));
        let excess = history.unused_excess(spec.revision_history_limit.unwrap_or(10), &live);
        self.revisions.prune(set, excess).await?;
        Ok(plan.again)
    }

    /// The claims of the namespace, if the set has any to do with.
    fn claims_of(&self, set: &StatefulSet, spec: &StatefulSetSpec) -> BTreeMap<String, Arc<Claim>> {
        if spec.volume_claim_templates.as_ref().is_none_or(Vec::is_empty) {
            return BTreeMap::new();
        }
        self.claims.in_namespace(namespace(set)).into_iter().map(|claim| (claim.name.clone(), claim)).collect()
    }

    /// Writes the status, if it is another.
    async fn report(&self, set: &StatefulSet, status: StatefulSetStatus) -> Result<(), kube::Error> {
        // Conditions are nothing that it writes: others may have (`inconsistentStatus`).
        let conditions = set.status.as_ref().and_then(|status| status.conditions.clone());
        let status = StatefulSetStatus { conditions, ..status };
        if set.status.as_ref() == Some(&status) {
            return Ok(());
        }
        let mut new = set.clone();
        new.status = Some(status);
        let api: Api<StatefulSet> = Api::namespaced(self.client.clone(), namespace(set));
        // It has changed, or gone, meanwhile: the watch says so.
        unless_gone(api.replace_status(name(set), &PostParams::default(), &new).await)
    }
}

/// It hears of changes from now on, not only once it runs.
pub(crate) fn run(
    clients: Clients,
    revisions: Cache<ControllerRevision>,
    pods: Cache<Member>,
    several: bool,
    stop: CancellationToken,
) -> impl Future<Output = ()> + Send {
    let (known, claims) = (Cache::<StatefulSet>::new(), Cache::<Claim>::new());
    let of_sets = stream::select(known.changes().map(Event::StatefulSet), revisions.changes().map(Event::History));
    let others = stream::select(pods.changes().map(Event::Pod), claims.changes().map(Event::Claim));
    let events = stream::select(of_sets, others).boxed();
    let watched = futures::future::join(
        known.clone().follow(Api::all(clients.shared()), |set| set, stop.clone()),
        claims.clone().follow(Api::all(clients.shared()), Claim::of, stop.clone()),
    );
    let client = clients.of("statefulset-controller");
    let controller = StatefulSets {
        control: PodControl::new(client.clone(), COMPONENT),
        revisions: Revisions::new(client.clone(), revisions),
        client,
        known,
        pods,
        claims,
        made: Written::default(),
        claimed: Written::default(),
        going: Going::default(),
        pauses: Pauses::of_at_most(LAST_PAUSE),
        several,
    };
    let works = worker::run(controller, events, stop);
    // What they do at once is large: it lies on the heap.
    Box::pin(async move {
        futures::join!(watched, works);
    })
}
