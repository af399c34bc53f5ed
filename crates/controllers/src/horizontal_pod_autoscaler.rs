//! HorizontalPodAutoscalers: how many replicas there should be, by what is measured (`pkg/controller/podautoscaler`).
//!
//! What metrics call for is decided by [`calculator`] and [`proposal`], how fast that is done by [`normalize`] and
//! [`behavior`]; here it is read, carried out and told. Each is looked at every 15 s, for nothing tells of a metric.

mod behavior;
mod calculator;
mod conditions;
mod history;
mod metrics;
mod normalize;
mod plan;
mod pod;
mod proposal;
mod target;
#[cfg(test)]
mod tests;

pub(crate) use pod::PodMetricInputs;

use crate::clients::Clients;
use crate::clock::{Clock, truncate_to_seconds};
use crate::event_recorder::EventRecorder;
use crate::informer::{CacheEvent, SharedInformer, key};
use crate::pod_control::error_message;
use crate::pod_summary::PodSummary;
use crate::worker::{self, Controller, is_code};
use api::feature_gates::{FeatureGates, Gate};
use api::selector::Selector;
use behavior::{Behavior, tolerances};
use calculator::{Calculator, Tolerances};
use conditions::Conditions;
use futures::future::join_all;
use futures::stream::{self, BoxStream, StreamExt};
use history::History;
use k8s_openapi::api::autoscaling::v1::Scale;
use k8s_openapi::api::autoscaling::v2::{
    HorizontalPodAutoscaler, HorizontalPodAutoscalerSpec, HorizontalPodAutoscalerStatus, MetricSpec,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::PostParams;
use kube::discovery::ApiResource;
use kube::{Api, Client, Resource};
use normalize::Bounds;
use parking_lot::Mutex;
use plan::{Course, Found, status};
use proposal::{Computed, compute};
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;
use target::Targets;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

const COMPONENT: &str = "horizontal-pod-autoscaler";
/// Upstream's `--horizontal-pod-autoscaler-sync-period`.
const SYNC: Duration = Duration::from_secs(15);
/// How many are looked at at once (`--concurrent-horizontal-pod-autoscaler-syncs`): each worker has autoscalers of its own.
const WORKERS: u64 = 5;
/// So long after a start what is not measured yet is asked for again before anybody is told: kubelets were started, too.
const WARMING: Duration = SYNC;
const AGAIN: Duration = Duration::from_secs(1);

enum Event {
    Autoscaler(CacheEvent<HorizontalPodAutoscaler>),
    /// All Pods were listed once.
    Pods,
}

struct Autoscalers {
    client: Client,
    recorder: EventRecorder,
    clock: Clock,
    /// Whether an autoscaler's own tolerances count (`HPAConfigurableTolerance`).
    configurable: bool,
    known: SharedInformer<HorizontalPodAutoscaler>,
    pods: SharedInformer<PodSummary>,
    targets: Targets,
    /// Which Pods they scale, as far as that is known to any worker.
    selectors: Arc<Mutex<HashMap<String, Selector>>>,
    histories: HashMap<String, History>,
    worker: u64,
    started: Instant,
}

/// An autoscaler, and what is found out about it meanwhile.
struct Round<'a> {
    key: &'a str,
    hpa: &'a HorizontalPodAutoscaler,
    spec: &'a HorizontalPodAutoscalerSpec,
    conditions: Conditions,
    now: Instant,
    /// Nothing is to be told of it: what it needs is not measured yet.
    early: bool,
}

impl Controller for Autoscalers {
    type Event = Event;
    const NAME: &'static str = "HorizontalPodAutoscalers";

