//! Policy for verification of image pull credentials (`imagePullCredentialsVerificationPolicy`).

use super::reference::Reference;

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

impl VerificationPolicy {
    /// Parses a policy and its allowlist.
    ///
    /// # Errors
    /// Fails for an invalid policy or pattern.
    pub(crate) fn parse(policy: &str, allowlist: &[String]) -> Result<Self, String> {
        let verification = match policy {
            "NeverVerify" => Self::Never,
            "NeverVerifyPreloadedImages" => Self::NotPreloaded,
            "AlwaysVerify" => Self::Always,
            "NeverVerifyAllowlistedImages" => {
                let patterns: Result<_, String> = allowlist.iter().map(|p| AllowlistPattern::parse(p)).collect();
                return Ok(Self::NotAllowlisted(patterns?));
            }
            _ => return Err(format!("unknown image pull credential verification policy: {policy}")),
        };
        if !allowlist.is_empty() {
            let only = "preloadedImagesVerificationAllowlist can only be set with NeverVerifyAllowlistedImages";
            return Err(format!("{only}, not with {policy}"));
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
    /// Parses a pattern; fails with upstream's message (`getAllowlistImagePattern`).
    fn parse(text: &str) -> Result<Self, String> {
        if text != text.trim() {
            return Err(format!("leading/trailing spaces are not allowed: {text}"));
        }
        let (path, wildcard) = match text.strip_suffix("/*") {
            Some(path) => (path, true),
            None => (text, false),
        };
        if path.is_empty() && !wildcard {
            return Err(format!("the supplied pattern is too short: {text}"));
        }
        if path.contains('*') {
            return Err(format!("not a valid wildcard pattern, only patterns ending with '/*' are allowed: {text}"));
        }
        if wildcard {
            return if path.is_empty() {
                Err("at least registry hostname is required".to_owned())
            } else {
                Ok(Self::Prefix(format!("{path}/")))
            };
        }
        let reference = Reference::parse(text).map_err(|e| format!("failed to parse as an image name: {e}"))?;
        if reference.repository != text {
            return Err(format!("neither tag nor digest is accepted in an image reference: {text}"));
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

    fn parse(policy: &str, allowlist: &[&str]) -> Result<VerificationPolicy, String> {
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
        for (policy, pattern, why) in [
            ("Sometimes", "", "unknown image pull credential verification policy: Sometimes"),
            ("AlwaysVerify", "a.io/b", "can only be set with NeverVerifyAllowlistedImages, not with AlwaysVerify"),
            ("NeverVerifyAllowlistedImages", " a.io", "leading/trailing spaces are not allowed:  a.io"),
            ("NeverVerifyAllowlistedImages", "", "the supplied pattern is too short"),
            ("NeverVerifyAllowlistedImages", "a.io/*/b", "only patterns ending with '/*' are allowed"),
            ("NeverVerifyAllowlistedImages", "/*", "at least registry hostname is required"),
            ("NeverVerifyAllowlistedImages", "a.io/B", "failed to parse as an image name"),
            ("NeverVerifyAllowlistedImages", "a.io/b:1", "neither tag nor digest is accepted"),
        ] {
            let error = parse(policy, &[pattern]).unwrap_err();
            assert!(error.contains(why), "{error}");
        }
    }
}
