//! A kubelet, a runtime and an API server small enough to look through, and a clock that a test turns.
//!
//! [`Sim`] owns a Pod, carries out what is planned, and answers as scripted. After each fact it checks what must hold
//! for every Pod at every moment.
#![allow(dead_code, unused_imports, reason = "each test binary uses a part of it")]

mod checks;
mod fingerprint;
mod handlers;
mod runtime;
mod teller;
mod view;

pub(crate) use fingerprint::Fingerprint;
pub(crate) use handlers::refused;
pub(crate) use runtime::{OnStop, Run, Runtime, image_of};
pub(crate) use teller::{Extras, Step, Teller};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{EphemeralContainer, Pod as ApiPod, PodStatus};
use lifecycle::{
    Action, ActionKey, Event, Eviction, History, Hook, HookOutcome, NodePolicy, Pod, PodEvent, ProbeKind, ProbeOutcome,
    ResizeVerdict, SandboxFact, observe, plan, replay, status,
};
use serde_json::{Value, json};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

/// When every story begins.
pub(crate) fn start() -> Timestamp {
    "2026-01-01T00:00:00Z".parse().unwrap()
}

#[derive(Clone)]
pub(crate) struct Sim {
    pub(crate) pod: Pod,
    pub(crate) policy: NodePolicy,
    pub(crate) now: Timestamp,
    /// The object as the API has it.
    pub(crate) api: ApiPod,
    pub(crate) in_api: bool,
    pub(crate) forgotten: bool,
    pub(crate) runtime: Runtime,
    /// Actions in flight.
    pub(crate) begun: BTreeSet<ActionKey>,
    /// Kubernetes Events that were recorded.
    pub(crate) events: Vec<PodEvent>,
    /// What was begun, and when, in seconds since the start.
    pub(crate) log: Vec<(u64, Action)>,
    shown: Option<PodStatus>,
    /// Status writes at this very moment: more than a few are a loop.
    writes: (Timestamp, u32),
    terminal: Option<(String, Option<String>)>,
    stopping: bool,
    /// Until when all has to be gone, as the requests so far say.
    deadline: Option<Timestamp>,
    /// How the newest one of each container ended that anybody told of: its attempt and its code.
    exits: BTreeMap<String, (i32, i32)>,
    /// Containers whose processes are gone, and of which the runtime has not said that it is done with them.
    clearing: BTreeSet<String>,
    /// Hooks that this kubelet began.
    hooks: BTreeSet<ActionKey>,
    /// How often a probe of a container failed in a row, as far as anybody told.
    failures: BTreeMap<(String, ProbeKind), u32>,
    /// A hook failed, or the kubelet was away: what a container is stopped for, and how late, is another matter then.
    hook_failed: bool,
    /// Containers are stopped because of their spec as well.
    pub(crate) other_reasons: bool,
    /// Containers may be restarted for what changed.
    resized: bool,
    was_away: bool,
    /// The random number of the next kubelet.
    pub(crate) random: u64,
    /// What is on disk, and its revision.
    saved: (u64, Pod),
    /// What happened, where a test wants to go through it again.
    pub(crate) history: Option<History>,
}

