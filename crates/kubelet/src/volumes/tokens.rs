//! Cache of service account tokens, which are refreshed before they expire (upstream's `pkg/kubelet/token`).

use super::plugins::find_files_plugin;
use crate::{Shared, deadline::within_deadline, object_cache::ROOT_CA_TIMEOUT, pods::spec};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::{
    api::{
        authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec},
        core::v1::{PodSpec, ServiceAccount, ServiceAccountTokenProjection},
    },
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::{Api, api::PostParams};
use lifecycle::Pod;
use parking_lot::Mutex;
use std::{collections::HashMap, time::Duration};
use tokio::time::Instant;

const DEFAULT_EXPIRATION_SECONDS: i64 = 3600;
/// Maximum age of a token before it is refreshed (`maxTTL`).
const MAX_AGE_SECONDS: i64 = 24 * 3600;

/// Failure to request a token.
#[derive(Debug, thiserror::Error)]
pub(super) enum TokenError {
    #[error("failed to fetch token: {0}")]
    Request(#[from] kube::Error),
    #[error("failed to fetch token: API server returned no token")]
    NoToken,
}

/// Key of a token within its Pod.
#[derive(Debug, Clone, PartialEq, Eq)]
struct TokenKey {
    audience: Option<String>,
    seconds: i64,
}

impl TokenKey {
    fn new(source: &ServiceAccountTokenProjection) -> Self {
        let audience = source.audience.clone().filter(|a| !a.is_empty());
        Self { audience, seconds: source.expiration_seconds.unwrap_or(DEFAULT_EXPIRATION_SECONDS) }
    }

    /// Returns when a token that is issued now must be refreshed: after 80 % of its lifetime, or a day.
    fn refresh_at(&self, now: Timestamp) -> Timestamp {
        after(now, (self.seconds - self.seconds / 5).min(MAX_AGE_SECONDS))
    }
}

fn after(now: Timestamp, seconds: i64) -> Timestamp {
    now.checked_add(SignedDuration::from_secs(seconds)).unwrap_or(Timestamp::MAX)
}

struct Token {
    key: TokenKey,
    text: String,
    refresh_at: Timestamp,
    expires: Timestamp,
}

/// Token cache by Pod UID.
#[derive(Default)]
pub(crate) struct TokenCache(Mutex<HashMap<String, Vec<Token>>>);

impl TokenCache {
    /// Returns when the first of a Pod's tokens must be refreshed; `None` without tokens.
    pub(super) fn due(&self, uid: &str) -> Option<Timestamp> {
        self.0.lock().get(uid)?.iter().map(|t| t.refresh_at).min()
    }

    /// Returns the number of Pods with tokens.
    pub(crate) fn count(&self) -> usize {
        self.0.lock().len()
    }

    pub(super) fn forget(&self, uid: &str) {
        self.0.lock().remove(uid);
    }

    /// Returns the cached token, if `is_valid` accepts it.
    fn cached(&self, uid: &str, key: &TokenKey, is_valid: impl Fn(&Token) -> bool) -> Option<String> {
        let all = self.0.lock();
        all.get(uid)?.iter().find(|t| t.key == *key && is_valid(t)).map(|t| t.text.clone())
    }

