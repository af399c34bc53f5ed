//! Levels and versions, and the namespace labels that select them (`api.Policy`).

use super::LATEST_MINOR;
use std::{collections::BTreeMap, fmt};

const PREFIX: &str = "pod-security.kubernetes.io/";
/// Label of the enforced level.
pub const ENFORCE: &str = "pod-security.kubernetes.io/enforce";

/// Level, from least to most restrictive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// No restrictions.
    Privileged,
    /// Prevents known privilege escalations.
    Baseline,
    /// Pod hardening best practices.
    Restricted,
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Privileged => "privileged",
            Self::Baseline => "baseline",
            Self::Restricted => "restricted",
        })
    }
}

/// Level of a version of the standards (`LevelVersion`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LevelVersion {
    /// Level.
    pub level: Level,
    /// Minor version; `None` is `latest`.
    pub version: Option<u32>,
}

impl LevelVersion {
    const PRIVILEGED: Self = Self { level: Level::Privileged, version: None };

    pub(super) fn minor(self) -> u32 {
        self.version.map_or(LATEST_MINOR, |version| version.min(LATEST_MINOR))
    }
}

impl fmt::Display for LevelVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.version {
            None => write!(f, "{}:latest", self.level),
            Some(minor) => write!(f, "{}:v1.{minor}", self.level),
        }
    }
}

/// Policy of a namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Policy {
    /// Violations are rejected.
    pub enforce: LevelVersion,
    /// Violations are recorded in the audit log.
    pub audit: LevelVersion,
    /// Violations return a warning.
    pub warn: LevelVersion,
}

/// Invalid label.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvalidLabel {
    /// Key of the label.
    pub label: String,
    /// Value of the label.
    pub value: String,
    /// Upstream's error text.
    pub message: &'static str,
}

impl Policy {
    /// Parses the labels of a namespace (`PolicyToEvaluate`). Invalid `enforce` labels mean `restricted`; invalid `audit` and
    /// `warn` labels mean `privileged`.
    #[must_use]
    pub fn from_labels(labels: &BTreeMap<String, String>) -> (Self, Vec<InvalidLabel>) {
        let mut invalid = Vec::new();
        let enforce = read(labels, "enforce", Level::Restricted, &mut invalid);
        let audit = read(labels, "audit", Level::Privileged, &mut invalid);
        let warn = read(labels, "warn", Level::Privileged, &mut invalid);
        let label = |name: &str| labels.contains_key(&format!("{PREFIX}{name}"));
        let invalid_enforce = invalid.iter().any(|label| label.label.strip_prefix(PREFIX) == Some("enforce"));
        let mut policy = Self { enforce, audit, warn };
        // Without a `warn` label, warnings use the enforced level.
        if !label("warn") && label("enforce") && !invalid_enforce && enforce.level > warn.level {
            policy.warn.level = enforce.level;
            if !label("warn-version") {
                policy.warn.version = enforce.version;
            }
        }
        (policy, invalid)
    }

    /// Whether all levels are `privileged`.
    #[must_use]
    pub fn is_privileged(&self) -> bool {
        [self.enforce, self.audit, self.warn].iter().all(|level_version| level_version.level == Level::Privileged)
    }
}

fn read(
    labels: &BTreeMap<String, String>,
    mode: &str,
    on_error: Level,
    invalid: &mut Vec<InvalidLabel>,
) -> LevelVersion {
    let mut level_version = LevelVersion::PRIVILEGED;
    let (key, version_key) = (format!("{PREFIX}{mode}"), format!("{PREFIX}{mode}-version"));
    if let Some(value) = labels.get(&key) {
        level_version.level = level(value).unwrap_or_else(|| {
            let message = "must be one of privileged, baseline, restricted";
            invalid.push(InvalidLabel { label: key.clone(), value: value.clone(), message });
            on_error
        });
    }
    if let Some(value) = labels.get(&version_key) {
        level_version.version = version(value).unwrap_or_else(|| {
            let message = "must be \"latest\" or \"v1.x\"";
            invalid.push(InvalidLabel { label: version_key.clone(), value: value.clone(), message });
            None
        });
    }
    level_version
}

fn level(text: &str) -> Option<Level> {
    [Level::Privileged, Level::Baseline, Level::Restricted].into_iter().find(|level| level.to_string() == text)
}

/// Parses a version. `Some(None)` is `latest`.
fn version(text: &str) -> Option<Option<u32>> {
    if text == "latest" {
        return Some(None);
    }
    let digits = text.strip_prefix("v1.")?;
    let plain = digits.bytes().all(|b| b.is_ascii_digit()) && (digits == "0" || !digits.starts_with('0'));
    digits.parse().ok().filter(|_| plain).map(Some)
}
