//! `CredentialProviderConfig` (`kubelet.config.k8s.io/v1`).

use crate::config::duration;
use serde::Deserialize;
use serde_json::Value;
use std::{
    io,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    time::Duration,
};

/// Supported API versions of plugins.
pub(super) const API_VERSIONS: [&str; 3] = [
    "credentialprovider.kubelet.k8s.io/v1",
    "credentialprovider.kubelet.k8s.io/v1alpha1",
    "credentialprovider.kubelet.k8s.io/v1beta1",
];

/// Invalid configuration of credential provider plugins.
#[derive(Debug, thiserror::Error)]
pub enum CredentialProviderError {
    /// The plugin directory cannot be read.
    #[error("plugin binary directory {}: {source}", .path.display())]
    BinDir {
        /// The directory.
        path: PathBuf,
        /// Cause.
        source: io::Error,
    },
    /// A configuration file or directory cannot be read.
    #[error("unable to read {}: {source}", .path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Cause.
        source: io::Error,
    },
    /// A file is not a valid CredentialProviderConfig.
    #[error("error decoding config {}: {why}", .path.display())]
    Decode {
        /// The file.
        path: PathBuf,
        /// Cause.
        why: String,
    },
    /// Validation failed, with upstream's message.
    #[error("failed to validate credential provider config: {0}")]
    Invalid(String),
    /// A plugin is missing or not executable.
    #[error("plugin binary executable {} did not exist", .0.display())]
    NoProgram(PathBuf),
}

/// Configuration of a plugin (`CredentialProvider`).
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct ProviderConfig {
    #[serde(default)]
    pub(super) name: String,
    #[serde(default)]
    pub(super) match_images: Vec<String>,
    #[serde(default, deserialize_with = "duration::deserialize_some")]
    pub(super) default_cache_duration: Option<Duration>,
    #[serde(default)]
    pub(super) api_version: String,
    #[serde(default)]
    pub(super) args: Vec<String>,
    #[serde(default)]
    pub(super) env: Vec<EnvVar>,
    token_attributes: Option<Value>,
}

/// Environment variable of a plugin.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct EnvVar {
    pub(super) name: String,
    pub(super) value: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ConfigFile {
    api_version: String,
    kind: String,
    #[serde(default)]
    providers: Vec<ProviderConfig>,
}

/// Reads a file, or the `.json`, `.yaml` and `.yml` files of a directory in order of their names.
pub(super) fn read(config: &Path, bin_dir: &Path) -> Result<Vec<ProviderConfig>, CredentialProviderError> {
    if let Err(source) = std::fs::read_dir(bin_dir) {
        return Err(CredentialProviderError::BinDir { path: bin_dir.to_owned(), source });
    }
    let fail = |path: &Path| {
        let path = path.to_owned();
        move |source| CredentialProviderError::Read { path, source }
    };
    let mut files = vec![config.to_owned()];
    if config.is_dir() {
        let entries = std::fs::read_dir(config).map_err(fail(config))?;
        let is_config =
            |path: &PathBuf| path.extension().is_some_and(|e| ["json", "yaml", "yml"].iter().any(|k| e == *k));
        files = entries.filter_map(|entry| entry.ok().map(|e| e.path())).filter(is_config).collect();
        files.sort();
    }
    let mut all = Vec::new();
    for file in files {
        let text = crate::host_file::read_text(&file).map_err(fail(&file))?;
        let read = decode(&text).map_err(|why| CredentialProviderError::Decode { path: file, why })?;
        all.extend(read);
    }
    validate(&all).map_err(CredentialProviderError::Invalid)?;
    Ok(all)
}

fn decode(text: &str) -> Result<Vec<ProviderConfig>, String> {
    let file: ConfigFile = serde_saphyr::from_str(text).map_err(|e| e.to_string())?;
    let version = file.api_version.strip_prefix("kubelet.config.k8s.io/");
    if file.kind != "CredentialProviderConfig" || !matches!(version, Some("v1" | "v1beta1" | "v1alpha1")) {
        return Err(format!("no kind {:?} is registered for version {:?}", file.kind, file.api_version));
    }
    Ok(file.providers)
}

/// Validates as upstream's `validateCredentialProviderConfig`; returns the first error.
fn validate(providers: &[ProviderConfig]) -> Result<(), String> {
    if providers.is_empty() {
        return Err("providers: Required value: at least 1 item in plugins is required".to_owned());
    }
    for (at, provider) in providers.iter().enumerate() {
        let name = &provider.name;
        let bad_name = |why: &str| Err(format!("providers.name: Invalid value: {name:?}: provider name cannot {why}"));
        match name.as_str() {
            n if n.contains('/') => return bad_name("contain '/'"),
            n if n.contains(' ') => return bad_name("contain spaces"),
            "." | ".." => return bad_name(&format!("be '{name}'")),
            _ => {}
        }
        if providers[..at].iter().any(|other| other.name == *name) {
            return Err(format!("providers.name: Duplicate value: {name:?}"));
        }
        if provider.api_version.is_empty() {
            return Err("providers.apiVersion: Required value".to_owned());
        }
        if !API_VERSIONS.contains(&provider.api_version.as_str()) {
            let supported = API_VERSIONS.map(|v| format!("{v:?}")).join(", ");
            let given = &provider.api_version;
            return Err(format!("providers.apiVersion: Unsupported value: {given:?}: supported values: {supported}"));
        }
        if provider.match_images.is_empty() {
            let why = "at least 1 item in matchImages is required";
            return Err(format!("providers.matchImages: Required value: {why}"));
        }
        if provider.default_cache_duration.is_none() {
            return Err("providers.defaultCacheDuration: Required value".to_owned());
        }
        if provider.token_attributes.is_some() {
            return Err("providers.tokenAttributes: Forbidden: service account tokens are not supported yet".to_owned());
        }
    }
    Ok(())
}

/// Returns the path of a plugin, if it is executable.
pub(super) fn find_plugin(bin_dir: &Path, name: &str) -> Result<PathBuf, CredentialProviderError> {
    let path = bin_dir.join(name);
    let runs = path.metadata().is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0);
    if runs { Ok(path) } else { Err(CredentialProviderError::NoProgram(path)) }
}
