//! A program is asked for credentials: the question on its standard input, the answer on its standard output.

use super::{
    Answer, CacheKeyType,
    config::{EnvVar, ProviderConfig},
};
use crate::{config::duration, images::keyring::Login};
use serde::Deserialize;
use serde_json::json;
use std::{collections::BTreeMap, path::Path, process::Stdio, time::Duration};
use tokio::{io::AsyncWriteExt, process::Command};

/// Upstream's limit for every program.
const LIMIT: Duration = Duration::from_secs(60);

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Head {
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

/// Asks one program for the credentials of one image.
///
/// # Errors
/// What went wrong, without a word of what the program wrote to its standard output: that may be a secret.
pub(super) async fn run(config: &ProviderConfig, program: &Path, image: &str) -> Result<Answer, String> {
    let request = json!({"kind": "CredentialProviderRequest", "apiVersion": config.api_version, "image": image});
    let what = || format!("error execing credential provider plugin {} for image {image}", config.name);
    let output = match tokio::time::timeout(LIMIT, talk(config, program, request.to_string())).await {
        Ok(output) => output.map_err(|e| format!("{}: {e}", what()))?,
        Err(_) => return Err(format!("{}: context deadline exceeded", what())),
    };
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(format!("{}: {}: {}", what(), output.status, said.trim()));
    }
    parse(&output.stdout, &config.api_version)
}

async fn talk(config: &ProviderConfig, program: &Path, request: String) -> std::io::Result<std::process::Output> {
    let mut child = Command::new(program)
        .args(&config.args)
        .envs(config.env.iter().map(|EnvVar { name, value }| (name, value)))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()?;
    let stdin = child.stdin.take();
    let ask = async {
        if let Some(mut stdin) = stdin {
            // A program that does not read its question may still know the answer.
            let _ = stdin.write_all(request.as_bytes()).await;
        }
    };
    let ((), output) = tokio::join!(ask, child.wait_with_output());
    output
}

fn parse(text: &[u8], api_version: &str) -> Result<Answer, String> {
    let head: Head = serde_json::from_slice(text).map_err(|_| "error reading GVK from response".to_owned())?;
    if head.api_version != api_version {
        return Err(format!(
            "apiVersion from credential plugin response did not match expected apiVersion:{api_version}, actual apiVersion:{}",
            head.api_version
        ));
    }
    if head.kind != "CredentialProviderResponse" {
        return Err(format!("failed to decode CredentialProviderResponse, unexpected Kind: {:?}", head.kind));
    }
    let unreadable = |_| "error decoding credential provider plugin response from stdout".to_owned();
    let response: Response = serde_json::from_slice(text).map_err(unreadable)?;
    let kind = match response.cache_key_type.as_str() {
        "Image" => CacheKeyType::Image,
        "Registry" => CacheKeyType::Registry,
        "Global" => CacheKeyType::Global,
        other => return Err(format!("credential provider plugin did not return a valid cacheKeyType: {other:?}")),
    };
    let login = |Auth { username, password }| Login { username, password };
    let auth = response.auth.into_iter().flatten().map(|(pattern, auth)| (pattern, login(auth))).collect();
    Ok(Answer { auth, kind, duration: response.cache_duration })
}
