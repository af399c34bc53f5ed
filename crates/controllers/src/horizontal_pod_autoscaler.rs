//! Horizontal Pod autoscaler (`pkg/controller/podautoscaler`).
//!
//! [`calculator`] and [`proposal`] compute the desired replicas from metrics, [`normalize`] and [`behavior`] limit
//! the rate of change; this module reads and writes the scale, and records Events. Each autoscaler is synced every 15
//! s, because metrics have no events.

mod behavior;
mod calculator;
mod conditions;
mod history;
mod metrics;
mod normalize;
mod proposal;
mod scale_target;
mod status;
#[cfg(test)]
mod tests;

use crate::{
    clients::Clients,
    clock::{Clock, truncate_to_seconds},
    event_recorder::EventRecorder,
    names,
    pod_control::error_message,
    pod_summary::PodSummary,
    worker::{self, Controller, is_code},
};
use api::{
    feature_gates::{FeatureGates, Gate},
    selector::{LabelRequirements, SelectorError},
};
use behavior::{Behavior, tolerances};
use calculator::{Calculator, Tolerances};
use conditions::Conditions;
use futures::{
    future::join_all,
    stream::{self, BoxStream, StreamExt},
};
use history::{Histories, History};
use informer::{CacheEvent, SharedInformer, key};
use k8s_openapi::{
    api::autoscaling::{
        v1::Scale,
        v2::{HorizontalPodAutoscaler, HorizontalPodAutoscalerSpec, HorizontalPodAutoscalerStatus, MetricSpec},
    },
    apimachinery::pkg::apis::meta::v1::Time,
};
use kube::{Api, Client, Resource, api::PostParams, discovery::ApiResource};
use normalize::Bounds;
use parking_lot::{MappedMutexGuard, Mutex};
use proposal::{MetricsResult, compute};
use scale_target::ScaleClient;
use status::{ScaleObservation, ScalingMode, status};
use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

const COMPONENT: &str = "horizontal-pod-autoscaler";
/// Sync interval (`--horizontal-pod-autoscaler-sync-period`).
const SYNC_PERIOD: Duration = Duration::from_secs(15);
/// Time after the start in which missing resource metrics are retried without a warning: kubelets may have just
/// started, too.
const WARM_UP: Duration = SYNC_PERIOD;
const WARM_UP_RETRY: Duration = Duration::from_secs(1);

enum Event {
    Autoscaler(CacheEvent<HorizontalPodAutoscaler>),
    /// The initial list of Pods is complete.
    Pods,
}

struct HorizontalController {
    client: Client,
    recorder: EventRecorder,
    clock: Clock,
    /// The feature gate `HPAConfigurableTolerance`.
    configurable: bool,
    known: SharedInformer<HorizontalPodAutoscaler>,
    pods: SharedInformer<PodSummary>,
    targets: ScaleClient,
    /// Selectors of the scales by autoscaler.
    selectors: Mutex<HashMap<String, LabelRequirements>>,
    histories: Histories,
    started: Instant,
    /// Whether [`Event::Pods`] was observed, which enqueues all autoscalers.
    pods_listed: AtomicBool,
}

/// Why the Pods of a scale are unknown, with upstream's message.
#[derive(Debug, thiserror::Error)]
enum PodSelectorError {
    #[error("selector is required")]
    Missing,
    #[error("couldn't convert selector into a corresponding internal selector object: {0}")]
    Invalid(#[from] SelectorError),
    #[error("pods by selector {selector} are controlled by multiple HPAs: [{autoscalers}]")]
    Ambiguous { selector: String, autoscalers: String },
}

/// Working state of one sync.
struct Sync<'a> {
    key: &'a str,
    hpa: &'a HorizontalPodAutoscaler,
    spec: &'a HorizontalPodAutoscalerSpec,
    conditions: Conditions,
    now: Instant,
    /// Resource metrics are not available yet, so nothing is reported.
    warming_up: bool,
}

impl Controller for HorizontalController {
    type Event = Event;
    const NAME: &'static str = names::HORIZONTAL_POD_AUTOSCALER;

