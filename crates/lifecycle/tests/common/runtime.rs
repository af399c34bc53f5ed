//! Scripted container runtime.

use super::handlers::{HookScripts, Pending, ProbeScripts};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Container;
use lifecycle::{
    Action, Admission, ContainerEvent, ContainerExit, ImageEvent, PodLifecycleEvent, ResizeDecision, RuntimeContainer,
    RuntimeContainerState, RuntimeImage, RuntimePodState, RuntimeSandbox, SandboxEvent, StartFailureStage, VolumeEvent,
};
use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    time::Duration,
};

/// Script of one container run.
#[derive(Clone, Copy)]
pub(crate) enum Run {
    /// Runs until it is stopped.
    Forever,
    /// Exits after these seconds with this code.
    Ends(u64, i32),
    /// Is OOM-killed after these seconds.
    OutOfMemory(u64),
    /// Is created but fails to start.
    CannotStart,
}

/// Reaction to the stop signal.
#[derive(Clone, Copy)]
pub(crate) struct OnStop {
    pub(crate) after: Duration,
    pub(crate) code: i32,
}

#[derive(Debug, Clone)]
pub(crate) struct FakeSandbox {
    pub(crate) id: String,
    pub(crate) attempt: u32,
    pub(crate) ready: bool,
}

#[derive(Debug, Clone)]
pub(crate) struct FakeContainer {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) attempt: u32,
    pub(crate) sandbox: String,
    /// Image in the spec at creation; `None` if the test created it.
    image: Option<String>,
    pub(crate) state: RuntimeContainerState,
    /// Time, code and reason of its scheduled exit.
    pub(crate) end: Option<(Timestamp, i32, &'static str)>,
}

/// Returns name and image of a container spec.
pub(crate) fn image_of(spec: &Container) -> (String, String) {
    (spec.name.clone(), spec.image.clone().unwrap_or_default())
}

impl FakeContainer {
    /// Returns the image as the runtime reports it.
    fn runtime_image(&self) -> RuntimeImage {
        let name = self.image.as_ref().map(|image| format!("docker.io/library/{image}")).unwrap_or_default();
        RuntimeImage { name, id: "sha".to_owned(), spec: self.image.clone() }
    }
}

#[derive(Clone, Default)]
pub(crate) struct Runtime {
    /// Image of each container spec at its last start.
    pub(crate) images: BTreeMap<String, String>,
    pub(crate) sandboxes: Vec<FakeSandbox>,
    pub(crate) containers: Vec<FakeContainer>,
    pub(crate) scripts: BTreeMap<String, Vec<Run>>,
    pub(crate) on_stop: BTreeMap<String, OnStop>,
    /// Image failures to return first: reason and message.
    pub(crate) image_failures: VecDeque<(&'static str, &'static str)>,
    /// Whether the image requires a pull; else it is present once the list above is empty.
    pub(crate) requires_pull: bool,
    /// Image volume that fails instead of the container's own image.
    pub(crate) failing_volume: Option<String>,
    pub(crate) start_failures: VecDeque<(StartFailureStage, &'static str)>,
    pub(crate) sandbox_failures: u32,
    pub(crate) volume_failures: u32,
    /// Resize decisions and actuation failures to return first.
    pub(crate) resize_decisions: VecDeque<ResizeDecision>,
    pub(crate) resize_failures: VecDeque<&'static str>,
    /// Number of probes and hooks that fail first.
    pub(crate) probe_failures: u32,
    pub(crate) hook_failures: u32,
    /// Scripted outcomes of probes and hooks; others succeed at once.
    pub(crate) probes: ProbeScripts,
    pub(crate) hooks: HookScripts,
    /// Containers that must not restart, and all that ran.
    pub(crate) never: BTreeSet<String>,
    ran: BTreeSet<String>,
    pub(super) pending: Vec<Pending>,
    /// Termination message of all containers.
    pub(crate) termination_message: String,
    pub(crate) rejection: Option<(&'static str, &'static str)>,
    /// Whether an exit is reported twice: as `Reaped`, then as `Exited`.
    pub(crate) reports_reaped: bool,
    /// Number of created objects by kind.
    made: BTreeMap<String, u32>,
}

impl Runtime {
    /// Creates an id that does not depend on objects of other kinds, which reduces the number of states.
    fn id(&mut self, kind: &str) -> String {
        let made = self.made.entry(kind.to_owned()).or_default();
        *made += 1;
        format!("{kind}.{made}")
    }

