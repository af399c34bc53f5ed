//! StatefulSet controller (`pkg/controller/statefulset`).
//!
//! [`plan`] decides which Pods and claims to write, [`rolling_update`] which Pods to replace, [`retention`] who owns
//! claims; [`stateful_pod_control`] writes the result and records Events.

mod identity;
mod plan;
mod retention;
mod rolling_update;
mod stateful_pod_control;
mod status;
#[cfg(test)]
mod tests;

use crate::{
    backoff::Backoff,
    clients::Clients,
    controller_history::{RevisionHistory, RevisionSource, construct_history, revision_name},
    controller_revisions::{RevisionSync, Revisions, affected_by_revision},
    expectations::Expectations,
    names,
    pending_deletions::PendingDeletions,
    pod_control::{PodControl, affected_owners, new_controller_ref, selects},
    pod_summary::PodSummary,
    worker::{self, Controller, ignore_not_found_or_conflict},
};
use futures::stream::{self, StreamExt};
use identity::{claim_name, ordinal};
use informer::{CacheEvent, SharedInformer, key};
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{ControllerRevision, StatefulSet, StatefulSetSpec, StatefulSetStatus};
use kube::{Api, Client, api::PostParams};
use plan::{StatefulSetSnapshot, revision};
use retention::ClaimSummary;
use std::{
    collections::{BTreeMap, HashSet},
    sync::Arc,
    time::Duration,
};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

const COMPONENT: &str = "statefulset-controller";
/// Label of a ControllerRevision: its hash.
const CONTROLLER_REVISION_HASH_LABEL: &str = "controller.kubernetes.io/hash";
/// Maximum delay before a terminal Pod is recreated, as for containers in CrashLoopBackOff.
const MAX_BACKOFF: Duration = Duration::from_secs(300);

enum Event {
    StatefulSet(CacheEvent<StatefulSet>),
    Pod(CacheEvent<PodSummary>),
    Claim(CacheEvent<ClaimSummary>),
    Revision(CacheEvent<ControllerRevision>),
}

struct StatefulSetController {
    client: Client,
    control: PodControl,
    known: SharedInformer<StatefulSet>,
    pods: SharedInformer<PodSummary>,
    claims: SharedInformer<ClaimSummary>,
    revisions: Revisions,
    /// Expectations of Pod writes, and of claim writes.
    pod_expectations: Expectations,
    claim_expectations: Expectations,
    pending_deletions: PendingDeletions,
    /// Back-off by set, and by UID, revision and ordinal: a Pod that the kubelet rejects is not recreated at once each
    /// time.
    backoff: Backoff,
    /// The feature gate `MaxUnavailableStatefulSet`.
    max_unavailable_enabled: bool,
}

impl Controller for StatefulSetController {
    type Event = Event;
    const NAME: &'static str = names::STATEFUL_SET;

    fn observe(&self, event: Event, _now: Instant) -> Vec<String> {
        match event {
            Event::StatefulSet(seen @ CacheEvent::Changed { .. }) => {
                seen.objects().last().map(|set| key(set.as_ref())).into_iter().collect()
            }
            Event::Pod(seen) => {
                self.pending_deletions.observe(&seen, &self.pods);
                match seen {
                    CacheEvent::Resync => self.known.keys(),
                    one @ CacheEvent::Changed { .. } => {
                        one.objects().flat_map(|pod| self.stateful_sets_of(pod)).collect()
                    }
                }
            }
            Event::Claim(seen @ CacheEvent::Changed { .. }) => {
                seen.objects().flat_map(|claim| self.stateful_sets_of_claim(claim)).collect()
            }
            Event::Revision(seen @ CacheEvent::Changed { .. }) => {
                seen.objects().flat_map(|past| affected_by_revision(&self.known, past, is_selected)).collect()
            }
            Event::StatefulSet(CacheEvent::Resync)
            | Event::Claim(CacheEvent::Resync)
            | Event::Revision(CacheEvent::Resync) => self.known.keys(),
        }
    }

