//! Enabled admission plugins: `--enable-admission-plugins` and `--disable-admission-plugins`
//! (upstream's `apiserver/pkg/server/options/admission.go`).

use super::plugin::{DefaultState, PLUGINS, Plugin};
use std::fmt;

/// An admission plugin of the API server, by upstream's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AdmissionPlugin(&'static str);

/// Upstream's plugins that Podium has elsewhere than in [`PLUGINS`], and that cannot be disabled.
const OTHER_PLUGINS: [&str; 10] = [
    "CertificateApproval",
    "CertificateSigning",
    "CertificateSubjectRestriction",
    "DefaultTolerationSeconds",
    "MutatingAdmissionWebhook",
    "NamespaceLifecycle",
    "NodeRestriction",
    "ResourceQuota",
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
    #[error("disable-admission-plugins plugin {name:?} cannot be turned off; these can: {others}")]
    AlwaysOn {
        /// Name of the plugin.
        name: &'static str,
        /// Names of the plugins that can be disabled.
        others: String,
    },
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
        let plugin = Self::parse("disable-admission-plugins", name)?;
        match plugin.default_state() {
            DefaultState::AlwaysOn => {
                Err(ParsePluginError::AlwaysOn { name: plugin.0, others: join(switchable().map(|plugin| plugin.0)) })
            }
            DefaultState::On | DefaultState::Off => Ok(plugin),
        }
    }

    fn parse(flag: &'static str, name: &str) -> Result<Self, ParsePluginError> {
        let mut all = PLUGINS.iter().map(|plugin| plugin.name()).chain(OTHER_PLUGINS);
        all.find(|known| *known == name).map(Self).ok_or_else(|| {
            let known = join(PLUGINS.iter().map(|plugin| plugin.name()).chain(OTHER_PLUGINS));
            ParsePluginError::Unknown { flag, name: name.to_owned(), known }
        })
    }

    fn default_state(self) -> DefaultState {
        let found = PLUGINS.iter().find(|plugin| plugin.name() == self.0);
        found.map_or(DefaultState::AlwaysOn, |plugin| plugin.default_state())
    }
}

/// Returns the plugins that can be enabled and disabled.
fn switchable() -> impl Iterator<Item = AdmissionPlugin> {
    let all = PLUGINS.iter().filter(|plugin| plugin.default_state() != DefaultState::AlwaysOn);
    all.map(|plugin| AdmissionPlugin(plugin.name()))
}

/// Lists names in their order.
fn join(names: impl Iterator<Item = &'static str>) -> String {
    let mut names: Vec<&str> = names.collect();
    names.sort_unstable();
    names.join(", ")
}

impl fmt::Display for AdmissionPlugin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

/// The enabled plugins, of those that can be disabled.
#[derive(Debug, Clone)]
pub struct AdmissionPlugins {
    enabled: Vec<AdmissionPlugin>,
}

impl Default for AdmissionPlugins {
    fn default() -> Self {
        Self { enabled: switchable().filter(|plugin| plugin.default_state() == DefaultState::On).collect() }
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

    /// Returns the built-in plugins that run, in their order.
    pub(super) fn enabled(&self) -> impl Iterator<Item = &'static dyn Plugin> {
        PLUGINS.iter().copied().filter(|plugin| {
            plugin.default_state() == DefaultState::AlwaysOn || self.enabled.iter().any(|on| on.0 == plugin.name())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plugins_are_enabled_and_disabled() {
        let [always_pull_images, deny_external_ips] =
            ["AlwaysPullImages", "DenyServiceExternalIPs"].map(|name| AdmissionPlugin::parse_enabled(name).unwrap());
        let state = |enable: &[AdmissionPlugin], disable: &[AdmissionPlugin]| {
            let plugins = AdmissionPlugins::new(enable, disable).unwrap();
            [always_pull_images, deny_external_ips].map(|plugin| plugins.enabled().any(|on| on.name() == plugin.0))
        };
        assert_eq!(state(&[], &[]), [false, true]);
        assert_eq!(state(&[always_pull_images], &[]), [true, true]);
        assert_eq!(state(&[deny_external_ips, AdmissionPlugin("PodSecurity")], &[]), [false, true]);
        assert_eq!(state(&[always_pull_images], &[deny_external_ips]), [true, false]);
        assert_eq!(state(&[], &[always_pull_images]), [false, true]);
        let overlap = AdmissionPlugins::new(&[deny_external_ips], &[deny_external_ips]).unwrap_err();
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
        for name in OTHER_PLUGINS.into_iter().chain(["PodSecurity", "Priority"]) {
            assert_eq!(AdmissionPlugin::parse_enabled(name).unwrap().to_string(), name);
            let error = AdmissionPlugin::parse_disabled(name).unwrap_err().to_string();
            assert!(error.contains(&format!("plugin {name:?} cannot be turned off")), "{error}");
        }
    }
}
