//! Disruption controller: status of PodDisruptionBudgets (`pkg/controller/disruption`).

mod budget;

use crate::{
    clients::Clients,
    event_recorder::EventRecorder,
    int_or_string::saturating_sum,
    names,
    pod_control::matches,
    pod_summary::{PodSummary, controller_of},
    selector_format::format_selector,
    worker::{self, Controller, ignore_not_found_or_conflict, is_code},
};
use budget::{failed_status, needs_scale, sync_budget};
use futures::stream::{self, StreamExt};
use informer::{CacheEvent, SharedInformer, key};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::{
    api::{
        apps::v1::{Deployment, ReplicaSet, StatefulSet},
        core::v1::{ObjectReference, Pod, ReplicationController},
        policy::v1::{PodDisruptionBudget, PodDisruptionBudgetStatus},
    },
    apimachinery::pkg::apis::meta::v1::OwnerReference,
};
use kube::{
    Api, Client, Resource,
    api::{DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams},
    discovery::{ApiCapabilities, pinned_kind},
};
use serde_json::json;
use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
    time::Duration,
};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

const COMPONENT: &str = "controllermanager";
/// Time after which a `DisruptionTarget` condition is cleared if the Pod is not being deleted.
const STALE_POD_DISRUPTION_TIMEOUT: SignedDuration = SignedDuration::from_mins(2);
/// Prefix of the key of a Pod with a `DisruptionTarget` condition.
const STALE_POD_KEY_PREFIX: &str = "pod:";

enum Event {
    Budget(CacheEvent<PodDisruptionBudget>),
    ReplicaSet(CacheEvent<ReplicaSet>),
    Pod(CacheEvent<PodSummary>),
}

struct DisruptionController {
    client: Client,
    recorder: EventRecorder,
    budgets: SharedInformer<PodDisruptionBudget>,
    sets: SharedInformer<ReplicaSet>,
    pods: SharedInformer<PodSummary>,
}

/// Why the expected number of Pods is unknown.
enum ExpectedScaleError {
    /// The message, as upstream's.
    NotComputable(String),
    Request(kube::Error),
}

impl From<kube::Error> for ExpectedScaleError {
    fn from(error: kube::Error) -> Self {
        Self::Request(error)
    }
}

impl Controller for DisruptionController {
    type Event = Event;
    const NAME: &'static str = names::DISRUPTION;

    fn observe(&self, event: Event, _now: Instant) -> Vec<String> {
        match event {
            Event::Budget(CacheEvent::Changed { after, .. }) => {
                after.iter().map(|budget| key(budget.as_ref())).collect()
            }
            Event::Pod(seen @ CacheEvent::Changed { .. }) => {
                let namespace = seen.objects().next().map(|pod| pod.namespace.clone()).unwrap_or_default();
                let budgets = self.budgets.in_namespace(&namespace).into_iter();
                let concerned = budgets.filter(|budget| seen.objects().any(|pod| selects(budget, pod)));
                let stale = seen.objects().last().filter(|pod| pod.disruption_target_since.is_some());
                let stale = stale.map(|pod| format!("{STALE_POD_KEY_PREFIX}{}", key(pod.as_ref())));
                concerned.map(|budget| key(budget.as_ref())).chain(stale).collect()
            }
            Event::ReplicaSet(CacheEvent::Changed { .. }) => vec![],
            Event::Budget(CacheEvent::Resync)
            | Event::ReplicaSet(CacheEvent::Resync)
            | Event::Pod(CacheEvent::Resync) => {
                let stale = self.pods.all().into_iter().filter(|pod| pod.disruption_target_since.is_some());
                let stale = stale.map(|pod| format!("{STALE_POD_KEY_PREFIX}{}", key(pod.as_ref())));
                self.budgets.keys().into_iter().chain(stale).collect()
            }
        }
    }

