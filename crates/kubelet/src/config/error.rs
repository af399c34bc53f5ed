//! Errors in a KubeletConfiguration.

use super::{
    access::AccessSettingsError, eviction::EvictionSettingsError, images::ImagesConfigurationError,
    reserved::ReservedResourcesError, shutdown::ShutdownSettingsError,
};
use api::feature_gates::GateError;
use std::time::Duration;

/// Error in a KubeletConfiguration.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// Invalid YAML or JSON.
    #[error("the KubeletConfiguration cannot be read: {0}")]
    Syntax(Box<serde_saphyr::Error>),
    /// A field of a wrong type.
    #[error("the KubeletConfiguration cannot be read: {0}")]
    FieldType(#[source] serde_json::Error),
    /// Wrong kind, or unsupported version.
    #[error("expected kind KubeletConfiguration of kubelet.config.k8s.io/v1beta1, found {kind:?} of {api_version:?}")]
    WrongKind {
        /// `apiVersion` of the file.
        api_version: String,
        /// `kind` of the file.
        kind: String,
    },
    /// Unknown fields.
    #[error("the KubeletConfiguration has unknown fields: {}", .0.join(", "))]
    UnknownFields(Vec<String>),
    /// Invalid value.
    #[error("the KubeletConfiguration is invalid: {0}")]
    Invalid(#[from] InvalidValueError),
}

/// Invalid value in a KubeletConfiguration, with upstream's message where it has one.
#[derive(Debug, thiserror::Error)]
pub enum InvalidValueError {
    /// Too few log files of a container.
    #[error("containerLogMaxFiles must be greater than 1")]
    LogMaxFiles,
    /// Too short interval of log rotation.
    #[error("containerLogMonitorInterval must be a positive time duration greater than or equal to 3s")]
    LogMonitorInterval,
    /// CPU quota period out of range.
    #[error("cpuCFSQuotaPeriod must be between 1ms and 1sec, inclusive")]
    CpuQuotaPeriod,
    /// Invalid number of images in the node's status.
    #[error("nodeStatusMaxImages must be -1 or greater")]
    NodeStatusMaxImages,
    /// Unknown cgroup driver.
    #[error("cgroupDriver must be \"cgroupfs\" or \"systemd\"")]
    CgroupDriver,
    /// Invalid pattern of sysctls.
    #[error("allowedUnsafeSysctls: {0}")]
    Sysctl(String),
    /// Port of the read-only server, which does not exist.
    #[error("readOnlyPort is not served: it would answer whoever asks")]
    ReadOnlyPort,
    /// Invalid feature gate.
    #[error("featureGates: {0}")]
    FeatureGate(#[from] GateError),
    /// Maximum restart delay without its feature gate.
    #[error(
        "invalid configuration: FeatureGate KubeletCrashLoopBackOffMax not enabled, CrashLoopBackOff.MaxContainerRestartPeriod must not be set"
    )]
    RestartPeriodGate,
    /// Maximum restart delay out of range.
    #[error(
        "invalid configuration: CrashLoopBackOff.MaxContainerRestartPeriod (got: {} seconds) must be set between 1s and 300s",
        .0.as_secs_f64()
    )]
    RestartPeriod(Duration),
    /// Invalid image settings.
    #[error(transparent)]
    Images(#[from] ImagesConfigurationError),
    /// Invalid authentication or authorization.
    #[error(transparent)]
    Access(#[from] AccessSettingsError),
    /// Invalid reserved resources.
    #[error(transparent)]
    Reserved(#[from] ReservedResourcesError),
    /// Reservations above the node's capacity.
    #[error("invalid Node Allocatable configuration. {}", .0.join(" "))]
    Overcommitted(Vec<String>),
    /// Invalid eviction settings.
    #[error(transparent)]
    Eviction(#[from] EvictionSettingsError),
    /// Invalid graceful node shutdown settings.
    #[error("invalid configuration: {0}")]
    Shutdown(#[from] ShutdownSettingsError),
}
