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

/// Error of an admission plugin in a flag.
#[derive(Debug, thiserror::Error)]
pub enum ParsePluginError {
    /// The plugin is unknown.
    #[error("{flag} plugin {name:?} is unknown; the known ones: {known}")]
    Unknown {
        /// Name of the flag.
        flag: &'static str,
        /// Name of the plugin.
        name: String,
        /// Names of all plugins.
        known: String,
    },
    /// The plugin cannot be disabled.
    #[error(
        "disable-admission-plugins plugin {0:?} cannot be turned off; these can: {ALWAYS_PULL_IMAGES}, \
         {DENY_SERVICE_EXTERNAL_IPS}"
    )]
    AlwaysOn(&'static str),
}

/// Plugins are both enabled and disabled; contains their names.
#[derive(Debug, thiserror::Error)]
#[error("[{0}] in enable-admission-plugins and disable-admission-plugins overlapped")]
pub struct OverlappingPlugins(String);

impl AdmissionPlugin {
    /// Parses a name in `--enable-admission-plugins`.
    ///
    /// # Errors
    /// If the plugin is unknown: upstream's text and the names of all plugins.
    pub fn parse_enabled(name: &str) -> Result<Self, ParsePluginError> {
        Self::parse("enable-admission-plugins", name)
    }

    /// Parses a name in `--disable-admission-plugins`.
    ///
    /// # Errors
    /// If the plugin is unknown, or cannot be disabled.
    pub fn parse_disabled(name: &str) -> Result<Self, ParsePluginError> {
        match Self::parse("disable-admission-plugins", name)? {
            Self::AlwaysOn(name) => Err(ParsePluginError::AlwaysOn(name)),
            plugin => Ok(plugin),
        }
    }

    fn parse(flag: &'static str, name: &str) -> Result<Self, ParsePluginError> {
        match name {
            ALWAYS_PULL_IMAGES => Ok(Self::AlwaysPullImages),
            DENY_SERVICE_EXTERNAL_IPS => Ok(Self::DenyServiceExternalIps),
            _ => ALWAYS_ON.iter().find(|known| **known == name).map(|known| Self::AlwaysOn(known)).ok_or_else(|| {
                let mut known = [&[ALWAYS_PULL_IMAGES, DENY_SERVICE_EXTERNAL_IPS][..], &ALWAYS_ON[..]].concat();
                known.sort_unstable();
                ParsePluginError::Unknown { flag, name: name.to_owned(), known: known.join(", ") }
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
    pub fn new(enable: &[AdmissionPlugin], disable: &[AdmissionPlugin]) -> Result<Self, OverlappingPlugins> {
        let mut both: Vec<String> =
            enable.iter().filter(|plugin| disable.contains(plugin)).map(ToString::to_string).collect();
        if !both.is_empty() {
            both.sort_unstable();
            both.dedup();
            return Err(OverlappingPlugins(both.join(" ")));
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
            overlap.to_string(),
            "[DenyServiceExternalIPs] in enable-admission-plugins and disable-admission-plugins overlapped"
        );
    }

    #[test]
    fn unknown_and_always_on_plugins_are_rejected() {
        let unknown = AdmissionPlugin::parse_enabled("Nope").unwrap_err().to_string();
        let start = "enable-admission-plugins plugin \"Nope\" is unknown; the known ones: AlwaysPullImages, ";
        assert!(unknown.starts_with(start) && unknown.contains("DenyServiceExternalIPs"), "{unknown}");
        let unknown = AdmissionPlugin::parse_disabled("Nope").unwrap_err().to_string();
        assert!(unknown.starts_with("disable-admission-plugins plugin"), "{unknown}");
        for name in ALWAYS_ON {
            assert_eq!(AdmissionPlugin::parse_enabled(name).unwrap().to_string(), name);
            let error = AdmissionPlugin::parse_disabled(name).unwrap_err().to_string();
            assert!(error.contains(&format!("plugin {name:?} cannot be turned off")), "{error}");
        }
    }
}
