//! Invariants, checked after each event.

use super::{Sim, view::state_text};
use api::pod::ContainerKind;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ContainerState, PodStatus};
use lifecycle::{
    Action, ContainerEvent, ContainerExit, Hook, HookOutcome, PodLifecycleEvent, ProbeKind, ProbeOutcome,
    RuntimeContainerState, plan,
};
use std::time::Duration;

impl Sim {
    /// Records the state for the checks, independently of the state machine.
    pub(super) fn record_event(&mut self, event: &PodLifecycleEvent) {
        let grace = |seconds: i64| self.now + Duration::from_secs(seconds.max(1).try_into().unwrap());
        let grace_period = self.api.spec.as_ref().unwrap().termination_grace_period_seconds.unwrap_or(30);
        let until = match event {
            PodLifecycleEvent::Removed => Some(grace(2)),
            PodLifecycleEvent::Updated(o) if o.metadata.deletion_timestamp.is_some() => {
                Some(grace(o.metadata.deletion_grace_period_seconds.unwrap_or(0)))
            }
            PodLifecycleEvent::Evicted(e) => Some(grace(e.grace_seconds.map_or(grace_period, i64::from))),
            _ => None,
        };
        self.deadline = self.deadline.into_iter().chain(until).min();
        let mut ended = |id: &str, code: i32| {
            if let Some(c) = self.runtime.containers.iter().find(|c| c.id == id) {
                let (attempt, known) = (i32::try_from(c.attempt).unwrap(), self.exits.get(&c.name));
                if known.is_none_or(|(newest, _)| *newest < attempt) {
                    self.exits.insert(c.name.clone(), (attempt, code));
                }
            }
        };
        match event {
            PodLifecycleEvent::Probed { id, probe, outcome } => {
                let streak = self.failures.entry((id.clone(), *probe)).or_default();
                match outcome {
                    ProbeOutcome::Failure(_) => *streak += 1,
                    ProbeOutcome::Success | ProbeOutcome::Warning(_) => *streak = 0,
                    ProbeOutcome::Unknown(_) => {}
                }
            }
            PodLifecycleEvent::HookDone { hook: Hook::PostStart, outcome, .. } => {
                self.hook_failed |= *outcome != HookOutcome::Done;
            }
            PodLifecycleEvent::Container { event: ContainerEvent::Reaped { id, exit }, .. }
                if self.pod.running_since(id).is_some() =>
            {
                ended(id, exit.code);
                self.cleaning_up.insert(id.clone());
            }
            PodLifecycleEvent::Container { event: ContainerEvent::Exited { id, exit }, .. } => {
                ended(id, exit.code);
                self.cleaning_up.remove(id);
            }
            PodLifecycleEvent::Container { event: ContainerEvent::Lost { id }, .. } => {
                self.cleaning_up.remove(id);
            }
            PodLifecycleEvent::Relisted(view) => {
                self.cleaning_up.clear();
                for c in &view.containers {
                    // A container that never ran may be left from an interrupted start.
                    if let RuntimeContainerState::Exited(exit @ ContainerExit { started_at: Some(_), .. }) = &c.state {
                        ended(&c.id, exit.code);
                    }
                }
            }
            _ => {}
        }
    }

    /// The newest exit is in the status until the next but one container is created.
    fn check_exits(&self, status: &PodStatus) {
        let lists = [&status.init_container_statuses, &status.container_statuses, &status.ephemeral_container_statuses];
        for c in lists.into_iter().flatten().flatten() {
            let Some((attempt, code)) = self.exits.get(&c.name) else { continue };
            let code_of =
                |s: &Option<ContainerState>| s.as_ref().and_then(|s| s.terminated.as_ref()).map(|t| t.exit_code);
            let (state, last) = (code_of(&c.state), code_of(&c.last_state));
            match c.restart_count - attempt {
                0 => assert!(
                    state == Some(*code) || last == Some(*code),
                    "{}: {code} was lost: {state:?} {last:?}",
                    c.name
                ),
                // The next container may be lost and wait for its restart.
                1 if state_text(c.last_state.as_ref()) == "terminated ContainerStatusUnknown 137" => {}
                1 => assert_eq!(last, Some(*code), "{}: the last state is lost", c.name),
                _ => {}
            }
        }
    }