    fn observe(&mut self, event: Event, _now: Instant) -> Vec<String> {
        let mut keys = match event {
            Event::Autoscaler(CacheEvent::Changed { before, after: Some(after) }) => {
                // What only its status says is our own.
                let same = before.is_some_and(|b| b.spec == after.spec && b.metadata.uid == after.metadata.uid);
                if same { vec![] } else { vec![key(after.as_ref())] }
            }
            Event::Autoscaler(CacheEvent::Changed { before, after: None }) => {
                for gone in before.iter().map(|hpa| key(hpa.as_ref())) {
                    self.selectors.lock().remove(&gone);
                    self.histories.remove(&gone);
                }
                vec![]
            }
            Event::Autoscaler(CacheEvent::Resync) | Event::Pods => self.known.keys(),
        };
        keys.retain(|key| worker_of(key) == self.worker);
        keys
    }

    async fn reconcile(&mut self, key: &str, now: Instant) -> Result<Option<Duration>, kube::Error> {
        let Some(hpa) = self.known.get_by_key(key).filter(|_| self.pods.has_synced()) else { return Ok(None) };
        let Some(spec) = hpa.spec.as_ref() else { return Ok(None) };
        let before = hpa.status.as_ref().and_then(|status| status.conditions.clone()).unwrap_or_default();
        let conditions = Conditions::new(before, self.clock.now());
        let mut round = Round { key, hpa: &hpa, spec, conditions, now, early: false };
        let found = self.scale(&mut round).await;
        if round.early {
            return Ok(Some(AGAIN));
        }
        let status = status(&hpa, found, round.conditions);
        self.report(&hpa, status).await;
        // Whatever failed has been told, and is tried again then.
        Ok(Some(SYNC))
    }
}

impl Autoscalers {
    async fn warn(&mut self, hpa: &HorizontalPodAutoscaler, reason: &str, message: &str) {
        if self.histories.entry(key(hpa)).or_default().may_warn(Instant::now()) {
            self.recorder.record(&hpa.object_ref(&()), true, reason, message).await;
        }
    }

    /// Brings a scale towards what it should be; nothing is found where it cannot be read.
    async fn scale(&mut self, round: &mut Round<'_>) -> Option<Found> {
        let (resource, scale) = match self.targets.scale(namespace(round.hpa), &round.spec.scale_target_ref).await {
            Ok(found) => found,
            Err(why) => {
                self.warn(round.hpa, "FailedGetScale", &why).await;
                let message = format!("the HPA controller was unable to get the target's current scale: {why}");
                round.conditions.able(false, ("FailedGetScale", &message));
                return None;
            }
        };
        let got = "the HPA controller was able to get the target's current scale";
        round.conditions.able(true, ("SucceededGetScale", got));
        let replicas = scale.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(0);
        self.histories.entry(round.key.to_owned()).or_default().begin(replicas, round.now);
        let bounds = Bounds::of(round.spec, replicas);
        let mut found = Found { current: replicas, desired: Some(replicas), ..Found::default() };
        let (desired, why) = match bounds.course() {
            Course::Disabled => {
                let why = "scaling is disabled since the replica count of the target is zero";
                round.conditions.active(false, ("ScalingDisabled", why));
                return Some(found);
            }
            Course::Bound(desired, why) => (desired, why.to_owned()),
            Course::Measure => {
                let (computed, wanted) = self.measure(round, &scale, bounds).await;
                found.metrics = computed.map(|computed| computed.statuses);
                let Some((desired, why)) = wanted else {
                    return Some(Found { desired: None, ..found });
                };
                let behavior = round.spec.behavior.as_ref().map(Behavior::of);
                let history = self.histories.entry(round.key.to_owned()).or_default();
                let conditions = &mut round.conditions;
                (bounds.normalize(desired, behavior.as_ref(), history, conditions, round.now), why)
            }
        };
        if desired == replicas {
            return Some(found);
        }
        Some(self.carry_out(round, (&resource, scale), (replicas, desired), &why, found).await)
    }

