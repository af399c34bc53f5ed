//! Feature gates, with the defaults and stages of Kubernetes 1.35 (`k8s.io/component-base/featuregate`).

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Stage of a feature (`prerelease`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// Disabled by default.
    Alpha,
    /// Mostly enabled by default.
    Beta,
    /// Generally available; the gate is locked.
    Stable,
    /// To be removed.
    Deprecated,
}

/// Specification of a gate (`FeatureSpec`).
struct GateSpec {
    gate: Gate,
    name: &'static str,
    default: bool,
    stage: Stage,
}

impl GateSpec {
    /// Returns whether the gate is locked to its default; upstream locks the gates of Pods once they are stable.
    fn is_locked(&self) -> bool {
        self.stage == Stage::Stable
    }
}

macro_rules! gates {
    ($($(#[doc = $doc:literal])+ $name:ident: $stage:ident, $default:literal;)+) => {
        /// A feature gate.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[non_exhaustive]
        pub enum Gate {
            $($(#[doc = $doc])+ $name,)+
        }

        const GATES: &[GateSpec] = &[
            $(GateSpec { gate: Gate::$name, name: stringify!($name), default: $default, stage: Stage::$stage },)+
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
    /// KEP-5328. Podium's node declares no features: it has those of its API server.
    NodeDeclaredFeatures: Alpha, false;
    /// KEP-5532.
    RestartAllContainersOnContainerExits: Alpha, false;
    /// KEP-4960.
    ContainerStopSignals: Alpha, false;
    /// KEP-5593.
    KubeletCrashLoopBackOffMax: Beta, true;
    /// KEP-4603.
    ReduceDefaultCrashLoopBackOffDecay: Alpha, false;
    /// KEP-4216: image pulls name the runtime handler.
    RuntimeClassInImageCriApi: Alpha, false;
    /// KEP-1287.
    InPlacePodVerticalScaling: Stable, true;
    /// KEP-5067.
    PodObservedGenerationTracking: Stable, true;
    /// KEP-3085.
    PodReadyToStartContainersCondition: Beta, true;
    /// KEP-4781.
    ChangeContainerStatusOnKubeletRestart: Deprecated, false;
    /// Exec probes respect `timeoutSeconds`.
    ExecProbeTimeout: Stable, true;
    /// KEP-3386: the kubelet watches the runtime's events. Podium always does.
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
    /// KEP-2712: graceful shutdown periods by Pod priority.
    GracefulNodeShutdownBasedOnPodPriority: Beta, true;
    /// Static Pods must not reference API objects.
    PreventStaticPodAPIReferences: Beta, true;
    /// A node may request service account tokens only for audiences that its Pods use.
    ServiceAccountNodeAudienceRestriction: Beta, true;
    /// KEP-4742: Pods get the topology labels of their nodes.
    PodTopologyLabelsAdmission: Beta, true;
    /// KEP-3962: mutating admission policies in CEL.
    MutatingAdmissionPolicy: Beta, false;
    /// KEP-961: several Pods of a StatefulSet may be replaced at once.
    MaxUnavailableStatefulSet: Beta, true;
    /// KEP-4951: configurable tolerance of a HorizontalPodAutoscaler.
    HPAConfigurableTolerance: Beta, true;
    /// KEP-2535: an image that was pulled with a secret is only available to Pods with such a secret.
    KubeletEnsureSecretPulledImages: Beta, true;
}

/// Features that a feature depends on.
const DEPENDENCIES: &[(Gate, &[Gate])] =
    &[(Gate::RestartAllContainersOnContainerExits, &[Gate::ContainerRestartRules, Gate::NodeDeclaredFeatures])];

/// Gates that set all features of a stage; gates that are set by name take precedence.
const STAGE_GATES: [(&str, Stage); 2] = [("AllAlpha", Stage::Alpha), ("AllBeta", Stage::Beta)];

/// Error for invalid feature gates, with the messages of `k8s.io/component-base/featuregate`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GateError {
    /// Unknown gate.
    #[error("unrecognized feature gate: {0}")]
    Unknown(String),
    /// Missing `=`.
    #[error("missing bool value for {0}")]
    MissingValue(String),
    /// The value is not a bool.
    #[error("invalid value of {name}={value}, err: strconv.ParseBool: parsing {value:?}: invalid syntax")]
    InvalidValue {
        /// The gate.
        name: String,
        /// The invalid value.
        value: String,
    },
    /// The gate is locked.
    #[error("cannot set feature gate {name} to {value}, feature is locked to {locked}")]
    Locked {
        /// The gate.
        name: String,
        /// The requested value.
        value: bool,
        /// The value that it is locked to.
        locked: bool,
    },
    /// Required features are disabled.
    #[error("{name} is enabled, but depends on features that are disabled: [{}]", .disabled.join(" "))]
    Depends {
        /// The gate.
        name: String,
        /// The disabled features.
        disabled: Vec<String>,
    },
}

/// The feature gates of a component.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct FeatureGates {
    set: BTreeMap<Gate, bool>,
    /// `AllAlpha` and `AllBeta`, by their index in [`STAGE_GATES`].
    stages: BTreeMap<usize, bool>,
}

impl FeatureGates {
    /// Parses `A=true,B=false`.
    ///
    /// # Errors
    /// For an unknown or locked gate, a value that is not a bool, or a feature whose dependencies are disabled.
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

    /// Sets one gate by name, or all gates of a stage with `AllAlpha` or `AllBeta`.
    ///
    /// # Errors
    /// For an unknown gate or a locked one.
    pub fn set(&mut self, name: &str, value: bool) -> Result<(), GateError> {
        if let Some(stage) = STAGE_GATES.iter().position(|(all, _)| *all == name) {
            self.stages.insert(stage, value);
            return Ok(());
        }
        let spec = GATES.iter().find(|g| g.name == name).ok_or_else(|| GateError::Unknown(name.to_owned()))?;
        if spec.is_locked() && value != spec.default {
            return Err(GateError::Locked { name: name.to_owned(), value, locked: spec.default });
        }
        self.set.insert(spec.gate, value);
        Ok(())
    }

    /// Returns these gates, overridden by those that `other` sets.
    #[must_use]
    pub fn overridden_by(mut self, other: &Self) -> Self {
        self.set.extend(&other.set);
        self.stages.extend(&other.stages);
        self
    }

    /// Returns whether a feature is enabled.
    #[must_use]
    pub fn enabled(&self, gate: Gate) -> bool {
        GATES.iter().find(|g| g.gate == gate).is_some_and(|spec| self.value(spec))
    }

    fn value(&self, spec: &GateSpec) -> bool {
        let all = || STAGE_GATES.iter().position(|(_, stage)| *stage == spec.stage).and_then(|at| self.stages.get(&at));
        self.set.get(&spec.gate).or_else(all).copied().unwrap_or(spec.default)
    }

    /// Checks that the dependencies of each enabled feature are enabled.
    ///
    /// # Errors
    /// For the first feature with disabled dependencies.
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

    /// Returns upstream's warnings for gates that were set and will be removed.
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

/// Parses a bool as Go's `strconv.ParseBool`.
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
    fn feature_gates_have_the_defaults_of_1_35() {
        let gates = FeatureGates::default();
        assert!(gates.enabled(Gate::ContainerRestartRules));
        assert!(!gates.enabled(Gate::ContainerStopSignals));
        for spec in GATES {
            assert_eq!(gates.enabled(spec.gate), spec.default, "{}", spec.name);
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
    fn invalid_gates_are_refused_with_upstreams_message() {
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
    fn stage_gate_sets_all_but_those_set_by_name() {
        let gates = FeatureGates::parse("AllAlpha=true,ContainerStopSignals=false").unwrap();
        assert!(
            gates.enabled(Gate::RestartAllContainersOnContainerExits) && !gates.enabled(Gate::ContainerStopSignals)
        );
        let gates = FeatureGates::parse("AllBeta=false,ImageVolume=true").unwrap();
        assert!(!gates.enabled(Gate::ContainerRestartRules) && gates.enabled(Gate::ImageVolume));
        assert!(gates.enabled(Gate::SidecarContainers), "a stable feature stays enabled");
        let both = gates.overridden_by(&FeatureGates::parse("ContainerRestartRules=true,ImageVolume=false").unwrap());
        assert!(both.enabled(Gate::ContainerRestartRules) && !both.enabled(Gate::ImageVolume));
    }

    #[test]
    fn stable_and_deprecated_gates_get_warnings() {
        let gates =
            FeatureGates::parse("ExecProbeTimeout=true,ImageVolume=true,ChangeContainerStatusOnKubeletRestart=true");
        let warnings: Vec<String> = gates.unwrap().warnings().collect();
        assert_eq!(
            warnings,
            [
                "Setting deprecated feature gate ChangeContainerStatusOnKubeletRestart=true. It will be removed in a future release.",
                "Setting GA feature gate ExecProbeTimeout=true. It will be removed in a future release.",
            ]
        );
    }
}
