//! Enabled admission plugins: `--enable-admission-plugins` and `--disable-admission-plugins`
//! (upstream's `apiserver/pkg/server/options/admission.go`).

use std::fmt;

/// Admission plugin of the API server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AdmissionPlugin {
    /// Sets the pull policy of all images to `Always`. Off by default.
    AlwaysPullImages,
    /// Denies new `externalIPs` of Services. On by default, unlike upstream's.
    DenyServiceExternalIps,
    /// A plugin that cannot be disabled, by its name.
    AlwaysOn(&'static str),
}

const ALWAYS_PULL_IMAGES: &str = "AlwaysPullImages";
const DENY_SERVICE_EXTERNAL_IPS: &str = "DenyServiceExternalIPs";

/// Upstream's plugins that Podium has and that cannot be disabled.
const ALWAYS_ON: [&str; 20] = [
    "CertificateApproval",
    "CertificateSigning",
    "CertificateSubjectRestriction",
    "DefaultIngressClass",
    "DefaultStorageClass",
    "DefaultTolerationSeconds",
    "LimitRanger",
    "MutatingAdmissionWebhook",
    "NamespaceLifecycle",
    "NodeRestriction",
    "PersistentVolumeClaimResize",
    "PodSecurity",
    "Priority",
    "ResourceQuota",
    "RuntimeClass",
    "ServiceAccount",
    "StorageObjectInUseProtection",
    "TaintNodesByCondition",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionWebhook",
];

impl AdmissionPlugin {
    /// Parses a name in `--enable-admission-plugins`.
    ///
    /// # Errors
    /// If the plugin is unknown: upstream's text and the names of all plugins.
    pub fn parse_enabled(name: &str) -> Result<Self, String> {
        Self::parse("enable-admission-plugins", name)
    }

    /// Parses a name in `--disable-admission-plugins`.
    ///
    /// # Errors
    /// If the plugin is unknown, or cannot be disabled.
    pub fn parse_disabled(name: &str) -> Result<Self, String> {
        match Self::parse("disable-admission-plugins", name)? {
            Self::AlwaysOn(name) => Err(format!(
                "disable-admission-plugins plugin {name:?} cannot be turned off; these can: {ALWAYS_PULL_IMAGES}, \
                 {DENY_SERVICE_EXTERNAL_IPS}"
            )),
            plugin => Ok(plugin),
        }
    }

    fn parse(flag: &str, name: &str) -> Result<Self, String> {
        match name {
            ALWAYS_PULL_IMAGES => Ok(Self::AlwaysPullImages),
            DENY_SERVICE_EXTERNAL_IPS => Ok(Self::DenyServiceExternalIps),
            _ => ALWAYS_ON.iter().find(|known| **known == name).map(|known| Self::AlwaysOn(known)).ok_or_else(|| {
                let mut known = [&[ALWAYS_PULL_IMAGES, DENY_SERVICE_EXTERNAL_IPS][..], &ALWAYS_ON[..]].concat();
                known.sort_unstable();
                format!("{flag} plugin {name:?} is unknown; the known ones: {}", known.join(", "))
            }),
        }
    }
}

impl fmt::Display for AdmissionPlugin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::AlwaysPullImages => ALWAYS_PULL_IMAGES,
            Self::DenyServiceExternalIps => DENY_SERVICE_EXTERNAL_IPS,
            Self::AlwaysOn(name) => name,
        })
    }
}

/// The enabled plugins, of those that can be disabled.
#[derive(Debug, Clone)]
pub struct AdmissionPlugins {
    enabled: Vec<AdmissionPlugin>,
}

impl Default for AdmissionPlugins {
    fn default() -> Self {
        Self { enabled: vec![AdmissionPlugin::DenyServiceExternalIps] }
    }
}

impl AdmissionPlugins {
    /// Creates the set of enabled plugins from the defaults and the two flags.
    ///
    /// # Errors
    /// If a plugin is in both lists: upstream's text.
    pub fn new(enable: &[AdmissionPlugin], disable: &[AdmissionPlugin]) -> Result<Self, String> {
        let mut both: Vec<String> =
            enable.iter().filter(|plugin| disable.contains(plugin)).map(ToString::to_string).collect();
        if !both.is_empty() {
            both.sort_unstable();
            both.dedup();
            let both = both.join(" ");
            return Err(format!("[{both}] in enable-admission-plugins and disable-admission-plugins overlapped"));
        }
        let mut enabled = Self::default().enabled;
        enabled.extend(enable);
        enabled.retain(|plugin| !disable.contains(plugin));
        Ok(Self { enabled })
    }

    pub(crate) fn is_enabled(&self, plugin: AdmissionPlugin) -> bool {
        self.enabled.contains(&plugin)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plugins_are_enabled_and_disabled() {
        use AdmissionPlugin::{AlwaysPullImages, DenyServiceExternalIps};
        let state = |enable: &[AdmissionPlugin], disable: &[AdmissionPlugin]| {
            let plugins = AdmissionPlugins::new(enable, disable).unwrap();
            [AlwaysPullImages, DenyServiceExternalIps].map(|plugin| plugins.is_enabled(plugin))
        };
        assert_eq!(state(&[], &[]), [false, true]);
        assert_eq!(state(&[AlwaysPullImages], &[]), [true, true]);
        assert_eq!(state(&[DenyServiceExternalIps, AdmissionPlugin::AlwaysOn("PodSecurity")], &[]), [false, true]);
        assert_eq!(state(&[AlwaysPullImages], &[DenyServiceExternalIps]), [true, false]);
        assert_eq!(state(&[], &[AlwaysPullImages]), [false, true]);
        let overlap = AdmissionPlugins::new(&[DenyServiceExternalIps], &[DenyServiceExternalIps]).unwrap_err();
        assert_eq!(
            overlap,
            "[DenyServiceExternalIPs] in enable-admission-plugins and disable-admission-plugins overlapped"
        );
    }

    #[test]
    fn unknown_and_always_on_plugins_are_rejected() {
        let unknown = AdmissionPlugin::parse_enabled("Nope").unwrap_err();
        let start = "enable-admission-plugins plugin \"Nope\" is unknown; the known ones: AlwaysPullImages, ";
        assert!(unknown.starts_with(start) && unknown.contains("DenyServiceExternalIPs"), "{unknown}");
        assert!(AdmissionPlugin::parse_disabled("Nope").unwrap_err().starts_with("disable-admission-plugins plugin"));
        for name in ALWAYS_ON {
            assert_eq!(AdmissionPlugin::parse_enabled(name).unwrap().to_string(), name);
            let error = AdmissionPlugin::parse_disabled(name).unwrap_err();
            assert!(error.contains(&format!("plugin {name:?} cannot be turned off")), "{error}");
        }
    }
}