    pub(crate) fn any_running(&self) -> bool {
        self.containers.iter().any(|c| matches!(c.state, RuntimeContainerState::Running { .. }))
    }

    pub(crate) fn running(&self) -> usize {
        self.containers.iter().filter(|c| matches!(c.state, RuntimeContainerState::Running { .. })).count()
    }

    pub(crate) fn execute(&mut self, action: &Action, now: Timestamp) -> Vec<PodLifecycleEvent> {
        match action {
            Action::Admit => vec![PodLifecycleEvent::Admission(match self.rejection {
                None => Admission::Admitted,
                Some((reason, message)) => {
                    Admission::Rejected { reason: reason.to_owned(), message: message.to_owned() }
                }
            })],
            Action::MountVolumes if self.volume_failures > 0 => {
                self.volume_failures -= 1;
                vec![PodLifecycleEvent::Volumes(VolumeEvent::Failed {
                    messages: vec!["no such volume".to_owned(), "no such file".to_owned()],
                })]
            }
            Action::MountVolumes => vec![PodLifecycleEvent::Volumes(VolumeEvent::Mounted)],
            Action::UnmountVolumes => vec![PodLifecycleEvent::Volumes(VolumeEvent::Unmounted)],
            Action::CreateSandbox { attempt } => vec![PodLifecycleEvent::Sandbox(self.create_sandbox(*attempt))],
            Action::StopSandbox { id } => {
                let mut events = self.kill_all(id, now);
                self.sandboxes.iter_mut().filter(|s| s.id == *id).for_each(|s| s.ready = false);
                events.push(PodLifecycleEvent::Sandbox(SandboxEvent::Stopped { id: id.clone() }));
                events
            }
            Action::RemoveSandbox { id } => {
                self.sandboxes.retain(|s| s.id != *id);
                self.containers.retain(|c| c.sandbox != *id);
                vec![PodLifecycleEvent::Sandbox(SandboxEvent::Removed { id: id.clone() })]
            }
            Action::EnsureImage { container, image, pull } => {
                let event = self.ensure_image(*pull);
                let is_present = matches!(event, ImageEvent::Present { .. } | ImageEvent::Pulled { .. });
                let image = self.failing_volume.as_ref().filter(|_| !is_present).unwrap_or(image).clone();
                vec![PodLifecycleEvent::Image { container: container.clone(), image, event }]
            }
            Action::StartContainer { container, attempt, sandbox, .. } => {
                let events = self.start(container, *attempt, sandbox, now);
                events
                    .into_iter()
                    .map(|event| PodLifecycleEvent::Container { container: container.clone(), event })
                    .collect()
            }
            Action::StopContainer { container, id, grace, .. } => {
                self.stop(container, id, *grace, now);
                let known = self.containers.iter().any(|c| c.id == *id);
                let lost = ContainerEvent::Lost { id: id.clone() };
                let event =
                    (!known).then(|| PodLifecycleEvent::Container { container: container.clone(), event: lost });
                event.into_iter().collect()
            }
            Action::RemoveContainer { container, id } => {
                self.containers.retain(|c| c.id != *id);
                let event = ContainerEvent::Removed { id: id.clone() };
                vec![PodLifecycleEvent::Container { container: container.clone(), event }]
            }
            Action::Probe { container, id, probe, .. } => vec![self.probe(container, id, *probe, now)],
            Action::RunHook { id, hook, timeout, .. } => self.run_hook(action, id, *hook, *timeout, now),
            other => panic!("{other:?} is not executed by the runtime"),
        }
    }

