//! Simulation of kubelet, runtime and API server with a manual clock.
//!
//! [`Sim`] owns a Pod, executes its plan, and answers as scripted. After each event it checks the invariants.
#![allow(dead_code, unused_imports, reason = "each test binary uses a part of it")]

mod checks;
mod fingerprint;
mod handlers;
mod interleaver;
mod runtime;
mod view;

pub(crate) use fingerprint::Fingerprint;
pub(crate) use handlers::refused;
pub(crate) use interleaver::{ContainerOptions, Interleaver, Step};
pub(crate) use runtime::{OnStop, Run, Runtime, image_of};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{EphemeralContainer, Pod as ApiPod, PodStatus};
use lifecycle::{
    Action, ActionKey, Eviction, History, Hook, HookOutcome, NodePolicy, Pod, PodEvent, PodLifecycleEvent, ProbeKind,
    ProbeOutcome, ResizeDecision, SandboxEvent, observe, plan, replay, status,
};
use serde_json::{Value, json};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

/// Start time of every simulation.
pub(crate) fn start() -> Timestamp {
    "2026-01-01T00:00:00Z".parse().unwrap()
}

#[derive(Clone)]
pub(crate) struct Sim {
    pub(crate) pod: Pod,
    pub(crate) policy: NodePolicy,
    pub(crate) now: Timestamp,
    /// The object in the API.
    pub(crate) api: ApiPod,
    pub(crate) in_api: bool,
    pub(crate) forgotten: bool,
    pub(crate) runtime: Runtime,
    /// Actions in flight.
    pub(crate) begun: BTreeSet<ActionKey>,
    /// Kubernetes Events that were recorded.
    pub(crate) events: Vec<PodEvent>,
    /// Started actions with their time, in seconds since the start.
    pub(crate) log: Vec<(u64, Action)>,
    shown: Option<PodStatus>,
    /// Status writes at this time, to detect a loop.
    writes: (Timestamp, u32),
    terminal: Option<(String, Option<String>)>,
    stopping: bool,
    /// Termination deadline that follows from the requests so far.
    deadline: Option<Timestamp>,
    /// Attempt and exit code of the newest reported exit of each container.
    exits: BTreeMap<String, (i32, i32)>,
    /// Containers that were reaped and whose cleanup in the runtime is not finished.
    cleaning_up: BTreeSet<String>,
    /// Hooks that this kubelet started.
    hooks: BTreeSet<ActionKey>,
    /// Consecutive failures per probe.
    failures: BTreeMap<(String, ProbeKind), u32>,
    /// Whether a hook failed: then containers may be stopped for other reasons than probes.
    hook_failed: bool,
    /// Whether containers may be stopped because of spec changes.
    pub(crate) expects_spec_kills: bool,
    /// Whether containers may be restarted by a resize.
    resized: bool,
    kubelet_was_restarted: bool,
    /// Random number of the next kubelet.
    pub(crate) random: u64,
    /// The checkpoint and its revision.
    saved: (u64, Pod),
    /// Event history, if the test replays it.
    pub(crate) history: Option<History>,
}

impl Sim {
    /// Creates a Pod with this spec, without any events.
    pub(crate) fn new(spec: Value) -> Self {
        let api: ApiPod = serde_json::from_value(json!({
            "metadata": {"name": "p", "namespace": "ns", "uid": "u", "generation": 1},
            "spec": spec,
        }))
        .unwrap();
        let pod = Pod::new(Arc::new(api.clone()), start());
        let saved = (pod.durable_revision(), pod.clone());
        Self {
            pod,
            policy: NodePolicy::default(),
            now: start(),
            api,
            in_api: true,
            forgotten: false,
            runtime: Runtime::default(),
            begun: BTreeSet::new(),
            events: Vec::new(),
            log: Vec::new(),
            shown: None,
            writes: (start(), 0),
            terminal: None,
            stopping: false,
            deadline: None,
            exits: BTreeMap::new(),
            cleaning_up: BTreeSet::new(),
            hooks: BTreeSet::new(),
            failures: BTreeMap::new(),
            hook_failed: false,
            expects_spec_kills: false,
            resized: false,
            kubelet_was_restarted: false,
            random: 0,
            saved,
            history: None,
        }
    }

    /// Creates a Pod with containers of these names, which run forever unless scripted.
    pub(crate) fn of(restart_policy: &str, names: &[&str]) -> Self {
        let containers: Vec<_> = names.iter().map(|n| json!({"name": n, "image": "i"})).collect();
        Self::new(json!({"restartPolicy": restart_policy, "containers": containers}))
    }