impl Sim {
    /// A Pod with this spec; nothing has happened yet.
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
            clearing: BTreeSet::new(),
            hooks: BTreeSet::new(),
            failures: BTreeMap::new(),
            hook_failed: false,
            other_reasons: false,
            resized: false,
            was_away: false,
            random: 0,
            saved,
            history: None,
        }
    }

    /// A Pod of containers of these names, all of which run for ever if no script says otherwise.
    pub(crate) fn of(restart_policy: &str, names: &[&str]) -> Self {
        let containers: Vec<_> = names.iter().map(|n| json!({"name": n, "image": "i"})).collect();
        Self::new(json!({"restartPolicy": restart_policy, "containers": containers}))
    }

    /// What the runs of a container are like, one after the other; the last one repeats.
    #[must_use]
    pub(crate) fn script(mut self, container: &str, runs: &[Run]) -> Self {
        self.runtime.scripts.insert(container.to_owned(), runs.to_vec());
        self
    }

    /// What a container does when it is told to stop.
    #[must_use]
    pub(crate) fn on_stop(mut self, container: &str, after: u64, code: i32) -> Self {
        self.runtime.on_stop.insert(container.to_owned(), OnStop { after: Duration::from_secs(after), code });
        self
    }

    /// What a probe of a container comes to, from which second of its life on.
    #[must_use]
    pub(crate) fn probe(mut self, container: &str, kind: ProbeKind, script: &[(u64, ProbeOutcome)]) -> Self {
        self.runtime.probes.insert((container.to_owned(), kind), script.to_vec());
        self
    }

    /// How long a hook of a container takes, and what it comes to.
    #[must_use]
    pub(crate) fn hook(mut self, container: &str, hook: Hook, seconds: u64, outcome: HookOutcome) -> Self {
        self.runtime.hooks.insert((container.to_owned(), hook), (seconds, outcome));
        self
    }

    /// Folds a fact in, and checks what must always hold.
    pub(crate) fn observe(&mut self, event: Event) {
        self.stopping |= matches!(&event, Event::Gone | Event::Evicted(_))
            || matches!(&event, Event::Updated(o) if o.metadata.deletion_timestamp.is_some());
        self.note(&event);
        if let Some(history) = &mut self.history {
            history.push(&event, &self.policy, self.now);
        }
        observe(&mut self.pod, event, &self.policy, self.now);
        if self.saved.0 != self.pod.durable_revision() {
            self.saved = (self.pod.durable_revision(), self.pod.clone());
        }
        self.check();
    }

    /// Somebody else wrote this phase: it stands, whatever runs.
    pub(crate) fn expect_terminal(&mut self, phase: &str, reason: Option<&str>) {
        self.terminal = Some((phase.to_owned(), reason.map(str::to_owned)));
    }

    /// Carries out all that is planned now, until nothing is.
    pub(crate) fn settle(&mut self) {
        for _ in 0..1000 {
            self.report();
            let planned = plan(&self.pod, &self.policy, self.now).actions;
            let fresh: Vec<Action> = planned.into_iter().filter(|a| !self.begun.contains(&a.key())).collect();
            if fresh.is_empty() || self.forgotten {
                return;
            }
            for action in fresh {
                // What an answer made needless is not begun any more.
                if plan(&self.pod, &self.policy, self.now).actions.contains(&action) {
                    self.begin(&action);
                    self.finish(&action);
                }
            }
        }
        panic!("the plan never comes to rest: {:?}", plan(&self.pod, &self.policy, self.now));
    }

    /// The first action that is planned and not in flight.
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
            self.observe(Event::Begun(action.key()));
        }
    }

    /// Ends an action that was begun, and tells what came of it.
    pub(crate) fn finish(&mut self, action: &Action) {
        let facts = self.answer(action);
        // A stop is in flight until its container has ended, and a hook for as long as it takes.
        if !matches!(action, Action::StopContainer { .. }) && !self.runtime.is_pending(action) {
            self.begun.remove(&action.key());
        }
        for fact in facts {
            self.observe(fact);
        }
    }

    /// What the world answers to an action.
    pub(crate) fn answer(&mut self, action: &Action) -> Vec<Event> {
        match action {
            Action::Record(event) => {
                self.events.push(event.clone());
                vec![Event::Done(action.key())]
            }
            Action::DeleteFromApi => {
                assert!(matches!(self.api_phase(), "Succeeded" | "Failed"), "deleted before its phase was terminal");
                assert!(!self.runtime.any_running(), "deleted while something runs");
                self.in_api = false;
                vec![Event::Done(action.key()), Event::Gone]
            }
            Action::Forget => {
                assert!(self.runtime.sandboxes.is_empty() && self.runtime.containers.is_empty(), "forgotten too early");
                self.forgotten = true;
                Vec::new()
            }
            Action::DecideResize { generation, .. } => {
                let verdict = self.runtime.verdicts.pop_front().unwrap_or(ResizeVerdict::Fits);
                vec![Event::ResizeDecided { generation: *generation, verdict }]
            }
            Action::ActuateResources { .. } => vec![match self.runtime.resize_failures.pop_front() {
                Some(message) => Event::ResourcesFailed { message: message.to_owned() },
                None => {
                    let ids = self.pod.to_update().into_iter().map(|(_, id)| id).collect();
                    Event::ResourcesActuated { ids, allocation: self.pod.allocation() }
                }
            }],
            _ => self.runtime.carry_out(action, self.now),
        }
    }

    /// Shows the API what is new, as a status writer and a watch would.
    pub(crate) fn report(&mut self) {
        let status = status(&self.pod, &self.policy, self.now);
        if !self.in_api || self.shown.as_ref() == Some(&status) || self.pod.awaits_admission(self.now) {
            return;
        }
        self.writes = if self.writes.0 == self.now { (self.now, self.writes.1 + 1) } else { (self.now, 1) };
        assert!(self.writes.1 < 200, "the status never comes to rest");
        self.check_transitions(&status);
        self.shown = Some(status.clone());
        self.api.status = Some(status.clone());
        self.observe(Event::StatusWritten(Box::new(status)));
        self.observe(Event::Updated(Arc::new(self.api.clone())));
    }

    /// Lets time pass, moment by moment, and carries out what each moment brings.
    pub(crate) fn pass(&mut self, seconds: u64) {
        let until = self.now + Duration::from_secs(seconds);
        self.settle();
        loop {
            let wake = plan(&self.pod, &self.policy, self.now).wake;
            let next = wake.into_iter().chain(self.runtime.next_end()).min().filter(|at| *at <= until);
            let Some(next) = next else { break };
            self.now = self.now.max(next);
            for exit in self.runtime.ends(self.now) {
                self.begun.retain(|key| !key.0.starts_with(&exit.0));
                self.observe(exit.1);
            }
            self.check();
            self.settle();
        }
        self.now = until;
        self.check();
        self.settle();
        self.check_over();
    }

    /// Asks the API for other resources of a container.
    pub(crate) fn resize(&mut self, container: &str, requests: &Value, limits: &Value) {
        self.ask_to_resize(container, &json!({"requests": requests, "limits": limits}));
        self.settle();
    }

    pub(crate) fn ask_to_resize(&mut self, container: &str, resources: &Value) {
        let spec = self.api.spec.as_mut().unwrap();
        let mut all = spec.init_containers.iter_mut().flatten().chain(&mut spec.containers);
        let found = all.find(|c| c.name == container).unwrap();
        found.resources = Some(serde_json::from_value(resources.clone()).unwrap());
        *self.api.metadata.generation.as_mut().unwrap() += 1;
        self.resized = true;
        self.observe(Event::Updated(Arc::new(self.api.clone())));
    }

    /// Asks the API to delete the Pod.
    pub(crate) fn delete(&mut self, grace: i64) {
        self.ask_to_delete(grace);
        self.settle();
    }

    /// Adds an ephemeral container, as `kubectl debug` does.
    pub(crate) fn debug(&mut self, name: &str) {
        let list = self.api.spec.as_mut().unwrap().ephemeral_containers.get_or_insert_default();
        let added = EphemeralContainer { name: name.to_owned(), image: Some("i".to_owned()), ..Default::default() };
        if !list.contains(&added) {
            list.push(added);
            self.observe(Event::Updated(Arc::new(self.api.clone())));
        }
    }

    pub(crate) fn ask_to_delete(&mut self, grace: i64) {
        let meta = &mut self.api.metadata;
        meta.deletion_timestamp = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(self.now));
        meta.deletion_grace_period_seconds = Some(grace);
        self.observe(Event::Updated(Arc::new(self.api.clone())));
    }

    /// Removes the object at once.
    pub(crate) fn force_delete(&mut self) {
        self.in_api = false;
        self.observe(Event::Gone);
        self.settle();
    }

    pub(crate) fn evict(&mut self, grace_seconds: Option<u32>) {
        self.ask_to_leave(grace_seconds);
        self.settle();
    }

    pub(crate) fn ask_to_leave(&mut self, grace_seconds: Option<u32>) {
        self.observe(Event::Evicted(Eviction {
            reason: "Evicted".to_owned(),
            message: "The node was low on resource: memory.".to_owned(),
            grace_seconds,
            disruption_target: true,
            ..Eviction::default()
        }));
    }

    /// The API takes another image for the first app container, which takes the place of what runs, whatever the policy.
    pub(crate) fn set_image(&mut self, n: u8) {
        let spec = self.api.spec.as_mut().unwrap();
        spec.containers[0].image = Some(format!("image-{n}"));
        self.runtime.never.remove(&spec.containers[0].name);
        self.other_reasons = true;
        self.observe(Event::Updated(Arc::new(self.api.clone())));
    }

    pub(crate) fn lose_sandbox(&mut self) {
        let sandbox = self.runtime.sandboxes.iter_mut().rfind(|s| s.ready).unwrap();
        sandbox.ready = false;
        let id = sandbox.id.clone();
        self.observe(Event::Sandbox(SandboxFact::Lost { id }));
        self.settle();
    }

    /// The kubelet is away for this long: containers end unseen. Then it reads what it wrote down, and lists the runtime.
    pub(crate) fn restart(&mut self, away: u64) {
        self.away(away);
        self.reborn(false);
        self.relist();
        self.settle();
    }

    /// As [`Self::restart`], but what was written down is lost, and the API alone remembers.
    pub(crate) fn restart_without_checkpoint(&mut self, away: u64) {
        self.away(away);
        self.reborn(true);
        self.settle();
        self.relist();
        self.settle();
    }

    /// A new kubelet that knows what was written down, or what the API shows.
    pub(crate) fn reborn(&mut self, from_api: bool) {
        self.begun.clear();
        self.hooks.clear();
        self.was_away = true;
        // What a hook had to say is lost with who asked for it.
        self.runtime.pending.clear();
        self.shown = None;
        if from_api {
            // The API knows nothing of an eviction before it is over, nor when a deletion was seen first.
            self.stopping = self.api.metadata.deletion_timestamp.is_some();
            self.deadline = None;
            // Nor that the runtime is not done with what has ended: what is left of a Pod that is gone, a list finds.
            self.clearing.clear();
            self.note(&Event::Updated(Arc::new(self.api.clone())));
        }
        self.pod = if from_api {
            Pod::new(Arc::new(self.api.clone()), self.now)
        } else {
            serde_json::from_str(&serde_json::to_string(&self.saved.1).unwrap()).unwrap()
        };
        self.history = self.history.as_ref().map(|_| History::new(&self.pod));
        self.observe(Event::KubeletStarted { at: self.now, random: self.random });
        self.check();
    }

    /// What is dumped and gone through again ends as it did.
    pub(crate) fn check_replay(&self) {
        let Some(history) = &self.history else { return };
        let lines = history.lines(&self.pod, &self.policy, self.now);
        let dump: String = lines.iter().map(|line| serde_json::to_string(line).unwrap() + "\n").collect();
        let replayed = replay(&dump).unwrap();
        assert_eq!(replayed.again, replayed.told);
    }

    pub(crate) fn saved(&self) -> &Pod {
        &self.saved.1
    }

    /// Whether the API has the newest status, or there is nobody to tell.
    pub(crate) fn reported(&self) -> bool {
        !self.in_api || self.shown.as_ref() == Some(&self.status())
    }

    /// A fact that says nothing: what time alone has decided is taken note of.
    pub(crate) fn tick(&mut self) {
        self.observe(Event::Done(ActionKey("nothing".to_owned())));
    }

    fn away(&mut self, seconds: u64) {
        self.now += Duration::from_secs(seconds);
        self.runtime.ends(self.now);
    }

    pub(crate) fn relist(&mut self) {
        let view = self.runtime.view();
        self.observe(Event::Relisted(view));
    }
}
