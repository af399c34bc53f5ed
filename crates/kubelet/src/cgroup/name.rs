//! Names of cgroups, and their form with each cgroup driver (upstream's `CgroupName`).

/// Maximum length of a unit's name in bytes (`UNIT_NAME_MAX`).
const MAX_UNIT: usize = 255;
const SLICE: &str = ".slice";

/// Name of a cgroup: its components, which do not depend on the driver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct CgroupName(Vec<String>);

/// A name that the driver cannot express.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub(super) enum CgroupNameError {
    #[error("invalid character in component {0:?} of the cgroup's name")]
    Character(String),
    #[error("the cgroup's name has no components")]
    Empty,
    #[error("the name of the slice {0} is longer than {MAX_UNIT} bytes")]
    TooLong(String),
}

/// A slice of systemd.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Slice {
    /// Name of the unit, for example `kubepods-burstable.slice`.
    pub(super) unit: String,
    /// Name of the parent's unit, for example `kubepods.slice`.
    pub(super) parent: String,
    /// Path of the cgroup, for example `/kubepods.slice/kubepods-burstable.slice`.
    pub(super) path: String,
}

impl CgroupName {
    /// Parses a path of the cgroup file system, as `cgroupRoot` has.
    pub(super) fn parse(path: &str) -> Self {
        Self(path.split('/').filter(|part| !part.is_empty()).map(str::to_owned).collect())
    }

    pub(super) fn join(&self, component: impl Into<String>) -> Self {
        Self(self.0.iter().cloned().chain([component.into()]).collect())
    }

    /// Returns the path with the driver `cgroupfs`.
    ///
    /// # Errors
    /// When the path would lead elsewhere, or a runtime would take it for a slice of systemd.
    pub(super) fn cgroupfs(&self) -> Result<String, CgroupNameError> {
        let is_valid = |part: &&String| !part.contains(['/', '\0']) && ![".", ".."].contains(&part.as_str());
        match self.0.iter().find(|part| !is_valid(part)) {
            Some(part) => Err(CgroupNameError::Character(part.clone())),
            None if self.0.last().is_some_and(|part| part.ends_with(SLICE)) => {
                Err(CgroupNameError::Character(self.0.last().cloned().unwrap_or_default()))
            }
            None => Ok(format!("/{}", self.0.join("/"))),
        }
    }

    /// Returns the slice with the driver `systemd` (`ToSystemd`, `ExpandSlice`): a dash separates the levels, so that dashes of
    /// components become underscores.
    ///
    /// # Errors
    /// When a component has an underscore, so that the name could not be converted back, or a character that systemd refuses.
    pub(super) fn slice(&self) -> Result<Slice, CgroupNameError> {
        let is_valid = |part: &str| !part.is_empty() && part.bytes().all(is_unit_character);
        if let Some(part) = self.0.iter().find(|part| !is_valid(part)) {
            return Err(CgroupNameError::Character(part.clone()));
        }
        let (mut path, mut prefix, mut parent) = (String::new(), String::new(), "-.slice".to_owned());
        let mut unit = None;
        for part in &self.0 {
            if let Some(unit) = unit.take() {
                parent = unit;
            }
            let separator = if prefix.is_empty() { "" } else { "-" };
            prefix = format!("{prefix}{separator}{}", part.replace('-', "_"));
            let name = format!("{prefix}{SLICE}");
            path = format!("{path}/{name}");
            unit = Some(name);
        }
        let unit = unit.ok_or(CgroupNameError::Empty)?;
        if unit.len() > MAX_UNIT {
            return Err(CgroupNameError::TooLong(unit));
        }
        Ok(Slice { unit, parent, path })
    }
}

/// Returns the last component of a slice's name, as it was before the conversion.
pub(super) fn last_component(unit: &str) -> Option<String> {
    Some(unit.strip_suffix(SLICE)?.rsplit('-').next()?.replace('_', "-"))
}

fn is_unit_character(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b':')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slice(path: &str) -> Result<(String, String, String), CgroupNameError> {
        CgroupName::parse(path).slice().map(|slice| (slice.unit, slice.parent, slice.path))
    }

    /// The cases of upstream's `TestCgroupNameToSystemdBasename` and `TestCgroupNameToSystemd`, among others.
    #[test]
    fn names_are_converted_to_slices() {
        for (path, unit, parent, expanded) in [
            ("/kubepods", "kubepods.slice", "-.slice", "/kubepods.slice"),
            (
                "/kubepods/burstable",
                "kubepods-burstable.slice",
                "kubepods.slice",
                "/kubepods.slice/kubepods-burstable.slice",
            ),
            ("/test-a-b/c", "test_a_b-c.slice", "test_a_b.slice", "/test_a_b.slice/test_a_b-c.slice"),
            (
                "/kubepods/burstable/pod1234-abcd-5678-efgh",
                "kubepods-burstable-pod1234_abcd_5678_efgh.slice",
                "kubepods-burstable.slice",
                "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1234_abcd_5678_efgh.slice",
            ),
            (
                "/podium-0a1b/kubepods/podu",
                "podium_0a1b-kubepods-podu.slice",
                "podium_0a1b-kubepods.slice",
                "/podium_0a1b.slice/podium_0a1b-kubepods.slice/podium_0a1b-kubepods-podu.slice",
            ),
            ("a//b/", "a-b.slice", "a.slice", "/a.slice/a-b.slice"),
        ] {
            assert_eq!(slice(path).unwrap(), (unit.to_owned(), parent.to_owned(), expanded.to_owned()), "{path}");
        }
    }

    #[test]
    fn inexpressible_names_are_errors() {
        let character = |part: &str| CgroupNameError::Character(part.to_owned());
        assert_eq!(slice("/"), Err(CgroupNameError::Empty));
        for part in ["a_b", "a@b", "a b", "ä", "a\\x2d"] {
            assert_eq!(slice(&format!("/kubepods/{part}")), Err(character(part)));
        }
        assert_eq!(CgroupName::parse("/kubepods").join("pod/..").slice(), Err(character("pod/..")));
        assert!(matches!(slice(&format!("/kubepods/{}", "a".repeat(250))), Err(CgroupNameError::TooLong(_))));
        let root = CgroupName::parse("/kubepods");
        for part in ["pod/../..", "..", "poda.slice"] {
            assert_eq!(root.join(part).cgroupfs(), Err(character(part)));
        }
        assert_eq!(root.join("poda_b").cgroupfs().unwrap(), "/kubepods/poda_b");
        assert_eq!(CgroupName::parse("/").cgroupfs().unwrap(), "/");
    }

    #[test]
    fn pod_component_is_found_in_the_unit() {
        assert_eq!(last_component("kubepods-burstable-pod12_34.slice").as_deref(), Some("pod12-34"));
        assert_eq!(last_component("kubepods.slice").as_deref(), Some("kubepods"));
        assert_eq!(last_component("cri-podium-c.scope"), None);
    }
}
