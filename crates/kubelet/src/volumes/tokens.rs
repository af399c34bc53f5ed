//! Service account tokens of Pods: asked for, kept while they are fresh, and asked for again in good time
//! (upstream's `pkg/kubelet/token`).

use crate::{Shared, deadline::within_deadline, objects::MOMENT, pods::spec};
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

const DEFAULT_SECONDS: i64 = 3600;
/// A token is asked for anew at the latest after a day.
const OLDEST_SECONDS: i64 = 24 * 3600;

/// What tells one token of a Pod from another.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Wanted {
    audience: Option<String>,
    seconds: i64,
}

impl Wanted {
    fn of(source: &ServiceAccountTokenProjection) -> Self {
        let audience = source.audience.clone().filter(|a| !a.is_empty());
        Self { audience, seconds: source.expiration_seconds.unwrap_or(DEFAULT_SECONDS) }
    }

    /// When a token of this moment is to be exchanged: after four fifths of its life, or a day.
    fn refresh_at(&self, now: Timestamp) -> Timestamp {
        after(now, (self.seconds - self.seconds / 5).min(OLDEST_SECONDS))
    }
}

fn after(now: Timestamp, seconds: i64) -> Timestamp {
    now.checked_add(SignedDuration::from_secs(seconds)).unwrap_or(Timestamp::MAX)
}

struct Token {
    wanted: Wanted,
    text: String,
    refresh_at: Timestamp,
    expires: Timestamp,
}

/// The tokens of all Pods, by UID.
#[derive(Default)]
pub(crate) struct Tokens(Mutex<HashMap<String, Vec<Token>>>);

impl Tokens {
    /// When the first of a Pod's tokens is to be exchanged; `None` when it has none yet.
    pub(super) fn due(&self, uid: &str) -> Option<Timestamp> {
        self.0.lock().get(uid)?.iter().map(|t| t.refresh_at).min()
    }

    /// How many Pods have some.
    pub(crate) fn count(&self) -> usize {
        self.0.lock().len()
    }

    pub(super) fn forget(&self, uid: &str) {
        self.0.lock().remove(uid);
    }

    /// The token that is kept, if `good` finds it so.
    fn kept(&self, uid: &str, wanted: &Wanted, good: impl Fn(&Token) -> bool) -> Option<String> {
        let all = self.0.lock();
        all.get(uid)?.iter().find(|t| t.wanted == *wanted && good(t)).map(|t| t.text.clone())
    }

    fn keep(&self, uid: &str, token: Token) {
        let mut all = self.0.lock();
        let own = all.entry(uid.to_owned()).or_default();
        own.retain(|t| t.wanted != token.wanted);
        own.push(token);
    }
}

/// Whether a Pod's volumes show tokens.
pub(super) fn wanted(spec: &PodSpec) -> bool {
    let volumes = spec.volumes.iter().flatten().filter_map(|v| v.projected.as_ref());
    volumes.flat_map(|p| p.sources.iter().flatten()).any(|s| s.service_account_token.is_some())
}

/// A token that holds: the one that is kept, or a new one when its time has come.
///
/// # Errors
/// When there is none and the API gives none.
pub(super) async fn get(shared: &Shared, pod: &Pod, source: &ServiceAccountTokenProjection) -> Result<String, String> {
    let (wanted, now) = (Wanted::of(source), shared.now());
    if let Some(text) = shared.tokens.kept(pod.uid(), &wanted, |t| now < t.refresh_at) {
        return Ok(text);
    }
    match ask(shared, pod, &wanted).await {
        Ok(text) => {
            let (refresh_at, expires) = (wanted.refresh_at(now), after(now, wanted.seconds));
            shared.tokens.keep(pod.uid(), Token { wanted, text: text.clone(), refresh_at, expires });
            // Whoever waits for the time to exchange it learns of the new time.
            shared.pods.mark_changed(pod.uid().to_owned());
            Ok(text)
        }
        // An old one serves until it expires.
        Err(error) => {
            let old = shared.tokens.kept(pod.uid(), &wanted, |t| now < t.expires);
            old.ok_or_else(|| format!("failed to fetch token: {error}"))
        }
    }
}

async fn ask(shared: &Shared, pod: &Pod, wanted: &Wanted) -> Result<String, String> {
    let account = spec(pod).service_account_name.as_deref().unwrap_or("default");
    let api: Api<ServiceAccount> = Api::namespaced(shared.client.clone(), pod.namespace());
    let request = TokenRequest {
        metadata: ObjectMeta::default(),
        spec: TokenRequestSpec {
            audiences: wanted.audience.iter().cloned().collect(),
            expiration_seconds: Some(wanted.seconds),
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
    let ask = || within_deadline(api.create_token_request(account, &params, &request));
    // The account of a new namespace is on its way.
    let answer = if account == "default" { once_there(ask).await } else { ask().await };
    let token = answer.map_err(|e| e.to_string())?.status.map(|s| s.token);
    token.ok_or_else(|| "the API answered without a token".to_owned())
}

/// Asks about what may come in a moment, and which a node may not watch.
async fn once_there<T, F: Future<Output = Result<T, kube::Error>>>(ask: impl Fn() -> F) -> Result<T, kube::Error> {
    let (end, mut pause) = (Instant::now() + MOMENT, Duration::from_millis(5));
    loop {
        match ask().await {
            Err(kube::Error::Api(e)) if e.code == 404 && Instant::now() + pause < end => {
                tokio::time::sleep(pause).await;
                pause *= 2;
            }
            answer => return answer,
        }
    }
}

/// The user that all containers run as: the token's file is theirs then, and nobody else's (`FsUserFrom`).
pub(super) fn user(spec: &PodSpec) -> Option<u32> {
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
        let wanted = Wanted { audience: None, seconds };
        let now = Timestamp::UNIX_EPOCH;
        assert_eq!(wanted.refresh_at(now).as_second(), refresh_after);
    }

    #[test]
    fn a_token_is_exchanged_after_four_fifths_of_its_life_or_a_day() {
        check(600, 480);
        check(3607, 2886);
        check(1_000_000, 86_400);
    }

    #[track_caller]
    fn check_user(pod: Value, containers: &[Value], expected: Option<u32>) {
        let containers: Vec<Value> = containers.iter().map(|c| json!({"name": "c", "securityContext": c})).collect();
        let spec = json!({"securityContext": pod, "containers": containers});
        assert_eq!(user(&serde_json::from_value(spec).unwrap()), expected);
    }

    #[test]
    fn the_file_belongs_to_the_user_of_all_containers() {
        check_user(json!({}), &[json!({})], None);
        check_user(json!({"runAsUser": 7}), &[json!({}), json!({"runAsUser": 7})], Some(7));
        check_user(json!({"runAsUser": 7}), &[json!({}), json!({"runAsUser": 8})], None);
        check_user(json!({}), &[json!({"runAsUser": 7}), json!({})], None);
    }
}