    /// What metrics call for, and why; that is told where it is not known.
    async fn measure(
        &mut self,
        round: &mut Round<'_>,
        scale: &Scale,
        bounds: Bounds,
    ) -> (Option<Computed>, Option<(i32, String)>) {
        let text = scale.status.as_ref().and_then(|status| status.selector.as_deref()).unwrap_or_default();
        let pods = match self.selected(round, text).await {
            Ok(pods) => pods,
            Err(why) => {
                self.warn(round.hpa, "FailedComputeMetricsReplicas", &why).await;
                return (None, None);
            }
        };
        let (namespace, specs) = (namespace(round.hpa), round.spec.metrics.as_deref().unwrap_or_default());
        let read = specs.iter().map(|spec| metrics::read(&self.client, &self.targets, spec, namespace, text));
        let readings = join_all(read).await;
        let usage = |spec: &MetricSpec| matches!(spec.type_.as_str(), "Resource" | "ContainerResource");
        let lacks = specs.iter().zip(&readings).any(|(spec, reading)| usage(spec) && reading.is_err());
        round.early = lacks && Instant::now().saturating_duration_since(self.started) < WARMING;
        if round.early {
            return (None, None);
        }
        let behavior = round.spec.behavior.as_ref().filter(|_| self.configurable);
        let calculator = Calculator {
            replicas: bounds.replicas,
            current: scale.status.as_ref().map_or(0, |status| status.replicas),
            pods: &pods,
            tolerances: behavior.map_or_else(Tolerances::default, |behavior| tolerances(Some(behavior))),
            now: self.clock.now(),
        };
        let computed = compute(specs, readings, &calculator, namespace, &mut round.conditions);
        for (reason, message) in &computed.told {
            self.warn(round.hpa, reason, message).await;
        }
        let wanted = bounds.wanted(&computed);
        if let (None, Some(why)) = (&wanted, &computed.error) {
            self.warn(round.hpa, "FailedComputeMetricsReplicas", why).await;
        }
        (Some(computed), wanted)
    }

    /// The Pods of a scale, if no other autoscaler has them (`validateAndParseSelector`).
    async fn selected(&mut self, round: &mut Round<'_>, text: &str) -> Result<Vec<Arc<PodSummary>>, String> {
        if text.is_empty() {
            let said = "selector is required";
            self.warn(round.hpa, "SelectorRequired", said).await;
            round.conditions.active(false, ("InvalidSelector", "the HPA target's scale is missing a selector"));
            return Err(said.to_owned());
        }
        let selector = match Selector::parse(text) {
            Ok(selector) => selector,
            Err(e) => {
                let said = format!("couldn't convert selector into a corresponding internal selector object: {e}");
                self.warn(round.hpa, "InvalidSelector", &said).await;
                round.conditions.active(false, ("InvalidSelector", &said));
                return Err(said);
            }
        };
        let mut pods = self.pods.in_namespace(namespace(round.hpa));
        pods.retain(|pod| selects(&selector, pod));
        self.selectors.lock().insert(round.key.to_owned(), selector);
        let others = self.who_scales(namespace(round.hpa), &pods);
        if others.len() > 1 {
            let others = others.join(" ");
            let said = format!("pods by selector {text} are controlled by multiple HPAs: [{others}]");
            self.warn(round.hpa, "AmbiguousSelector", &said).await;
            round.conditions.active(false, ("AmbiguousSelector", &said));
            return Err(said);
        }
        Ok(pods)
    }

    /// The autoscalers of a namespace that have any of these Pods.
    fn who_scales(&self, namespace: &str, pods: &[Arc<PodSummary>]) -> Vec<String> {
        let here = |key: &str| key.split_once('/').is_some_and(|(of, _)| of == namespace);
        let selectors = self.selectors.lock();
        let all = selectors.iter().filter(|(key, _)| here(key));
        let some = all.filter(|(_, selector)| pods.iter().any(|pod| selects(selector, pod)));
        let mut keys: Vec<String> = some.map(|(key, _)| key.clone()).collect();
        keys.sort_unstable();
        keys
    }

