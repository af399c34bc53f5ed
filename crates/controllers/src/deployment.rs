//! Deployment controller (`pkg/controller/deployment`).
//!
//! [`mod@plan`] decides from the cached state by the strategy ([`rolling`] or [`recreate`]); this module writes the
//! result and records Events.

mod limits;
mod plan;
mod proportional_scaling;
mod recreate;
mod replica_set;
mod rolling;
mod rollout_state;
mod status;
mod sync;
mod template;
#[cfg(test)]
mod tests;

use crate::{
    clients::Clients,
    event_recorder::EventRecorder,
    expectations::{Expectations, ExpectedVersion},
    names,
    pod_control::{affected_owners, claim_objects, error_message, is_namespace_terminating, selects},
    pod_summary::{PodSummary, controller_of},
    worker::{self, Controller, ignore_not_found_or_conflict, is_code},
};
use futures::stream::{self, StreamExt};
use informer::{CacheEvent, SharedInformer, key};
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{Deployment, DeploymentSpec, DeploymentStatus, ReplicaSet};
use kube::{
    Api, Client, Resource,
    api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions},
};
use plan::{create_error_status, plan};
use replica_set::{PlannedReplicaSet, REVISION};
use serde_json::json;
use std::{sync::Arc, time::Duration};
pub(crate) use template::hash;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

const COMPONENT: &str = "deployment-controller";

enum Event {
    Deployment(CacheEvent<Deployment>),
    ReplicaSet(CacheEvent<ReplicaSet>),
    Pod(CacheEvent<PodSummary>),
}

struct DeploymentController {
    client: Client,
    recorder: EventRecorder,
    known: SharedInformer<Deployment>,
    sets: SharedInformer<ReplicaSet>,
    pods: SharedInformer<PodSummary>,
    expectations: Expectations,
}

impl Controller for DeploymentController {
    type Event = Event;
    const NAME: &'static str = names::DEPLOYMENT;

    fn observe(&self, event: Event, _now: Instant) -> Vec<String> {
        match event {
            Event::Deployment(seen @ CacheEvent::Changed { .. }) => {
                seen.objects().last().map(|deployment| key(deployment.as_ref())).into_iter().collect()
            }
            Event::ReplicaSet(seen @ CacheEvent::Changed { .. }) => {
                seen.objects().flat_map(|set| self.deployments_of(set)).collect()
            }
            Event::Pod(CacheEvent::Changed { before: Some(before), after }) => {
                // The Recreate strategy waits until the last old Pod is gone.
                if after.is_none_or(|pod| pod.is_terminal()) { self.recreating_deployment_of(&before) } else { vec![] }
            }
            Event::Pod(CacheEvent::Changed { .. }) => vec![],
            Event::Deployment(CacheEvent::Resync)
            | Event::ReplicaSet(CacheEvent::Resync)
            | Event::Pod(CacheEvent::Resync) => self.known.keys(),
        }
    }

    /// Syncs a Deployment (`syncDeployment`).
    async fn reconcile(&self, key: &str, now: Instant) -> Result<Option<Duration>, kube::Error> {
        let Some(deployment) = self.known.get_by_key(key) else {
            self.expectations.delete(key);
            return Ok(None);
        };
        if !(self.sets.has_synced() && self.pods.has_synced()) {
            return Ok(None);
        }
        if let Some(left) = self.expectations.remaining_wait(key, self.sets.resource_version(), now) {
            return Ok(Some(left));
        }
        let Some(spec) = deployment.spec.as_ref() else { return Ok(None) };
        let sets = self.claim_replica_sets(&deployment, spec).await?;
        let time = Timestamp::now();
        let old_pods_running =
            |newest: Option<&PlannedReplicaSet>| self.old_pods_running(&deployment, spec, &sets, newest);
        let mut plan = plan(&deployment, spec, &sets, old_pods_running, time);
        // Create the new ReplicaSet before the existing ones are scaled.
        plan.changed.sort_by_key(|set| set.observed.is_some());
        for set in &plan.changed {
            let mut expected = ExpectedVersion::default();
            let done = self.apply_replica_set(&deployment, spec, set, &mut expected).await;
            self.expectations.set(key, expected);
            // The ReplicaSet has changed since the decision: the watch enqueues the Deployment again.
            if !done? {
                return Ok(None);
            }
        }
        self.update_status(&deployment, plan.status, plan.revision).await?;
        Ok(plan.requeue_at.map(|at| Duration::try_from(at.duration_since(Timestamp::now())).unwrap_or_default()))
    }
}

