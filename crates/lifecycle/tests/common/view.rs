//! Accessors that render the state of a [`Sim`] for test tables.

use super::Sim;
use k8s_openapi::api::core::v1::{ContainerState, ContainerStatus, PodStatus};
use lifecycle::{Action, status};

impl Sim {
    /// Returns the whole state, with its volatile part.
    pub(crate) fn state_json(&self) -> String {
        serde_json::to_string(&self.pod).unwrap()
    }

    pub(crate) fn status(&self) -> PodStatus {
        status(&self.pod, &self.policy, self.now)
    }

    pub(crate) fn phase(&self) -> String {
        self.status().phase.unwrap()
    }

    pub(crate) fn api_phase(&self) -> &str {
        self.api.status.as_ref().and_then(|s| s.phase.as_deref()).unwrap_or("")
    }

    pub(crate) fn container(&self, name: &str) -> ContainerStatus {
        let status = self.status();
        let lists = [status.init_container_statuses, status.container_statuses, status.ephemeral_container_statuses];
        lists.into_iter().flatten().flatten().find(|c| c.name == name).unwrap()
    }

    /// Returns for example `running`, `waiting CrashLoopBackOff` or `terminated Error 1`.
    pub(crate) fn state(&self, name: &str) -> String {
        state_text(self.container(name).state.as_ref())
    }

    pub(crate) fn last_state(&self, name: &str) -> String {
        state_text(self.container(name).last_state.as_ref())
    }

    pub(crate) fn restarts(&self, name: &str) -> i32 {
        self.container(name).restart_count
    }

    /// Returns for example `True`, or `False ContainersNotReady: containers with unready status: [c]`.
    pub(crate) fn condition(&self, kind: &str) -> String {
        let conditions = self.status().conditions.unwrap();
        let Some(c) = conditions.iter().find(|c| c.type_ == kind) else { return "none".to_owned() };
        let reason = c.reason.as_ref().map_or_else(String::new, |r| format!(" {r}"));
        let message = c.message.as_ref().map_or_else(String::new, |m| format!(": {m}"));
        format!("{}{reason}{message}", c.status)
    }

    /// Returns the start times of a container, in seconds.
    pub(crate) fn starts(&self, name: &str) -> Vec<u64> {
        let started = |a: &Action| matches!(a, Action::StartContainer { container, .. } if container == name);
        self.log.iter().filter(|(_, a)| started(a)).map(|(at, _)| *at).collect()
    }

    /// Returns the times of an action, in seconds; named as in [`Self::done`].
    pub(crate) fn times(&self, action: &str) -> Vec<u64> {
        self.log.iter().filter(|(_, a)| action_text(a) == action).map(|(at, _)| *at).collect()
    }

    /// Returns the actions started from this second on, except probes.
    pub(crate) fn done_since(&self, second: u64) -> Vec<String> {
        let actions = self.log.iter().filter(|(at, a)| *at >= second && !matches!(a, Action::Probe { .. }));
        actions.map(|(at, a)| format!("{at} {}", action_text(a))).collect()
    }

    /// Returns all started actions with their times.
    pub(crate) fn done(&self) -> Vec<String> {
        self.log.iter().map(|(at, a)| format!("{at} {}", action_text(a))).collect()
    }

    /// Returns the reasons of the recorded Events.
    pub(crate) fn event_reasons(&self) -> Vec<&str> {
        self.events.iter().map(|e| e.reason.as_str()).collect()
    }

    pub(crate) fn message_of(&self, reason: &str) -> &str {
        self.events.iter().find(|e| e.reason == reason).map_or("", |e| e.message.as_str())
    }
}

pub(super) fn state_text(state: Option<&ContainerState>) -> String {
    let Some(state) = state else { return "none".to_owned() };
    if let Some(t) = &state.terminated {
        format!("terminated {} {}", t.reason.as_deref().unwrap_or("-"), t.exit_code)
    } else if let Some(w) = &state.waiting {
        format!("waiting {}", w.reason.as_deref().unwrap_or("-"))
    } else if state.running.is_some() {
        "running".to_owned()
    } else {
        "none".to_owned()
    }
}

fn action_text(action: &Action) -> String {
    match action {
        Action::StartContainer { container, attempt, .. } => format!("start {container} {attempt}"),
        Action::StopContainer { container, grace, .. } => format!("stop {container} {}s", grace.as_secs()),
        Action::RemoveContainer { container, .. } => format!("remove {container}"),
        Action::EnsureImage { container, pull, .. } => {
            format!("{} {container}", if *pull { "image" } else { "look for" })
        }
        Action::CreateSandbox { attempt } => format!("create sandbox {attempt}"),
        Action::StopSandbox { .. } => "stop sandbox".to_owned(),
        Action::RemoveSandbox { .. } => "remove sandbox".to_owned(),
        Action::MountVolumes => "mount".to_owned(),
        Action::UnmountVolumes => "unmount".to_owned(),
        Action::Admit => "admit".to_owned(),
        Action::DeleteFromApi => "delete".to_owned(),
        Action::Forget => "forget".to_owned(),
        Action::Probe { container, probe, .. } => format!("{probe:?} {container}"),
        Action::RunHook { container, hook, timeout, .. } => {
            let limit = timeout.map_or_else(String::new, |t| format!(" {}s", t.as_secs()));
            format!("{hook:?} {container}{limit}")
        }
        other => format!("{other:?}"),
    }
}
