//! Network configurations: which file of the directory is used, and its list of plugins (libcni's `conf.go`, go-cni's
//! `loadFromConfDir`).

use crate::Error;
use files::trust;
use nix::fcntl::OFlag;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::{
    fs::{self, OpenOptions},
    io::{self, ErrorKind, Read},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

/// Maximum size of a configuration, in bytes.
const MAX_SIZE: u64 = 1 << 20;
/// Maximum number of plugins in a list.
const MAX_PLUGINS: usize = 32;
/// Maximum number of entries of the directory.
const MAX_ENTRIES: usize = 4096;
/// Maximum length of a name of a network, a plugin or a sandbox.
const MAX_NAME: usize = 128;
/// Supported versions of the specification, in ascending order.
const VERSIONS: [&str; 4] = ["0.3.1", "0.4.0", "1.0.0", "1.1.0"];

/// Configuration of a network (libcni's `NetworkConfigList`).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct NetworkConfig {
    pub(crate) name: String,
    pub(crate) cni_version: String,
    pub(crate) plugins: Vec<PluginConfig>,
}

/// Configuration of a plugin, with all its fields.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct PluginConfig(pub(crate) Map<String, Value>);

impl NetworkConfig {
    /// Whether the version is at least `version`, one of the supported ones.
    pub(crate) fn is_at_least(&self, version: &str) -> bool {
        position(&self.cni_version) >= position(version)
    }
}

fn position(version: &str) -> Option<usize> {
    VERSIONS.iter().position(|known| *known == version)
}

impl PluginConfig {
    /// Returns the name of the plugin's program.
    pub(crate) fn type_name(&self) -> &str {
        self.0.get("type").and_then(Value::as_str).unwrap_or_default()
    }

    /// Describes the plugin as libcni's `pluginDescription`.
    pub(crate) fn description(&self) -> String {
        let name = self.0.get("name").and_then(Value::as_str).filter(|name| !name.is_empty());
        let name = name.map(|name| format!(" name={name:?}")).unwrap_or_default();
        format!("type={:?}{name}", self.type_name())
    }

    /// Returns the configuration that the plugin reads: with the network's name and version, the result of the plugin before
    /// it, and those capability arguments that it supports (libcni's `buildOneConfig`).
    pub(crate) fn input(
        &self,
        network: &NetworkConfig,
        previous: Option<&Value>,
        capabilities: &Map<String, Value>,
    ) -> Value {
        let mut input = self.0.clone();
        input.insert("name".to_owned(), network.name.clone().into());
        input.insert("cniVersion".to_owned(), network.cni_version.clone().into());
        if let Some(previous) = previous {
            input.insert("prevResult".to_owned(), previous.clone());
        }
        let supported = |name: &str| self.0.get("capabilities").is_some_and(|c| c[name] == Value::Bool(true));
        let arguments: Map<_, _> =
            capabilities.iter().filter(|(name, _)| supported(name)).map(|(n, v)| (n.clone(), v.clone())).collect();
        if !arguments.is_empty() {
            input.insert("runtimeConfig".to_owned(), arguments.into());
        }
        input.into()
    }
}

/// Loads the first configuration of a directory, by file name.
///
/// # Errors
/// When there is none, or the first one is invalid, or others than root may change it.
pub(crate) fn load(dir: &Path) -> Result<NetworkConfig, Error> {
    let Some(file) = first_file(dir).map_err(Error::ReadConfigDir)? else { return Err(Error::NotInitialized) };
    let invalid = |reason: String| Error::InvalidConfig { file: file.clone(), reason };
    let text = read(&file).map_err(|error| invalid(error.to_string()))?;
    let is_list = file.extension().is_some_and(|extension| extension == "conflist");
    parse(&text, is_list).map_err(invalid)
}

/// Returns the first file with the extension of a configuration.
fn first_file(dir: &Path) -> io::Result<Option<PathBuf>> {
    // A missing directory is one without configurations: a provider creates it.
    let dir = trust::resolve(dir)?;
    let entries = match fs::read_dir(&dir) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        entries => entries?,
    };
    let mut files = Vec::new();
    for (number, entry) in entries.enumerate() {
        if number == MAX_ENTRIES {
            return Err(io::Error::other(format!("{} has more than {MAX_ENTRIES} files", dir.display())));
        }
        let entry = entry?;
        let path = entry.path();
        let extension = path.extension().and_then(|extension| extension.to_str());
        if matches!(extension, Some("conf" | "conflist" | "json")) && !entry.file_type()?.is_dir() {
            files.push(path);
        }
    }
    Ok(files.into_iter().min())
}

