//! Whether a container that ended is started again (`ContainerShouldRestart`).

use crate::{Pod, container_kill::KillCause};
use api::{
    feature_gates::{FeatureGates, Gate},
    pod::{ContainerKind, containers},
};
use k8s_openapi::api::core::v1::{Container as Spec, ContainerRestartRule, PodSpec};
use serde::{Deserialize, Serialize};

const RESTART_ALL: &str = "RestartAllContainers";

/// The features of the node that have a say in it. They are kept with what is known of the Pod, for its phase depends on
/// them as much as on its facts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RestartFeatures {
    /// `ContainerRestartRules`: containers have a policy of their own, and rules (KEP-5307).
    pub(crate) rules: bool,
    /// `RestartAllContainersOnContainerExits`: a rule may restart all containers (KEP-5532).
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

/// What the first rule that matches asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RuleAction {
    Restart,
    RestartAllContainers,
}

impl RestartFeatures {
    /// What the rules of a container say of this exit code; rules count beside a policy of the container only. An action
    /// whose feature is off leaves it to the policy.
    pub(crate) fn rule(self, spec: &Spec, code: i32) -> Option<RuleAction> {
        let rules = spec.restart_policy_rules.as_deref().filter(|_| self.rules && spec.restart_policy.is_some())?;
        match rules.iter().find(|rule| matches(rule, code))?.action.as_str() {
            "Restart" => Some(RuleAction::Restart),
            RESTART_ALL if self.all => Some(RuleAction::RestartAllContainers),
            _ => None,
        }
    }

    /// The policy that holds for a container: its own, where it may have one, else that of its Pod.
    fn policy<'a>(self, pod: &'a Pod, kind: ContainerKind, spec: &'a Spec) -> &'a str {
        let own = spec.restart_policy.as_deref().filter(|_| self.rules || kind == ContainerKind::Sidecar);
        own.or(pod.spec().restart_policy.as_deref()).unwrap_or("Always")
    }
}

/// Whether an exit of one of its containers may restart all of them.
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
    /// Whether a container that failed will be started again, whatever its exit code: its policy says so.
    pub(crate) fn restarts_on_failure(&self, kind: ContainerKind, spec: &Spec) -> bool {
        self.features.policy(self, kind, spec) != "Never"
    }

    /// Whether a container that has ended with this code will be started again: a plain init container that succeeded is
    /// done, and an ephemeral one is never started again; then its own rules, its own policy, and the Pod's.
    pub(crate) fn restarts(&self, kind: ContainerKind, spec: &Spec, code: i32) -> bool {
        if kind == ContainerKind::Ephemeral {
            return false;
        }
        match self.container(&spec.name).current.as_ref().and_then(|i| i.kill).map(|kill| kill.cause) {
            // Another takes its place, whatever the policy (`computePodActions`).
            Some(KillCause::Definition | KillCause::Resize | KillCause::RestartAll { .. }) => true,
            Some(KillCause::Probe(_) | KillCause::Sandbox) => {
                self.restarts_on_failure(kind, spec) || self.features.rule(spec, code).is_some()
            }
            Some(KillCause::PostStart) | None => self.restarts_after(kind, spec, code),
        }
    }

    /// The same, if it ended of its own accord.
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
