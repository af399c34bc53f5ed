//! Feature gates, with the defaults of Kubernetes 1.35 (LIFECYCLE.md 3.1).

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A feature that can be switched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Gate {
    /// KEP-753.
    SidecarContainers,
    /// KEP-3960.
    PodLifecycleSleepAction,
    /// KEP-4818.
    PodLifecycleSleepActionAllowZero,
    /// KEP-5307.
    ContainerRestartRules,
    /// KEP-5532.
    RestartAllContainersOnContainerExits,
    /// KEP-4960.
    ContainerStopSignals,
    /// KEP-5593.
    KubeletCrashLoopBackOffMax,
    /// KEP-4603.
    ReduceDefaultCrashLoopBackOffDecay,
    /// KEP-1287.
    InPlacePodVerticalScaling,
    /// KEP-5067.
    PodObservedGenerationTracking,
    /// KEP-3085.
    PodReadyToStartContainersCondition,
    /// KEP-4781.
    ChangeContainerStatusOnKubeletRestart,
    /// Exec probes obey `timeoutSeconds`.
    ExecProbeTimeout,
    /// KEP-2837.
    PodLevelResources,
    /// KEP-4639.
    ImageVolume,
    /// KEP-2000 and KEP-5329 family: graceful shutdown of the node.
    GracefulNodeShutdown,
    /// KEP-2712: its grace by priority.
    GracefulNodeShutdownBasedOnPodPriority,
    /// Static Pods may not refer to objects of the API.
    PreventStaticPodAPIReferences,
}

/// A gate's name, default, and whether it is locked to it.
struct GateInfo {
    gate: Gate,
    name: &'static str,
    default: bool,
    locked: bool,
}

const fn gate(gate: Gate, name: &'static str, default: bool, locked: bool) -> GateInfo {
    GateInfo { gate, name, default, locked }
}

const GATES: &[GateInfo] = &[
    gate(Gate::SidecarContainers, "SidecarContainers", true, true),
    gate(Gate::PodLifecycleSleepAction, "PodLifecycleSleepAction", true, true),
    gate(Gate::PodLifecycleSleepActionAllowZero, "PodLifecycleSleepActionAllowZero", true, true),
    gate(Gate::ContainerRestartRules, "ContainerRestartRules", true, false),
    gate(Gate::RestartAllContainersOnContainerExits, "RestartAllContainersOnContainerExits", false, false),
    gate(Gate::ContainerStopSignals, "ContainerStopSignals", false, false),
    gate(Gate::KubeletCrashLoopBackOffMax, "KubeletCrashLoopBackOffMax", true, false),
    gate(Gate::ReduceDefaultCrashLoopBackOffDecay, "ReduceDefaultCrashLoopBackOffDecay", false, false),
    gate(Gate::InPlacePodVerticalScaling, "InPlacePodVerticalScaling", true, true),
    gate(Gate::PodObservedGenerationTracking, "PodObservedGenerationTracking", true, true),
    gate(Gate::PodReadyToStartContainersCondition, "PodReadyToStartContainersCondition", true, false),
    gate(Gate::ChangeContainerStatusOnKubeletRestart, "ChangeContainerStatusOnKubeletRestart", false, false),
    gate(Gate::ExecProbeTimeout, "ExecProbeTimeout", true, true),
    gate(Gate::PodLevelResources, "PodLevelResources", true, false),
    gate(Gate::ImageVolume, "ImageVolume", true, false),
    gate(Gate::GracefulNodeShutdown, "GracefulNodeShutdown", true, false),
    gate(Gate::GracefulNodeShutdownBasedOnPodPriority, "GracefulNodeShutdownBasedOnPodPriority", true, false),
    gate(Gate::PreventStaticPodAPIReferences, "PreventStaticPodAPIReferences", true, false),
];