    /// Scripts the runs of a container; the last one repeats.
    #[must_use]
    pub(crate) fn script(mut self, container: &str, runs: &[Run]) -> Self {
        self.runtime.scripts.insert(container.to_owned(), runs.to_vec());
        self
    }

    /// Scripts the exit of a container after its stop signal.
    #[must_use]
    pub(crate) fn on_stop(mut self, container: &str, after: u64, code: i32) -> Self {
        self.runtime.on_stop.insert(container.to_owned(), OnStop { after: Duration::from_secs(after), code });
        self
    }

    /// Scripts the outcomes of a probe, each from a second of the container's life on.
    #[must_use]
    pub(crate) fn probe(mut self, container: &str, kind: ProbeKind, script: &[(u64, ProbeOutcome)]) -> Self {
        self.runtime.probes.insert((container.to_owned(), kind), script.to_vec());
        self
    }

    /// Scripts the duration and outcome of a hook.
    #[must_use]
    pub(crate) fn hook(mut self, container: &str, hook: Hook, seconds: u64, outcome: HookOutcome) -> Self {
        self.runtime.hooks.insert((container.to_owned(), hook), (seconds, outcome));
        self
    }

    /// Applies an event and checks the invariants.
    pub(crate) fn observe(&mut self, event: PodLifecycleEvent) {
        self.stopping |= matches!(&event, PodLifecycleEvent::Removed | PodLifecycleEvent::Evicted(_))
            || matches!(&event, PodLifecycleEvent::Updated(o) if o.metadata.deletion_timestamp.is_some());
        self.record_event(&event);
        if let Some(history) = &mut self.history {
            history.push(&event, &self.policy, self.now);
        }
        observe(&mut self.pod, event, &self.policy, self.now);
        if self.saved.0 != self.pod.durable_revision() {
            self.saved = (self.pod.durable_revision(), self.pod.clone());
        }
        self.check();
    }

    /// Expects this terminal phase, written by another client.
    pub(crate) fn expect_terminal(&mut self, phase: &str, reason: Option<&str>) {
        self.terminal = Some((phase.to_owned(), reason.map(str::to_owned)));
    }

    /// Executes planned actions until the plan is empty.
    pub(crate) fn settle(&mut self) {
        for _ in 0..1000 {
            self.report();
            let planned = plan(&self.pod, &self.policy, self.now).actions;
            let pending: Vec<Action> = planned.into_iter().filter(|a| !self.begun.contains(&a.key())).collect();
            if pending.is_empty() || self.forgotten {
                return;
            }
            for action in pending {
                // Skip actions that an earlier result made obsolete.
                if plan(&self.pod, &self.policy, self.now).actions.contains(&action) {
                    self.begin(&action);
                    self.finish(&action);
                }
            }
        }
        panic!("the plan never becomes empty: {:?}", plan(&self.pod, &self.policy, self.now));
    }

    /// Returns the first planned action that is not in flight.
    pub(crate) fn next_action(&self) -> Option<Action> {
        plan(&self.pod, &self.policy, self.now).actions.into_iter().find(|a| !self.begun.contains(&a.key()))
    }

    pub(crate) fn begin(&mut self, action: &Action) {
        let seconds = Duration::try_from(self.now.duration_since(start())).unwrap().as_secs();
        if !matches!(action, Action::Record(_)) {
            self.log.push((seconds, action.clone()));
        }
        self.begun.insert(action.key());
        self.check_hook(action);
        if let Action::StartContainer { container, .. } = action {
            self.runtime.images.extend(self.pod.spec_of(container).map(image_of));
            self.observe(PodLifecycleEvent::ActionStarted(action.key()));
        }
    }

    /// Completes a started action and delivers its result.
    pub(crate) fn finish(&mut self, action: &Action) {
        let events = self.answer(action);
        // A stop stays in flight until its container exits, and a hook until it ends.
        if !matches!(action, Action::StopContainer { .. }) && !self.runtime.is_pending(action) {
            self.begun.remove(&action.key());
        }
        for event in events {
            self.observe(event);
        }
    }

