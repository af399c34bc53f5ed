//! Scripted probes and hooks.

use super::{Runtime, runtime::CompletedActions};
use jiff::Timestamp;
use lifecycle::{
    Action, ActionKey, Hook, HookOutcome, PodLifecycleEvent, ProbeKind, ProbeOutcome, RuntimeContainerState,
};
use std::{collections::BTreeMap, time::Duration};

/// Outcomes by container and probe, each from a second of the container's life on.
pub(crate) type ProbeScripts = BTreeMap<(String, ProbeKind), Vec<(u64, ProbeOutcome)>>;
/// Duration in seconds and outcome, by container and hook.
pub(crate) type HookScripts = BTreeMap<(String, Hook), (u64, HookOutcome)>;

/// A hook in progress.
#[derive(Clone)]
pub(crate) struct Pending {
    pub(crate) at: Timestamp,
    pub(crate) key: ActionKey,
    pub(crate) event: PodLifecycleEvent,
}

pub(crate) fn refused() -> ProbeOutcome {
    ProbeOutcome::Failure("HTTP probe failed with statuscode: 500".to_owned())
}

impl Runtime {
    pub(super) fn probe(&mut self, name: &str, id: &str, probe: ProbeKind, now: Timestamp) -> PodLifecycleEvent {
        let started = self.containers.iter().find(|c| c.id == id).and_then(|c| match &c.state {
            RuntimeContainerState::Running { started_at } => Some(*started_at),
            _ => None,
        });
        let scripted = |since: Timestamp| {
            let age = Duration::try_from(now.duration_since(since)).unwrap().as_secs();
            let script = self.probes.get(&(name.to_owned(), probe))?;
            script.iter().rev().find(|(from, _)| *from <= age).map(|(_, outcome)| outcome.clone())
        };
        let outcome = match started {
            // The container does not run.
            None => refused(),
            Some(since) => scripted(since).unwrap_or(ProbeOutcome::Success),
        };
        let outcome = if self.probe_failures > 0 { refused() } else { outcome };
        self.probe_failures = self.probe_failures.saturating_sub(1);
        PodLifecycleEvent::Probed { id: id.to_owned(), probe, outcome }
    }

    pub(super) fn run_hook(
        &mut self,
        action: &Action,
        id: &str,
        hook: Hook,
        timeout: Option<Duration>,
        now: Timestamp,
    ) -> Vec<PodLifecycleEvent> {
        let Action::RunHook { container, .. } = action else { return Vec::new() };
        let (seconds, mut outcome) =
            self.hooks.get(&(container.clone(), hook)).cloned().unwrap_or((0, HookOutcome::Done));
        let mut duration = Duration::from_secs(seconds);
        if let Some(limit) = timeout.filter(|limit| *limit < duration) {
            (duration, outcome) = (limit, HookOutcome::TimedOut);
        }
        if self.hook_failures > 0 {
            self.hook_failures -= 1;
            outcome = HookOutcome::Failed("secret".to_owned());
        }
        let event = PodLifecycleEvent::HookDone { id: id.to_owned(), hook, outcome };
        if duration.is_zero() {
            return vec![event];
        }
        self.pending.push(Pending { at: now + duration, key: action.key(), event });
        Vec::new()
    }

    pub(super) fn finished_hooks(&mut self, now: Timestamp) -> Vec<(CompletedActions, PodLifecycleEvent)> {
        let (finished, pending) = std::mem::take(&mut self.pending).into_iter().partition(|p| p.at <= now);
        self.pending = pending;
        let finished: Vec<Pending> = finished;
        finished.into_iter().map(|p| (CompletedActions::One(p.key), p.event)).collect()
    }

    pub(crate) fn is_pending(&self, action: &Action) -> bool {
        self.pending.iter().any(|p| p.key == action.key())
    }
}