/// Reads a configuration, which only the caller and root may be able to change.
fn read(file: &Path) -> io::Result<Vec<u8>> {
    // A link, as of a mounted ConfigMap.
    let file = file.canonicalize()?;
    let file = match (file.parent(), file.file_name()) {
        (Some(parent), Some(name)) => trust::resolve(parent)?.join(name),
        _ => file,
    };
    let flags = OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK;
    let opened = OpenOptions::new().read(true).custom_flags(flags.bits()).open(&file)?;
    trust::check_private_file(&file, &opened.metadata()?)?;
    let mut text = Vec::new();
    opened.take(MAX_SIZE + 1).read_to_end(&mut text)?;
    if text.len() as u64 > MAX_SIZE {
        return Err(io::Error::other(format!("the file is larger than {MAX_SIZE} bytes")));
    }
    Ok(text)
}

/// Parses a list of plugins (`.conflist`), or the configuration of a single plugin.
pub(crate) fn parse(text: &[u8], is_list: bool) -> Result<NetworkConfig, String> {
    let prefix = if is_list { "error parsing configuration list" } else { "error parsing configuration" };
    let failed = |reason: String| format!("{prefix}: {reason}");
    let fields: Map<String, Value> = serde_json::from_slice(text).map_err(|error| failed(error.to_string()))?;
    let name = match fields.get("name") {
        None => return Err(failed("no name".to_owned())),
        Some(name) => name.as_str().unwrap_or_default().to_owned(),
    };
    if !is_valid_name(&name) {
        return Err(failed(format!("invalid characters found in network name; {name}")));
    }
    let cni_version = version(&fields).map_err(failed)?;
    let plugins: Vec<Value> = if is_list {
        match fields.get("plugins") {
            None => return Err("no plugin configs found".to_owned()),
            Some(Value::Array(plugins)) if plugins.is_empty() => return Err(failed("no plugins in list".to_owned())),
            Some(Value::Array(plugins)) => plugins.clone(),
            Some(_) => return Err(failed("invalid 'plugins' type".to_owned())),
        }
    } else {
        vec![fields.into()]
    };
    if plugins.len() > MAX_PLUGINS {
        return Err(failed(format!("more than {MAX_PLUGINS} plugins")));
    }
    let plugins = plugins.into_iter().enumerate();
    let plugins = plugins.map(|(number, plugin)| {
        plugin_config(plugin).map_err(|reason| failed(format!("failed to parse plugin config {number}: {reason}")))
    });
    Ok(NetworkConfig { name, cni_version, plugins: plugins.collect::<Result<_, _>>()? })
}

fn plugin_config(plugin: Value) -> Result<PluginConfig, String> {
    let Value::Object(fields) = plugin else { return Err("it is not an object".to_owned()) };
    let plugin = PluginConfig(fields);
    match plugin.type_name() {
        "" => Err("missing 'type'".to_owned()),
        // It is a name in the directories of plugins, never a path.
        name if is_valid_name(name) => Ok(plugin),
        name => Err(format!("invalid plugin name: {name}")),
    }
}

/// Returns the version: the highest supported one of `cniVersion` and `cniVersions`.
fn version(fields: &Map<String, Value>) -> Result<String, String> {
    let mut given: Vec<&str> = Vec::new();
    if let Some(version) = fields.get("cniVersion") {
        given.push(version.as_str().ok_or("invalid cniVersion type")?);
    }
    if let Some(versions) = fields.get("cniVersions") {
        let versions = versions.as_array().ok_or("invalid type for cniVersions")?;
        given.extend(versions.iter().filter_map(Value::as_str));
    }
    match given.iter().filter_map(|version| position(version)).max() {
        Some(supported) => Ok(VERSIONS[supported].to_owned()),
        None => Err(format!("unsupported cniVersion {:?}: it must be 0.3.1 to 1.1.0", given.join(", "))),
    }
}

/// Whether a name is valid for a network or a sandbox (libcni's `cniReg`); it is also a safe file name.
pub(crate) fn is_valid_name(name: &str) -> bool {
    let is_valid = |b: u8| b.is_ascii_alphanumeric() || b"_.-".contains(&b);
    name.len() <= MAX_NAME
        && name.bytes().all(is_valid)
        && name.bytes().next().is_some_and(|first| first.is_ascii_alphanumeric())
}

#[cfg(test)]
mod tests;
