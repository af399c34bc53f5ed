//! PodSecurity: the Pod Security Standards, configured by namespace labels (`k8s.io/pod-security-admission`).

mod baseline;
mod policy;
mod restricted;
mod subject;

use k8s_openapi::{api::core::v1::PodSpec, apimachinery::pkg::apis::meta::v1::ObjectMeta};
pub use policy::{ENFORCE, InvalidLabel, Level, LevelVersion, Policy};
use subject::Subject;

/// Newest supported version of the standards: a minor version of Kubernetes. `latest` and newer versions mean this one.
pub const LATEST_MINOR: u32 = 35;

/// Violation of a level by a Pod (`CheckResult`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// Short text, for lists of many Pods (`ForbiddenReason`).
    pub reason: &'static str,
    /// Containers and values (`ForbiddenDetail`).
    pub detail: String,
}

type Check = fn(&Subject<'_>) -> Option<Violation>;

/// Returns the violations of a level in upstream's order: the checks of `baseline` first, then by name.
#[must_use]
pub fn violations(level_version: LevelVersion, meta: &ObjectMeta, spec: &PodSpec) -> Vec<Violation> {
    let subject = Subject::new(meta, spec, level_version.minor());
    let checks: Vec<Check> = match level_version.level {
        Level::Privileged => Vec::new(),
        Level::Baseline => baseline::checks(&subject, false),
        Level::Restricted => baseline::checks(&subject, true).into_iter().chain(restricted::checks(&subject)).collect(),
    };
    checks.into_iter().filter_map(|check| check(&subject)).collect()
}

/// Formats violations with details, for the creator of the Pod.
#[must_use]
pub fn format_with_details(violations: &[Violation]) -> String {
    let details = violations.iter().map(|v| match v.detail.as_str() {
        "" => v.reason.to_owned(),
        detail => format!("{} ({detail})", v.reason),
    });
    details.collect::<Vec<_>>().join(", ")
}

/// Formats violations without details.
#[must_use]
pub fn format_reasons(violations: &[Violation]) -> String {
    violations.iter().map(|v| v.reason).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests;