    /// Executes an action and returns its events.
    pub(crate) fn answer(&mut self, action: &Action) -> Vec<PodLifecycleEvent> {
        match action {
            Action::Record(event) => {
                self.events.push(event.clone());
                vec![PodLifecycleEvent::ActionSucceeded(action.key())]
            }
            Action::DeleteFromApi => {
                assert!(matches!(self.api_phase(), "Succeeded" | "Failed"), "deleted before its phase was terminal");
                assert!(!self.runtime.any_running(), "deleted while a container runs");
                self.in_api = false;
                vec![PodLifecycleEvent::ActionSucceeded(action.key()), PodLifecycleEvent::Removed]
            }
            Action::Forget => {
                assert!(self.runtime.sandboxes.is_empty() && self.runtime.containers.is_empty(), "forgotten too early");
                self.forgotten = true;
                Vec::new()
            }
            Action::DecideResize { generation, .. } => {
                let decision = self.runtime.resize_decisions.pop_front().unwrap_or(ResizeDecision::Fits);
                vec![PodLifecycleEvent::ResizeDecided { generation: *generation, decision }]
            }
            Action::ActuateResources { .. } => vec![match self.runtime.resize_failures.pop_front() {
                Some(message) => PodLifecycleEvent::ResourcesFailed { message: message.to_owned() },
                None => {
                    let ids = self.pod.to_update().into_iter().map(|(_, id)| id).collect();
                    PodLifecycleEvent::ResourcesActuated { ids, allocation: self.pod.allocation() }
                }
            }],
            _ => self.runtime.execute(action, self.now),
        }
    }

    /// Writes a changed status to the API, and delivers the watch event.
    pub(crate) fn report(&mut self) {
        let status = status(&self.pod, &self.policy, self.now);
        if !self.in_api || self.shown.as_ref() == Some(&status) || self.pod.awaits_admission(self.now) {
            return;
        }
        self.writes = if self.writes.0 == self.now { (self.now, self.writes.1 + 1) } else { (self.now, 1) };
        assert!(self.writes.1 < 200, "the status never stabilizes");
        self.check_transitions(&status);
        self.shown = Some(status.clone());
        self.api.status = Some(status.clone());
        self.observe(PodLifecycleEvent::StatusWritten(Box::new(status)));
        self.observe(PodLifecycleEvent::Updated(Arc::new(self.api.clone())));
    }

    /// Advances the time and executes actions as they become due.
    pub(crate) fn pass(&mut self, seconds: u64) {
        let until = self.now + Duration::from_secs(seconds);
        self.settle();
        loop {
            let wake = plan(&self.pod, &self.policy, self.now).wake;
            let next = wake.into_iter().chain(self.runtime.next_end()).min().filter(|at| *at <= until);
            let Some(next) = next else { break };
            self.now = self.now.max(next);
            for (completed, event) in self.runtime.ends(self.now) {
                self.begun.retain(|key| !completed.contain(key));
                self.observe(event);
            }
            self.check();
            self.settle();
        }
        self.now = until;
        self.check();
        self.settle();
        self.check_termination_deadline();
    }

    /// Resizes a container.
    pub(crate) fn resize(&mut self, container: &str, requests: &Value, limits: &Value) {
        self.request_resize(container, &json!({"requests": requests, "limits": limits}));
        self.settle();
    }

    pub(crate) fn request_resize(&mut self, container: &str, resources: &Value) {
        let spec = self.api.spec.as_mut().unwrap();
        let mut all = spec.init_containers.iter_mut().flatten().chain(&mut spec.containers);
        let found = all.find(|c| c.name == container).unwrap();
        found.resources = Some(serde_json::from_value(resources.clone()).unwrap());
        *self.api.metadata.generation.as_mut().unwrap() += 1;
        self.resized = true;
        self.observe(PodLifecycleEvent::Updated(Arc::new(self.api.clone())));
    }

    /// Deletes the Pod with this grace period.
    pub(crate) fn delete(&mut self, grace: i64) {
        self.request_deletion(grace);
        self.settle();
    }

    /// Adds an ephemeral container, as `kubectl debug` does.
    pub(crate) fn debug(&mut self, name: &str) {
        let list = self.api.spec.as_mut().unwrap().ephemeral_containers.get_or_insert_default();
        let added = EphemeralContainer { name: name.to_owned(), image: Some("i".to_owned()), ..Default::default() };
        if !list.contains(&added) {
            list.push(added);
            self.observe(PodLifecycleEvent::Updated(Arc::new(self.api.clone())));
        }
    }