    fn ensure_image(&mut self, pull: bool) -> ImageEvent {
        if self.requires_pull && !pull {
            return ImageEvent::MustPull;
        }
        let Some((reason, message)) = self.image_failures.front().copied() else {
            return ImageEvent::Present { image_ref: "sha".to_owned() };
        };
        let refused = ["ErrImageNeverPull", "InvalidImageName", "ImageInspectError"].contains(&reason);
        if !pull && !refused {
            return ImageEvent::MustPull;
        }
        self.image_failures.pop_front();
        match reason {
            _ if refused => ImageEvent::Failed { reason: reason.to_owned(), message: message.to_owned() },
            "ErrImagePull" => ImageEvent::PullFailed { error: message.to_owned() },
            named => ImageEvent::PullFailed { error: format!("{named}: {message}") },
        }
    }

    fn create_sandbox(&mut self, attempt: u32) -> SandboxEvent {
        if self.sandbox_failures > 0 {
            self.sandbox_failures -= 1;
            return SandboxEvent::Failed { message: "no network".to_owned() };
        }
        if self.sandboxes.iter().any(|s| s.attempt == attempt) {
            return SandboxEvent::Failed { message: "its name is taken".to_owned() };
        }
        assert!(!self.sandboxes.iter().any(|s| s.ready), "a second sandbox beside a ready one");
        let id = self.id("sandbox");
        self.sandboxes.push(FakeSandbox { id: id.clone(), attempt, ready: true });
        SandboxEvent::Ready { id, attempt, ips: vec!["10.0.0.2".parse().unwrap()] }
    }

    /// Starts a container as the kubelet does: an existing container of the attempt is adopted.
    fn start(&mut self, name: &str, attempt: u32, sandbox: &str, now: Timestamp) -> Vec<ContainerEvent> {
        let no_sandbox = (StartFailureStage::Create, "the sandbox is not there");
        let has_sandbox = self.sandboxes.iter().any(|s| s.id == *sandbox && s.ready);
        let failure = if has_sandbox { self.start_failures.pop_front() } else { Some(no_sandbox) };
        if let Some((stage @ (StartFailureStage::Config | StartFailureStage::Create), message)) = failure {
            return vec![ContainerEvent::StartFailed { stage, message: message.to_owned() }];
        }
        // Except a container whose start was aborted.
        let was_aborted =
            |c: &FakeContainer| matches!(&c.state, RuntimeContainerState::Exited(e) if e.started_at.is_none());
        self.containers.retain(|c| c.name != name || c.attempt != attempt || !was_aborted(c));
        let at = match self.containers.iter().position(|c| c.name == name && c.attempt == attempt) {
            Some(at) => at,
            None => self.create(name, attempt, sandbox),
        };
        let id = self.containers[at].id.clone();
        let created = ContainerEvent::Created {
            id: id.clone(),
            attempt,
            image: self.containers[at].runtime_image(),
            stop_signal: Some("SIGTERM".to_owned()),
        };
        if let Some((stage, message)) = failure {
            return vec![created, ContainerEvent::StartFailed { stage, message: message.to_owned() }];
        }
        if self.containers[at].state == RuntimeContainerState::Created {
            self.run(at, now);
        }
        if let RuntimeContainerState::Exited(exit) = &self.containers[at].state {
            return vec![created, ContainerEvent::Exited { id, exit: exit.clone() }];
        }
        vec![created, ContainerEvent::Started { id, at: now }]
    }

    pub(crate) fn create(&mut self, name: &str, attempt: u32, sandbox: &str) -> usize {
        let id = self.id(&format!("{name}.{attempt}"));
        let (name, sandbox) = (name.to_owned(), sandbox.to_owned());
        let image = self.images.get(&name).cloned();
        self.containers.push(FakeContainer {
            id,
            name,
            attempt,
            sandbox,
            image,
            state: RuntimeContainerState::Created,
            end: None,
        });
        self.containers.len() - 1
    }

