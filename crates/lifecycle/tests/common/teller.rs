//! A [`Sim`] whose facts come late, twice, in another order or never, as somebody else chooses.

use super::Sim;
use api::pod::ContainerKind;
use jiff::Timestamp;
use lifecycle::{
    Action, ContainerFact, ContainerViewState, Event, ResizeVerdict, SandboxFact, StartStage, plan, status,
};
use serde_json::{Value, json};
use std::time::Duration;

/// One thing that happens. Numbers choose among what there is.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Step {
    /// An action is carried out, and answered at once.
    Act(usize),
    /// An action is begun, and will be answered later.
    Begin(usize),
    /// One of those that were begun is answered.
    Finish(usize),
    /// The API takes the status.
    Report,
    /// Seconds pass.
    Pass(u64),
    /// A container ends by itself; the fact is on its way.
    Exit(usize, i32),
    /// One of the facts on their way arrives.
    Deliver(usize),
    /// A fact arrives that was there before.
    Repeat(usize),
    /// Somebody asks for other resources of a container.
    Resize(usize, u8),
    Delete(i64),
    ForceDelete,
    Evict,
    LoseSandbox,
    /// The first app container shall have another image.
    NewImage(u8),
    /// The runtime forgets a container.
    LoseContainer(usize),
    /// The kubelet dies and comes back; each action in flight was carried out or was not.
    Restart(u8, bool),
    Relist,
    /// Somebody wants to look into the Pod.
    Debug,
    /// The next try of something fails.
    Fault(u8),
}

/// What containers have beside a name and an image.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Extras {
    pub(crate) startup: bool,
    pub(crate) liveness: bool,
    pub(crate) readiness: bool,
    pub(crate) post_start: bool,
    pub(crate) pre_stop: bool,
    /// Whether an exit with code 1 restarts all containers (KEP-5532).
    pub(crate) restart_all: bool,
    /// Whether an end is told as soon as the process is gone, and again when the runtime is done with it.
    pub(crate) tells_early: bool,
}