    async fn reconcile(&self, key: &str, _now: Instant) -> Result<Option<Duration>, kube::Error> {
        if !(self.budgets.has_synced() && self.pods.has_synced() && self.sets.has_synced()) {
            return Ok(None);
        }
        if let Some(pod) = key.strip_prefix(STALE_POD_KEY_PREFIX) {
            return self.clear_stale_disruption(pod).await;
        }
        let Some(budget) = self.budgets.get_by_key(key) else { return Ok(None) };
        let Some(spec) = budget.spec.as_ref() else { return Ok(None) };
        let mut pods = self.pods.in_namespace(budget.metadata.namespace.as_deref().unwrap_or_default());
        pods.retain(|pod| selects(&budget, pod));
        let about = budget.object_ref(&());
        if pods.is_empty() {
            self.recorder.record(&about, false, "NoPods", "No matching pods found").await;
        }
        self.report_multiple_budgets(&budget, &pods).await;
        let now = Timestamp::now();
        let scale = match self.expected_scale(&about, &budget, &pods).await {
            Ok(scale) => scale,
            Err(ExpectedScaleError::Request(e)) => return Err(e),
            Err(ExpectedScaleError::NotComputable(error)) => {
                let message = format!("Failed to calculate the number of expected pods: {error}");
                self.recorder.record(&about, true, "CalculateExpectedPodCountFailed", &message).await;
                self.update_status(&budget, failed_status(&budget, error, now)).await?;
                return Ok(None);
            }
        };
        let sync = sync_budget(&budget, spec, &pods, scale, now);
        for pod in &sync.not_deleted {
            // Upstream's message contains the namespace twice.
            let namespace = &pod.namespace;
            let message = format!("Pod was expected by PDB {namespace}/{namespace} to be deleted but it wasn't");
            self.recorder.record(&pod.reference(), true, "NotDeleted", &message).await;
        }
        self.update_status(&budget, sync.status).await?;
        Ok(sync.requeue_at.map(|at| Duration::try_from(at.duration_since(now)).unwrap_or_default()))
    }
}

fn selects(budget: &PodDisruptionBudget, pod: &PodSummary) -> bool {
    let selector = budget.spec.as_ref().and_then(|spec| spec.selector.as_ref());
    selector.is_some_and(|selector| matches(selector, &pod.labels))
}

impl DisruptionController {
    /// Records an Event for Pods that several budgets select, which cannot be evicted (`getPdbForPod`).
    async fn report_multiple_budgets(&self, budget: &PodDisruptionBudget, pods: &[Arc<PodSummary>]) {
        let all = self.budgets.in_namespace(budget.metadata.namespace.as_deref().unwrap_or_default());
        if all.len() < 2 {
            return;
        }
        for pod in pods {
            let matching = all.iter().filter(|other| selects(other, pod));
            let names: BTreeSet<&str> = matching.filter_map(|budget| budget.metadata.name.as_deref()).collect();
            if let Some(first) = names.first().filter(|_| names.len() > 1) {
                let (namespace, name) = (&pod.namespace, &pod.name);
                let message = format!(
                    "Pod {namespace:?}/{name:?} matches multiple PodDisruptionBudgets.  Chose {first:?} arbitrarily."
                );
                self.recorder.record(&pod.reference(), true, "MultiplePodDisruptionBudgets", &message).await;
            }
        }
    }

    /// Returns the sum of the scales of the Pods' controllers (`getExpectedScale`), 0 if the budget does not need it.
    async fn expected_scale(
        &self,
        about: &ObjectReference,
        budget: &PodDisruptionBudget,
        pods: &[Arc<PodSummary>],
    ) -> Result<i32, ExpectedScaleError> {
        let spec = budget.spec.as_ref().filter(|spec| needs_scale(spec));
        let Some(spec) = spec else { return Ok(0) };
        let (mut scales, mut unmanaged) = (HashMap::new(), false);
        for pod in pods {
            let Some(owner) = &pod.controller else {
                unmanaged = true;
                continue;
            };
            let owner = self.top_controller(&pod.namespace, owner);
            if !scales.contains_key(&owner.uid) {
                let scale = self.scale_of(&pod.namespace, &owner, &pod.name).await?;
                scales.insert(owner.uid.clone(), scale);
            }
        }
        if unmanaged {
            let selector = format_selector(spec.selector.as_ref());
            let message = format!(
                "Pods selected by this PodDisruptionBudget (selector: {selector}) were found to be unmanaged. As a result, the status of the PDB cannot be calculated correctly, which may result in undefined behavior. To account for these pods please set \".spec.minAvailable\" field of the PDB to an integer value."
            );
            self.recorder.record(about, true, "UnmanagedPods", &message).await;
        }
        Ok(saturating_sum(scales.values().copied()))
    }

    /// Returns the Deployment of a ReplicaSet, or the owner itself.
    fn top_controller(&self, namespace: &str, owner: &OwnerReference) -> OwnerReference {
        let set = self.sets.get(namespace, &owner.name).filter(|_| owner.kind == "ReplicaSet");
        let above = set.and_then(|set| controller_of(set.metadata.owner_references.as_deref()?).cloned());
        above.filter(|above| above.kind == "Deployment").unwrap_or_else(|| owner.clone())
    }