impl DeploymentController {
    /// Returns the keys of the Deployments that a ReplicaSet affects.
    fn deployments_of(&self, set: &ReplicaSet) -> Vec<String> {
        let meta = &set.metadata;
        let namespace = meta.namespace.as_deref().unwrap_or_default();
        let owner = controller_of(meta.owner_references.as_deref().unwrap_or_default());
        let labels = meta.labels.clone().unwrap_or_default();
        let selects = |d: &Deployment| d.spec.as_ref().is_some_and(|spec| selects(&spec.selector, &labels));
        affected_owners(&self.known, namespace, owner, selects)
    }

    /// Returns the key of the Pod's Deployment if it uses the Recreate strategy, which waits for old Pods to end.
    fn recreating_deployment_of(&self, pod: &PodSummary) -> Vec<String> {
        let owner = pod.controller.as_ref().filter(|owner| owner.kind == "ReplicaSet");
        let Some(set) = owner.and_then(|owner| self.sets.get(&pod.namespace, &owner.name)) else { return vec![] };
        let recreates = |key: &String| {
            let spec = self.known.get_by_key(key).and_then(|d| d.spec.clone());
            spec.is_some_and(|spec| !limits::is_rolling(&spec))
        };
        self.deployments_of(&set).into_iter().filter(recreates).collect()
    }

    /// Claims the Deployment's ReplicaSets (`ClaimReplicaSets`).
    async fn claim_replica_sets(
        &self,
        deployment: &Deployment,
        spec: &DeploymentSpec,
    ) -> Result<Vec<Arc<ReplicaSet>>, kube::Error> {
        let namespace = deployment.metadata.namespace.as_deref().unwrap_or_default();
        let api: Api<ReplicaSet> = Api::namespaced(self.client.clone(), namespace);
        claim_objects(&api, deployment, &spec.selector, self.sets.in_namespace(namespace)).await
    }

    /// Returns whether Pods of old ReplicaSets still run (`oldPodsRunning`).
    fn old_pods_running(
        &self,
        deployment: &Deployment,
        spec: &DeploymentSpec,
        sets: &[Arc<ReplicaSet>],
        newest: Option<&PlannedReplicaSet>,
    ) -> bool {
        let newest = newest.and_then(|set| set.planned.metadata.uid.as_deref());
        let old: Vec<&str> =
            sets.iter().filter_map(|s| s.metadata.uid.as_deref()).filter(|u| Some(*u) != newest).collect();
        let pods = self.pods.in_namespace(deployment.metadata.namespace.as_deref().unwrap_or_default());
        let is_old = |pod: &PodSummary| pod.controller.as_ref().is_some_and(|owner| old.contains(&owner.uid.as_str()));
        pods.iter().any(|pod| !pod.is_terminal() && is_old(pod) && selects(&spec.selector, &pod.labels))
    }