    /// The API server rejects the removal of a final container exit (`ValidateContainerStateTransition`).
    pub(super) fn check_transitions(&self, status: &PodStatus) {
        let spec = self.api.spec.as_ref().unwrap();
        let before = self.api.status.clone().unwrap_or_default();
        let lists = |s: PodStatus| [s.init_container_statuses, s.container_statuses].into_iter().flatten().flatten();
        let policy = spec.restart_policy.as_deref().unwrap_or("Always");
        let has_own =
            |name: &str| api::pod::containers(spec).any(|(_, c)| c.name == name && c.restart_policy.is_some());
        let mut rules = api::pod::containers(spec).flat_map(|(_, c)| c.restart_policy_rules.iter().flatten());
        if policy == "Always" || rules.any(|rule| rule.action == "RestartAllContainers") {
            return;
        }
        for last in lists(before) {
            let Some(end) = last.state.and_then(|s| s.terminated) else { continue };
            if policy == "OnFailure" && end.exit_code != 0 || has_own(&last.name) {
                continue;
            }
            let now = lists(status.clone()).find(|c| c.name == last.name).and_then(|c| c.state);
            assert!(now.is_none_or(|s| s.terminated.is_some()), "{}: the final exit was removed", last.name);
        }
    }

    /// No grace period exceeds the deadline, except for the runtime's minimum of 2 s.
    fn check_grace(&self, action: &Action) {
        let Some(deadline) = self.deadline else { return };
        match action {
            Action::StopContainer { grace, .. } => {
                let latest = deadline.max(self.now + Duration::from_secs(2));
                assert!(self.now + *grace <= latest, "{grace:?} is too long");
            }
            Action::RunHook { hook: Hook::PreStop, timeout, .. } => {
                assert!(timeout.is_some_and(|limit| self.now + limit <= deadline), "a hook outlives the grace period");
            }
            _ => {}
        }
    }

    /// No action interferes with the runtime's cleanup after a process.
    fn check_cleanup(&self, action: &Action) {
        let cleaning_up = |name: &str| {
            let id = self.pod.container_id(name, false).map(|(id, _)| id);
            id.is_some_and(|id| self.cleaning_up.contains(&id))
        };
        match action {
            Action::StartContainer { container, .. } | Action::EnsureImage { container, .. } => {
                assert!(!cleaning_up(container), "{container} is started before the runtime finished its cleanup");
            }
            Action::RemoveContainer { id, .. } => assert!(!self.cleaning_up.contains(id), "{id} is removed too early"),
            Action::CreateSandbox { .. }
            | Action::StopSandbox { .. }
            | Action::RemoveSandbox { .. }
            | Action::UnmountVolumes
            | Action::DeleteFromApi
            | Action::Forget => assert!(self.cleaning_up.is_empty(), "{action:?} too early: {:?}", self.cleaning_up),
            _ => {}
        }
    }

    /// Nothing runs more than two seconds after the grace period, however long hooks take.
    pub(super) fn check_termination_deadline(&self) {
        if let Some(deadline) = self.deadline.filter(|_| !self.kubelet_was_restarted) {
            let late = self.now > deadline + Duration::from_secs(2) && self.runtime.any_running();
            assert!(!late, "a container still runs");
        }
    }

    /// A kubelet runs a hook of a container once.
    pub(super) fn check_hook(&mut self, action: &Action) {
        if matches!(action, Action::RunHook { .. }) {
            assert!(self.hooks.insert(action.key()), "{action:?} for the second time");
        }
    }