    async fn scale_of(&self, namespace: &str, owner: &OwnerReference, pod: &str) -> Result<i32, ExpectedScaleError> {
        let (client, name) = (self.client.clone(), owner.name.as_str());
        let (group, version) = owner.api_version.split_once('/').unwrap_or(("", &owner.api_version));
        let scale = match (group, owner.kind.as_str()) {
            ("apps", "Deployment") => Api::<Deployment>::namespaced(client, namespace).get_scale(name).await,
            ("apps", "ReplicaSet") => Api::<ReplicaSet>::namespaced(client, namespace).get_scale(name).await,
            ("apps", "StatefulSet") => Api::<StatefulSet>::namespaced(client, namespace).get_scale(name).await,
            ("", "ReplicationController") => {
                Api::<ReplicationController>::namespaced(client, namespace).get_scale(name).await
            }
            (group, kind) => {
                let kind = GroupVersionKind::gvk(group, version, kind);
                let found = pinned_kind(&client, &kind).await;
                let scales = |can: &ApiCapabilities| can.subresources.iter().any(|(part, _)| part.plural == "scale");
                let Some(resource) = found.as_ref().ok().filter(|(_, can)| scales(can)) else {
                    let resource = format!("{}s.{group}", owner.kind.to_lowercase());
                    let resource = found.map_or(resource, |(found, _)| format!("{}.{group}", found.plural));
                    let resource = resource.trim_end_matches('.');
                    return Err(ExpectedScaleError::NotComputable(format!(
                        "{resource} does not implement the scale subresource"
                    )));
                };
                Api::<DynamicObject>::namespaced_with(client, namespace, &resource.0).get_scale(name).await
            }
        };
        match scale {
            Ok(scale) => Ok(scale.spec.and_then(|spec| spec.replicas).unwrap_or(0)),
            Err(e) if is_code(&e, 404) => {
                Err(ExpectedScaleError::NotComputable(format!("found no controllers for pod \"{pod}\"")))
            }
            Err(e) => Err(e.into()),
        }
    }

    /// Writes the status if it has changed.
    async fn update_status(
        &self,
        budget: &PodDisruptionBudget,
        status: PodDisruptionBudgetStatus,
    ) -> Result<(), kube::Error> {
        if budget.status.as_ref() == Some(&status) {
            return Ok(());
        }
        let mut new = budget.clone();
        new.status = Some(status);
        let namespace = budget.metadata.namespace.as_deref().unwrap_or_default();
        let api: Api<PodDisruptionBudget> = Api::namespaced(self.client.clone(), namespace);
        let name = budget.metadata.name.as_deref().unwrap_or_default();
        // If the object has changed or is gone, the watch enqueues it again.
        ignore_not_found_or_conflict(api.replace_status(name, &PostParams::default(), &new).await)
    }

    /// Clears a stale `DisruptionTarget` condition of a Pod that is not being deleted.
    async fn clear_stale_disruption(&self, pod: &str) -> Result<Option<Duration>, kube::Error> {
        let Some(pod) = self.pods.get_by_key(pod).filter(|pod| pod.active) else { return Ok(None) };
        let Some(since) = pod.disruption_target_since else { return Ok(None) };
        let now = Timestamp::now();
        if let Ok(left) = Duration::try_from(STALE_POD_DISRUPTION_TIMEOUT.saturating_sub(now.duration_since(since)))
            && !left.is_zero()
        {
            return Ok(Some(left));
        }
        let patch = json!({"metadata": {"uid": pod.uid}, "status": {"conditions": [pod.disruption_target(None)]}});
        let api: Api<Pod> = Api::namespaced(self.client.clone(), &pod.namespace);
        ignore_not_found_or_conflict(
            api.patch_status(&pod.name, &PatchParams::default(), &Patch::Strategic(patch)).await,
        )?;
        Ok(None)
    }
}

/// Subscribes to the informers when called, not when first polled.
pub(crate) fn run(
    clients: &Clients,
    sets: SharedInformer<ReplicaSet>,
    pods: SharedInformer<PodSummary>,
    stop: CancellationToken,
) -> impl Future<Output = ()> + Send + use<> {
    let budgets: SharedInformer<PodDisruptionBudget> = clients.informers().informer();
    let others = stream::select(sets.subscribe().map(Event::ReplicaSet), pods.subscribe().map(Event::Pod));
    let events = stream::select(budgets.subscribe().map(Event::Budget), others).boxed();
    let client = clients.for_service_account("disruption-controller");
    let recorder = EventRecorder::new(client.clone(), COMPONENT);
    worker::run(DisruptionController { client, recorder, budgets, sets, pods }, events, stop)
}