    fn observe(&self, event: Event, _now: Instant) -> Vec<String> {
        match event {
            Event::Autoscaler(CacheEvent::Changed { before, after: Some(after) }) => {
                // Status updates are this controller's own writes.
                let same = before.is_some_and(|b| b.spec == after.spec && b.metadata.uid == after.metadata.uid);
                if same { vec![] } else { vec![key(after.as_ref())] }
            }
            Event::Autoscaler(CacheEvent::Changed { before, after: None }) => {
                // A recreated autoscaler has no history, even if it is reconciled only then.
                let gone: Vec<String> = before.iter().map(|hpa| key(hpa.as_ref())).collect();
                gone.iter().for_each(|key| self.forget(key));
                gone
            }
            Event::Autoscaler(CacheEvent::Resync) => self.known.keys(),
            Event::Pods => {
                self.pods_listed.store(true, Ordering::Relaxed);
                self.known.keys()
            }
        }
    }

    async fn reconcile(&self, key: &str, now: Instant) -> Result<Option<Duration>, kube::Error> {
        let Some(hpa) = self.known.get_by_key(key) else {
            self.forget(key);
            return Ok(None);
        };
        let Some(spec) = hpa.spec.as_ref().filter(|_| self.pods_listed.load(Ordering::Relaxed)) else {
            return Ok(None);
        };
        let old_conditions = hpa.status.as_ref().and_then(|status| status.conditions.clone()).unwrap_or_default();
        let conditions = Conditions::new(old_conditions, self.clock.now());
        let mut sync = Sync { key, hpa: &hpa, spec, conditions, now, warming_up: false };
        let found = self.reconcile_autoscaler(&mut sync).await;
        if sync.warming_up {
            return Ok(Some(WARM_UP_RETRY));
        }
        let status = status(&hpa, found, sync.conditions);
        self.update_status(&hpa, status).await;
        // Failures were reported, and are retried in the next sync.
        Ok(Some(SYNC_PERIOD))
    }
}

impl HorizontalController {
    fn forget(&self, key: &str) {
        self.selectors.lock().remove(key);
        self.histories.delete(key);
    }