    pub(crate) fn request_deletion(&mut self, grace: i64) {
        let meta = &mut self.api.metadata;
        meta.deletion_timestamp = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(self.now));
        meta.deletion_grace_period_seconds = Some(grace);
        self.observe(PodLifecycleEvent::Updated(Arc::new(self.api.clone())));
    }

    /// Force-deletes the Pod.
    pub(crate) fn force_delete(&mut self) {
        self.in_api = false;
        self.observe(PodLifecycleEvent::Removed);
        self.settle();
    }

    pub(crate) fn evict(&mut self, grace_seconds: Option<u32>) {
        self.request_eviction(grace_seconds);
        self.settle();
    }

    pub(crate) fn request_eviction(&mut self, grace_seconds: Option<u32>) {
        self.observe(PodLifecycleEvent::Evicted(Eviction {
            reason: "Evicted".to_owned(),
            message: "The node was low on resource: memory.".to_owned(),
            grace_seconds,
            disruption_target: true,
            ..Eviction::default()
        }));
    }

    /// Changes the image of the first app container, which restarts it under any policy.
    pub(crate) fn set_image(&mut self, n: u8) {
        let spec = self.api.spec.as_mut().unwrap();
        spec.containers[0].image = Some(format!("image-{n}"));
        self.runtime.never.remove(&spec.containers[0].name);
        self.expects_spec_kills = true;
        self.observe(PodLifecycleEvent::Updated(Arc::new(self.api.clone())));
    }

    pub(crate) fn lose_sandbox(&mut self) {
        let sandbox = self.runtime.sandboxes.iter_mut().rfind(|s| s.ready).unwrap();
        sandbox.ready = false;
        let id = sandbox.id.clone();
        self.observe(PodLifecycleEvent::Sandbox(SandboxEvent::Lost { id }));
        self.settle();
    }

    /// Restarts the kubelet after a downtime; it loads its checkpoint and relists.
    pub(crate) fn restart(&mut self, away: u64) {
        self.skip(away);
        self.start_kubelet(false);
        self.relist();
        self.settle();
    }

    /// Restarts the kubelet without its checkpoint; it restores the state from the API.
    pub(crate) fn restart_without_checkpoint(&mut self, away: u64) {
        self.skip(away);
        self.start_kubelet(true);
        self.settle();
        self.relist();
        self.settle();
    }

    /// Starts a new kubelet from the checkpoint or from the API.
    pub(crate) fn start_kubelet(&mut self, from_api: bool) {
        self.begun.clear();
        self.hooks.clear();
        self.kubelet_was_restarted = true;
        // The results of hooks in flight are lost.
        self.runtime.pending.clear();
        self.shown = None;
        if from_api {
            // The API does not show an eviction in progress, nor the start of a deletion.
            self.stopping = self.api.metadata.deletion_timestamp.is_some();
            self.deadline = None;
            // Nor a cleanup in progress; a relist finds it.
            self.cleaning_up.clear();
            self.record_event(&PodLifecycleEvent::Updated(Arc::new(self.api.clone())));
        }
        self.pod = if from_api {
            Pod::new(Arc::new(self.api.clone()), self.now)
        } else {
            serde_json::from_str(&serde_json::to_string(&self.saved.1).unwrap()).unwrap()
        };
        self.history = self.history.as_ref().map(|_| History::new(&self.pod));
        self.observe(PodLifecycleEvent::KubeletStarted { at: self.now, random: self.random });
        self.check();
    }

    /// Asserts that the dumped history replays to the same result.
    pub(crate) fn check_replay(&self) {
        let Some(history) = &self.history else { return };
        let lines = history.lines(&self.pod, &self.policy, self.now);
        let dump: String = lines.iter().map(|line| serde_json::to_string(line).unwrap() + "\n").collect();
        let replayed = replay(&dump).unwrap();
        assert_eq!(replayed.replayed, replayed.recorded);
    }

    pub(crate) fn saved(&self) -> &Pod {
        &self.saved.1
    }

    /// Returns whether the API has the current status, or no object.
    pub(crate) fn reported(&self) -> bool {
        !self.in_api || self.shown.as_ref() == Some(&self.status())
    }

    /// Delivers an event without effect, to apply elapsed timeouts.
    pub(crate) fn tick(&mut self) {
        self.observe(PodLifecycleEvent::ActionSucceeded(ActionKey::Forget));
    }

    fn skip(&mut self, seconds: u64) {
        self.now += Duration::from_secs(seconds);
        self.runtime.ends(self.now);
    }

    pub(crate) fn relist(&mut self) {
        let view = self.runtime.view();
        self.observe(PodLifecycleEvent::Relisted(view));
    }
}
