//! Levels, versions, and the labels of namespaces that ask for them.

use super::NEWEST;
use std::{collections::BTreeMap, fmt};

const PREFIX: &str = "pod-security.kubernetes.io/";
/// The label for the level that is enforced.
pub const ENFORCE: &str = "pod-security.kubernetes.io/enforce";

/// How much a Pod may do, from all to least.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Everything.
    Privileged,
    /// No known way to more privileges.
    Baseline,
    /// What hardened Pods need.
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

/// A level as it was in a version of Kubernetes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LevelVersion {
    /// How much.
    pub level: Level,
    /// The minor version; `None` is `latest`.
    pub version: Option<u32>,
}

impl LevelVersion {
    const PRIVILEGED: Self = Self { level: Level::Privileged, version: None };

    pub(super) fn minor(self) -> u32 {
        self.version.map_or(NEWEST, |version| version.min(NEWEST))
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

/// What a namespace asks of its Pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Policy {
    /// What violates this is refused.
    pub enforce: LevelVersion,
    /// What violates this is for the audit log.
    pub audit: LevelVersion,
    /// Who violates this is warned.
    pub warn: LevelVersion,
}

/// A label that asks for nothing that there is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wrong {
    /// The label's key.
    pub label: String,
    /// Its value.
    pub value: String,
    /// Upstream's words.
    pub message: &'static str,
}

impl Policy {
    /// Reads the labels of a namespace. What makes no sense is enforced as `restricted`, and neither told nor audited.
    #[must_use]
    pub fn of(labels: &BTreeMap<String, String>) -> (Self, Vec<Wrong>) {
        let mut wrong = Vec::new();
        let enforce = read(labels, "enforce", Level::Restricted, &mut wrong);
        let audit = read(labels, "audit", Level::Privileged, &mut wrong);
        let warn = read(labels, "warn", Level::Privileged, &mut wrong);
        let label = |name: &str| labels.contains_key(&format!("{PREFIX}{name}"));
        let misread = wrong.iter().any(|w| w.label.strip_prefix(PREFIX) == Some("enforce"));
        let mut policy = Self { enforce, audit, warn };
        // Who asks for a level and not for warnings is warned of what violates it.
        if !label("warn") && label("enforce") && !misread && enforce.level > warn.level {
            policy.warn.level = enforce.level;
            if !label("warn-version") {
                policy.warn.version = enforce.version;
            }
        }
        (policy, wrong)
    }

    /// Whether nothing is asked.
    #[must_use]
    pub fn is_privileged(&self) -> bool {
        [self.enforce, self.audit, self.warn].iter().all(|asked| asked.level == Level::Privileged)
    }
}

fn read(labels: &BTreeMap<String, String>, mode: &str, otherwise: Level, wrong: &mut Vec<Wrong>) -> LevelVersion {
    let mut asked = LevelVersion::PRIVILEGED;
    let (key, version_key) = (format!("{PREFIX}{mode}"), format!("{PREFIX}{mode}-version"));
    if let Some(value) = labels.get(&key) {
        asked.level = level(value).unwrap_or_else(|| {
            let message = "must be one of privileged, baseline, restricted";
            wrong.push(Wrong { label: key.clone(), value: value.clone(), message });
            otherwise
        });
    }
    if let Some(value) = labels.get(&version_key) {
        asked.version = version(value).unwrap_or_else(|| {
            let message = "must be \"latest\" or \"v1.x\"";
            wrong.push(Wrong { label: version_key.clone(), value: value.clone(), message });
            None
        });
    }
    asked
}

fn level(text: &str) -> Option<Level> {
    [Level::Privileged, Level::Baseline, Level::Restricted].into_iter().find(|level| level.to_string() == text)
}

/// `Some(None)` is `latest`.
fn version(text: &str) -> Option<Option<u32>> {
    if text == "latest" {
        return Some(None);
    }
    let digits = text.strip_prefix("v1.")?;
    let plain = digits.bytes().all(|b| b.is_ascii_digit()) && (digits == "0" || !digits.starts_with('0'));
    digits.parse().ok().filter(|_| plain).map(Some)
}
