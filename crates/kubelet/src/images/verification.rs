//! For which images that are there a Pod has to show credentials (`imagePullCredentialsVerificationPolicy`).

use super::reference::Reference;

/// The policies of upstream's `image_pull_policies.go`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verification {
    /// For none.
    Never,
    /// For those that this kubelet pulled.
    NotPreloaded,
    /// For all but these repositories.
    NotAllowlisted(Vec<Pattern>),
    /// For all.
    Always,
}

/// A repository, or all below a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Pattern {
    /// This repository.
    Exact(String),
    /// All that begin so.
    Prefix(String),
}

impl Verification {
    /// Reads a policy and its list.
    ///
    /// # Errors
    /// Why they make no sense.
    pub(crate) fn parse(policy: &str, allowlist: &[String]) -> Result<Self, String> {
        let verification = match policy {
            "NeverVerify" => Self::Never,
            "NeverVerifyPreloadedImages" => Self::NotPreloaded,
            "AlwaysVerify" => Self::Always,
            "NeverVerifyAllowlistedImages" => {
                let patterns: Result<_, String> = allowlist.iter().map(|p| Pattern::parse(p)).collect();
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

    /// Whether a Pod has to show credentials for an image that is there.
    pub(crate) fn is_required(&self, repository: &str, pulled_here: bool) -> bool {
        match self {
            Self::Never => false,
            Self::NotPreloaded => pulled_here,
            Self::NotAllowlisted(patterns) => !patterns.iter().any(|pattern| pattern.matches(repository)),
            Self::Always => true,
        }
    }
}

impl Pattern {
    /// Upstream's words for what is wrong (`getAllowlistImagePattern`).
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

    fn parse(policy: &str, allowlist: &[&str]) -> Result<Verification, String> {
        Verification::parse(policy, &allowlist.iter().map(|p| (*p).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn the_policy_says_for_which_images_credentials_are_shown() {
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
    fn what_makes_no_sense_is_refused() {
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
