//! Eviction settings of the KubeletConfiguration (upstream's `ParseThresholdConfig`).

use super::duration;
use api::quantity::QuantityError;
use lifecycle::eviction::{EvictionPolicy, Signal, Threshold, ThresholdValue};
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, time::Duration};

/// Default hard thresholds. The disk thresholds are lower than upstream's, because developer machines are often more
/// than
/// 85 % full (docs/deviations/kubelet.md).
const DEFAULT_HARD_THRESHOLDS: [(&str, &str); 5] = [
    ("memory.available", "100Mi"),
    ("nodefs.available", "5%"),
    ("nodefs.inodesFree", "5%"),
    ("imagefs.available", "5%"),
    ("imagefs.inodesFree", "5%"),
];
/// Signals derived from `nodefs` and `imagefs`; thresholds for them are ignored, as in upstream.
const DERIVED_SIGNALS: [&str; 2] = ["containerfs.available", "containerfs.inodesFree"];

/// Quantities or percentages by signal.
type Levels = BTreeMap<String, String>;

/// Eviction settings.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct EvictionSettings {
    /// Hard thresholds; `None` for the defaults.
    pub eviction_hard: Option<Levels>,
    /// Soft thresholds, which are met after their grace period.
    pub eviction_soft: Levels,
    /// Grace periods of the soft thresholds.
    pub eviction_soft_grace_period: BTreeMap<String, String>,
    /// Minimum amounts to reclaim.
    pub eviction_minimum_reclaim: Levels,
    /// Time that a pressure condition is kept after its threshold was met last.
    #[serde(with = "duration")]
    pub eviction_pressure_transition_period: Duration,
    /// Maximum grace period of a Pod that is evicted for a soft threshold, in seconds; negative for the Pod's own.
    pub eviction_max_pod_grace_period: i64,
    /// Whether `evictionHard` is merged with the defaults instead of replacing them.
    pub merge_default_eviction_settings: bool,
}

impl Default for EvictionSettings {
    fn default() -> Self {
        Self {
            eviction_hard: None,
            eviction_soft: Levels::new(),
            eviction_soft_grace_period: BTreeMap::new(),
            eviction_minimum_reclaim: Levels::new(),
            eviction_pressure_transition_period: Duration::from_secs(300),
            eviction_max_pod_grace_period: 0,
            merge_default_eviction_settings: false,
        }
    }
}

/// Setting of one signal.
#[derive(Debug)]
pub struct SignalSetting {
    setting: &'static str,
    signal: String,
    value: String,
}

/// Invalid eviction settings, with upstream's message where it has one.
#[derive(Debug, thiserror::Error)]
pub enum EvictionSettingsError {
    /// Unknown signal.
    #[error("unsupported eviction signal {0}")]
    UnsupportedSignal(String),
    /// Value that is not a percentage.
    #[error("{} {:?} of {} is no percentage", .0.setting, .0.value, .0.signal)]
    NoPercentage(SignalSetting),
    /// Percentage below 0 %.
    #[error("eviction percentage threshold {} must be >= 0%: {}", .0.signal, .0.value)]
    NegativePercentage(SignalSetting),
    /// Percentage above 100 %.
    #[error("eviction percentage threshold {} must be <= 100%: {}", .0.signal, .0.value)]
    PercentageAbove100(SignalSetting),
    /// Value that is not a quantity.
    #[error("{} {:?} of {}: {source}", .setting.setting, .setting.value, .setting.signal)]
    NoQuantity {
        /// The setting.
        setting: SignalSetting,
        /// Cause.
        source: QuantityError,
    },
    /// Quantity below 0.
    #[error("{} {} must be positive: {}", .0.setting, .0.signal, .0.value)]
    NegativeQuantity(SignalSetting),
    /// Soft threshold without a grace period.
    #[error("grace period must be specified for the soft eviction threshold {0}")]
    NoGracePeriod(&'static str),
    /// Invalid grace period of a soft threshold.
    #[error("time: invalid duration {0:?}")]
    GracePeriod(String),
}

impl EvictionSettings {
    /// Returns the eviction policy; `pods_are_limited` tells whether node allocatable is enforced for all Pods
    /// (`enforceNodeAllocatable`).
    ///
    /// # Errors
    /// Upstream's message for an invalid setting.
    pub(crate) fn policy(&self, pods_are_limited: bool) -> Result<EvictionPolicy, EvictionSettingsError> {
        let reclaim = levels(&self.eviction_minimum_reclaim, "eviction minimum reclaim")?;
        let mut thresholds = Vec::new();
        for (signal, level) in levels(&self.hard(), "eviction threshold")? {
            thresholds.push(Threshold { signal, level, grace: Duration::ZERO, min_reclaim: None });
        }
        for (signal, level) in levels(&self.eviction_soft, "eviction threshold")? {
            let grace = self.grace(signal)?;
            thresholds.push(Threshold { signal, level, grace, min_reclaim: None });
        }
        for threshold in &mut thresholds {
            let found = reclaim.iter().find(|(signal, _)| *signal == threshold.signal);
            threshold.min_reclaim = found.map(|(_, level)| level.clone());
        }
        let hard_memory = |t: &&Threshold| t.signal == Signal::MemoryAvailable && t.grace.is_zero();
        let allocatable = thresholds.iter().find(hard_memory).filter(|_| pods_are_limited).cloned();
        thresholds.extend(allocatable.map(|t| Threshold { signal: Signal::AllocatableMemoryAvailable, ..t }));
        Ok(EvictionPolicy {
            thresholds,
            transition_period: self.eviction_pressure_transition_period,
            max_pod_grace_seconds: u32::try_from(self.eviction_max_pod_grace_period).ok(),
        })
    }

