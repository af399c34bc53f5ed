//! Pod worker: a task for each Pod that applies events to its state, checkpoints it, and executes the planned actions.
//! The decisions are pure and in the crate `lifecycle`: `observe`, `plan` and `status`.
//!
//! A hanging container blocks its own Pod only (upstream: `pkg/kubelet/pod_workers.go`).

use crate::{
    Shared,
    actions::{self, ActionError},
    checkpoint, status_manager,
    status_reconciler::StatusReconciler,
    volumes,
};
use api::{resources::Amounts, static_pod::is_static};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod as ApiPod, PodStatus};
use lifecycle::{Action, ActionKey, History, Pod, PodLifecycleEvent, observe, plan, status as derive_status};
use std::{collections::HashMap, sync::Arc, time::Duration};
use tokio::sync::{mpsc, oneshot, watch};
use tracing::{Instrument, Span};

/// Delay before a failed action is retried.
const RETRY: Duration = Duration::from_secs(1);

/// Message to a Pod worker.
pub(crate) enum PodMessage {
    /// Event to apply to the Pod.
    Event(PodLifecycleEvent),
    /// State of the runtime, listed when the Pod had this durable revision.
    Relisted(lifecycle::RuntimePodState, u64),
    /// An action failed and is retried after a back-off.
    BackedOff(ActionKey),
    /// An action completed, with its events or its error.
    Completed(ActionKey, Result<Vec<PodLifecycleEvent>, ActionError>),
    /// A status write completed; the flag is false if the Pod no longer exists in the API.
    StatusWritten(Box<PodStatus>, bool),
    /// Request for the Pod's recent history.
    GetHistory(oneshot::Sender<Vec<lifecycle::HistoryRecord>>),
}

/// Handle of a Pod worker.
#[derive(Clone)]
pub(crate) struct Handle {
    pub(crate) messages: mpsc::UnboundedSender<PodMessage>,
    /// Latest published state of the Pod.
    pub(crate) state: watch::Receiver<Arc<Pod>>,
    /// Lock around setup, refresh and teardown of the Pod's volumes.
    pub(crate) volumes: Arc<tokio::sync::Mutex<()>>,
}

/// Starts the worker of a Pod.
pub(crate) fn spawn(shared: Arc<Shared>, mut pod: Pod) -> Handle {
    let kubelet_started = PodLifecycleEvent::KubeletStarted { at: shared.started, random: shared.options.random };
    observe(&mut pod, kubelet_started, &shared.options.policy, shared.now());
    let (messages, inbox) = mpsc::unbounded_channel();
    let (publish, state) = watch::channel(Arc::new(pod.clone()));
    let worker = PodWorker {
        shared,
        history: History::new(&pod),
        pod,
        messages: messages.clone(),
        publish,
        in_flight: HashMap::new(),
        failures: HashMap::new(),
        notified_object: None,
        saved_revision: None,
        reported_status: None,
        status_write_in_flight: false,
        reconcile: StatusReconciler::default(),
        requested_resources: Amounts::new(),
        relist_needed: false,
    };
    let span = pod_span(&worker.pod);
    tokio::spawn(worker.run(inbox).instrument(span));
    Handle { messages, state, volumes: Arc::default() }
}

/// Returns the span of a Pod's task: all log lines of the task and of its actions have its fields.
fn pod_span(pod: &Pod) -> Span {
    let namespace = pod.object().metadata.namespace.as_deref();
    // Of the highest level, because a level filter that drops it would drop the fields of the lines in it.
    tracing::error_span!(parent: None, "pod_worker", namespace, pod = pod.name(), uid = pod.uid())
}

/// State of a Pod worker.
struct PodWorker {
    shared: Arc<Shared>,
    pod: Pod,
    history: History,
    messages: mpsc::UnboundedSender<PodMessage>,
    publish: watch::Sender<Arc<Pod>>,
    /// Actions in flight; the flag tells whether the action may change the runtime's state.
    in_flight: HashMap<ActionKey, bool>,
    /// Consecutive failures of each action.
    failures: HashMap<ActionKey, u32>,
    /// Last API object whose change was announced to [`crate::pods::Pods::mark_changed`].
    notified_object: Option<Arc<ApiPod>>,
    /// Durable revision of the checkpoint on disk.
    saved_revision: Option<u64>,
    /// Last status that was sent to the API.
    reported_status: Option<PodStatus>,
    status_write_in_flight: bool,
    /// Detects status changes in the API that another client made.
    reconcile: StatusReconciler,
    /// Resources of the node that the Pod held at the last comparison.
    requested_resources: Amounts,
    /// Whether a relist was discarded and another one is needed.
    relist_needed: bool,
}

