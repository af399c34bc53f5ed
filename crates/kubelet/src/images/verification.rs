//! Policy for verification of image pull credentials (`imagePullCredentialsVerificationPolicy`).

use super::reference::{Reference, ReferenceError};

/// Verification policy (upstream's `image_pull_policies.go`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum VerificationPolicy {
    /// `NeverVerify`.
    Never,
    /// `NeverVerifyPreloadedImages`: verifies images that this kubelet pulled.
    NotPreloaded,
    /// `NeverVerifyAllowlistedImages`: verifies all images but these.
    NotAllowlisted(Vec<AllowlistPattern>),
    /// `AlwaysVerify`.
    Always,
}

/// Allowlist pattern.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum AllowlistPattern {
    /// A repository.
    Exact(String),
    /// All repositories with this prefix.
    Prefix(String),
}

/// Invalid verification policy.
#[derive(Debug, thiserror::Error)]
pub enum VerificationPolicyError {
    /// Unknown policy.
    #[error("unknown image pull credential verification policy: {0}")]
    Unknown(String),
    /// Allowlist with another policy.
    #[error(
        "preloadedImagesVerificationAllowlist can only be set with NeverVerifyAllowlistedImages, not with {policy}"
    )]
    UnusedAllowlist {
        /// The policy.
        policy: String,
    },
    /// Invalid pattern in the allowlist.
    #[error(transparent)]
    Pattern(#[from] AllowlistPatternError),
}

/// Invalid allowlist pattern, with upstream's message (`getAllowlistImagePattern`).
#[derive(Debug, thiserror::Error)]
pub enum AllowlistPatternError {
    /// Leading or trailing spaces.
    #[error("leading/trailing spaces are not allowed: {0}")]
    Spaces(String),
    /// Empty pattern.
    #[error("the supplied pattern is too short: {0}")]
    TooShort(String),
    /// Wildcard that is not the last component.
    #[error("not a valid wildcard pattern, only patterns ending with '/*' are allowed: {0}")]
    Wildcard(String),
    /// Wildcard without a registry.
    #[error("at least registry hostname is required")]
    NoRegistry,
    /// Invalid image reference.
    #[error("failed to parse as an image name: {0}")]
    Reference(#[from] ReferenceError),
    /// Image reference with tag or digest.
    #[error("neither tag nor digest is accepted in an image reference: {0}")]
    TagOrDigest(String),
}

impl VerificationPolicy {
    /// Parses a policy and its allowlist.
    ///
    /// # Errors
    /// Fails for an invalid policy or pattern.
    pub(crate) fn parse(policy: &str, allowlist: &[String]) -> Result<Self, VerificationPolicyError> {
        let verification = match policy {
            "NeverVerify" => Self::Never,
            "NeverVerifyPreloadedImages" => Self::NotPreloaded,
            "AlwaysVerify" => Self::Always,
            "NeverVerifyAllowlistedImages" => {
                let patterns: Result<_, AllowlistPatternError> =
                    allowlist.iter().map(|p| AllowlistPattern::parse(p)).collect();
                return Ok(Self::NotAllowlisted(patterns?));
            }
            _ => return Err(VerificationPolicyError::Unknown(policy.to_owned())),
        };
        if !allowlist.is_empty() {
            return Err(VerificationPolicyError::UnusedAllowlist { policy: policy.to_owned() });
        }
        Ok(verification)
    }

    /// Returns whether a Pod needs credentials to use a present image.
    pub(crate) fn is_required(&self, repository: &str, pulled_here: bool) -> bool {
        match self {
            Self::Never => false,
            Self::NotPreloaded => pulled_here,
            Self::NotAllowlisted(patterns) => !patterns.iter().any(|pattern| pattern.matches(repository)),
            Self::Always => true,
        }
    }
}

impl AllowlistPattern {
    fn parse(text: &str) -> Result<Self, AllowlistPatternError> {
        if text != text.trim() {
            return Err(AllowlistPatternError::Spaces(text.to_owned()));
        }
        let (path, wildcard) = match text.strip_suffix("/*") {
            Some(path) => (path, true),
            None => (text, false),
        };
        if path.is_empty() && !wildcard {
            return Err(AllowlistPatternError::TooShort(text.to_owned()));
        }
        if path.contains('*') {
            return Err(AllowlistPatternError::Wildcard(text.to_owned()));
        }
        if wildcard {
            return if path.is_empty() {
                Err(AllowlistPatternError::NoRegistry)
            } else {
                Ok(Self::Prefix(format!("{path}/")))
            };
        }
        let reference = Reference::parse(text)?;
        if reference.repository != text {
            return Err(AllowlistPatternError::TagOrDigest(text.to_owned()));
        }
        Ok(Self::Exact(text.to_owned()))
    }

    fn matches(&self, repository: &str) -> bool {
        match self {
            Self::Exact(name) => name == repository,
            Self::Prefix(prefix) => repository.starts_with(prefix.as_str()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(policy: &str, allowlist: &[&str]) -> Result<VerificationPolicy, VerificationPolicyError> {
        VerificationPolicy::parse(policy, &allowlist.iter().map(|p| (*p).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn verification_policy_decides_by_image_and_origin() {
        let list = ["docker.io/library/busybox", "quay.io/team/*"];
        for (policy, list, image, pulled_here, expected) in [
            ("NeverVerify", &[][..], "a.io/b", true, false),
            ("NeverVerifyPreloadedImages", &[], "a.io/b", true, true),
            ("NeverVerifyPreloadedImages", &[], "a.io/b", false, false),
            ("AlwaysVerify", &[], "a.io/b", false, true),
            ("NeverVerifyAllowlistedImages", &list, "docker.io/library/busybox", true, false),
            ("NeverVerifyAllowlistedImages", &list, "docker.io/library/busybox2", false, true),
            ("NeverVerifyAllowlistedImages", &list, "quay.io/team/a/b", true, false),
            ("NeverVerifyAllowlistedImages", &list, "quay.io/team", false, true),
        ] {
            let verification = parse(policy, list).unwrap();
            assert_eq!(verification.is_required(image, pulled_here), expected, "{policy} {image} {pulled_here}");
        }
    }

    #[test]
    fn invalid_verification_policy_is_rejected() {
        for (policy, pattern, message) in [
            ("Sometimes", "", "unknown image pull credential verification policy: Sometimes"),
            ("AlwaysVerify", "a.io/b", "can only be set with NeverVerifyAllowlistedImages, not with AlwaysVerify"),
            ("NeverVerifyAllowlistedImages", " a.io", "leading/trailing spaces are not allowed:  a.io"),
            ("NeverVerifyAllowlistedImages", "", "the supplied pattern is too short"),
            ("NeverVerifyAllowlistedImages", "a.io/*/b", "only patterns ending with '/*' are allowed"),
            ("NeverVerifyAllowlistedImages", "/*", "at least registry hostname is required"),
            ("NeverVerifyAllowlistedImages", "a.io/B", "failed to parse as an image name"),
            ("NeverVerifyAllowlistedImages", "a.io/b:1", "neither tag nor digest is accepted"),
        ] {
            let error = parse(policy, &[pattern]).unwrap_err().to_string();
            assert!(error.contains(message), "{error}");
        }
    }
}