    fn insert(&self, uid: &str, token: Token) {
        let mut all = self.0.lock();
        let tokens = all.entry(uid.to_owned()).or_default();
        tokens.retain(|t| t.key != token.key);
        tokens.push(token);
    }
}

/// Returns whether a Pod's volumes contain tokens.
pub(super) fn has_tokens(spec: &PodSpec) -> bool {
    let has_tokens = |volume| find_files_plugin(volume).is_some_and(|plugin| plugin.has_tokens(volume));
    spec.volumes.iter().flatten().any(has_tokens)
}

/// Returns the cached token, or requests a new one if it must be refreshed.
///
/// # Errors
/// Fails if the request fails and there is no valid token.
pub(super) async fn get_token(
    shared: &Shared,
    pod: &Pod,
    source: &ServiceAccountTokenProjection,
) -> Result<String, TokenError> {
    let (key, now) = (TokenKey::new(source), shared.now());
    if let Some(text) = shared.tokens.cached(pod.uid(), &key, |t| now < t.refresh_at) {
        return Ok(text);
    }
    match request_token(shared, pod, &key).await {
        Ok(text) => {
            let (refresh_at, expires) = (key.refresh_at(now), after(now, key.seconds));
            shared.tokens.insert(pod.uid(), Token { key, text: text.clone(), refresh_at, expires });
            // Reschedules the refresh.
            shared.pods.mark_changed(pod.uid().to_owned());
            Ok(text)
        }
        // The old token is used until it expires.
        Err(error) => shared.tokens.cached(pod.uid(), &key, |t| now < t.expires).ok_or(error),
    }
}

async fn request_token(shared: &Shared, pod: &Pod, key: &TokenKey) -> Result<String, TokenError> {
    let account = spec(pod).service_account_name.as_deref().unwrap_or("default");
    let api: Api<ServiceAccount> = Api::namespaced(shared.client.clone(), pod.namespace());
    let request = TokenRequest {
        metadata: ObjectMeta::default(),
        spec: TokenRequestSpec {
            audiences: key.audience.iter().cloned().collect(),
            expiration_seconds: Some(key.seconds),
            bound_object_ref: Some(BoundObjectReference {
                api_version: Some("v1".to_owned()),
                kind: Some("Pod".to_owned()),
                name: Some(pod.name().to_owned()),
                uid: Some(pod.uid().to_owned()),
            }),
        },
        status: None,
    };
    let params = PostParams::default();
    let send = || within_deadline(api.create_token_request(account, &params, &request));
    // The ServiceAccount of a new namespace may not exist yet.
    let response = if account == "default" { retry_not_found(send).await } else { send().await };
    response?.status.map(|s| s.token).ok_or(TokenError::NoToken)
}

/// Retries "not found" for a short time. A node may not watch ServiceAccounts.
async fn retry_not_found<T, F: Future<Output = Result<T, kube::Error>>>(
    send: impl Fn() -> F,
) -> Result<T, kube::Error> {
    let (end, mut backoff) = (Instant::now() + ROOT_CA_TIMEOUT, Duration::from_millis(5));
    loop {
        match send().await {
            Err(kube::Error::Api(e)) if e.code == 404 && Instant::now() + backoff < end => {
                tokio::time::sleep(backoff).await;
                backoff *= 2;
            }
            response => return response,
        }
    }
}

/// Returns the user of all containers, if it is the same: it owns the token file (`FsUserFrom`).
pub(super) fn fs_user(spec: &PodSpec) -> Option<u32> {
    let all = spec.security_context.as_ref().and_then(|c| c.run_as_user);
    let mut users =
        api::pod::containers(spec).map(|(_, c)| c.security_context.as_ref().and_then(|s| s.run_as_user).or(all));
    let first = users.next()??;
    users.all(|user| user == Some(first)).then(|| u32::try_from(first).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[track_caller]
    fn check(seconds: i64, refresh_after: i64) {
        let key = TokenKey { audience: None, seconds };
        let now = Timestamp::UNIX_EPOCH;
        assert_eq!(key.refresh_at(now).as_second(), refresh_after);
    }

    #[test]
    fn token_is_refreshed_after_80_percent_or_a_day() {
        check(600, 480);
        check(3607, 2886);
        check(1_000_000, 86_400);
    }

    #[track_caller]
    fn check_user(pod: Value, containers: &[Value], expected: Option<u32>) {
        let containers: Vec<Value> = containers.iter().map(|c| json!({"name": "c", "securityContext": c})).collect();
        let spec = json!({"securityContext": pod, "containers": containers});
        assert_eq!(fs_user(&serde_json::from_value(spec).unwrap()), expected);
    }

    #[test]
    fn token_file_is_owned_by_the_common_user() {
        check_user(json!({}), &[json!({})], None);
        check_user(json!({"runAsUser": 7}), &[json!({}), json!({"runAsUser": 7})], Some(7));
        check_user(json!({"runAsUser": 7}), &[json!({}), json!({"runAsUser": 8})], None);
        check_user(json!({}), &[json!({"runAsUser": 7}), json!({})], None);
    }
}