impl PodWorker {
    async fn run(mut self, mut inbox: mpsc::UnboundedReceiver<PodMessage>) {
        let stop = self.shared.stop.clone();
        while let Some(wake) = self.step() {
            let sleep = wake.map_or(Duration::from_secs(3600), |at| {
                self.shared.options.clock.until(at).max(Duration::from_millis(1))
            });
            tokio::select! {
                () = stop.cancelled() => return,
                message = inbox.recv() => match message {
                    Some(message) => self.handle(message),
                    None => return,
                },
                () = tokio::time::sleep(sleep) => {}
            }
            while let Ok(message) = inbox.try_recv() {
                self.handle(message);
            }
        }
        // Directories may exist although the Pod never had a sandbox.
        if let Err(error) = volumes::remove_pod_dirs(&self.shared, &self.pod).await {
            tracing::warn!(%error, "failed to remove the directories of a deleted Pod");
        }
        let dir = self.shared.paths.checkpoints();
        if let Err(error) = checkpoint::remove(&dir, self.pod.uid()) {
            tracing::error!(%error, "failed to remove a checkpoint");
        }
        self.shared.pods.remove(self.pod.uid());
        self.shared.probes.remove_pod(self.pod.uid());
    }

    fn handle(&mut self, message: PodMessage) {
        let now = self.shared.now();
        match message {
            PodMessage::Event(event) => self.observe(event, now),
            // A list older than the state would make new containers look lost; the next relist replaces it.
            PodMessage::Relisted(view, revision) => {
                self.relist_needed = !self.no_runtime_change_in_flight() || self.pod.durable_revision() != revision;
                if !self.relist_needed {
                    self.observe(PodLifecycleEvent::Relisted(view), now);
                }
            }
            // During the back-off, a relist may show the cause. Persistent failures request relists exponentially less
            // often.
            PodMessage::BackedOff(key) => {
                let failures = self.failures.entry(key.clone()).or_default();
                *failures = failures.saturating_add(1);
                self.relist_needed |= failures.is_power_of_two();
                self.in_flight.insert(key, false);
            }
            PodMessage::Completed(key, result) => {
                self.in_flight.remove(&key);
                if result.is_ok() {
                    self.failures.remove(&key);
                }
                let events = result.unwrap_or_else(|error| {
                    let message = error.to_string();
                    tracing::warn!(%key, %message, "failed to execute an action, retrying");
                    vec![PodLifecycleEvent::ActionFailed { key, message }]
                });
                for event in events {
                    self.observe(event, now);
                }
            }
            PodMessage::StatusWritten(status, pod_exists) => {
                self.status_write_in_flight = false;
                if pod_exists {
                    self.observe(PodLifecycleEvent::StatusWritten(status), now);
                }
            }
            PodMessage::GetHistory(reply) => {
                let _ = reply.send(self.history.lines(&self.pod, &self.shared.options.policy, now));
            }
        }
    }

    /// Records an event and applies it to the Pod.
    fn observe(&mut self, event: PodLifecycleEvent, now: Timestamp) {
        let policy = &self.shared.options.policy;
        self.history.push(&event, policy, now);
        observe(&mut self.pod, event, policy, now);
    }

    /// Syncs the Pod (`podWorkerLoop`, `SyncPod`): plans, checkpoints, publishes the state, reports the status and
    /// starts the actions. Returns the next wake-up time, or `None` if the worker must end.
    fn step(&mut self) -> Option<Option<Timestamp>> {
        let now = self.shared.now();
        let plan = plan(&self.pod, &self.shared.options.policy, now);
        self.record_container_starts(&plan.actions, now);
        if self.saved_revision != Some(self.pod.durable_revision()) {
            let dir = self.shared.paths.checkpoints();
            if let Err(error) = checkpoint::save(&dir, &self.pod) {
                // Actions without a checkpoint could be lost in a restart.
                tracing::error!(%error, "failed to save a checkpoint");
                return Some(Some(now + RETRY));
            }
            self.saved_revision = Some(self.pod.durable_revision());
        }
        self.publish.send_replace(Arc::new(self.pod.clone()));
        self.announce_released_resources();
        if self.notified_object.as_ref().is_none_or(|object| !Arc::ptr_eq(object, self.pod.object())) {
            self.notified_object = Some(Arc::clone(self.pod.object()));
            self.shared.pods.mark_changed(self.pod.uid().to_owned());
        }
        self.report_status(now);
        for action in plan.actions {
            match action {
                // The final actions wait for all actions in flight, which might still create containers or directories.
                Action::Forget if self.in_flight.is_empty() => return None,
                Action::Forget => {}
                Action::DeleteFromApi if !self.in_flight.is_empty() || self.status_write_in_flight => {}
                action => self.start(action),
            }
        }
        if self.relist_needed && self.no_runtime_change_in_flight() {
            self.relist_needed = false;
            self.shared.pods.request_relist();
        }
        Some([plan.wake, self.reconcile.wake_at()].into_iter().flatten().min())
    }