    /// Syncs a StatefulSet (`syncStatefulSet`).
    async fn reconcile(&self, key: &str, now: Instant) -> Result<Option<Duration>, kube::Error> {
        let listed = self.pods.has_synced() && self.claims.has_synced() && self.revisions.informer.has_synced();
        let Some(set) = self.known.get_by_key(key) else {
            self.pod_expectations.delete(key);
            self.claim_expectations.delete(key);
            self.revisions.delete(key);
            self.backoff.delete_owner(key);
            return Ok(None);
        };
        let Some(spec) = set.spec.as_ref().filter(|_| listed) else { return Ok(None) };
        let remaining_wait = self.pod_expectations.remaining_wait(key, self.pods.resource_version(), now);
        let remaining_wait =
            remaining_wait.or_else(|| self.claim_expectations.remaining_wait(key, self.claims.resource_version(), now));
        let remaining_wait = remaining_wait.or_else(|| self.revisions.remaining_wait(key, now));
        if remaining_wait.is_some() {
            return Ok(remaining_wait);
        }
        let collisions = set.status.as_ref().and_then(|status| status.collision_count);
        let templated = RevisionSource {
            owner: set.as_ref(),
            template: &spec.template,
            collisions,
            label: CONTROLLER_REVISION_HASH_LABEL,
        };
        let history = construct_history(&templated, self.revisions.claim(set.as_ref(), &spec.selector).await?);
        // The history of a set that is being deleted must not be recreated.
        let is_deleting = set.metadata.deletion_timestamp.is_some();
        let recorded = if is_deleting {
            RevisionSync::Synced
        } else {
            self.revisions.sync_current(key, set.as_ref(), &history).await?
        };
        match recorded {
            RevisionSync::Synced => Box::pin(self.sync_stateful_set(key, &set, spec, &history, now)).await,
            RevisionSync::NotObserved | RevisionSync::NamespaceTerminating => Ok(None),
            RevisionSync::Collision => {
                let mut status = set.status.clone().unwrap_or_default();
                status.collision_count = Some(collisions.unwrap_or(0).saturating_add(1));
                self.update_status(&set, status).await?;
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

fn is_member(set: &StatefulSet, pod: &PodSummary) -> bool {
    ordinal(name(set), &pod.name).is_some() && is_selected(set, &pod.labels)
}

impl StatefulSetController {
    fn stateful_sets_of(&self, pod: &PodSummary) -> Vec<String> {
        affected_owners(&self.known, &pod.namespace, pod.controller.as_ref(), |set| is_member(set, pod))
    }

    /// Returns the keys of the StatefulSets whose Pods use a claim.
    fn stateful_sets_of_claim(&self, claim: &ClaimSummary) -> Vec<String> {
        let has = |set: &StatefulSet| {
            let templates = set.spec.iter().flat_map(|spec| spec.volume_claim_templates.iter().flatten());
            let number = claim.name.rsplit_once('-').and_then(|(_, number)| number.parse().ok());
            let mut names = templates.filter_map(|template| Some(claim_name(template, name(set), number?)));
            names.any(|name| name == claim.name)
        };
        let all = self.known.in_namespace(&claim.namespace).into_iter();
        all.filter(|set| has(set)).map(|set| key(set.as_ref())).collect()
    }

    async fn sync_stateful_set(
        &self,
        key: &str,
        set: &StatefulSet,
        spec: &StatefulSetSpec,
        history: &RevisionHistory,
        now: Instant,
    ) -> Result<Option<Duration>, kube::Error> {
        let all = self.pending_deletions.pods_in_namespace(&self.pods, namespace(set));
        let mine = self.control.claim_pods_matching(set, |pod| is_member(set, pod), all).await?;
        let had = set.status.as_ref().and_then(|status| status.current_revision.as_deref());
        let mut past = history.existing.iter().chain(&history.old).map(AsRef::as_ref);
        let current = past.find(|revision| Some(revision_name(revision)) == had).unwrap_or(&history.current);
        let snapshot = StatefulSetSnapshot {
            name: name(set),
            spec,
            owner: new_controller_ref(set),
            is_deleting: set.metadata.deletion_timestamp.is_some(),
            pods: mine.iter().filter_map(|pod| Some((ordinal(name(set), &pod.name)?, Arc::clone(pod)))).collect(),
            claims: self.claims_of(set, spec),
            current: revision_name(current),
            update: revision_name(&history.current),
            max_unavailable_enabled: self.max_unavailable_enabled,
            now: Timestamp::now(),
        };
        let update_revision = revision_name(&history.current);
        let uid = set.metadata.uid.as_deref().unwrap_or_default();
        let plan = snapshot.plan(|ordinal| self.backoff.next(key, format!("{uid}/{update_revision}/{ordinal}"), now));
        let done = self.apply_steps(key, set, current, &history.current, &plan.steps).await;
        let rolled = if done.is_ok() { plan.rolled } else { 0 };
        let collisions = set.status.as_ref().and_then(|status| status.collision_count).unwrap_or(0);
        let reported = self.update_status(set, status::status(set, &snapshot, rolled, collisions)).await;
        // An error of the steps is returned before an error of the status.
        done?;
        reported?;
        if snapshot.is_deleting {
            return Ok(None);
        }
        let mut live: HashSet<&str> = mine.iter().map(|pod| revision(pod)).collect();
        live.insert(revision_name(current));
        let excess = history.unused_excess(spec.revision_history_limit.unwrap_or(10), &live);
        self.revisions.prune(set, excess).await?;
        Ok(plan.requeue_after)
    }

    /// Returns the claims of the namespace, if the set has claim templates.
    fn claims_of(&self, set: &StatefulSet, spec: &StatefulSetSpec) -> BTreeMap<String, Arc<ClaimSummary>> {
        if spec.volume_claim_templates.as_ref().is_none_or(Vec::is_empty) {
            return BTreeMap::new();
        }
        self.claims.in_namespace(namespace(set)).into_iter().map(|claim| (claim.name.clone(), claim)).collect()
    }

    /// Writes the status if it has changed.
    async fn update_status(&self, set: &StatefulSet, status: StatefulSetStatus) -> Result<(), kube::Error> {
        // Conditions are owned by other clients (`inconsistentStatus`).
        let conditions = set.status.as_ref().and_then(|status| status.conditions.clone());
        let status = StatefulSetStatus { conditions, ..status };
        if set.status.as_ref() == Some(&status) {
            return Ok(());
        }
        let mut new = set.clone();
        new.status = Some(status);
        let api: Api<StatefulSet> = Api::namespaced(self.client.clone(), namespace(set));
        // If the object has changed or is gone, the watch enqueues it again.
        ignore_not_found_or_conflict(api.replace_status(name(set), &PostParams::default(), &new).await)
    }
}

/// Subscribes to the informers when called, not when first polled.
pub(crate) fn run(
    clients: Clients,
    revisions: SharedInformer<ControllerRevision>,
    pods: SharedInformer<PodSummary>,
    max_unavailable_enabled: bool,
    stop: CancellationToken,
) -> impl Future<Output = ()> + Send {
    let (known, claims) = (SharedInformer::<StatefulSet>::new(), SharedInformer::<ClaimSummary>::new());
    let of_sets = stream::select(known.subscribe().map(Event::StatefulSet), revisions.subscribe().map(Event::Revision));
    let others = stream::select(pods.subscribe().map(Event::Pod), claims.subscribe().map(Event::Claim));
    let events = stream::select(of_sets, others).boxed();
    let watched = futures::future::join(
        known.clone().run(Api::all(clients.shared()), |set| set, stop.clone()),
        claims.clone().run(Api::all(clients.shared()), ClaimSummary::from_claim, stop.clone()),
    );
    let client = clients.for_service_account("statefulset-controller");
    let controller = StatefulSetController {
        control: PodControl::new(client.clone(), COMPONENT),
        revisions: Revisions::new(client.clone(), revisions),
        client,
        known,
        pods,
        claims,
        pod_expectations: Expectations::default(),
        claim_expectations: Expectations::default(),
        pending_deletions: PendingDeletions::default(),
        backoff: Backoff::with_max(MAX_BACKOFF),
        max_unavailable_enabled,
    };
    let works = worker::run(controller, events, stop);
    // The future is large, so it is boxed.
    Box::pin(async move {
        futures::join!(watched, works);
    })
}