    async fn carry_out(
        &mut self,
        round: &mut Round<'_>,
        (resource, mut scale): (&ApiResource, Scale),
        (replicas, desired): (i32, i32),
        why: &str,
        found: Found,
    ) -> Found {
        scale.spec.get_or_insert_default().replicas = Some(desired);
        if let Err(e) = self.targets.update(namespace(round.hpa), resource, &scale).await {
            let said = format!("New size: {desired}; reason: {why}; error: {e}");
            self.warn(round.hpa, "FailedRescale", &said).await;
            let said = format!("the HPA controller was unable to update the target scale: {e}");
            round.conditions.able(false, ("FailedUpdateScale", &said));
            return Found { desired: None, ..found };
        }
        let said = format!("the HPA controller was able to update the target scale to {desired}");
        round.conditions.able(true, ("SucceededRescale", &said));
        let said = format!("New size: {desired}; reason: {why}");
        self.recorder.record(&round.hpa.object_ref(&()), false, "SuccessfulRescale", &said).await;
        if let Some(behavior) = round.spec.behavior.as_ref().map(Behavior::of) {
            let rules = if desired > replicas { &behavior.up } else { &behavior.down };
            let history = self.histories.entry(round.key.to_owned()).or_default();
            history.scaled(replicas, desired, rules.longest(), round.now);
        }
        let scaled = Time(truncate_to_seconds(self.clock.now()));
        Found { desired: Some(desired), scaled: Some(scaled), ..found }
    }

    /// Writes the status, if it is another.
    async fn report(&mut self, hpa: &HorizontalPodAutoscaler, status: HorizontalPodAutoscalerStatus) {
        if hpa.status.clone().unwrap_or_default() == status {
            return;
        }
        let mut new = hpa.clone();
        new.status = Some(status);
        let api: Api<HorizontalPodAutoscaler> = Api::namespaced(self.client.clone(), namespace(hpa));
        let name = hpa.metadata.name.as_deref().unwrap_or_default();
        match api.replace_status(name, &PostParams::default(), &new).await {
            // It has gone meanwhile: the watch says so.
            Err(e) if !is_code(&e, 404) => self.warn(hpa, "FailedUpdateStatus", &error_message(&e)).await,
            _ => {}
        }
    }
}

fn selects(selector: &Selector, pod: &PodSummary) -> bool {
    selector.matches(|key| pod.labels.get(key).map(String::as_str))
}

/// Whose an autoscaler is.
fn worker_of(key: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    key.hash(&mut hasher);
    hasher.finish() % WORKERS
}

fn namespace(hpa: &HorizontalPodAutoscaler) -> &str {
    hpa.metadata.namespace.as_deref().unwrap_or_default()
}

/// It hears of changes from now on, not only once it runs.
pub(crate) fn run(
    clients: Clients,
    pods: SharedInformer<PodSummary>,
    gates: &FeatureGates,
    clock: Clock,
    stop: CancellationToken,
) -> impl Future<Output = ()> + Send + use<> {
    let known = SharedInformer::<HorizontalPodAutoscaler>::new();
    let client = clients.for_service_account("horizontal-pod-autoscaler");
    let (recorder, selectors) = (EventRecorder::new(client.clone(), COMPONENT), Arc::default());
    let configurable = gates.enabled(Gate::HPAConfigurableTolerance);
    let works: Vec<_> = (0..WORKERS)
        .map(|worker| {
            let controller = Autoscalers {
                recorder: recorder.clone(),
                targets: Targets::new(client.clone()),
                client: client.clone(),
                clock: clock.clone(),
                configurable,
                known: known.clone(),
                pods: pods.clone(),
                selectors: Arc::clone(&selectors),
                histories: HashMap::new(),
                worker,
                started: Instant::now(),
            };
            worker::run(controller, events(&known, &pods), stop.clone())
        })
        .collect();
    let watched = known.run(Api::all(clients.shared()), |hpa| hpa, stop);
    // What they do at once is large: it lies on the heap.
    Box::pin(async move {
        futures::join!(watched, join_all(works));
    })
}

/// What a worker hears from now on. Of Pods it hears only that they are known.
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
