//! DaemonSet controller (`pkg/controller/daemon`).
//!
//! [`plan`] decides which Pods to create and delete, [`crate::controller_history`] tracks revisions; this module
//! writes the result and records Events.

mod node;
mod plan;
#[cfg(test)]
mod tests;

use crate::{
    backoff::Backoff,
    clients::Clients,
    controller_history::{CONTROLLER_REVISION_HASH, RevisionHistory, RevisionSource, construct_history, revision_hash},
    controller_revisions::{RevisionSync, Revisions, affected_by_revision},
    expectations::{Expectations, ExpectedVersion},
    names,
    pod_control::{PodControl, affected_owners, pod_from_template, selects},
    pod_summary::PodSummary,
    worker::{self, Controller, ignore_not_found_or_conflict},
};
use futures::stream::{self, StreamExt};
use informer::{CacheEvent, SharedInformer, key};
use jiff::Timestamp;
use k8s_openapi::api::{
    apps::v1::{ControllerRevision, DaemonSet, DaemonSetSpec, DaemonSetStatus},
    core::v1::Pod,
};
use kube::{Api, Client, Resource, api::PostParams};
use node::NodeSummary;
use plan::{DaemonSetSnapshot, Plan};
use std::{collections::BTreeMap, time::Duration};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

const COMPONENT: &str = "daemonset-controller";
/// Maximum delay before a failed Pod of a node is recreated (`startDaemonSetController`).
const MAX_BACKOFF: Duration = Duration::from_secs(900);

enum Event {
    DaemonSet(CacheEvent<DaemonSet>),
    Pod(CacheEvent<PodSummary>),
    /// A node was added, deleted or changed, which affects all DaemonSets.
    Node,
    Revision(CacheEvent<ControllerRevision>),
}

struct DaemonSetController {
    client: Client,
    control: PodControl,
    known: SharedInformer<DaemonSet>,
    pods: SharedInformer<PodSummary>,
    nodes: SharedInformer<NodeSummary>,
    revisions: Revisions,
    pod_expectations: Expectations,
    /// Back-off by DaemonSet, and by UID, generation and node (`failedPodsBackoffKey`).
    backoff: Backoff,
}

impl Controller for DaemonSetController {
    type Event = Event;
    const NAME: &'static str = names::DAEMON_SET;
    const WORKERS: usize = 2;

    fn observe(&self, event: Event, _now: Instant) -> Vec<String> {
        match event {
            Event::DaemonSet(seen @ CacheEvent::Changed { .. }) => {
                seen.objects().last().map(|set| key(set.as_ref())).into_iter().collect()
            }
            Event::Pod(seen @ CacheEvent::Changed { .. }) => {
                seen.objects().flat_map(|pod| self.daemon_sets_of(pod)).collect()
            }
            Event::Revision(seen @ CacheEvent::Changed { .. }) => {
                seen.objects().flat_map(|past| affected_by_revision(&self.known, past, is_selected)).collect()
            }
            Event::DaemonSet(CacheEvent::Resync)
            | Event::Pod(CacheEvent::Resync)
            | Event::Revision(CacheEvent::Resync)
            | Event::Node => self.known.keys(),
        }
    }

    /// Syncs a DaemonSet (`syncDaemonSet`).
    async fn reconcile(&self, key: &str, now: Instant) -> Result<Option<Duration>, kube::Error> {
        let listed = self.pods.has_synced() && self.nodes.has_synced() && self.revisions.informer.has_synced();
        let Some(set) = self.known.get_by_key(key) else {
            self.pod_expectations.delete(key);
            self.revisions.delete(key);
            self.backoff.delete_owner(key);
            return Ok(None);
        };
        let Some(spec) = set.spec.as_ref().filter(|_| listed && set.metadata.deletion_timestamp.is_none()) else {
            return Ok(None);
        };
        let remaining_wait = self.pod_expectations.remaining_wait(key, self.pods.resource_version(), now);
        let remaining_wait = remaining_wait.or_else(|| self.revisions.remaining_wait(key, now));
        if remaining_wait.is_some() {
            return Ok(remaining_wait);
        }
        let collisions = set.status.as_ref().and_then(|status| status.collision_count);
        let templated = RevisionSource {
            owner: set.as_ref(),
            template: &spec.template,
            collisions,
            label: CONTROLLER_REVISION_HASH,
        };
        let history = construct_history(&templated, self.revisions.claim(set.as_ref(), &spec.selector).await?);
        match self.revisions.sync_current(key, set.as_ref(), &history).await? {
            RevisionSync::Synced => {}
            RevisionSync::NotObserved | RevisionSync::NamespaceTerminating => return Ok(None),
            RevisionSync::Collision => {
                let mut status = set.status.clone().unwrap_or_default();
                status.collision_count = Some(status.collision_count.unwrap_or(0).saturating_add(1));
                self.update_status(&set, status).await?;
                return Ok(None);
            }
        }
        let all = self.pods.in_namespace(set.metadata.namespace.as_deref().unwrap_or_default());
        let mine = self.control.claim_pods(set.as_ref(), &spec.selector, all).await?;
        let nodes = self.nodes.all();
        let uid = set.metadata.uid.as_deref().unwrap_or_default();
        let generation = set.metadata.generation.unwrap_or_default();
        let snapshot = DaemonSetSnapshot::new(spec, &nodes, &mine, revision_hash(&history.current), Timestamp::now());
        let plan = snapshot.plan(|node| self.backoff.next(key, format!("{uid}/{generation}/{node}"), now));
        let mut expected = ExpectedVersion::default();
        let failure = self.apply_plan(&set, spec, &plan, &history, &mut expected).await;
        self.pod_expectations.set(key, expected);
        let live = mine.iter().filter_map(|pod| pod.labels.get(CONTROLLER_REVISION_HASH)).map(String::as_str).collect();
        let excess = history.excess(spec.revision_history_limit.unwrap_or(10), &live);
        self.revisions.prune(set.as_ref(), excess).await?;
        self.update_status(&set, snapshot.status(&set)).await?;
        if let Some(error) = failure {
            return Err(error);
        }
        let pending_availability = mine.iter().filter(|pod| pod.ready.is_some() && !pod.terminating);
        let after = spec.min_ready_seconds.unwrap_or(0);
        let pending_availability =
            pending_availability.filter_map(|pod| pod.time_until_available(after, Timestamp::now())).min();
        Ok([plan.requeue_after, pending_availability].into_iter().flatten().min())
    }
}

