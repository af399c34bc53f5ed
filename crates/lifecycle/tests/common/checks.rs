//! What must hold for every Pod at every moment, checked after each fact.

use super::{Sim, view::words};
use api::pod::ContainerKind;
use k8s_openapi::api::core::v1::{ContainerState, PodStatus};
use lifecycle::{Action, ContainerExit, ContainerFact, ContainerViewState, Event, plan};
use std::time::Duration;

impl Sim {
    /// Keeps what the checks need, apart from what the state machine makes of it.
    pub(super) fn note(&mut self, event: &Event) {
        let grace = |seconds: i64| self.now + Duration::from_secs(seconds.max(1).try_into().unwrap());
        let own = self.api.spec.as_ref().unwrap().termination_grace_period_seconds.unwrap_or(30);
        let until = match event {
            Event::Gone => Some(grace(2)),
            Event::Updated(o) if o.metadata.deletion_timestamp.is_some() => {
                Some(grace(o.metadata.deletion_grace_period_seconds.unwrap_or(0)))
            }
            Event::Evicted(e) => Some(grace(e.grace_seconds.map_or(own, i64::from))),
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
            Event::Container { fact: ContainerFact::Exited { id, exit }, .. } => ended(id, exit.code),
            Event::Relisted(view) => {
                for c in &view.containers {
                    // One that never began may be the remains of a start that was cut off.
                    if let ContainerViewState::Exited(exit @ ContainerExit { started_at: Some(_), .. }) = &c.state {
                        ended(&c.id, exit.code);
                    }
                }
            }
            _ => {}
        }
    }

    /// The newest exit is shown until the one after the next was made.
    fn check_exits(&self, shown: &PodStatus) {
        let all = shown.init_container_statuses.iter().chain(&shown.container_statuses).flatten();
        for c in all {
            let Some((attempt, code)) = self.exits.get(&c.name) else { continue };
            let code_of =
                |s: &Option<ContainerState>| s.as_ref().and_then(|s| s.terminated.as_ref()).map(|t| t.exit_code);
            let (state, last) = (code_of(&c.state), code_of(&c.last_state));
            match c.restart_count - attempt {
                0 => assert!(
                    state == Some(*code) || last == Some(*code),
                    "{}: {code} is lost: {state:?} {last:?}",
                    c.name
                ),
                // The one after it may have been lost by the runtime, and wait to be started again.
                1 if words(c.last_state.as_ref()) == "terminated ContainerStatusUnknown 137" => {}
                1 => assert_eq!(last, Some(*code), "{}: the last state is lost", c.name),
                _ => {}
            }
        }
    }

    /// What has to be gone by then is given no longer, but for the runtime's floor of 2 s.
    fn check_grace(&self, action: &Action) {
        if let (Action::StopContainer { grace, .. }, Some(deadline)) = (action, self.deadline) {
            let latest = deadline.max(self.now + Duration::from_secs(2));
            assert!(self.now + *grace <= latest, "{grace:?} is too long");
        }
    }

    /// Sidecars end last, in reverse order, as long as there is time.
    fn check_order(&self, action: &Action) {
        let Action::StopContainer { container, deadline, .. } = action else { return };
        let all: Vec<_> = api::pod::containers(self.api.spec.as_ref().unwrap()).collect();
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
        assert_eq!(first, second, "the same facts give the same plan");
        assert!(first.wake.is_none_or(|wake| wake > self.now), "a wake-up lies in the past: {:?}", first.wake);
        let shown = self.status();
        let phase = shown.phase.clone().unwrap();
        if let Some(terminal) = &self.terminal {
            assert_eq!(*terminal, (phase, shown.reason.clone()), "a terminal phase never changes");
        } else if phase == "Succeeded" || phase == "Failed" {
            assert!(!self.runtime.any_running(), "{phase} while something runs");
            self.terminal = Some((phase, shown.reason.clone()));
        }
        self.check_exits(&shown);
        for action in first.actions {
            self.check_grace(&action);
            self.check_order(&action);
            let starts = matches!(action, Action::StartContainer { .. } | Action::CreateSandbox { .. });
            assert!(!starts || !self.stopping && self.terminal.is_none(), "{action:?} after the end");
        }
    }
}