    fn history(&self, sync: &Sync<'_>) -> MappedMutexGuard<'_, History> {
        self.histories.get(sync.key, sync.hpa.metadata.uid.as_deref())
    }

    async fn warn(&self, hpa: &HorizontalPodAutoscaler, reason: &str, message: &str) {
        if self.histories.get(&key(hpa), hpa.metadata.uid.as_deref()).allow_warning(Instant::now()) {
            self.recorder.record(&hpa.object_ref(&()), true, reason, message).await;
        }
    }

    /// Syncs the scale (`reconcileAutoscaler`). Returns `None` if the scale cannot be read.
    async fn reconcile_autoscaler(&self, sync: &mut Sync<'_>) -> Option<ScaleObservation> {
        let (resource, scale) = match self.targets.scale(namespace(sync.hpa), &sync.spec.scale_target_ref).await {
            Ok(found) => found,
            Err(error) => {
                self.warn(sync.hpa, "FailedGetScale", &error.to_string()).await;
                let message = format!("the HPA controller was unable to get the target's current scale: {error}");
                sync.conditions.set_able_to_scale(false, ("FailedGetScale", &message));
                return None;
            }
        };
        let got = "the HPA controller was able to get the target's current scale";
        sync.conditions.set_able_to_scale(true, ("SucceededGetScale", got));
        let replicas = scale.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(0);
        self.history(sync).record_initial_recommendation(replicas, sync.now);
        let bounds = Bounds::of(sync.spec, replicas);
        let mut found = ScaleObservation { current: replicas, desired: Some(replicas), ..ScaleObservation::default() };
        let (desired, message) = match bounds.mode() {
            ScalingMode::Disabled => {
                let message = "scaling is disabled since the replica count of the target is zero";
                sync.conditions.set_scaling_active(false, ("ScalingDisabled", message));
                return Some(found);
            }
            ScalingMode::OutOfBounds(desired, message) => (desired, message.to_owned()),
            ScalingMode::ByMetrics => {
                let (computed, proposal) = self.compute_replicas(sync, &scale, bounds).await;
                found.metrics = computed.map(|computed| computed.statuses);
                let Some((desired, message)) = proposal else {
                    return Some(ScaleObservation { desired: None, ..found });
                };
                let behavior = sync.spec.behavior.as_ref().map(Behavior::of);
                let mut history = self.history(sync);
                let conditions = &mut sync.conditions;
                (bounds.normalize(desired, behavior.as_ref(), &mut history, conditions, sync.now), message)
            }
        };
        if desired == replicas {
            return Some(found);
        }
        Some(self.update_scale(sync, (&resource, scale), (replicas, desired), &message, found).await)
    }

    /// Computes the desired replicas and the reason from metrics; failures are reported.
    async fn compute_replicas(
        &self,
        sync: &mut Sync<'_>,
        scale: &Scale,
        bounds: Bounds,
    ) -> (Option<MetricsResult>, Option<(i32, String)>) {
        let text = scale.status.as_ref().and_then(|status| status.selector.as_deref()).unwrap_or_default();
        let pods = match self.selected_pods(sync, text) {
            Ok(pods) => pods,
            Err(error) => {
                self.report_selector_error(sync, &error).await;
                return (None, None);
            }
        };
        let (namespace, specs) = (namespace(sync.hpa), sync.spec.metrics.as_deref().unwrap_or_default());
        let read = specs.iter().map(|spec| metrics::read(&self.client, &self.targets, spec, namespace, text));
        let readings = join_all(read).await;
        let usage = |spec: &MetricSpec| matches!(spec.type_.as_str(), "Resource" | "ContainerResource");
        let lacks = specs.iter().zip(&readings).any(|(spec, reading)| usage(spec) && reading.is_err());
        sync.warming_up = lacks && Instant::now().saturating_duration_since(self.started) < WARM_UP;
        if sync.warming_up {
            return (None, None);
        }
        let behavior = sync.spec.behavior.as_ref().filter(|_| self.configurable);
        let calculator = Calculator {
            replicas: bounds.replicas,
            current: scale.status.as_ref().map_or(0, |status| status.replicas),
            pods: &pods,
            tolerances: behavior.map_or_else(Tolerances::default, |behavior| tolerances(Some(behavior))),
            now: self.clock.now(),
        };
        let computed = compute(specs, readings, &calculator, namespace, &mut sync.conditions);
        for (reason, message) in &computed.warnings {
            self.warn(sync.hpa, reason, message).await;
        }
        let desired = bounds.desired_replicas(&computed);
        if let (None, Some(message)) = (&desired, &computed.error) {
            self.warn(sync.hpa, "FailedComputeMetricsReplicas", message).await;
        }
        (Some(computed), desired)
    }

    /// Returns the Pods of a scale, unless another autoscaler selects them, too (`validateAndParseSelector`).
    fn selected_pods(&self, sync: &Sync<'_>, text: &str) -> Result<Vec<Arc<PodSummary>>, PodSelectorError> {
        if text.is_empty() {
            return Err(PodSelectorError::Missing);
        }
        let selector = LabelRequirements::parse(text)?;
        let mut pods = self.pods.in_namespace(namespace(sync.hpa));
        pods.retain(|pod| selects(&selector, pod));
        self.selectors.lock().insert(sync.key.to_owned(), selector);
        let others = self.autoscalers_of(namespace(sync.hpa), &pods);
        if others.len() > 1 {
            return Err(PodSelectorError::Ambiguous { selector: text.to_owned(), autoscalers: others.join(" ") });
        }
        Ok(pods)
    }

    async fn report_selector_error(&self, sync: &mut Sync<'_>, error: &PodSelectorError) {
        let message = error.to_string();
        let (event, condition) = match error {
            PodSelectorError::Missing => {
                ("SelectorRequired", ("InvalidSelector", "the HPA target's scale is missing a selector"))
            }
            PodSelectorError::Invalid(_) => ("InvalidSelector", ("InvalidSelector", message.as_str())),
            PodSelectorError::Ambiguous { .. } => ("AmbiguousSelector", ("AmbiguousSelector", message.as_str())),
        };
        self.warn(sync.hpa, event, &message).await;
        sync.conditions.set_scaling_active(false, condition);
        self.warn(sync.hpa, "FailedComputeMetricsReplicas", &message).await;
    }

    /// Returns the keys of the namespace's autoscalers that select any of these Pods.
    fn autoscalers_of(&self, namespace: &str, pods: &[Arc<PodSummary>]) -> Vec<String> {
        let here = |key: &str| key.split_once('/').is_some_and(|(key_namespace, _)| key_namespace == namespace);
        let selectors = self.selectors.lock();
        let all = selectors.iter().filter(|(key, _)| here(key));
        let some = all.filter(|(_, selector)| pods.iter().any(|pod| selects(selector, pod)));
        let mut keys: Vec<String> = some.map(|(key, _)| key.clone()).collect();
        keys.sort_unstable();
        keys
    }

    async fn update_scale(
        &self,
        sync: &mut Sync<'_>,
        (resource, mut scale): (&ApiResource, Scale),
        (replicas, desired): (i32, i32),
        text: &str,
        found: ScaleObservation,
    ) -> ScaleObservation {
        scale.spec.get_or_insert_default().replicas = Some(desired);
        if let Err(e) = self.targets.update(namespace(sync.hpa), resource, &scale).await {
            let message = format!("New size: {desired}; reason: {text}; error: {e}");
            self.warn(sync.hpa, "FailedRescale", &message).await;
            let message = format!("the HPA controller was unable to update the target scale: {e}");
            sync.conditions.set_able_to_scale(false, ("FailedUpdateScale", &message));
            return ScaleObservation { desired: None, ..found };
        }
        let message = format!("the HPA controller was able to update the target scale to {desired}");
        sync.conditions.set_able_to_scale(true, ("SucceededRescale", &message));
        let message = format!("New size: {desired}; reason: {text}");
        self.recorder.record(&sync.hpa.object_ref(&()), false, "SuccessfulRescale", &message).await;
        if let Some(behavior) = sync.spec.behavior.as_ref().map(Behavior::of) {
            let rules = if desired > replicas { &behavior.up } else { &behavior.down };
            let mut history = self.history(sync);
            history.record_scale_event(replicas, desired, rules.longest_policy_period(), sync.now);
        }
        let scaled = Time(truncate_to_seconds(self.clock.now()));
        ScaleObservation { desired: Some(desired), scaled: Some(scaled), ..found }
    }

    /// Writes the status if it has changed.
    async fn update_status(&self, hpa: &HorizontalPodAutoscaler, status: HorizontalPodAutoscalerStatus) {
        if hpa.status.clone().unwrap_or_default() == status {
            return;
        }
        let mut new = hpa.clone();
        new.status = Some(status);
        let api: Api<HorizontalPodAutoscaler> = Api::namespaced(self.client.clone(), namespace(hpa));
        let name = hpa.metadata.name.as_deref().unwrap_or_default();
        match api.replace_status(name, &PostParams::default(), &new).await {
            // The autoscaler is deleted.
            Err(e) if !is_code(&e, 404) => self.warn(hpa, "FailedUpdateStatus", &error_message(&e)).await,
            _ => {}
        }
    }
}

fn selects(selector: &LabelRequirements, pod: &PodSummary) -> bool {
    selector.matches(|key| pod.labels.get(key).map(String::as_str))
}

fn namespace(hpa: &HorizontalPodAutoscaler) -> &str {
    hpa.metadata.namespace.as_deref().unwrap_or_default()
}

/// Subscribes to the informers when called, not when first polled.
pub(crate) fn run(
    clients: Clients,
    pods: SharedInformer<PodSummary>,
    gates: &FeatureGates,
    clock: Clock,
    stop: CancellationToken,
) -> impl Future<Output = ()> + Send + use<> {
    let known = SharedInformer::<HorizontalPodAutoscaler>::new();
    let client = clients.for_service_account("horizontal-pod-autoscaler");
    let events = events(&known, &pods);
    let controller = HorizontalController {
        recorder: EventRecorder::new(client.clone(), COMPONENT),
        targets: ScaleClient::new(client.clone()),
        client,
        clock,
        configurable: gates.enabled(Gate::HPAConfigurableTolerance),
        known: known.clone(),
        pods,
        selectors: Mutex::default(),
        histories: Histories::default(),
        started: Instant::now(),
        pods_listed: AtomicBool::new(false),
    };
    let works = worker::run(controller, events, stop.clone());
    let watched = known.run(Api::all(clients.shared()), |hpa| hpa, stop);
    // The future is large, so it is boxed.
    Box::pin(async move {
        futures::join!(watched, works);
    })
}

/// Returns the events. Pods only cause the event that they are synced.
fn events(
    known: &SharedInformer<HorizontalPodAutoscaler>,
    pods: &SharedInformer<PodSummary>,
) -> BoxStream<'static, Event> {
    let mut changes = pods.subscribe();
    let listed = stream::once(async move {
        while changes.next().await.is_some_and(|seen| !matches!(seen, CacheEvent::Resync)) {}
        Event::Pods
    });
    stream::select(known.subscribe().map(Event::Autoscaler), listed).boxed()
}