    fn run(&mut self, at: usize, now: Timestamp) {
        let others = self
            .containers
            .iter()
            .filter(|c| matches!(c.state, RuntimeContainerState::Running { .. }))
            .map(|c| &c.name);
        assert!(!others.into_iter().any(|n| *n == self.containers[at].name), "two containers of one name run at once");
        let container = &mut self.containers[at];
        let runs = self.scripts.get(&container.name).map(Vec::as_slice).unwrap_or_default();
        let nth = usize::try_from(container.attempt).unwrap();
        let must_not_run = self.never.contains(&container.name) && self.ran.contains(&container.name);
        assert!(!must_not_run, "{} may not restart", container.name);
        self.ran.insert(container.name.clone());
        let run = runs.get(nth).or(runs.last()).copied().unwrap_or(Run::Forever);
        let after = |seconds| now + Duration::from_secs(seconds);
        let message = "failed to create containerd task".to_owned();
        let start_error =
            ContainerExit { code: 128, reason: "StartError".to_owned(), message, started_at: None, finished_at: now };
        container.end = match run {
            Run::Forever => None,
            Run::CannotStart => {
                container.state = RuntimeContainerState::Exited(start_error);
                return;
            }
            Run::Ends(seconds, 0) => Some((after(seconds), 0, "Completed")),
            Run::Ends(seconds, code) => Some((after(seconds), code, "Error")),
            Run::OutOfMemory(seconds) => Some((after(seconds), 137, "OOMKilled")),
        };
        container.state = RuntimeContainerState::Running { started_at: now };
    }

    fn stop(&mut self, name: &str, id: &str, grace: Duration, now: Timestamp) {
        let on_stop = self.on_stop.get(name).copied().unwrap_or(OnStop { after: Duration::ZERO, code: 143 });
        let end = if grace.is_zero() || on_stop.after > grace {
            (now + grace, 137, "Error")
        } else {
            (now + on_stop.after, on_stop.code, if on_stop.code == 0 { "Completed" } else { "Error" })
        };
        for c in self.containers.iter_mut().filter(|c| c.id == id) {
            if c.end.is_none_or(|known| end.0 < known.0) {
                c.end = Some(end);
            }
        }
    }

    fn kill_all(&mut self, sandbox: &str, now: Timestamp) -> Vec<PodLifecycleEvent> {
        for c in self.containers.iter_mut().filter(|c| c.sandbox == sandbox) {
            c.end = Some((now, 137, "Error"));
        }
        self.ends(now).into_iter().map(|(_, event)| event).collect()
    }

    pub(crate) fn next_end(&self) -> Option<Timestamp> {
        let running = self.containers.iter().filter(|c| matches!(c.state, RuntimeContainerState::Running { .. }));
        running.filter_map(|c| Some(c.end?.0)).chain(self.pending.iter().map(|p| p.at)).min()
    }

    /// Processes exits that are due. Returns events with the key prefixes of the actions that they complete.
    pub(crate) fn ends(&mut self, now: Timestamp) -> Vec<(String, PodLifecycleEvent)> {
        let mut events = self.finished_hooks(now);
        for c in &mut self.containers {
            let (RuntimeContainerState::Running { started_at }, Some((at, code, reason))) = (&c.state, c.end) else {
                continue;
            };
            if at > now {
                continue;
            }
            let exit = ContainerExit {
                code,
                reason: reason.to_owned(),
                message: self.termination_message.clone(),
                started_at: Some(*started_at),
                finished_at: at,
            };
            c.state = RuntimeContainerState::Exited(exit.clone());
            let early = ContainerEvent::Reaped { id: c.id.clone(), exit: exit.clone() };
            let event = ContainerEvent::Exited { id: c.id.clone(), exit };
            let all = self.reports_reaped.then_some(early).into_iter().chain([event]);
            events.extend(all.map(|event| {
                (format!("stop/{}/", c.id), PodLifecycleEvent::Container { container: c.name.clone(), event })
            }));
        }
        events
    }

    pub(crate) fn view(&self) -> RuntimePodState {
        RuntimePodState {
            sandboxes: self
                .sandboxes
                .iter()
                .map(|s| RuntimeSandbox {
                    id: s.id.clone(),
                    attempt: s.attempt,
                    ready: s.ready,
                    ips: if s.ready { vec!["10.0.0.2".parse().unwrap()] } else { Vec::new() },
                })
                .collect(),
            containers: self
                .containers
                .iter()
                .map(|c| RuntimeContainer {
                    id: c.id.clone(),
                    name: c.name.clone(),
                    attempt: c.attempt,
                    sandbox: c.sandbox.clone(),
                    image: c.runtime_image(),
                    state: c.state.clone(),
                })
                .collect(),
        }
    }
}
