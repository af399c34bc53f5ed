//! Execution of plugins: request on standard input, response on standard output.

use super::{
    CacheKeyType, ProviderResponse,
    config::{EnvVar, ProviderConfig},
};
use crate::{config::duration, images::keyring::DockerConfigEntry};
use serde::Deserialize;
use serde_json::json;
use std::{collections::BTreeMap, path::Path, process::Stdio, time::Duration};
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

/// Runs a plugin to get the credentials for an image.
///
/// # Errors
/// Fails without any of the plugin's standard output, which may contain secrets.
pub(super) async fn run(config: &ProviderConfig, plugin: &Path, image: &str) -> Result<ProviderResponse, String> {
    let request = json!({"kind": "CredentialProviderRequest", "apiVersion": config.api_version, "image": image});
    let prefix = || format!("error execing credential provider plugin {} for image {image}", config.name);
    let output = match tokio::time::timeout(PLUGIN_TIMEOUT, exec_plugin(config, plugin, request.to_string())).await {
        Ok(output) => output.map_err(|e| format!("{}: {e}", prefix()))?,
        Err(_) => return Err(format!("{}: context deadline exceeded", prefix())),
    };
    if !output.status.success() {
        let stderr = String::from_utf8_lossy(&output.stderr);
        return Err(format!("{}: {}: {}", prefix(), output.status, stderr.trim()));
    }
    parse(&output.stdout, &config.api_version)
}

async fn exec_plugin(config: &ProviderConfig, plugin: &Path, request: String) -> std::io::Result<std::process::Output> {
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

fn parse(text: &[u8], api_version: &str) -> Result<ProviderResponse, String> {
    let type_meta: TypeMeta = serde_json::from_slice(text).map_err(|_| "error reading GVK from response".to_owned())?;
    if type_meta.api_version != api_version {
        return Err(format!(
            "apiVersion from credential plugin response did not match expected apiVersion:{api_version}, actual apiVersion:{}",
            type_meta.api_version
        ));
    }
    if type_meta.kind != "CredentialProviderResponse" {
        return Err(format!("failed to decode CredentialProviderResponse, unexpected Kind: {:?}", type_meta.kind));
    }
    let unreadable = |_| "error decoding credential provider plugin response from stdout".to_owned();
    let response: Response = serde_json::from_slice(text).map_err(unreadable)?;
    let kind = match response.cache_key_type.as_str() {
        "Image" => CacheKeyType::Image,
        "Registry" => CacheKeyType::Registry,
        "Global" => CacheKeyType::Global,
        other => return Err(format!("credential provider plugin did not return a valid cacheKeyType: {other:?}")),
    };
    let login = |Auth { username, password }| DockerConfigEntry { username, password };
    let auth = response.auth.into_iter().flatten().map(|(pattern, auth)| (pattern, login(auth))).collect();
    Ok(ProviderResponse { auth, kind, duration: response.cache_duration })
}
