//! Container restart decisions (`ContainerShouldRestart`).

use crate::{Pod, container_kill::KillCause};
use api::{
    feature_gates::{FeatureGates, Gate},
    pod::{ContainerKind, containers},
};
use k8s_openapi::api::core::v1::{Container as Spec, ContainerRestartRule, PodSpec};
use serde::{Deserialize, Serialize};

const RESTART_ALL: &str = "RestartAllContainers";

/// Feature gates that affect restarts. They are stored with the Pod's state, because its phase depends on them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RestartFeatures {
    /// `ContainerRestartRules`: container-level restart policy and rules (KEP-5307).
    pub(crate) rules: bool,
    /// `RestartAllContainersOnContainerExits`: the rule action `RestartAllContainers` (KEP-5532).
    pub(crate) all: bool,
}

impl From<&FeatureGates> for RestartFeatures {
    fn from(gates: &FeatureGates) -> Self {
        Self {
            rules: gates.enabled(Gate::ContainerRestartRules),
            all: gates.enabled(Gate::RestartAllContainersOnContainerExits),
        }
    }
}

impl Default for RestartFeatures {
    fn default() -> Self {
        Self::from(&FeatureGates::default())
    }
}

/// Action of the first matching restart rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RuleAction {
    Restart,
    RestartAllContainers,
}

impl RestartFeatures {
    /// Returns the action of the first rule that matches the exit code. Rules require a container-level policy. `None`
    /// if no rule matches, or the feature gate of its action is off; the restart policy applies then.
    pub(crate) fn rule(self, spec: &Spec, code: i32) -> Option<RuleAction> {
        let rules = spec.restart_policy_rules.as_deref().filter(|_| self.rules && spec.restart_policy.is_some())?;
        match rules.iter().find(|rule| matches(rule, code))?.action.as_str() {
            "Restart" => Some(RuleAction::Restart),
            RESTART_ALL if self.all => Some(RuleAction::RestartAllContainers),
            _ => None,
        }
    }

    /// Returns the effective restart policy of a container: its own, if allowed, else that of its Pod.
    fn policy<'a>(self, pod: &'a Pod, kind: ContainerKind, spec: &'a Spec) -> &'a str {
        let policy = spec.restart_policy.as_deref().filter(|_| self.rules || kind == ContainerKind::Sidecar);
        policy.or(pod.spec().restart_policy.as_deref()).unwrap_or("Always")
    }
}

/// Returns whether a container of the Pod has a rule with the action `RestartAllContainers`.
pub(crate) fn may_restart_all(spec: &PodSpec) -> bool {
    let rules = containers(spec).flat_map(|(_, c)| c.restart_policy_rules.iter().flatten());
    rules.into_iter().any(|rule| rule.action == RESTART_ALL)
}

fn matches(rule: &ContainerRestartRule, code: i32) -> bool {
    let Some(codes) = &rule.exit_codes else { return false };
    let listed = codes.values.iter().flatten().any(|v| *v == code);
    match codes.operator.as_str() {
        "In" => listed,
        "NotIn" => !listed,
        _ => false,
    }
}

impl Pod {
    /// Returns whether the restart policy restarts a failed container, whatever its exit code.
    pub(crate) fn restarts_on_failure(&self, kind: ContainerKind, spec: &Spec) -> bool {
        self.features.policy(self, kind, spec) != "Never"
    }

    /// Returns whether a terminated container is restarted. An init container that succeeded and an ephemeral container
    /// never are; else its rules, its own policy, and the Pod's policy decide.
    pub(crate) fn restarts(&self, kind: ContainerKind, spec: &Spec, code: i32) -> bool {
        if kind == ContainerKind::Ephemeral {
            return false;
        }
        match self.container(&spec.name).current.as_ref().and_then(|i| i.kill).map(|kill| kill.cause) {
            // Replaced whatever the policy is (`computePodActions`).
            Some(KillCause::Definition | KillCause::Resize | KillCause::RestartAll { .. }) => true,
            Some(KillCause::Probe(_) | KillCause::Sandbox) => {
                self.restarts_on_failure(kind, spec) || self.features.rule(spec, code).is_some()
            }
            Some(KillCause::PostStart) | None => self.restarts_after(kind, spec, code),
        }
    }

    /// Returns whether a container that exited by itself with this code is restarted.
    pub(crate) fn restarts_after(&self, kind: ContainerKind, spec: &Spec, code: i32) -> bool {
        if kind == ContainerKind::Init && code == 0 {
            return false;
        }
        self.features.rule(spec, code).is_some()
            || match self.features.policy(self, kind, spec) {
                "Never" => false,
                "OnFailure" => code != 0,
                _ => true,
            }
    }
}