impl DaemonSetController {
    /// Returns the keys of the DaemonSets that a Pod affects.
    fn daemon_sets_of(&self, pod: &PodSummary) -> Vec<String> {
        affected_owners(&self.known, &pod.namespace, pod.controller.as_ref(), |set| is_selected(set, &pod.labels))
    }

    async fn apply_plan(
        &self,
        set: &DaemonSet,
        spec: &DaemonSetSpec,
        plan: &Plan,
        history: &RevisionHistory,
        expected: &mut ExpectedVersion,
    ) -> Option<kube::Error> {
        let about = set.object_ref(&());
        for (node, pod) in &plan.terminated {
            let (failed, name) = (pod.phase == "Failed", key(pod.as_ref()));
            let (reason, word, operation) = if failed {
                ("FailedDaemonPod", "failed", "kill")
            } else {
                ("SucceededDaemonPod", "succeeded", "delete")
            };
            let message = format!("Found {word} daemon pod {name} on node {node}, will try to {operation} it");
            self.control.recorder.record(&about, failed, reason, &message).await;
        }
        let pods: Vec<Pod> =
            plan.create.iter().map(|node| pod(set, spec, revision_hash(&history.current), node)).collect();
        if let (_, Some((_, error))) = self.control.create_pods(&about, &pods, expected).await {
            return Some(error);
        }
        for pod in &plan.delete {
            if let Err((_, error)) = self.control.delete_pod(&about, pod, expected).await {
                return Some(error);
            }
        }
        None
    }

    /// Writes the status if it has changed.
    async fn update_status(&self, set: &DaemonSet, status: DaemonSetStatus) -> Result<(), kube::Error> {
        if set.status.as_ref() == Some(&status) {
            return Ok(());
        }
        let mut new = set.clone();
        new.status = Some(status);
        let api: Api<DaemonSet> =
            Api::namespaced(self.client.clone(), set.metadata.namespace.as_deref().unwrap_or_default());
        let name = set.metadata.name.as_deref().unwrap_or_default();
        // If the object has changed or is gone, the watch enqueues it again.
        ignore_not_found_or_conflict(api.replace_status(name, &PostParams::default(), &new).await)
    }
}

fn is_selected(set: &DaemonSet, labels: &BTreeMap<String, String>) -> bool {
    set.spec.as_ref().is_some_and(|spec| selects(&spec.selector, labels))
}

/// Returns a Pod of the template for a node.
fn pod(set: &DaemonSet, spec: &DaemonSetSpec, hash: &str, node: &str) -> Pod {
    let name = format!("{}-", set.metadata.name.as_deref().unwrap_or_default());
    let mut pod = pod_from_template(set, &spec.template, name);
    pod.metadata.labels.get_or_insert_default().insert(CONTROLLER_REVISION_HASH.to_owned(), hash.to_owned());
    node::set_node_affinity(pod.spec.get_or_insert_default(), node);
    pod
}

/// Subscribes to the informers when called, not when first polled.
pub(crate) fn run(
    clients: Clients,
    revisions: SharedInformer<ControllerRevision>,
    pods: SharedInformer<PodSummary>,
    stop: CancellationToken,
) -> impl Future<Output = ()> + Send {
    let (known, nodes) = (SharedInformer::<DaemonSet>::new(), SharedInformer::<NodeSummary>::new());
    let of_sets = stream::select(known.subscribe().map(Event::DaemonSet), revisions.subscribe().map(Event::Revision));
    let others = stream::select(pods.subscribe().map(Event::Pod), nodes.subscribe().map(|_| Event::Node));
    let events = stream::select(of_sets, others).boxed();
    let watched = futures::future::join(
        known.clone().run(Api::all(clients.shared()), |set| set, stop.clone()),
        nodes.clone().run(Api::all(clients.shared()), NodeSummary::from_node, stop.clone()),
    );
    let client = clients.for_service_account("daemon-set-controller");
    let controller = DaemonSetController {
        control: PodControl::new(client.clone(), COMPONENT),
        revisions: Revisions::new(client.clone(), revisions),
        client,
        known,
        pods,
        nodes,
        pod_expectations: Expectations::default(),
        backoff: Backoff::with_max(MAX_BACKOFF),
    };
    let works = worker::run(controller, events, stop);
    // The future is large, so it is boxed.
    Box::pin(async move {
        futures::join!(watched, works);
    })
}
