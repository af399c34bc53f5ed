//! Platforms of images (`github.com/containerd/platforms`).

use serde::Deserialize;
use std::fmt;

/// Platform to pull images for: Linux on an architecture.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Platform {
    /// Architecture in Go's spelling, for example `amd64`.
    pub architecture: String,
    /// Variant of the architecture, for example `v7`; empty for the default.
    pub variant: String,
}

/// Platform of a manifest, in an index or a config.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub(crate) struct PlatformSpec {
    #[serde(default)]
    pub(crate) os: String,
    #[serde(default)]
    pub(crate) architecture: String,
    #[serde(default)]
    pub(crate) variant: String,
}

impl PlatformSpec {
    /// Returns how well it matches a platform ([`Platform::rank`]).
    pub(crate) fn rank(&self, own: &Platform) -> Option<usize> {
        own.rank(&self.os, &self.architecture, &self.variant)
    }
}

impl Default for Platform {
    /// Returns the platform of this process.
    fn default() -> Self {
        let (architecture, variant) = match std::env::consts::ARCH {
            "x86_64" => ("amd64", ""),
            "aarch64" => ("arm64", "v8"),
            "arm" => ("arm", "v7"),
            "x86" => ("386", ""),
            "powerpc64" if cfg!(target_endian = "little") => ("ppc64le", ""),
            "loongarch64" => ("loong64", ""),
            other => (other, ""),
        };
        Self { architecture: architecture.to_owned(), variant: variant.to_owned() }
    }
}

impl fmt::Display for Platform {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "linux/{}", self.architecture)?;
        if self.variant.is_empty() { Ok(()) } else { write!(f, "/{}", self.variant) }
    }
}

impl Platform {
    /// Returns how well the platform of an image matches: 0 is the best, `None` means that its programs do not run here.
    /// Variants that not every machine of the architecture has, such as `amd64/v3`, do not match.
    #[must_use]
    pub fn rank(&self, os: &str, architecture: &str, variant: &str) -> Option<usize> {
        if os != "linux" {
            return None;
        }
        let candidate = normalize(architecture, variant);
        self.compatible().iter().position(|own| *own == candidate)
    }

    /// Returns the platforms whose images run here, the best first.
    fn compatible(&self) -> Vec<(String, String)> {
        let (architecture, variant) = normalize(&self.architecture, &self.variant);
        let number = variant.strip_prefix('v').and_then(|v| v.parse::<u32>().ok());
        let numbered = |architecture: &str, from: u32, to: u32| {
            (to..=from).rev().map(|n| normalize(architecture, &format!("v{n}"))).collect::<Vec<_>>()
        };
        match architecture.as_str() {
            "amd64" => {
                let mut found = numbered("amd64", number.unwrap_or(1).min(4), 1);
                found.push(("386".to_owned(), String::new()));
                found
            }
            "arm64" => {
                let mut found = vec![(architecture, variant.clone())];
                if !variant.is_empty() {
                    found.push(("arm64".to_owned(), String::new()));
                }
                found.extend(numbered("arm", 8, 5));
                found
            }
            "arm" => numbered("arm", number.unwrap_or(7).min(8), 5),
            _ => vec![(architecture, variant)],
        }
    }
}

/// Returns architecture and variant in the canonical spelling: the default variant is empty, but that of `arm` is `v7`.
fn normalize(architecture: &str, variant: &str) -> (String, String) {
    let (architecture, variant) = (architecture.to_lowercase(), variant.to_lowercase());
    let (architecture, variant) = match (architecture.as_str(), variant.as_str()) {
        ("i386", _) => ("386", ""),
        ("x86_64" | "x86-64" | "amd64", "" | "v1") => ("amd64", ""),
        ("x86_64" | "x86-64", variant) => ("amd64", variant),
        ("aarch64" | "arm64", "" | "8" | "v8" | "v8.0") => ("arm64", ""),
        ("aarch64", variant) => ("arm64", variant),
        ("armhf", _) | ("arm", "" | "7") => ("arm", "v7"),
        ("armel", _) | ("arm", "6") => ("arm", "v6"),
        ("arm", "5") => ("arm", "v5"),
        ("arm", "8") => ("arm", "v8"),
        (architecture, variant) => (architecture, variant),
    };
    (architecture.to_owned(), variant.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(own: (&str, &str), candidate: (&str, &str), rank: Option<usize>) {
        let own = Platform { architecture: own.0.to_owned(), variant: own.1.to_owned() };
        assert_eq!(own.rank("linux", candidate.0, candidate.1), rank, "{own} {candidate:?}");
    }

    #[test]
    fn platforms_match_by_architecture_and_variant() {
        check(("amd64", ""), ("amd64", ""), Some(0));
        check(("amd64", ""), ("x86_64", "v1"), Some(0));
        check(("amd64", ""), ("amd64", "v2"), None);
        check(("amd64", ""), ("amd64", "v3"), None);
        check(("amd64", "v3"), ("amd64", "v2"), Some(1));
        check(("amd64", ""), ("386", ""), Some(1));
        check(("amd64", ""), ("arm64", ""), None);
        check(("arm64", "v8"), ("arm64", ""), Some(0));
        check(("arm64", "v8"), ("arm64", "v8"), Some(0));
        check(("arm64", ""), ("arm", "v7"), Some(2));
        check(("arm64", ""), ("amd64", ""), None);
        check(("arm", "v7"), ("arm", "v7"), Some(0));
        check(("arm", "v7"), ("arm", ""), Some(0));
        check(("arm", "v7"), ("arm", "v6"), Some(1));
        check(("arm", "v6"), ("arm", "v7"), None);
        check(("s390x", ""), ("s390x", ""), Some(0));
        check(("amd64", ""), ("unknown", ""), None);
    }

    #[test]
    fn other_systems_do_not_match() {
        let own = Platform { architecture: "amd64".to_owned(), variant: String::new() };
        assert_eq!(own.rank("windows", "amd64", ""), None);
        assert_eq!(own.rank("unknown", "unknown", ""), None);
    }

    #[test]
    fn platform_is_written_as_containerd_does() {
        let own = Platform { architecture: "arm64".to_owned(), variant: "v8".to_owned() };
        assert_eq!(own.to_string(), "linux/arm64/v8");
        assert_eq!(Platform { variant: String::new(), ..own }.to_string(), "linux/arm64");
        assert_eq!(Platform::default().rank("linux", &Platform::default().architecture, ""), Some(0));
    }
}
