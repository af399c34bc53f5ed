//! Graceful node shutdown settings of the KubeletConfiguration (KEP-2000, KEP-2712).

use super::{ConfigError, InvalidValueError, KubeletConfiguration, duration};
use api::feature_gates::{FeatureGates, Gate};
use lifecycle::{ShutdownGrace, ShutdownPolicy};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Graceful node shutdown settings.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ShutdownSettings {
    /// Total grace period of all Pods; zero disables graceful shutdown.
    #[serde(with = "duration")]
    pub shutdown_grace_period: Duration,
    /// Part of the grace period for critical Pods.
    #[serde(with = "duration")]
    pub shutdown_grace_period_critical_pods: Duration,
    /// Grace periods by Pod priority, instead of the other two fields.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub shutdown_grace_period_by_pod_priority: Vec<ShutdownGracePeriodByPodPriority>,
}

/// Grace period of a range of priorities.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ShutdownGracePeriodByPodPriority {
    /// Lowest priority of the range.
    pub priority: i32,
    /// Grace period in seconds.
    pub shutdown_grace_period_seconds: u32,
}

/// Invalid graceful node shutdown settings, with upstream's message (`ValidateKubeletConfiguration`).
#[derive(Debug, thiserror::Error)]
pub enum ShutdownSettingsError {
    /// Grace periods without their feature gate.
    #[error(
        "specifying shutdownGracePeriod or shutdownGracePeriodCriticalPods requires feature gate GracefulNodeShutdown"
    )]
    GracePeriodGate,
    /// More time for critical Pods than for all Pods.
    #[error(
        "shutdownGracePeriodCriticalPods {{{}}} must be <= shutdownGracePeriod {{{}}}",
        duration::text(*.critical),
        duration::text(*.total)
    )]
    CriticalAboveTotal {
        /// Grace period of critical Pods.
        critical: Duration,
        /// Grace period of all Pods.
        total: Duration,
    },
    /// Grace period of less than a second.
    #[error("{field} {{{}}} must be either zero or otherwise >= 1 sec", duration::text(*.period))]
    TooShort {
        /// Name of the field.
        field: &'static str,
        /// Its value.
        period: Duration,
    },
    /// Grace periods with and without priorities.
    #[error("Cannot specify both shutdownGracePeriodByPodPriority and shutdownGracePeriod at the same time")]
    Conflict,
    /// Grace periods by priority without their feature gate.
    #[error("Specifying shutdownGracePeriodByPodPriority requires feature gate GracefulNodeShutdownBasedOnPodPriority")]
    PriorityGate,
}

impl KubeletConfiguration {
    /// Returns the shutdown policy; empty if graceful shutdown is disabled.
    ///
    /// # Errors
    /// Upstream's message for invalid settings, or settings whose feature gate is disabled
    /// (`ValidateKubeletConfiguration`).
    pub fn shutdown_policy(&self, gates: &FeatureGates) -> Result<ShutdownPolicy, ConfigError> {
        self.shutdown.check(gates).map_err(InvalidValueError::from)?;
        if !gates.enabled(Gate::GracefulNodeShutdown) {
            return Ok(ShutdownPolicy::default());
        }
        let ranges = &self.shutdown.shutdown_grace_period_by_pod_priority;
        if ranges.is_empty() {
            let (total, critical) =
                (self.shutdown.shutdown_grace_period, self.shutdown.shutdown_grace_period_critical_pods);
            return Ok(ShutdownPolicy::from_grace_periods(total, critical));
        }
        let grace = |range: &ShutdownGracePeriodByPodPriority| ShutdownGrace {
            priority: range.priority,
            seconds: range.shutdown_grace_period_seconds,
        };
        Ok(ShutdownPolicy::by_priority(ranges.iter().map(grace).collect()))
    }
}

impl ShutdownSettings {
    fn check(&self, gates: &FeatureGates) -> Result<(), ShutdownSettingsError> {
        let (total, critical) = (self.shutdown_grace_period, self.shutdown_grace_period_critical_pods);
        let two = !(total.is_zero() && critical.is_zero());
        let ranges = !self.shutdown_grace_period_by_pod_priority.is_empty();
        let ranges_count = gates.enabled(Gate::GracefulNodeShutdownBasedOnPodPriority);
        if two && !gates.enabled(Gate::GracefulNodeShutdown) {
            return Err(ShutdownSettingsError::GracePeriodGate);
        }
        if critical > total {
            return Err(ShutdownSettingsError::CriticalAboveTotal { critical, total });
        }
        for (field, period) in [("shutdownGracePeriod", total), ("shutdownGracePeriodCriticalPods", critical)] {
            if !period.is_zero() && period < Duration::from_secs(1) {
                return Err(ShutdownSettingsError::TooShort { field, period });
            }
        }
        if two && ranges && ranges_count {
            return Err(ShutdownSettingsError::Conflict);
        }
        if ranges && !ranges_count {
            return Err(ShutdownSettingsError::PriorityGate);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{super::tests::parse, *};

    const RANGES: &str = "shutdownGracePeriodByPodPriority: [{priority: 0, shutdownGracePeriodSeconds: 60}, {priority: 1000, shutdownGracePeriodSeconds: 5}]";

    fn policy(body: &str, gates: &str) -> Result<ShutdownPolicy, ConfigError> {
        parse(body)?.shutdown_policy(&FeatureGates::parse(gates).unwrap())
    }

    #[test]
    fn shutdown_total_is_the_sum_of_all_ranges() {
        for (body, gates, seconds) in [
            ("", "", 0),
            ("shutdownGracePeriod: 30s\nshutdownGracePeriodCriticalPods: 10s", "", 30),
            (RANGES, "", 65),
            (RANGES, "GracefulNodeShutdown=false", 0),
            ("shutdownGracePeriod: 0s\nshutdownGracePeriodByPodPriority: []", "", 0),
        ] {
            let policy = policy(body, gates).unwrap();
            assert_eq!((policy.total().as_secs(), policy.is_empty()), (seconds, seconds == 0), "{body} {gates}");
        }
    }

    #[test]
    fn invalid_shutdown_settings_have_the_errors_of_upstream() {
        for (body, gates, words) in [
            (
                "shutdownGracePeriod: 1s\nshutdownGracePeriodCriticalPods: 2s",
                "",
                "shutdownGracePeriodCriticalPods {2s} must be <= shutdownGracePeriod {1s}",
            ),
            (
                "shutdownGracePeriod: 1ms",
                "",
                "invalid configuration: shutdownGracePeriod {1ms} must be either zero or otherwise >= 1 sec",
            ),
            (
                "shutdownGracePeriod: 1s",
                "GracefulNodeShutdown=false,GracefulNodeShutdownBasedOnPodPriority=false",
                "requires feature gate GracefulNodeShutdown",
            ),
            (RANGES, "GracefulNodeShutdownBasedOnPodPriority=false", "requires feature gate GracefulNodeShutdownBased"),
            (&format!("shutdownGracePeriod: 1s\n{RANGES}"), "", "at the same time"),
            ("shutdownGracePeriodByPodPriority: [{priority: 0, seconds: 6}]", "", "unknown field"),
        ] {
            let error = policy(body, gates).unwrap_err().to_string();
            assert!(error.contains(words), "{body}: {error}");
        }
    }
}
