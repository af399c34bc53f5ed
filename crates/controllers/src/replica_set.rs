//! ReplicaSet and ReplicationController controllers (`pkg/controller/replicaset`).

mod conversion;
mod deletion_order;
mod status;

use crate::{
    clients::Clients,
    expectations::{Expectations, ExpectedVersion},
    pending_deletions::PendingDeletions,
    pod_control::{Failure, PodControl, affected_owners, error_message, pod_from_template, selects},
    pod_summary::PodSummary,
    worker::{self, Controller, ignore_not_found_or_conflict},
};
use conversion::ReplicaSetLike;
pub(crate) use deletion_order::pods_to_delete;
use futures::stream::{self, StreamExt};
use informer::{CacheEvent, SharedInformer, key};
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::ReplicaSetSpec;
use kube::{Api, Client, api::PostParams};
use status::calculate_status;
use std::{sync::Arc, time::Duration};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Maximum number of Pods that one sync creates or deletes (`BurstReplicas`).
const BURST_REPLICAS: usize = 500;

pub(crate) enum Event<K> {
    Set(CacheEvent<K>),
    Pod(CacheEvent<PodSummary>),
}

struct ReplicaSetController<K> {
    client: Client,
    pods: PodControl,
    known: SharedInformer<K>,
    members: SharedInformer<PodSummary>,
    expectations: Expectations,
    pending_deletions: PendingDeletions,
}

impl<K: ReplicaSetLike> Controller for ReplicaSetController<K> {
    type Event = Event<K>;
    const NAME: &'static str = K::NAME;

    fn observe(&self, event: Event<K>, _now: Instant) -> Vec<String> {
        match event {
            Event::Set(seen @ CacheEvent::Changed { .. }) => {
                seen.objects().last().map(|set| key(set.as_ref())).into_iter().collect()
            }
            Event::Set(CacheEvent::Resync) => self.known.keys(),
            Event::Pod(seen) => {
                self.pending_deletions.observe(&seen, &self.members);
                match seen {
                    CacheEvent::Resync => self.known.keys(),
                    one @ CacheEvent::Changed { .. } => {
                        one.objects().flat_map(|pod| self.replica_sets_of(pod)).collect()
                    }
                }
            }
        }
    }

    /// Syncs a ReplicaSet (`syncReplicaSet`).
    async fn reconcile(&self, key: &str, now: Instant) -> Result<Option<Duration>, kube::Error> {
        let Some(set) = self.known.get_by_key(key) else {
            self.expectations.delete(key);
            return Ok(None);
        };
        if !self.members.has_synced() {
            return Ok(None);
        }
        if let Some(left) = self.expectations.remaining_wait(key, self.members.resource_version(), now) {
            return Ok(Some(left));
        }
        let view = set.as_replica_set();
        let Some(spec) = view.spec.as_ref() else { return Ok(None) };
        let claimed = self.claim_pods(set.as_ref(), spec).await?;
        let failure = if view.metadata.deletion_timestamp.is_none() {
            self.manage_replicas(key, &set, spec, &claimed).await
        } else {
            None
        };
        // Pods that were just created are counted in the sync that observes them.
        self.update_status(&set, spec, &claimed, failure.as_ref()).await?;
        if let Some((_, error)) = failure {
            return Err(error);
        }
        Ok(status::next_availability(&claimed, spec.min_ready_seconds.unwrap_or(0), Timestamp::now()))
    }
}

impl<K: ReplicaSetLike> ReplicaSetController<K> {
    /// Returns the keys of the ReplicaSets that a Pod affects.
    fn replica_sets_of(&self, pod: &PodSummary) -> Vec<String> {
        let selects = |set: &K| {
            let set = set.as_replica_set();
            set.spec.as_ref().is_some_and(|spec| selects(&spec.selector, &pod.labels))
        };
        affected_owners(&self.known, &pod.namespace, pod.controller.as_ref(), selects)
    }

    /// Claims the ReplicaSet's Pods. Pending deletions count as terminating: they are marked before the first request,
    /// during which the informer may show them.
    async fn claim_pods(&self, set: &K, spec: &ReplicaSetSpec) -> Result<Vec<Arc<PodSummary>>, kube::Error> {
        let all = self.pending_deletions.pods_in_namespace(&self.members, set.namespace());
        self.pods.claim_pods(set, &spec.selector, all).await
    }

    /// Creates or deletes Pods until their number is the desired one (`manageReplicas`).
    async fn manage_replicas(
        &self,
        key: &str,
        set: &K,
        spec: &ReplicaSetSpec,
        claimed: &[Arc<PodSummary>],
    ) -> Option<Failure> {
        let active: Vec<&PodSummary> = claimed.iter().map(AsRef::as_ref).filter(|m: &&PodSummary| m.active).collect();
        let desired = usize::try_from(spec.replicas.unwrap_or(1)).unwrap_or(0);
        let (mut expected, about) = (ExpectedVersion::default(), set.object_ref(&()));
        let mut failure = None;
        if active.len() < desired {
            let count = (desired - active.len()).min(BURST_REPLICAS);
            // Upstream omits the dash if the name would be too long with it.
            let name = format!("{}-", set.name());
            let pod = pod_from_template(set, &spec.template.clone().unwrap_or_default(), name);
            failure = self.pods.create_pods(&about, &vec![pod; count], &mut expected).await.1;
        } else if active.len() > desired {
            let excess = (active.len() - desired).min(BURST_REPLICAS);
            for pod in pods_to_delete(active, excess) {
                match self.pods.delete_pod(&about, pod, &mut expected).await {
                    Ok(true) => self.pending_deletions.insert(pod, &self.members),
                    Ok(false) => {}
                    Err(e) => {
                        failure = Some(e);
                        break;
                    }
                }
            }
        }
        self.expectations.set(key, expected);
        failure
    }

    /// Writes the status if it has changed.
    async fn update_status(
        &self,
        set: &K,
        spec: &ReplicaSetSpec,
        claimed: &[Arc<PodSummary>],
        failure: Option<&Failure>,
    ) -> Result<(), kube::Error> {
        let failure = failure.map(|(reason, e)| (*reason, error_message(e)));
        let new =
            set.clone().with_status(calculate_status(&set.as_replica_set(), spec, claimed, failure, Timestamp::now()));
        if new == *set {
            return Ok(());
        }
        let sets: Api<K> = Api::namespaced(self.client.clone(), set.namespace());
        // If the object has changed or is gone, the watch enqueues it again.
        ignore_not_found_or_conflict(sets.replace_status(set.name(), &PostParams::default(), &new).await)
    }
}

/// Subscribes to the informers when called, not when first polled.
pub(crate) fn run<K: ReplicaSetLike>(
    clients: Clients,
    known: SharedInformer<K>,
    members: SharedInformer<PodSummary>,
    stop: CancellationToken,
) -> impl Future<Output = ()> + Send {
    let events = stream::select(known.subscribe().map(Event::Set), members.subscribe().map(Event::Pod));
    let client = clients.for_service_account(K::COMPONENT);
    let controller = ReplicaSetController {
        pods: PodControl::new(client.clone(), K::COMPONENT),
        client,
        known,
        members,
        expectations: Expectations::default(),
        pending_deletions: PendingDeletions::default(),
    };
    // The future is large, so it is boxed.
    Box::pin(worker::run(controller, events.boxed(), stop))
}