/// Why gates cannot be set so; upstream's words (`k8s.io/component-base/featuregate`).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GateError {
    /// No such gate.
    #[error("unrecognized feature gate: {0}")]
    Unknown(String),
    /// No `=`.
    #[error("missing bool value for {0}")]
    MissingValue(String),
    /// Neither true nor false.
    #[error("invalid value of {name}: {value}, err: expected true or false")]
    InvalidValue {
        /// The gate.
        name: String,
        /// What was given.
        value: String,
    },
    /// The gate cannot be switched any more.
    #[error("cannot set feature gate {name} to {value}, feature is locked to {locked}")]
    Locked {
        /// The gate.
        name: String,
        /// What was asked.
        value: bool,
        /// What it is.
        locked: bool,
    },
}

/// Which features are on.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct FeatureGates {
    set: BTreeMap<Gate, bool>,
}

impl FeatureGates {
    /// Reads `A=true,B=false`.
    ///
    /// # Errors
    /// For an unknown gate, a locked one, or a value that is no bool; nothing is set then.
    pub fn parse(s: &str) -> Result<Self, GateError> {
        let mut gates = Self::default();
        for part in s.split(',').map(str::trim).filter(|p| !p.is_empty()) {
            let (name, value) = part.split_once('=').ok_or_else(|| GateError::MissingValue(part.to_owned()))?;
            let value = parse_bool(value.trim())
                .ok_or_else(|| GateError::InvalidValue { name: name.to_owned(), value: value.to_owned() })?;
            gates.set(name.trim(), value)?;
        }
        Ok(gates)
    }

    /// Switches one gate by name.
    ///
    /// # Errors
    /// For an unknown gate or a locked one.
    pub fn set(&mut self, name: &str, value: bool) -> Result<(), GateError> {
        let info = GATES.iter().find(|g| g.name == name).ok_or_else(|| GateError::Unknown(name.to_owned()))?;
        if info.locked && value != info.default {
            return Err(GateError::Locked { name: name.to_owned(), value, locked: info.default });
        }
        self.set.insert(info.gate, value);
        Ok(())
    }

    /// These gates, with those on top that `other` sets.
    #[must_use]
    pub fn overridden_by(mut self, other: &Self) -> Self {
        self.set.extend(&other.set);
        self
    }

    /// Whether a feature is on.
    #[must_use]
    pub fn enabled(&self, gate: Gate) -> bool {
        self.set
            .get(&gate)
            .copied()
            .or_else(|| GATES.iter().find(|g| g.gate == gate).map(|g| g.default))
            .unwrap_or(false)
    }
}

/// As Go's `strconv.ParseBool`.
fn parse_bool(s: &str) -> Option<bool> {
    match s {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Some(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gates_have_the_defaults_of_1_35() {
        let gates = FeatureGates::default();
        assert!(gates.enabled(Gate::ContainerRestartRules));
        assert!(!gates.enabled(Gate::ContainerStopSignals));
        for info in GATES {
            assert_eq!(gates.enabled(info.gate), info.default, "{}", info.name);
        }
    }

    #[test]
    fn gates_are_set_by_name() {
        let gates = FeatureGates::parse("ContainerStopSignals=true, ContainerRestartRules=f").unwrap();
        assert!(gates.enabled(Gate::ContainerStopSignals));
        assert!(!gates.enabled(Gate::ContainerRestartRules));
    }

    #[track_caller]
    fn check_refused(s: &str, expected: &str) {
        assert_eq!(FeatureGates::parse(s).unwrap_err().to_string(), expected);
    }

    #[test]
    fn wrong_gates_are_refused_in_upstreams_words() {
        check_refused("Nope=true", "unrecognized feature gate: Nope");
        check_refused(
            "ExecProbeTimeout=false",
            "cannot set feature gate ExecProbeTimeout to false, feature is locked to true",
        );
        check_refused("ImageVolume", "missing bool value for ImageVolume");
        check_refused("ImageVolume=yes", "invalid value of ImageVolume: yes, err: expected true or false");
    }
}