    /// Returns the effective hard thresholds.
    pub(crate) fn hard(&self) -> Levels {
        let defaults =
            || DEFAULT_HARD_THRESHOLDS.iter().map(|(signal, level)| ((*signal).to_owned(), (*level).to_owned()));
        match &self.eviction_hard {
            None => defaults().collect(),
            Some(set) if self.merge_default_eviction_settings => defaults().chain(set.clone()).collect(),
            Some(set) => set.clone(),
        }
    }

    fn grace(&self, signal: Signal) -> Result<Duration, EvictionSettingsError> {
        let name = signal.as_str();
        let text = self.eviction_soft_grace_period.get(name);
        let text = text.ok_or(EvictionSettingsError::NoGracePeriod(name))?;
        duration::parse(text).ok_or_else(|| EvictionSettingsError::GracePeriod(text.clone()))
    }
}

/// Parses thresholds. Percentages of 0 % and 100 % disable a threshold, as in upstream.
fn levels(levels: &Levels, setting: &'static str) -> Result<Vec<(Signal, ThresholdValue)>, EvictionSettingsError> {
    let mut found = Vec::new();
    for (name, text) in levels {
        if DERIVED_SIGNALS.contains(&name.as_str()) {
            continue;
        }
        let signal = Signal::parse(name).ok_or_else(|| EvictionSettingsError::UnsupportedSignal(name.clone()))?;
        let setting = || SignalSetting { setting, signal: name.clone(), value: text.clone() };
        if let Some(percent) = text.strip_suffix('%') {
            let share: f64 = percent.parse().map_err(|_| EvictionSettingsError::NoPercentage(setting()))?;
            if share < 0.0 {
                return Err(EvictionSettingsError::NegativePercentage(setting()));
            }
            if share > 100.0 {
                return Err(EvictionSettingsError::PercentageAbove100(setting()));
            }
            if share > 0.0 && share < 100.0 {
                found.push((signal, ThresholdValue::Share(share / 100.0)));
            }
            continue;
        }
        let level = ThresholdValue::quantity(text)
            .map_err(|source| EvictionSettingsError::NoQuantity { setting: setting(), source })?;
        if level.of(0).is_negative() {
            return Err(EvictionSettingsError::NegativeQuantity(setting()));
        }
        found.push((signal, level));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn policy(settings: serde_json::Value, limited: bool) -> Result<Vec<String>, EvictionSettingsError> {
        let settings: EvictionSettings = serde_json::from_value(settings).unwrap();
        let shown = |t: &Threshold| {
            let reclaim = t.min_reclaim.as_ref().map_or(String::new(), |l| format!(" +{}", l.of(1000).value()));
            format!("{}<{} after {}s{reclaim}", t.signal.as_str(), t.level.of(1000).value(), t.grace.as_secs())
        };
        Ok(settings.policy(limited)?.thresholds.iter().map(shown).collect())
    }

    #[test]
    fn thresholds_are_parsed() {
        let defaults = [
            "imagefs.available<50 after 0s",
            "imagefs.inodesFree<50 after 0s",
            "memory.available<104857600 after 0s",
            "nodefs.available<50 after 0s",
            "nodefs.inodesFree<50 after 0s",
        ];
        assert_eq!(policy(json!({}), false).unwrap(), defaults);
        assert_eq!(policy(json!({"evictionHard": {}}), true).unwrap(), Vec::<String>::new());
        let hard = json!({"evictionHard": {"memory.available": "1Ki", "containerfs.available": "3%", "pid.available": "0%"},
            "evictionMinimumReclaim": {"memory.available": "10%"}});
        let expected = ["memory.available<1024 after 0s +100", "allocatableMemory.available<1024 after 0s +100"];
        assert_eq!(policy(hard, true).unwrap(), expected);
        let merged = json!({"evictionHard": {"memory.available": "1Ki"}, "mergeDefaultEvictionSettings": true});
        let merged = policy(merged, false).unwrap();
        assert_eq!((merged.len(), merged[2].as_str()), (5, "memory.available<1024 after 0s"));
        let soft = json!({"evictionHard": {}, "evictionSoft": {"nodefs.available": "10%"},
            "evictionSoftGracePeriod": {"nodefs.available": "1m30s"}});
        assert_eq!(policy(soft, true).unwrap(), ["nodefs.available<100 after 90s"]);
    }

    #[test]
    fn invalid_thresholds_are_rejected_by_name() {
        for (settings, part) in [
            (json!({"evictionHard": {"disk.free": "1%"}}), "unsupported eviction signal disk.free"),
            (json!({"evictionHard": {"memory.available": "101%"}}), "memory.available must be <= 100%: 101%"),
            (json!({"evictionHard": {"memory.available": "-1%"}}), "memory.available must be >= 0%: -1%"),
            (json!({"evictionHard": {"memory.available": "-1Mi"}}), "memory.available must be positive"),
            (json!({"evictionHard": {"memory.available": "much"}}), "much"),
            (
                json!({"evictionSoft": {"memory.available": "1Mi"}}),
                "grace period must be specified for the soft eviction threshold memory.available",
            ),
        ] {
            let error = policy(settings, true).unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        }
    }
}