    /// Creates, patches or deletes a ReplicaSet. Returns `false` if it has changed meanwhile.
    async fn apply_replica_set(
        &self,
        deployment: &Deployment,
        spec: &DeploymentSpec,
        set: &PlannedReplicaSet,
        expected: &mut ExpectedVersion,
    ) -> Result<bool, kube::Error> {
        let namespace = deployment.metadata.namespace.as_deref().unwrap_or_default();
        let api: Api<ReplicaSet> = Api::namespaced(self.client.clone(), namespace);
        if set.deleted {
            let preconditions = Preconditions { uid: set.planned.metadata.uid.clone(), resource_version: None };
            let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::background() };
            ignore_not_found_or_conflict(api.delete(set.name(), &params).await)?;
            return Ok(true);
        }
        let made = if let Some(observed) = &set.observed {
            let planned = set.planned.spec.clone().unwrap_or_default();
            let patch = json!({
                "metadata": {"resourceVersion": observed.metadata.resource_version, "annotations": set.planned.metadata.annotations},
                "spec": {"replicas": planned.replicas, "minReadySeconds": planned.min_ready_seconds},
            });
            api.patch(set.name(), &PatchParams::default(), &Patch::Merge(patch)).await
        } else {
            api.create(&PostParams::default(), &set.planned).await
        };
        match made {
            Ok(made) => {
                expected.observe(&made.metadata);
                if let Some(from) = set.scales_from() {
                    let (way, to) = (if set.spec_replicas() > from { "up" } else { "down" }, set.spec_replicas());
                    let message = format!("Scaled {way} replica set {} from {from} to {to}", set.name());
                    self.recorder.record(&deployment.object_ref(&()), false, "ScalingReplicaSet", &message).await;
                }
                Ok(true)
            }
            Err(e) if set.observed.is_none() => self.handle_create_error(deployment, spec, set, e).await,
            Err(e) if is_code(&e, 404) || is_code(&e, 409) => Ok(false),
            Err(e) => Err(e),
        }
    }

    /// Handles a failed creation of the new ReplicaSet: a name collision, or a rejected request.
    async fn handle_create_error(
        &self,
        deployment: &Deployment,
        spec: &DeploymentSpec,
        set: &PlannedReplicaSet,
        error: kube::Error,
    ) -> Result<bool, kube::Error> {
        if is_namespace_terminating(&error) {
            return Ok(false);
        }
        if is_code(&error, 409) {
            let api: Api<ReplicaSet> =
                Api::namespaced(self.client.clone(), deployment.metadata.namespace.as_deref().unwrap_or_default());
            let other = api.get_opt(set.name()).await?;
            let owner =
                |s: &ReplicaSet| controller_of(s.metadata.owner_references.as_deref().unwrap_or_default()).cloned();
            let template = |s: &ReplicaSet| s.spec.as_ref().and_then(|spec| spec.template.clone()).unwrap_or_default();
            let is_mine = |s: &ReplicaSet| {
                owner(s).is_some_and(|o| Some(&o.uid) == deployment.metadata.uid.as_ref())
                    && template::equal_ignore_hash(&template(s), &spec.template)
            };
            // A hash collision: increment `collisionCount`, so that the next name differs.
            if !other.is_some_and(|s| is_mine(&s)) {
                let mut status = deployment.status.clone().unwrap_or_default();
                status.collision_count = Some(status.collision_count.unwrap_or(0).saturating_add(1));
                self.update_status(deployment, status, None).await?;
            }
            return Ok(false);
        }
        let message = format!("Failed to create new replica set \"{}\": {}", set.name(), error_message(&error));
        let status = create_error_status(deployment, spec, message.clone(), Timestamp::now());
        // The creation error is returned, so an error of this write is ignored.
        let _ = self.update_status(deployment, status, None).await;
        self.recorder.record(&deployment.object_ref(&()), true, "ReplicaSetCreateError", &message).await;
        Err(error)
    }

    /// Writes the status and the revision annotation if they have changed.
    async fn update_status(
        &self,
        deployment: &Deployment,
        status: DeploymentStatus,
        revision: Option<String>,
    ) -> Result<(), kube::Error> {
        let mut new = deployment.clone();
        new.status = Some(status);
        if let Some(revision) = revision {
            new.metadata.annotations.get_or_insert_default().insert(REVISION.to_owned(), revision);
        }
        if new == *deployment {
            return Ok(());
        }
        let api: Api<Deployment> =
            Api::namespaced(self.client.clone(), deployment.metadata.namespace.as_deref().unwrap_or_default());
        let name = deployment.metadata.name.as_deref().unwrap_or_default();
        // If the object has changed or is gone, the watch enqueues it again.
        ignore_not_found_or_conflict(api.replace_status(name, &PostParams::default(), &new).await)
    }
}

/// Subscribes to the informers when called, not when first polled.
pub(crate) fn run(
    clients: Clients,
    sets: SharedInformer<ReplicaSet>,
    pods: SharedInformer<PodSummary>,
    stop: CancellationToken,
) -> impl Future<Output = ()> + Send {
    let known = SharedInformer::<Deployment>::new();
    let others = stream::select(sets.subscribe().map(Event::ReplicaSet), pods.subscribe().map(Event::Pod));
    let events = stream::select(known.subscribe().map(Event::Deployment), others).boxed();
    let watched = known.clone().run(Api::all(clients.shared()), |deployment| deployment, stop.clone());
    let client = clients.for_service_account("deployment-controller");
    let recorder = EventRecorder::new(client.clone(), COMPONENT);
    let controller =
        DeploymentController { client, recorder, known, sets, pods, expectations: Expectations::default() };
    let works = worker::run(controller, events, stop);
    // The future is large, so it is boxed.
    Box::pin(async move {
        futures::join!(watched, works);
    })
}