    /// Whether no action is in flight that may change the runtime's state.
    fn no_runtime_change_in_flight(&self) -> bool {
        !self.in_flight.values().any(|changes| *changes)
    }

    /// Notifies Pods with a deferred resize if this Pod's requested resources have decreased. Called after publishing.
    fn announce_released_resources(&mut self) {
        if !self.in_flight.keys().any(|key| matches!(key, ActionKey::DecideResize { .. })) {
            self.shared.pods.clear_accepted_resize(self.pod.uid());
        }
        let requested = self.pod.requested_resources();
        let decreased =
            self.requested_resources.iter().any(|(name, before)| requested.get(name).is_none_or(|now| now < before));
        self.requested_resources = requested;
        if decreased {
            self.shared.pods.retry_deferred_resizes();
        }
    }

    /// Records the container starts that are about to begin, so that the checkpoint precedes them.
    fn record_container_starts(&mut self, actions: &[Action], now: Timestamp) {
        let starts = actions.iter().filter(|a| matches!(a, Action::StartContainer { .. })).map(Action::key);
        let new: Vec<_> = starts.filter(|key| !self.in_flight.contains_key(key)).collect();
        for key in new {
            self.observe(PodLifecycleEvent::ActionStarted(key), now);
        }
    }

    /// Writes the Pod's status to the API if it has changed.
    fn report_status(&mut self, now: Timestamp) {
        let status = derive_status(&self.pod, &self.shared.options.policy, now);
        if self.status_write_in_flight || self.pod.awaits_admission(now) {
            return;
        }
        let unchanged = self.reported_status.as_ref().is_some_and(|reported| status_equal(reported, &status));
        // The mirror Pod's manager reconciles the status of a static Pod.
        let is_static = is_static(self.pod.object());
        if unchanged && (is_static || !self.reconcile.is_due(self.pod.object(), &status, now)) {
            return;
        }
        self.status_write_in_flight = true;
        self.reported_status = Some(status.clone());
        if is_static {
            // A static Pod does not depend on the API: its status counts as written at once.
            self.shared.mirror_pods.set_status(self.pod.object(), status.clone());
            let _ = self.messages.send(PodMessage::StatusWritten(Box::new(status), true));
            return;
        }
        let (shared, object, messages) =
            (Arc::clone(&self.shared), Arc::clone(self.pod.object()), self.messages.clone());
        let work = async move {
            let pod_exists = status_manager::write(&shared, &object, &status).await;
            let _ = messages.send(PodMessage::StatusWritten(Box::new(status), pod_exists));
        };
        tokio::spawn(work.in_current_span());
    }

    /// Starts an action unless it is in flight.
    fn start(&mut self, action: Action) {
        let key = action.key();
        if self.in_flight.contains_key(&key) {
            return;
        }
        // Probes and hooks can be in flight at any time and for long, and change nothing in the runtime.
        let changes = !matches!(action, Action::Probe { .. } | Action::RunHook { .. });
        self.in_flight.insert(key.clone(), changes);
        if let Action::Record(event) = &action {
            self.shared.recorder.record(self.pod.object(), event.clone());
            let _ = self
                .messages
                .send(PodMessage::Completed(key.clone(), Ok(vec![PodLifecycleEvent::ActionSucceeded(key)])));
            return;
        }
        let (shared, pod, messages) = (Arc::clone(&self.shared), self.pod.clone(), self.messages.clone());
        let work = async move {
            let result = Box::pin(actions::execute(&shared, &pod, action, &messages)).await;
            if result.is_err() {
                let _ = messages.send(PodMessage::BackedOff(key.clone()));
                tokio::time::sleep(RETRY).await;
            }
            let _ = messages.send(PodMessage::Completed(key, result));
        };
        tokio::spawn(work.in_current_span());
    }
}

/// Whether two statuses are equal except for transition times (upstream's `isPodStatusByKubeletEqual`).
fn status_equal(a: &PodStatus, b: &PodStatus) -> bool {
    let strip = |s: &PodStatus| {
        let mut s = s.clone();
        for c in s.conditions.iter_mut().flatten() {
            c.last_transition_time = None;
        }
        s
    };
    strip(a) == strip(b)
}