impl Extras {
    fn add_to(self, policy: &str, container: &mut Value) {
        if self.restart_all {
            let own = container.get("restartPolicy").cloned().unwrap_or(json!(policy));
            container["restartPolicy"] = own;
            container["restartPolicyRules"] =
                json!([{"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [1]}}]);
        }
        let probe = json!({"tcpSocket": {"port": 80}, "periodSeconds": 2, "failureThreshold": 2});
        let hook = json!({"exec": {"command": ["true"]}});
        let probes =
            [(self.startup, "startupProbe"), (self.liveness, "livenessProbe"), (self.readiness, "readinessProbe")];
        for (_, field) in probes.iter().filter(|(wanted, _)| *wanted) {
            container[*field] = probe.clone();
        }
        for (_, field) in [(self.post_start, "postStart"), (self.pre_stop, "preStop")].iter().filter(|(w, _)| *w) {
            container["lifecycle"][*field] = hook.clone();
        }
    }
}

#[derive(Clone)]
pub(crate) struct Teller {
    pub(crate) sim: Sim,
    /// Actions in flight.
    pub(crate) in_flight: Vec<Action>,
    /// Facts on their way.
    pub(crate) mail: Vec<Event>,
    /// Facts that arrived and carry an id.
    told: Vec<Event>,
}

impl Teller {
    pub(crate) fn new(policy: &str, [init, sidecars, apps]: [usize; 3], deadline: Option<i64>, extras: Extras) -> Self {
        let list = |prefix: &str, count| -> Vec<_> {
            (0..count).map(|n| json!({"name": format!("{prefix}{n}"), "image": "i"})).collect()
        };
        let mut first = list("i", init);
        first.extend(list("s", sidecars).into_iter().map(|mut c| {
            c["restartPolicy"] = json!("Always");
            extras.add_to(policy, &mut c);
            c
        }));
        let mut app = list("c", apps);
        if policy != "Never" {
            for container in first.iter_mut().filter(|c| c["restartPolicy"] == "Always").chain(&mut app) {
                container["resizePolicy"] = json!([{"resourceName": "memory", "restartPolicy": "RestartContainer"}]);
            }
        }
        app.iter_mut().for_each(|c| extras.add_to(policy, c));
        let mut sim = Sim::new(json!({
            "restartPolicy": policy,
            "activeDeadlineSeconds": deadline,
            "terminationGracePeriodSeconds": 20,
            "initContainers": first,
            "containers": app,
        }));
        sim.runtime.tells_early = extras.tells_early;
        if extras.restart_all {
            let gates = "RestartAllContainersOnContainerExits=true,NodeDeclaredFeatures=true";
            sim.policy.gates = api::feature_gates::FeatureGates::parse(gates).unwrap();
        } else if policy == "Never" {
            sim.runtime.never = (0..apps).map(|n| format!("c{n}")).collect();
        }
        Self { sim, in_flight: Vec::new(), mail: Vec::new(), told: Vec::new() }
    }

    pub(crate) fn tell(&mut self, fact: Event) {
        // An early word about one that is not known to run is not taken; the next one may be.
        let in_time = match &fact {
            Event::Container { fact: ContainerFact::Reaped { id, .. }, .. } => self.sim.pod.running_since(id).is_some(),
            _ => true,
        };
        let named = in_time
            && matches!(
                &fact,
                Event::Container {
                    fact: ContainerFact::Created { .. }
                        | ContainerFact::Started { .. }
                        | ContainerFact::Reaped { .. }
                        | ContainerFact::Exited { .. }
                        | ContainerFact::Removed { .. },
                    ..
                } | Event::Sandbox(
                    SandboxFact::Ready { .. }
                        | SandboxFact::Stopped { .. }
                        | SandboxFact::Lost { .. }
                        | SandboxFact::Removed { .. }
                ) | Event::Admission(_)
                    | Event::Done(_)
                    | Event::HookDone { .. }
            );
        self.sim.observe(fact.clone());
        if named {
            self.told.push(fact);
        }
    }

    /// What the kubelet would begin now.
    pub(crate) fn open(&self) -> Vec<Action> {
        let plan = plan(&self.sim.pod, &self.sim.policy, self.sim.now);
        let fresh = plan.actions.into_iter().filter(|a| !self.sim.begun.contains(&a.key()));
        // The last steps wait until nothing is in flight and the API has the last status.
        fresh
            .filter(|a| {
                !matches!(a, Action::DeleteFromApi | Action::Forget) || self.sim.begun.is_empty() && self.sim.reported()
            })
            .collect()
    }

    /// The next moment that is waited for.
    pub(crate) fn wake(&self) -> Option<Timestamp> {
        plan(&self.sim.pod, &self.sim.policy, self.sim.now).wake
    }

    /// Nothing happens until that moment.
    pub(crate) fn wait(&mut self) {
        if let Some(at) = self.wake() {
            self.sim.now = at;
            self.exits();
        }
    }

    /// What only tells how it came to this.
    pub(crate) fn forget_history(&mut self) {
        self.told.clear();
        self.sim.events.clear();
        self.sim.log.clear();
    }

    pub(crate) fn begin(&mut self, n: usize) -> Option<Action> {
        let open = self.open();
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
        let mut facts = self.sim.answer(&action);
        if let Action::StopContainer { id, .. } = &action {
            facts.extend(self.stopped(id));
        }
        self.sim.begun.remove(&action.key());
        for fact in facts {
            self.tell(fact);
        }
    }

    /// A stop is answered when its container has ended; the runtime's own events tell of it as well.
    pub(crate) fn stopped(&mut self, id: &str) -> Option<Event> {
        let container = self.sim.runtime.containers.iter_mut().find(|c| c.id == *id)?;
        if let Some(end) = container.end.as_mut() {
            end.0 = self.sim.now;
        }
        self.exits();
        self.mail
            .iter()
            .rev()
            .find(
                |f| matches!(f, Event::Container { fact: ContainerFact::Exited { id: ended, .. }, .. } if ended == id),
            )
            .cloned()
    }

    pub(crate) fn exits(&mut self) {
        let ended = self.sim.runtime.ends(self.sim.now);
        self.mail.extend(ended.into_iter().map(|(_, fact)| fact));
    }

    pub(crate) fn take(&mut self, step: &Step) {
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
                if !self.mail.is_empty() {
                    let fact = self.mail.remove(n % self.mail.len());
                    self.tell(fact);
                }
            }
            Step::Repeat(n) => self.repeat(*n),
            Step::Relist if self.sim.begun.is_empty() => self.relist_twice(),
            Step::Fault(n) => match n {
                0 => self.sim.runtime.image_failures.push_back(("ErrImagePull", "no")),
                1 => self.sim.runtime.start_failures.push_back((StartStage::Create, "no")),
                2 => self.sim.runtime.start_failures.push_back((StartStage::Start, "no")),
                4 => self.sim.runtime.hook_failures += 1,
                5 => self.sim.runtime.probe_failures += 1,
                6 => self.sim.runtime.probe_failures += 20,
                7 => self.sim.runtime.resize_failures.push_back("no"),
                8 => self.sim.runtime.verdicts.push_back(ResizeVerdict::Deferred { message: "no".to_owned() }),
                _ => self.sim.runtime.sandbox_failures += 1,
            },
            Step::Restart(done, checkpoint) => self.restart(*done, *checkpoint),
            step => self.disturb(step),
        }
    }

    pub(crate) fn disturb(&mut self, step: &Step) {
        match step {
            Step::Delete(grace) if self.sim.in_api => self.sim.ask_to_delete(*grace),
            Step::ForceDelete if self.sim.in_api => {
                self.sim.in_api = false;
                self.sim.observe(Event::Gone);
            }
            Step::NewImage(n) if self.sim.in_api => self.sim.set_image(*n),
            Step::Resize(n, size) if self.sim.in_api => {
                let spec = self.sim.api.spec.clone().unwrap();
                let all: Vec<_> =
                    api::pod::containers(&spec).filter(|(kind, _)| *kind != ContainerKind::Init).collect();
                // CPU changes as it runs, and memory with a restart, where the Pod restarts anything.
                let memory = if spec.restart_policy.as_deref() == Some("Never") { 1 } else { 1 + size / 4 };
                let requests = json!({"cpu": format!("{}m", 1 + size % 4), "memory": format!("{memory}Mi")});
                self.sim.ask_to_resize(&all[n % all.len()].1.name, &json!({"requests": requests}));
            }
            Step::Evict => self.sim.ask_to_leave(Some(5)),
            Step::Debug if self.sim.in_api => self.sim.debug("e"),
            Step::LoseSandbox => {
                if let Some(s) = self.sim.runtime.sandboxes.iter_mut().find(|s| s.ready) {
                    s.ready = false;
                    self.mail.push(Event::Sandbox(SandboxFact::Lost { id: s.id.clone() }));
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
            .filter(|c| matches!(c.state, ContainerViewState::Running { .. }))
            .collect();
        let count = running.len().max(1);
        if let Some(c) = running.get_mut(n % count) {
            c.end = Some((now, code, if code == 0 { "Completed" } else { "Error" }));
        }
        self.exits();
    }

    /// What was told before changes nothing.
    pub(crate) fn repeat(&mut self, n: usize) {
        if self.told.is_empty() {
            return;
        }
        let seen = |sim: &Sim| (plan(&sim.pod, &sim.policy, sim.now), status(&sim.pod, &sim.policy, sim.now));
        // The time alone may have brought an end.
        self.sim.tick();
        let before = seen(&self.sim);
        let fact = self.told[n % self.told.len()].clone();
        self.sim.observe(fact.clone());
        assert_eq!(seen(&self.sim), before, "{fact:?}");
    }

    /// All that was told changes nothing when it is told again.
    pub(crate) fn repeat_all(&self) {
        if !self.told.is_empty() {
            let mut again = self.clone();
            (0..self.told.len()).for_each(|n| again.repeat(n));
        }
    }

    pub(crate) fn relist_twice(&mut self) {
        self.sim.relist();
        let known = self.sim.pod.clone();
        self.sim.relist();
        assert_eq!(self.sim.pod, known);
    }

    pub(crate) fn restart(&mut self, done: u8, checkpoint: bool) {
        for (n, action) in std::mem::take(&mut self.in_flight).into_iter().enumerate() {
            let inner = matches!(action, Action::DeleteFromApi | Action::Forget | Action::Record(_));
            if !inner && done >> (n % 8) & 1 == 1 {
                let _lost = self.sim.answer(&action);
            }
        }
        // What is written down nowhere is lost; so the API hears of all before its memory is all there is.
        let from_api = !checkpoint && self.sim.in_api;
        if from_api {
            self.sim.report();
            self.told.clear();
        }
        self.mail.clear();
        self.sim.reborn(from_api);
        self.relist_twice();
    }

    /// From here on all goes well: the Pod comes to rest where it should.
    pub(crate) fn end_well(mut self) {
        while !self.in_flight.is_empty() {
            self.finish(0);
        }
        while !self.mail.is_empty() {
            let fact = self.mail.remove(0);
            self.tell(fact);
        }
        let runtime = &mut self.sim.runtime;
        runtime.image_failures.clear();
        runtime.start_failures.clear();
        runtime.sandbox_failures = 0;
        runtime.hook_failures = 0;
        runtime.resize_failures.clear();
        runtime.verdicts.clear();
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
        assert!(sim.in_api && sim.api.metadata.deletion_timestamp.is_none(), "deleted and never gone");
        let left = plan(&sim.pod, &sim.policy, sim.now);
        assert_eq!(left.actions, [], "a plan whose actions were all done is empty");
        if terminal {
            assert!(!sim.runtime.any_running() && !sim.runtime.sandboxes.iter().any(|s| s.ready));
            assert_eq!(left.wake, None);
        } else {
            assert_eq!(sim.pod.desired(), **sim.pod.object(), "what is asked for is allocated");
            assert!(!sim.status().conditions.unwrap().iter().any(|c| c.type_.starts_with("PodResize")), "and applies");
            assert!(sim.runtime.any_running(), "neither ended nor running: {:#?}", sim.status());
        }
        assert_eq!(sim.api_phase(), sim.phase());
    }
}