    /// A container that is stopped without another reason failed a probe as often, and ran as long, as its spec
    /// requires.
    fn check_kill_cause(&self, action: &Action) {
        let (Action::StopContainer { container, id, .. } | Action::RunHook { container, id, hook: Hook::PreStop, .. }) =
            action
        else {
            return;
        };
        let spec = self.api.spec.as_ref().unwrap();
        let app = spec.containers.iter().find(|c| c.name == *container);
        let has_sandbox = self.runtime.sandboxes.iter().any(|s| s.ready);
        let mut all = spec.containers.iter().chain(spec.init_containers.iter().flatten());
        let restarts_all = all.any(|c| c.restart_policy_rules.is_some());
        let other = self.stopping
            || self.hook_failed
            || self.expects_spec_kills
            || self.resized
            || restarts_all
            || self.terminal.is_some()
            || !has_sandbox;
        let (Some(app), Some(since)) = (app, self.since(id)) else { return };
        if other || spec.active_deadline_seconds.is_some() {
            return;
        }
        let failed = |kind, probe: &Option<k8s_openapi::api::core::v1::Probe>| {
            probe.as_ref().is_some_and(|p| {
                let number = |n: Option<i32>, default: u32| n.map_or(default, |n| n.try_into().unwrap());
                let (delay, period) = (number(p.initial_delay_seconds, 0), number(p.period_seconds, 10));
                let threshold = number(p.failure_threshold, 3);
                let minimum_age = Duration::from_secs(u64::from(delay + threshold * period));
                let streak = self.failures.get(&(id.clone(), kind)).copied().unwrap_or(0);
                streak >= threshold && self.now >= since + minimum_age
            })
        };
        let killed = failed(ProbeKind::Startup, &app.startup_probe) || failed(ProbeKind::Liveness, &app.liveness_probe);
        assert!(killed, "{container} is stopped too early: {:?}", self.failures);
    }

    fn since(&self, id: &str) -> Option<Timestamp> {
        self.runtime.containers.iter().find(|c| c.id == id).and_then(|c| match &c.state {
            RuntimeContainerState::Running { started_at } => Some(*started_at),
            RuntimeContainerState::Exited(exit) => exit.started_at,
            _ => None,
        })
    }

    /// An ephemeral container is started once.
    fn check_ephemeral(&self, action: &Action) {
        let Action::StartContainer { container, attempt, .. } = action else { return };
        let ephemeral =
            api::pod::ephemeral_containers(self.api.spec.as_ref().unwrap()).iter().any(|c| c.name == *container);
        let is_terminated = || self.state(container).starts_with("terminated");
        assert!(!ephemeral || *attempt == 0 && !is_terminated(), "{container} is started again");
    }

    /// Sidecars stop last, in reverse order, until the deadline.
    fn check_order(&self, action: &Action) {
        let Action::StopContainer { container, deadline, .. } = action else { return };
        let all: Vec<_> = api::pod::containers(self.api.spec.as_ref().unwrap()).collect();
        let mut apps = all.iter().filter(|(kind, _)| *kind == ContainerKind::App);
        // A resize before the start may cause a restart, too.
        let is_waiting = |name: &str| self.resized && self.state(name).starts_with("waiting");
        if apps.any(|(_, c)| self.pod.is_running(&c.name) || is_waiting(&c.name)) && !self.stopping {
            // Stopped by a probe, a hook or a change, to be restarted.
            return;
        }
        let sidecar = all.iter().position(|(kind, c)| *kind == ContainerKind::Sidecar && c.name == *container);
        if let Some(at) = sidecar.filter(|_| *deadline > self.now) {
            let later = all[at + 1..].iter().filter(|(kind, _)| *kind != ContainerKind::Init);
            for (_, c) in later {
                assert!(!self.pod.is_running(&c.name), "{container} ends before {}", c.name);
            }
        }
    }

    pub(super) fn check(&mut self) {
        let (first, second) = (plan(&self.pod, &self.policy, self.now), plan(&self.pod, &self.policy, self.now));
        assert_eq!(first, second, "the same events give the same plan");
        assert!(first.wake.is_none_or(|wake| wake > self.now), "a wake-up is in the past: {:?}", first.wake);
        let status = self.status();
        let phase = status.phase.clone().unwrap();
        if let Some(terminal) = &self.terminal {
            assert_eq!(*terminal, (phase, status.reason.clone()), "a terminal phase never changes");
        } else if phase == "Succeeded" || phase == "Failed" {
            assert!(!self.runtime.any_running(), "{phase} while a container runs");
            self.terminal = Some((phase, status.reason.clone()));
        }
        self.check_exits(&status);
        for action in first.actions {
            self.check_grace(&action);
            self.check_order(&action);
            self.check_cleanup(&action);
            self.check_kill_cause(&action);
            let starts = matches!(action, Action::StartContainer { .. } | Action::CreateSandbox { .. });
            assert!(!starts || !self.stopping && self.terminal.is_none(), "{action:?} after the end");
            self.check_ephemeral(&action);
        }
    }
}
