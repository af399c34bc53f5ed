//! AppArmor profile of a container (containerd's `internal/cri/sputil`).

use crate::{AppArmor, Error};
use runtime::{AppArmorProfile, SecurityContext};

/// Returns the profile of a container's process; `None` for no confinement.
///
/// Without AppArmor or a default profile on the node, only a profile that the Pod names is an error.
pub(crate) fn container_profile(
    security: &SecurityContext,
    apparmor: Option<&AppArmor>,
) -> Result<Option<String>, Error> {
    let Some(apparmor) = apparmor else {
        return match security.apparmor {
            None | Some(AppArmorProfile::Unconfined) => Ok(None),
            Some(_) => Err(Error::AppArmorUnsupported),
        };
    };
    match security.apparmor.as_ref().unwrap_or(&AppArmorProfile::RuntimeDefault) {
        AppArmorProfile::Unconfined => Ok(None),
        AppArmorProfile::RuntimeDefault if security.privileged => Ok(None),
        AppArmorProfile::RuntimeDefault => match &apparmor.default_profile {
            Ok(name) => Ok(Some(name.clone())),
            Err(_) if security.apparmor.is_none() => Ok(None),
            Err(problem) => Err(Error::NoDefaultAppArmorProfile(problem.clone())),
        },
        AppArmorProfile::Localhost(reference) => {
            let name = reference.strip_prefix("localhost/").unwrap_or(reference);
            match name {
                "" => Err(Error::NoAppArmorProfile),
                _ if !apparmor.loaded.contains(name) => Err(Error::AppArmorProfileNotFound(name.to_owned())),
                _ => Ok(Some(name.to_owned())),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[track_caller]
    fn check(
        profile: Option<AppArmorProfile>,
        privileged: bool,
        has_apparmor: bool,
        expected: Result<Option<&str>, &str>,
    ) {
        let security = SecurityContext { apparmor: profile, privileged, ..SecurityContext::default() };
        let loaded = ["mine".to_owned()].into();
        let apparmor = has_apparmor.then(|| AppArmor { default_profile: Ok("default".to_owned()), loaded });
        let found = container_profile(&security, apparmor.as_ref()).map_err(|e| e.to_string());
        assert_eq!(found, expected.map(|name| name.map(str::to_owned)).map_err(str::to_owned));
    }

    #[test]
    fn profile_is_default_unless_named() {
        use AppArmorProfile::{Localhost, RuntimeDefault, Unconfined};
        check(None, false, true, Ok(Some("default")));
        check(None, true, true, Ok(None));
        check(Some(RuntimeDefault), false, true, Ok(Some("default")));
        check(Some(Unconfined), false, true, Ok(None));
        check(Some(Localhost("mine".to_owned())), true, true, Ok(Some("mine")));
        check(Some(Localhost("localhost/mine".to_owned())), false, true, Ok(Some("mine")));
        check(Some(Localhost("other".to_owned())), false, true, Err("apparmor profile not found other"));
        check(Some(Localhost(String::new())), false, true, Err("nil apparmor profile is not supported"));
    }

    #[test]
    fn missing_default_profile_is_an_error_if_named() {
        let profile_of = |apparmor, privileged| {
            let security = SecurityContext { apparmor, privileged, ..SecurityContext::default() };
            let host = AppArmor { default_profile: Err("no parser".to_owned()), loaded: BTreeSet::new() };
            container_profile(&security, Some(&host)).map_err(|e| e.to_string())
        };
        let default = || Some(AppArmorProfile::RuntimeDefault);
        assert_eq!(profile_of(None, false), Ok(None));
        assert_eq!(profile_of(default(), true), Ok(None));
        assert_eq!(profile_of(default(), false), Err("default apparmor profile is not loaded: no parser".to_owned()));
    }

    #[test]
    fn profile_without_apparmor_is_an_error() {
        check(None, false, false, Ok(None));
        check(Some(AppArmorProfile::Unconfined), false, false, Ok(None));
        check(Some(AppArmorProfile::RuntimeDefault), false, false, Err("apparmor is not supported"));
    }
}
