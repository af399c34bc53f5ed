//! A [`Sim`] whose events are delayed, duplicated, reordered or lost, by a sequence of [`Step`]s.

use super::Sim;
use api::pod::ContainerKind;
use jiff::Timestamp;
use lifecycle::{
    Action, ContainerEvent, PodLifecycleEvent, ResizeDecision, RuntimeContainerState, SandboxEvent, StartFailureStage,
    plan, status,
};
use serde_json::{Value, json};
use std::time::Duration;

/// One step of a history. Numbers select among the candidates.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Step {
    /// Executes an action and delivers its result.
    Act(usize),
    /// Starts an action; its result is delivered later.
    Begin(usize),
    /// Delivers the result of a started action.
    Finish(usize),
    /// Writes the status to the API.
    Report,
    /// Advances the time by seconds.
    Pass(u64),
    /// A container exits; its event is not delivered yet.
    Exit(usize, i32),
    /// Delivers one of the pending events.
    Deliver(usize),
    /// Delivers an event for the second time.
    Repeat(usize),
    /// Requests a resize of a container.
    Resize(usize, u8),
    Delete(i64),
    ForceDelete,
    Evict,
    LoseSandbox,
    /// Changes the image of the first app container.
    NewImage(u8),
    /// The runtime loses a container.
    LoseContainer(usize),
    /// Restarts the kubelet; the bits select the actions in flight that were executed.
    Restart(u8, bool),
    Relist,
    /// Adds an ephemeral container.
    Debug,
    /// Makes the next attempt of an operation fail.
    Fault(u8),
}

/// Optional parts of the container specs.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ContainerOptions {
    pub(crate) startup: bool,
    pub(crate) liveness: bool,
    pub(crate) readiness: bool,
    pub(crate) post_start: bool,
    pub(crate) pre_stop: bool,
    /// Whether exit code 1 restarts all containers (KEP-5532).
    pub(crate) restart_all: bool,
    /// Whether the runtime reports `Reaped` before `Exited`.
    pub(crate) reports_reaped: bool,
}

