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
    #[error("error decoding config {}: {source}", .path.display())]
    Decode {
        /// The file.
        path: PathBuf,
        /// Cause.
        source: DecodeError,
    },
    /// Validation failed.
    #[error("failed to validate credential provider config: {0}")]
    Invalid(#[from] ValidationError),
    /// A plugin is missing or not executable.
    #[error("plugin binary executable {} did not exist", .0.display())]
    NoProgram(PathBuf),
}

/// Cause of [`CredentialProviderError::Decode`].
#[derive(Debug, thiserror::Error)]
pub enum DecodeError {
    /// Invalid YAML or JSON, or a field of a wrong type.
    #[error("{0}")]
    Syntax(Box<serde_saphyr::Error>),
    /// Wrong kind, or unsupported version.
    #[error("no kind {kind:?} is registered for version {api_version:?}")]
    Kind {
        /// `kind` of the file.
        kind: String,
        /// `apiVersion` of the file.
        api_version: String,
    },
}

/// Invalid provider, with upstream's message (`validateCredentialProviderConfig`).
#[derive(Debug, thiserror::Error)]
pub enum ValidationError {
    /// No providers.
    #[error("providers: Required value: at least 1 item in plugins is required")]
    NoProviders,
    /// Name with a slash.
    #[error("providers.name: Invalid value: {0:?}: provider name cannot contain '/'")]
    NameWithSlash(String),
    /// Name with a space.
    #[error("providers.name: Invalid value: {0:?}: provider name cannot contain spaces")]
    NameWithSpaces(String),
    /// Name that is a relative path.
    #[error("providers.name: Invalid value: {0:?}: provider name cannot be '{0}'")]
    DotName(String),
    /// Several providers of the same name.
    #[error("providers.name: Duplicate value: {0:?}")]
    DuplicateName(String),
    /// No API version.
    #[error("providers.apiVersion: Required value")]
    NoApiVersion,
    /// Unsupported API version.
    #[error(
        "providers.apiVersion: Unsupported value: {given:?}: supported values: {}",
        API_VERSIONS.map(|v| format!("{v:?}")).join(", ")
    )]
    UnsupportedApiVersion {
        /// The version.
        given: String,
    },
    /// No image patterns.
    #[error("providers.matchImages: Required value: at least 1 item in matchImages is required")]
    NoMatchImages,
    /// No default cache duration.
    #[error("providers.defaultCacheDuration: Required value")]
    NoCacheDuration,
    /// Token attributes, which are not supported.
    #[error("providers.tokenAttributes: Forbidden: service account tokens are not supported yet")]
    TokenAttributes,
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
        let read = decode(&text).map_err(|source| CredentialProviderError::Decode { path: file, source })?;
        all.extend(read);
    }
    validate(&all)?;
    Ok(all)
}

fn decode(text: &str) -> Result<Vec<ProviderConfig>, DecodeError> {
    let file: ConfigFile = serde_saphyr::from_str(text).map_err(|error| DecodeError::Syntax(Box::new(error)))?;
    let version = file.api_version.strip_prefix("kubelet.config.k8s.io/");
    if file.kind != "CredentialProviderConfig" || !matches!(version, Some("v1" | "v1beta1" | "v1alpha1")) {
        return Err(DecodeError::Kind { kind: file.kind, api_version: file.api_version });
    }
    Ok(file.providers)
}

/// Validates as upstream's `validateCredentialProviderConfig`; returns the first error.
fn validate(providers: &[ProviderConfig]) -> Result<(), ValidationError> {
    if providers.is_empty() {
        return Err(ValidationError::NoProviders);
    }
    for (at, provider) in providers.iter().enumerate() {
        let name = &provider.name;
        match name.as_str() {
            n if n.contains('/') => return Err(ValidationError::NameWithSlash(name.clone())),
            n if n.contains(' ') => return Err(ValidationError::NameWithSpaces(name.clone())),
            "." | ".." => return Err(ValidationError::DotName(name.clone())),
            _ => {}
        }
        if providers[..at].iter().any(|other| other.name == *name) {
            return Err(ValidationError::DuplicateName(name.clone()));
        }
        if provider.api_version.is_empty() {
            return Err(ValidationError::NoApiVersion);
        }
        if !API_VERSIONS.contains(&provider.api_version.as_str()) {
            return Err(ValidationError::UnsupportedApiVersion { given: provider.api_version.clone() });
        }
        if provider.match_images.is_empty() {
            return Err(ValidationError::NoMatchImages);
        }
        if provider.default_cache_duration.is_none() {
            return Err(ValidationError::NoCacheDuration);
        }
        if provider.token_attributes.is_some() {
            return Err(ValidationError::TokenAttributes);
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
