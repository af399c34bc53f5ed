//! Groups of the community's are not for everyone (`apihelpers.GetAPIApprovalState`).

use crate::kinds::checks::text;
use api::quote::quoted;
use serde_json::Value;

/// Who wants a kind in these groups has asked the community.
pub(super) const APPROVED: &str = "api-approved.kubernetes.io";
const PROPOSAL: &str = "see https://github.com/kubernetes/enhancements/pull/1111";

/// What a definition in such a group says of it.
pub(crate) enum Approval {
    /// Nothing.
    Missing,
    /// Something that means nothing.
    Invalid,
    /// That it was not asked for.
    Bypassed(String),
    /// Where that was done.
    Given(String),
}

impl Approval {
    /// `None` in groups that are for everyone.
    pub(crate) fn of(definition: &Value) -> Option<Self> {
        let group = text(&definition["spec"], "group");
        let protected = ["k8s.io", "kubernetes.io"].iter().any(|d| group == *d || group.ends_with(&format!(".{d}")));
        let is_address = |said: &str| {
            let parts = said.split_once("://");
            parts.is_some_and(|(scheme, rest)| !scheme.is_empty() && !rest.is_empty() && !rest.starts_with('/'))
        };
        protected.then(|| match text(&definition["metadata"]["annotations"], APPROVED) {
            "" => Self::Missing,
            said if said.starts_with("unapproved") => Self::Bypassed(said.to_owned()),
            said if is_address(said) => Self::Given(said.to_owned()),
            _ => Self::Invalid,
        })
    }

    /// What follows from it, in words.
    pub(crate) fn message(&self) -> String {
        let must = format!("protected groups must have approval annotation {APPROVED:?}");
        match self {
            Self::Missing => format!("{must}, {PROPOSAL}"),
            Self::Invalid => format!("{must} with either a URL or a reason starting with \"unapproved\", {PROPOSAL}"),
            Self::Bypassed(said) => format!("not approved: {}", quoted(said)),
            Self::Given(place) => format!("approved in {place}"),
        }
    }

    /// The value and the reason of the condition `KubernetesAPIApprovalPolicyConformant`
    /// (`pkg/controller/apiapproval`).
    pub(crate) fn condition(&self) -> (&'static str, &'static str) {
        match self {
            Self::Missing => ("False", "MissingAnnotation"),
            Self::Invalid => ("False", "InvalidAnnotation"),
            Self::Bypassed(_) => ("False", "UnapprovedAnnotation"),
            Self::Given(_) => ("True", "ApprovedAnnotation"),
        }
    }
}