impl ContainerOptions {
    fn add_to(self, policy: &str, container: &mut Value) {
        if self.restart_all {
            let container_policy = container.get("restartPolicy").cloned().unwrap_or(json!(policy));
            container["restartPolicy"] = container_policy;
            container["restartPolicyRules"] =
                json!([{"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [1]}}]);
        }
        let probe = json!({"tcpSocket": {"port": 80}, "periodSeconds": 2, "failureThreshold": 2});
        let hook = json!({"exec": {"command": ["true"]}});
        let probes =
            [(self.startup, "startupProbe"), (self.liveness, "livenessProbe"), (self.readiness, "readinessProbe")];
        for (_, field) in probes.iter().filter(|(is_configured, _)| *is_configured) {
            container[*field] = probe.clone();
        }
        for (_, field) in [(self.post_start, "postStart"), (self.pre_stop, "preStop")].iter().filter(|(w, _)| *w) {
            container["lifecycle"][*field] = hook.clone();
        }
    }
}

#[derive(Clone)]
pub(crate) struct Interleaver {
    pub(crate) sim: Sim,
    /// Actions in flight.
    pub(crate) in_flight: Vec<Action>,
    /// Events that are not delivered yet.
    pub(crate) undelivered: Vec<PodLifecycleEvent>,
    /// Delivered events that identify their object.
    delivered: Vec<PodLifecycleEvent>,
}

impl Interleaver {
    pub(crate) fn new(
        policy: &str,
        [init, sidecars, apps]: [usize; 3],
        deadline: Option<i64>,
        options: ContainerOptions,
    ) -> Self {
        let list = |prefix: &str, count| -> Vec<_> {
            (0..count).map(|n| json!({"name": format!("{prefix}{n}"), "image": "i"})).collect()
        };
        let mut first = list("i", init);
        first.extend(list("s", sidecars).into_iter().map(|mut c| {
            c["restartPolicy"] = json!("Always");
            options.add_to(policy, &mut c);
            c
        }));
        let mut app = list("c", apps);
        if policy != "Never" {
            for container in first.iter_mut().filter(|c| c["restartPolicy"] == "Always").chain(&mut app) {
                container["resizePolicy"] = json!([{"resourceName": "memory", "restartPolicy": "RestartContainer"}]);
            }
        }
        app.iter_mut().for_each(|c| options.add_to(policy, c));
        let mut sim = Sim::new(json!({
            "restartPolicy": policy,
            "activeDeadlineSeconds": deadline,
            "terminationGracePeriodSeconds": 20,
            "initContainers": first,
            "containers": app,
        }));
        sim.runtime.reports_reaped = options.reports_reaped;
        if options.restart_all {
            let gates = "RestartAllContainersOnContainerExits=true,NodeDeclaredFeatures=true";
            sim.policy.gates = api::feature_gates::FeatureGates::parse(gates).unwrap();
        } else if policy == "Never" {
            sim.runtime.never = (0..apps).map(|n| format!("c{n}")).collect();
        }
        Self { sim, in_flight: Vec::new(), undelivered: Vec::new(), delivered: Vec::new() }
    }

    pub(crate) fn deliver(&mut self, event: PodLifecycleEvent) {
        // `Reaped` of a container that is not known to run is ignored; its repetition may not be.
        let is_accepted = match &event {
            PodLifecycleEvent::Container { event: ContainerEvent::Reaped { id, .. }, .. } => {
                self.sim.pod.running_since(id).is_some()
            }
            _ => true,
        };
        let has_identity = is_accepted
            && matches!(
                &event,
                PodLifecycleEvent::Container {
                    event: ContainerEvent::Created { .. }
                        | ContainerEvent::Started { .. }
                        | ContainerEvent::Reaped { .. }
                        | ContainerEvent::Exited { .. }
                        | ContainerEvent::Removed { .. },
                    ..
                } | PodLifecycleEvent::Sandbox(
                    SandboxEvent::Ready { .. }
                        | SandboxEvent::Stopped { .. }
                        | SandboxEvent::Lost { .. }
                        | SandboxEvent::Removed { .. }
                ) | PodLifecycleEvent::Admission(_)
                    | PodLifecycleEvent::ActionSucceeded(_)
                    | PodLifecycleEvent::HookDone { .. }
            );
        self.sim.observe(event.clone());
        if has_identity {
            self.delivered.push(event);
        }
    }

    /// Returns the actions that the kubelet would start now.
    pub(crate) fn startable_actions(&self) -> Vec<Action> {
        let plan = plan(&self.sim.pod, &self.sim.policy, self.sim.now);
        let pending = plan.actions.into_iter().filter(|a| !self.sim.begun.contains(&a.key()));
        // The last actions wait until nothing is in flight and the status is written.
        pending
            .filter(|a| {
                !matches!(a, Action::DeleteFromApi | Action::Forget) || self.sim.begun.is_empty() && self.sim.reported()
            })
            .collect()
    }

    /// Returns the next wake-up of the plan.
    pub(crate) fn wake(&self) -> Option<Timestamp> {
        plan(&self.sim.pod, &self.sim.policy, self.sim.now).wake
    }

    /// Advances the time to the next wake-up.
    pub(crate) fn advance_to_wake(&mut self) {
        if let Some(at) = self.wake() {
            self.sim.now = at;
            self.exits();
        }
    }

    /// Drops the history, which does not distinguish states.
    pub(crate) fn clear_history(&mut self) {
        self.delivered.clear();
        self.sim.events.clear();
        self.sim.log.clear();
    }

    pub(crate) fn begin(&mut self, n: usize) -> Option<Action> {
        let open = self.startable_actions();
        let action = open.get(n % open.len().max(1))?.clone();
        self.sim.begin(&action);
        self.in_flight.push(action.clone());
        Some(action)
    }

    pub(crate) fn finish(&mut self, n: usize) {
        if self.in_flight.is_empty() {
            return;
        }
        let action = self.in_flight.remove(n % self.in_flight.len());
        let mut events = self.sim.answer(&action);
        if let Action::StopContainer { id, .. } = &action {
            events.extend(self.stopped(id));
        }
        self.sim.begun.remove(&action.key());
        for event in events {
            self.deliver(event);
        }
    }

    /// Completes a stop once its container has exited; the runtime reports the exit, too.
    pub(crate) fn stopped(&mut self, id: &str) -> Option<PodLifecycleEvent> {
        let container = self.sim.runtime.containers.iter_mut().find(|c| c.id == *id)?;
        if let Some(end) = container.end.as_mut() {
            end.0 = self.sim.now;
        }
        self.exits();
        self.undelivered
            .iter()
            .rev()
            .find(
                |f| matches!(f, PodLifecycleEvent::Container { event: ContainerEvent::Exited { id: ended, .. }, .. } if ended == id),
            )
            .cloned()
    }

    pub(crate) fn exits(&mut self) {
        let ended = self.sim.runtime.ends(self.sim.now);
        self.undelivered.extend(ended.into_iter().map(|(_, event)| event));
    }

    pub(crate) fn apply(&mut self, step: &Step) {
        match step {
            Step::Act(n) => {
                if let Some(action) = self.begin(*n) {
                    let last = self.in_flight.iter().position(|a| *a == action).unwrap();
                    self.finish(last);
                }
            }
            Step::Begin(n) => drop(self.begin(*n)),
            Step::Finish(n) => self.finish(*n),
            Step::Report => self.sim.report(),
            Step::Pass(seconds) => {
                self.sim.now += Duration::from_secs(*seconds);
                self.exits();
            }
            Step::Exit(n, code) => self.exit(*n, *code),
            Step::Deliver(n) => {
                if !self.undelivered.is_empty() {
                    let event = self.undelivered.remove(n % self.undelivered.len());
                    self.deliver(event);
                }
            }
            Step::Repeat(n) => self.repeat(*n),
            Step::Relist if self.sim.begun.is_empty() => self.relist_twice(),
            Step::Fault(n) => match n {
                0 => self.sim.runtime.image_failures.push_back(("ErrImagePull", "no")),
                1 => self.sim.runtime.start_failures.push_back((StartFailureStage::Create, "no")),
                2 => self.sim.runtime.start_failures.push_back((StartFailureStage::Start, "no")),
                4 => self.sim.runtime.hook_failures += 1,
                5 => self.sim.runtime.probe_failures += 1,
                6 => self.sim.runtime.probe_failures += 20,
                7 => self.sim.runtime.resize_failures.push_back("no"),
                8 => self.sim.runtime.resize_decisions.push_back(ResizeDecision::Deferred { message: "no".to_owned() }),
                _ => self.sim.runtime.sandbox_failures += 1,
            },
            Step::Restart(done, checkpoint) => self.restart(*done, *checkpoint),
            step => self.apply_disruption(step),
        }
    }

    pub(crate) fn apply_disruption(&mut self, step: &Step) {
        match step {
            Step::Delete(grace) if self.sim.in_api => self.sim.request_deletion(*grace),
            Step::ForceDelete if self.sim.in_api => {
                self.sim.in_api = false;
                self.sim.observe(PodLifecycleEvent::Removed);
            }
            Step::NewImage(n) if self.sim.in_api => self.sim.set_image(*n),
            Step::Resize(n, size) if self.sim.in_api => {
                let spec = self.sim.api.spec.clone().unwrap();
                let all: Vec<_> =
                    api::pod::containers(&spec).filter(|(kind, _)| *kind != ContainerKind::Init).collect();
                // CPU is resized in place, and memory with a restart, if the Pod restarts containers.
                let memory = if spec.restart_policy.as_deref() == Some("Never") { 1 } else { 1 + size / 4 };
                let requests = json!({"cpu": format!("{}m", 1 + size % 4), "memory": format!("{memory}Mi")});
                self.sim.request_resize(&all[n % all.len()].1.name, &json!({"requests": requests}));
            }
            Step::Evict => self.sim.request_eviction(Some(5)),
            Step::Debug if self.sim.in_api => self.sim.debug("e"),
            Step::LoseSandbox => {
                if let Some(s) = self.sim.runtime.sandboxes.iter_mut().find(|s| s.ready) {
                    s.ready = false;
                    self.undelivered.push(PodLifecycleEvent::Sandbox(SandboxEvent::Lost { id: s.id.clone() }));
                }
            }
            Step::LoseContainer(n) => {
                let containers = &mut self.sim.runtime.containers;
                if !containers.is_empty() {
                    containers.remove(n % containers.len());
                }
            }
            _ => {}
        }
    }

    pub(crate) fn exit(&mut self, n: usize, code: i32) {
        let now = self.sim.now;
        let mut running: Vec<_> = self
            .sim
            .runtime
            .containers
            .iter_mut()
            .filter(|c| matches!(c.state, RuntimeContainerState::Running { .. }))
            .collect();
        let count = running.len().max(1);
        if let Some(c) = running.get_mut(n % count) {
            c.end = Some((now, code, if code == 0 { "Completed" } else { "Error" }));
        }
        self.exits();
    }

    /// Asserts that a duplicate event changes nothing.
    pub(crate) fn repeat(&mut self, n: usize) {
        if self.delivered.is_empty() {
            return;
        }
        let result = |sim: &Sim| (plan(&sim.pod, &sim.policy, sim.now), status(&sim.pod, &sim.policy, sim.now));
        // The time alone may have changed the state.
        self.sim.tick();
        let before = result(&self.sim);
        let event = self.delivered[n % self.delivered.len()].clone();
        self.sim.observe(event.clone());
        assert_eq!(result(&self.sim), before, "{event:?}");
    }

    /// Asserts that no duplicate event changes anything.
    pub(crate) fn repeat_all(&self) {
        if !self.delivered.is_empty() {
            let mut copy = self.clone();
            (0..self.delivered.len()).for_each(|n| copy.repeat(n));
        }
    }

    pub(crate) fn relist_twice(&mut self) {
        self.sim.relist();
        let known = self.sim.state_json();
        self.sim.relist();
        assert_eq!(self.sim.state_json(), known);
    }

    pub(crate) fn restart(&mut self, done: u8, checkpoint: bool) {
        for (n, action) in std::mem::take(&mut self.in_flight).into_iter().enumerate() {
            let is_api_action = matches!(action, Action::DeleteFromApi | Action::Forget | Action::Record(_));
            if !is_api_action && done >> (n % 8) & 1 == 1 {
                let _lost = self.sim.answer(&action);
            }
        }
        // State without a checkpoint is lost, so the status must be written before the API is the only source.
        let from_api = !checkpoint && self.sim.in_api;
        if from_api {
            self.sim.report();
            self.delivered.clear();
        }
        self.undelivered.clear();
        self.sim.start_kubelet(from_api);
        self.relist_twice();
    }

    /// Completes everything without further failures and asserts that the Pod reaches a valid final state.
    pub(crate) fn run_to_completion(mut self) {
        while !self.in_flight.is_empty() {
            self.finish(0);
        }
        while !self.undelivered.is_empty() {
            let event = self.undelivered.remove(0);
            self.deliver(event);
        }
        let runtime = &mut self.sim.runtime;
        runtime.image_failures.clear();
        runtime.start_failures.clear();
        runtime.sandbox_failures = 0;
        runtime.hook_failures = 0;
        runtime.resize_failures.clear();
        runtime.resize_decisions.clear();
        runtime.probe_failures = 0;
        self.sim.begun.clear();
        self.sim.relist();
        self.sim.pass(1000);
        let sim = self.sim;
        sim.check_replay();
        let terminal = matches!(sim.phase().as_str(), "Succeeded" | "Failed");
        if sim.forgotten {
            return;
        }
        assert!(sim.in_api && sim.api.metadata.deletion_timestamp.is_none(), "deleted but never removed");
        let remaining_plan = plan(&sim.pod, &sim.policy, sim.now);
        assert_eq!(remaining_plan.actions, [], "all actions are done, but the plan is not empty");
        if terminal {
            assert!(!sim.runtime.any_running() && !sim.runtime.sandboxes.iter().any(|s| s.ready));
            assert_eq!(remaining_plan.wake, None);
        } else {
            assert_eq!(sim.pod.desired(), **sim.pod.object(), "the desired resources are not allocated");
            assert!(
                !sim.status().conditions.unwrap().iter().any(|c| c.type_.starts_with("PodResize")),
                "the resize is not actuated"
            );
            assert!(sim.runtime.any_running(), "neither terminal nor running: {:#?}", sim.status());
        }
        assert_eq!(sim.api_phase(), sim.phase());
    }
}
