//! Platforms in documents.

use distribution::Platform;
use oci_spec::image::{Arch, ImageConfiguration, Os};

/// Returns how well a platform of an index suits the machine ([`Platform::rank`]).
pub(crate) fn rank(machine: &Platform, os: &Os, architecture: &Arch, variant: Option<&str>) -> Option<usize> {
    machine.rank(&os.to_string(), &architecture.to_string(), variant.unwrap_or_default())
}

/// Returns whether programs of an image run on the machine.
pub(crate) fn suits(machine: &Platform, config: &ImageConfiguration) -> bool {
    rank(machine, config.os(), config.architecture(), config.variant().as_deref()).is_some()
}

#[cfg(test)]
pub(crate) fn linux(architecture: &str) -> Platform {
    Platform { architecture: architecture.to_owned(), variant: String::new() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variants_are_preferred_or_refused() {
        let rank = |machine: &str, os, arch, variant| rank(&linux(machine), &os, &arch, variant);
        assert_eq!(rank("amd64", Os::Linux, Arch::Amd64, None), Some(0));
        assert_eq!(rank("amd64", Os::Linux, Arch::Amd64, Some("v3")), None);
        assert_eq!(rank("amd64", Os::Windows, Arch::Amd64, None), None);
        assert_eq!(rank("amd64", Os::Other("unknown".to_owned()), Arch::Other("unknown".to_owned()), None), None);
        assert_eq!(rank("arm64", Os::Linux, Arch::ARM64, Some("v8")), Some(0));
        assert_eq!(rank("arm64", Os::Linux, Arch::Amd64, None), None);
        assert!(rank("arm", Os::Linux, Arch::ARM, Some("v7")) < rank("arm", Os::Linux, Arch::ARM, Some("v6")));
    }
}
