//! The machine's platform, and which platforms of an index suit it.

use oci_spec::image::{Arch, ImageConfiguration, Os};
use std::{env::consts, fmt};

/// A platform, with the names of Go (`GOOS`, `GOARCH`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Platform {
    architecture: String,
}

impl fmt::Display for Platform {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "linux/{}", self.architecture)
    }
}

impl Platform {
    /// Returns the platform of this machine.
    pub(crate) fn host() -> Self {
        let architecture = match consts::ARCH {
            "x86_64" => "amd64",
            "aarch64" => "arm64",
            "x86" => "386",
            "powerpc64" => "ppc64le",
            "loongarch64" => "loong64",
            other => other,
        };
        Self { architecture: architecture.to_owned() }
    }

    /// Returns the platform with this architecture.
    #[cfg(test)]
    pub(crate) fn linux(architecture: &str) -> Self {
        Self { architecture: architecture.to_owned() }
    }

    /// Returns how well a platform of an index suits, lower is better, or `None` if its programs do not run here. Variants
    /// that not every machine of the architecture has, such as `amd64/v3`, do not suit.
    pub(crate) fn rank(&self, os: &Os, architecture: &Arch, variant: Option<&str>) -> Option<u8> {
        if *os != Os::Linux || architecture.to_string() != self.architecture {
            return None;
        }
        match (self.architecture.as_str(), variant.unwrap_or_default()) {
            ("amd64", "" | "v1") | ("arm64", "" | "v8") | ("arm", "v7") => Some(0),
            ("arm", "v6") => Some(1),
            ("arm", "v5") => Some(2),
            ("arm", "") => Some(3),
            ("amd64" | "arm64" | "arm", _) => None,
            _ => Some(0),
        }
    }

    /// Returns whether programs of an image run here.
    pub(crate) fn suits(&self, config: &ImageConfiguration) -> bool {
        self.rank(config.os(), config.architecture(), config.variant().as_deref()).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variants_are_preferred_or_refused() {
        let rank = |machine: &str, os, arch, variant| Platform::linux(machine).rank(&os, &arch, variant);
        assert_eq!(rank("amd64", Os::Linux, Arch::Amd64, None), Some(0));
        assert_eq!(rank("amd64", Os::Linux, Arch::Amd64, Some("v3")), None);
        assert_eq!(rank("amd64", Os::Windows, Arch::Amd64, None), None);
        assert_eq!(rank("amd64", Os::Other("unknown".to_owned()), Arch::Other("unknown".to_owned()), None), None);
        assert_eq!(rank("arm64", Os::Linux, Arch::ARM64, Some("v8")), Some(0));
        assert_eq!(rank("arm64", Os::Linux, Arch::Amd64, None), None);
        assert!(rank("arm", Os::Linux, Arch::ARM, Some("v7")) < rank("arm", Os::Linux, Arch::ARM, Some("v6")));
        assert_eq!(Platform::host().to_string().split('/').count(), 2);
    }
}
