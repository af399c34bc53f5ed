//! Feature gates, with the defaults and stages of Kubernetes 1.35 (LIFECYCLE.md 3.1).

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// How far a feature has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// Off, unless it is switched on.
    Alpha,
    /// Mostly on.
    Beta,
    /// Done; it can be switched no more.
    Stable,
    /// On its way out.
    Deprecated,
}

/// What is known of a gate.
struct GateInfo {
    gate: Gate,
    name: &'static str,
    default: bool,
    stage: Stage,
}

impl GateInfo {
    /// Upstream locks those of Pods once they are stable.
    fn locked(&self) -> bool {
        self.stage == Stage::Stable
    }
}

macro_rules! gates {
    ($($(#[doc = $doc:literal])+ $name:ident: $stage:ident, $default:literal;)+) => {
        /// A feature that can be switched.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[non_exhaustive]
        pub enum Gate {
            $($(#[doc = $doc])+ $name,)+
        }

        const GATES: &[GateInfo] = &[
            $(GateInfo { gate: Gate::$name, name: stringify!($name), default: $default, stage: Stage::$stage },)+
        ];
    };
}

gates! {
    /// KEP-753.
    SidecarContainers: Stable, true;
    /// KEP-3960.
    PodLifecycleSleepAction: Stable, true;
    /// KEP-4818.
    PodLifecycleSleepActionAllowZero: Stable, true;
    /// KEP-5307.
    ContainerRestartRules: Beta, true;
    /// KEP-5328: nodes say which features they have. Podium's node has those of its API server, and says nothing.
    NodeDeclaredFeatures: Alpha, false;
    /// KEP-5532.
    RestartAllContainersOnContainerExits: Alpha, false;
    /// KEP-4960.
    ContainerStopSignals: Alpha, false;
    /// KEP-5593.
    KubeletCrashLoopBackOffMax: Beta, true;
    /// KEP-4603.
    ReduceDefaultCrashLoopBackOffDecay: Alpha, false;
    /// KEP-4216: the runtime is told for which handler it pulls an image.
    RuntimeClassInImageCriApi: Alpha, false;
    /// KEP-1287.
    InPlacePodVerticalScaling: Stable, true;
    /// KEP-5067.
    PodObservedGenerationTracking: Stable, true;
    /// KEP-3085.
    PodReadyToStartContainersCondition: Beta, true;
    /// KEP-4781.
    ChangeContainerStatusOnKubeletRestart: Deprecated, false;
    /// Exec probes obey `timeoutSeconds`.
    ExecProbeTimeout: Stable, true;
    /// KEP-3386: the kubelet follows the runtime's events. Podium always does.
    EventedPLEG: Alpha, false;
    /// KEP-3721: environment variables from files.
    EnvFiles: Beta, true;
    /// KEP-2837.
    PodLevelResources: Beta, true;
    /// KEP-4639.
    ImageVolume: Beta, true;
    /// KEP-127.
    UserNamespacesSupport: Beta, true;
    /// KEP-2000: graceful shutdown of the node.
    GracefulNodeShutdown: Beta, true;
    /// KEP-2712: its grace by priority.
    GracefulNodeShutdownBasedOnPodPriority: Beta, true;
    /// Static Pods may not refer to objects of the API.
    PreventStaticPodAPIReferences: Beta, true;
    /// A node gets tokens only for those whom its Pods talk to.
    ServiceAccountNodeAudienceRestriction: Beta, true;
    /// KEP-4742: Pods have the zone and the region of their nodes.
    PodTopologyLabelsAdmission: Beta, true;
    /// KEP-3962: policies in CEL that change what is written.
    MutatingAdmissionPolicy: Beta, false;
    /// KEP-961: several Pods of a StatefulSet may be replaced at once.
    MaxUnavailableStatefulSet: Beta, true;
    /// KEP-4951: an autoscaler's own tolerance.
    HPAConfigurableTolerance: Beta, true;
    /// KEP-2535: an image that was pulled with a secret is only for Pods that have one, too.
    KubeletEnsureSecretPulledImages: Beta, true;
}

/// What a feature cannot do without.
const DEPENDENCIES: &[(Gate, &[Gate])] =
    &[(Gate::RestartAllContainersOnContainerExits, &[Gate::ContainerRestartRules, Gate::NodeDeclaredFeatures])];

/// Gates that stand for all of a stage; one that is named beside them wins.
const ALL_OF: [(&str, Stage); 2] = [("AllAlpha", Stage::Alpha), ("AllBeta", Stage::Beta)];

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
    #[error("invalid value of {name}={value}, err: strconv.ParseBool: parsing {value:?}: invalid syntax")]
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
    /// It does nothing without others.
    #[error("{name} is enabled, but depends on features that are disabled: [{}]", .disabled.join(" "))]
    Depends {
        /// The gate.
        name: String,
        /// Those that are off.
        disabled: Vec<String>,
    },
}

/// Which features are on.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct FeatureGates {
    set: BTreeMap<Gate, bool>,
    /// `AllAlpha` and `AllBeta`, by their place in [`ALL_OF`].
    stages: BTreeMap<usize, bool>,
}

impl FeatureGates {
    /// Reads `A=true,B=false`.
    ///
    /// # Errors
    /// For an unknown gate, a locked one, a value that is no bool, or a feature without one that it depends on.
    pub fn parse(s: &str) -> Result<Self, GateError> {
        let mut gates = Self::default();
        for part in s.split(',').map(str::trim).filter(|p| !p.is_empty()) {
            let (name, value) = part.split_once('=').ok_or_else(|| GateError::MissingValue(part.to_owned()))?;
            let (name, value) = (name.trim(), value.trim());
            let value = parse_bool(value)
                .ok_or_else(|| GateError::InvalidValue { name: name.to_owned(), value: value.to_owned() })?;
            gates.set(name, value)?;
        }
        gates.check_dependencies()?;
        Ok(gates)
    }

    /// Switches one gate by name, or all of a stage with `AllAlpha` or `AllBeta`.
    ///
    /// # Errors
    /// For an unknown gate or a locked one.
    pub fn set(&mut self, name: &str, value: bool) -> Result<(), GateError> {
        if let Some(stage) = ALL_OF.iter().position(|(all, _)| *all == name) {
            self.stages.insert(stage, value);
            return Ok(());
        }
        let info = GATES.iter().find(|g| g.name == name).ok_or_else(|| GateError::Unknown(name.to_owned()))?;
        if info.locked() && value != info.default {
            return Err(GateError::Locked { name: name.to_owned(), value, locked: info.default });
        }
        self.set.insert(info.gate, value);
        Ok(())
    }

    /// These gates, with those on top that `other` sets.
    #[must_use]
    pub fn overridden_by(mut self, other: &Self) -> Self {
        self.set.extend(&other.set);
        self.stages.extend(&other.stages);
        self
    }

    /// Whether a feature is on.
    #[must_use]
    pub fn enabled(&self, gate: Gate) -> bool {
        GATES.iter().find(|g| g.gate == gate).is_some_and(|info| self.value(info))
    }

    fn value(&self, info: &GateInfo) -> bool {
        let all = || ALL_OF.iter().position(|(_, stage)| *stage == info.stage).and_then(|at| self.stages.get(&at));
        self.set.get(&info.gate).or_else(all).copied().unwrap_or(info.default)
    }

    /// Whether each feature that is on has what it depends on.
    ///
    /// # Errors
    /// For the first that has not.
    pub fn check_dependencies(&self) -> Result<(), GateError> {
        for (gate, needed) in DEPENDENCIES.iter().filter(|(gate, _)| self.enabled(*gate)) {
            let disabled: Vec<String> =
                needed.iter().filter(|g| !self.enabled(**g)).map(|g| format!("{g:?}")).collect();
            if !disabled.is_empty() {
                return Err(GateError::Depends { name: format!("{gate:?}"), disabled });
            }
        }
        Ok(())
    }

    /// What is said of gates that were set and will go away, in upstream's words.
    pub fn warnings(&self) -> impl Iterator<Item = String> {
        self.set.iter().filter_map(|(gate, value)| {
            let stage = match GATES.iter().find(|g| g.gate == *gate)?.stage {
                Stage::Stable => "GA",
                Stage::Deprecated => "deprecated",
                Stage::Alpha | Stage::Beta => return None,
            };
            Some(format!("Setting {stage} feature gate {gate:?}={value}. It will be removed in a future release."))
        })
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
        check_refused(
            "ImageVolume=yes",
            "invalid value of ImageVolume=yes, err: strconv.ParseBool: parsing \"yes\": invalid syntax",
        );
        check_refused(
            "RestartAllContainersOnContainerExits=true,ContainerRestartRules=false",
            "RestartAllContainersOnContainerExits is enabled, but depends on features that are disabled: [ContainerRestartRules NodeDeclaredFeatures]",
        );
    }

    #[test]
    fn all_of_a_stage_are_switched_but_those_that_are_named() {
        let gates = FeatureGates::parse("AllAlpha=true,ContainerStopSignals=false").unwrap();
        assert!(
            gates.enabled(Gate::RestartAllContainersOnContainerExits) && !gates.enabled(Gate::ContainerStopSignals)
        );
        let gates = FeatureGates::parse("AllBeta=false,ImageVolume=true").unwrap();
        assert!(!gates.enabled(Gate::ContainerRestartRules) && gates.enabled(Gate::ImageVolume));
        assert!(gates.enabled(Gate::SidecarContainers), "what is stable stays");
        let both = gates.overridden_by(&FeatureGates::parse("ContainerRestartRules=true,ImageVolume=false").unwrap());
        assert!(both.enabled(Gate::ContainerRestartRules) && !both.enabled(Gate::ImageVolume));
    }

    #[test]
    fn gates_that_will_go_away_are_warned_of() {
        let gates =
            FeatureGates::parse("ExecProbeTimeout=true,ImageVolume=true,ChangeContainerStatusOnKubeletRestart=true");
        let said: Vec<String> = gates.unwrap().warnings().collect();
        assert_eq!(
            said,
            [
                "Setting deprecated feature gate ChangeContainerStatusOnKubeletRestart=true. It will be removed in a future release.",
                "Setting GA feature gate ExecProbeTimeout=true. It will be removed in a future release.",
            ]
        );
    }
}
