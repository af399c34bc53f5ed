//! Approval of definitions in protected groups such as `*.k8s.io` (`apihelpers.GetAPIApprovalState`).

use crate::field_validation::text;
use api::go_quote::quoted;
use serde_json::Value;

/// Approval annotation (`v1.KubeAPIApprovedAnnotation`).
pub(super) const APPROVED_ANNOTATION: &str = "api-approved.kubernetes.io";
const PROPOSAL: &str = "see https://github.com/kubernetes/enhancements/pull/1111";

/// Approval state of a definition in a protected group.
pub enum Approval {
    /// The annotation is missing.
    Missing,
    /// The annotation is invalid.
    Invalid,
    /// The annotation has a reason why there is no approval.
    Bypassed(String),
    /// The annotation has the URL of the approval.
    Given(String),
}

impl Approval {
    /// Returns the approval state; `None` in unprotected groups.
    pub fn from_definition(definition: &Value) -> Option<Self> {
        let group = text(&definition["spec"], "group");
        let protected = ["k8s.io", "kubernetes.io"].iter().any(|d| group == *d || group.ends_with(&format!(".{d}")));
        let is_url = |value: &str| {
            let parts = value.split_once("://");
            parts.is_some_and(|(scheme, rest)| !scheme.is_empty() && !rest.is_empty() && !rest.starts_with('/'))
        };
        protected.then(|| match text(&definition["metadata"]["annotations"], APPROVED_ANNOTATION) {
            "" => Self::Missing,
            value if value.starts_with("unapproved") => Self::Bypassed(value.to_owned()),
            value if is_url(value) => Self::Given(value.to_owned()),
            _ => Self::Invalid,
        })
    }

    /// Returns the message of the validation error or condition.
    pub fn message(&self) -> String {
        let must = format!("protected groups must have approval annotation {APPROVED_ANNOTATION:?}");
        match self {
            Self::Missing => format!("{must}, {PROPOSAL}"),
            Self::Invalid => format!("{must} with either a URL or a reason starting with \"unapproved\", {PROPOSAL}"),
            Self::Bypassed(value) => format!("not approved: {}", quoted(value)),
            Self::Given(url) => format!("approved in {url}"),
        }
    }

    /// Returns the status and reason of the condition `KubernetesAPIApprovalPolicyConformant`
    /// (`pkg/controller/apiapproval`).
    pub fn condition(&self) -> (&'static str, &'static str) {
        match self {
            Self::Missing => ("False", "MissingAnnotation"),
            Self::Invalid => ("False", "InvalidAnnotation"),
            Self::Bypassed(_) => ("False", "UnapprovedAnnotation"),
            Self::Given(_) => ("True", "ApprovedAnnotation"),
        }
    }
}
