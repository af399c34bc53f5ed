//! The Pod Security Standards (`k8s.io/pod-security-admission`): what a namespace's labels ask of its Pods.

mod baseline;
mod policy;
mod restricted;
mod subject;

use k8s_openapi::{api::core::v1::PodSpec, apimachinery::pkg::apis::meta::v1::ObjectMeta};
pub use policy::{ENFORCE, Level, LevelVersion, Policy, Wrong};
use subject::Subject;

/// The newest version of the standards that is known, the minor one of Kubernetes: `latest` and what is newer mean this.
pub const NEWEST: u32 = 35;

/// What a Pod does that its level forbids.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// In few words, for lists of many Pods.
    pub reason: &'static str,
    /// Which containers, which values.
    pub detail: String,
}

type Check = fn(&Subject<'_>) -> Option<Violation>;

/// What the level forbids and the Pod does, in upstream's order: by the name of the check, those of `baseline` first.
#[must_use]
pub fn violations(asked: LevelVersion, meta: &ObjectMeta, spec: &PodSpec) -> Vec<Violation> {
    let subject = Subject::new(meta, spec, asked.minor());
    let checks: Vec<Check> = match asked.level {
        Level::Privileged => Vec::new(),
        Level::Baseline => baseline::checks(&subject, false),
        Level::Restricted => baseline::checks(&subject, true).into_iter().chain(restricted::checks(&subject)).collect(),
    };
    checks.into_iter().filter_map(|check| check(&subject)).collect()
}

/// All violations for the one who made this Pod.
#[must_use]
pub fn in_detail(violations: &[Violation]) -> String {
    let told = violations.iter().map(|v| match v.detail.as_str() {
        "" => v.reason.to_owned(),
        detail => format!("{} ({detail})", v.reason),
    });
    told.collect::<Vec<_>>().join(", ")
}

/// All violations in few words.
#[must_use]
pub fn in_short(violations: &[Violation]) -> String {
    violations.iter().map(|v| v.reason).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests;
