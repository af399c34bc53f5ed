//! Execution of plugins: request on standard input, response on standard output.

use super::{
    CacheKeyType, ProviderResponse,
    config::{EnvVar, ProviderConfig},
};
use crate::{config::duration, images::keyring::DockerConfigEntry};
use serde::Deserialize;
use serde_json::json;
use std::{
    collections::BTreeMap,
    io,
    path::Path,
    process::{ExitStatus, Output, Stdio},
    sync::Arc,
    time::Duration,
};
use tokio::{io::AsyncWriteExt, process::Command};

/// Upstream's timeout for plugins.
const PLUGIN_TIMEOUT: Duration = Duration::from_secs(60);

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct TypeMeta {
    #[serde(default)]
    api_version: String,
    #[serde(default)]
    kind: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Response {
    #[serde(rename = "apiVersion")]
    _api_version: String,
    #[serde(rename = "kind")]
    _kind: String,
    #[serde(default)]
    cache_key_type: String,
    #[serde(default, deserialize_with = "duration::deserialize_nullable")]
    cache_duration: Option<Duration>,
    auth: Option<BTreeMap<String, Auth>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Auth {
    #[serde(default)]
    username: String,
    #[serde(default)]
    password: String,
}

/// Failure to get credentials from a plugin. Concurrent requests share it.
#[derive(Debug, Clone, thiserror::Error)]
pub(super) enum PluginError {
    /// The plugin did not start or complete.
    #[error("error execing credential provider plugin {plugin} for image {image}: {source}")]
    Exec { plugin: String, image: String, source: Arc<io::Error> },
    #[error("error execing credential provider plugin {plugin} for image {image}: context deadline exceeded")]
    Timeout { plugin: String, image: String },
    /// The plugin failed.
    #[error("error execing credential provider plugin {plugin} for image {image}: {status}: {stderr}")]
    Status { plugin: String, image: String, status: ExitStatus, stderr: String },
    /// The response is invalid.
    #[error(transparent)]
    Response(#[from] ResponseError),
}

/// Invalid response of a plugin. The text contains none of the response, which may contain secrets.
#[derive(Debug, Clone, thiserror::Error)]
pub(super) enum ResponseError {
    #[error("error reading GVK from response")]
    TypeMeta,
    #[error(
        "apiVersion from credential plugin response did not match expected apiVersion:{expected}, actual apiVersion:{actual}"
    )]
    ApiVersion { expected: String, actual: String },
    #[error("failed to decode CredentialProviderResponse, unexpected Kind: {0:?}")]
    Kind(String),
    #[error("error decoding credential provider plugin response from stdout")]
    Decode,
    #[error("credential provider plugin did not return a valid cacheKeyType: {0:?}")]
    CacheKeyType(String),
}

/// Runs a plugin to get the credentials for an image.
///
/// # Errors
/// Fails without any of the plugin's standard output, which may contain secrets.
pub(super) async fn run(config: &ProviderConfig, plugin: &Path, image: &str) -> Result<ProviderResponse, PluginError> {
    let request = json!({"kind": "CredentialProviderRequest", "apiVersion": config.api_version, "image": image});
    let (name, image) = (config.name.clone(), image.to_owned());
    let output = match tokio::time::timeout(PLUGIN_TIMEOUT, exec_plugin(config, plugin, request.to_string())).await {
        Ok(Ok(output)) => output,
        Ok(Err(error)) => return Err(PluginError::Exec { plugin: name, image, source: Arc::new(error) }),
        Err(_) => return Err(PluginError::Timeout { plugin: name, image }),
    };
    if !output.status.success() {
        let stderr = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        return Err(PluginError::Status { plugin: name, image, status: output.status, stderr });
    }
    Ok(parse(&output.stdout, &config.api_version)?)
}

async fn exec_plugin(config: &ProviderConfig, plugin: &Path, request: String) -> io::Result<Output> {
    let mut child = Command::new(plugin)
        .args(&config.args)
        .envs(config.env.iter().map(|EnvVar { name, value }| (name, value)))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()?;
    let stdin = child.stdin.take();
    let send_request = async {
        if let Some(mut stdin) = stdin {
            // A plugin may respond without reading its request.
            let _ = stdin.write_all(request.as_bytes()).await;
        }
    };
    let ((), output) = tokio::join!(send_request, child.wait_with_output());
    output
}

fn parse(text: &[u8], api_version: &str) -> Result<ProviderResponse, ResponseError> {
    let type_meta: TypeMeta = serde_json::from_slice(text).map_err(|_| ResponseError::TypeMeta)?;
    if type_meta.api_version != api_version {
        let (expected, actual) = (api_version.to_owned(), type_meta.api_version);
        return Err(ResponseError::ApiVersion { expected, actual });
    }
    if type_meta.kind != "CredentialProviderResponse" {
        return Err(ResponseError::Kind(type_meta.kind));
    }
    let response: Response = serde_json::from_slice(text).map_err(|_| ResponseError::Decode)?;
    let kind = match response.cache_key_type.as_str() {
        "Image" => CacheKeyType::Image,
        "Registry" => CacheKeyType::Registry,
        "Global" => CacheKeyType::Global,
        other => return Err(ResponseError::CacheKeyType(other.to_owned())),
    };
    let login = |Auth { username, password }| DockerConfigEntry { username, password };
    let auth = response.auth.into_iter().flatten().map(|(pattern, auth)| (pattern, login(auth))).collect();
    Ok(ProviderResponse { auth, kind, duration: response.cache_duration })
}
