//! Authentication and authorization of requests by TokenReviews and SubjectAccessReviews, with a cache
//! (upstream's `cmd/kubelet/app/auth.go`, `pkg/kubelet/server/auth.go`).

use crate::config::AccessSettings;
use http::{HeaderMap, Method, header};
use k8s_openapi::api::{
    authentication::v1::{TokenReview, TokenReviewSpec, UserInfo},
    authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec},
};
use kube::{Api, Client, api::PostParams};
use parking_lot::Mutex;
use sha2::{Digest, Sha256};
use std::{collections::HashMap, hash::Hash, time::Duration};
use tokio::time::Instant;

/// Limit of entries in each cache.
const MAX_ENTRIES: usize = 4096;
const AUTHENTICATED: &str = "system:authenticated";

/// Cache of values with an expiry.
struct ExpiringCache<K, V>(Mutex<HashMap<K, (V, Instant)>>);

impl<K: Hash + Eq, V: Clone> ExpiringCache<K, V> {
    fn get(&self, key: &K) -> Option<V> {
        let cached = self.0.lock();
        cached.get(key).filter(|(_, until)| *until > Instant::now()).map(|(value, _)| value.clone())
    }

    fn put(&self, key: K, value: V, ttl: Duration) {
        let (mut cached, now) = (self.0.lock(), Instant::now());
        if cached.len() >= MAX_ENTRIES {
            cached.retain(|_, (_, until)| *until > now);
        }
        if cached.len() < MAX_ENTRIES {
            cached.insert(key, (value, now + ttl));
        }
    }
}

/// Cache key: verb, node subresource and user in one string.
type AuthorizationKey = String;

/// Client certificate of a connection.
#[derive(Debug, Clone)]
pub(super) enum ClientCertificate {
    Absent,
    Valid(UserInfo),
    /// The subject does not identify one user. Such a client is not anonymous.
    Ambiguous,
}

/// Authenticator and authorizer of the kubelet's HTTP API.
pub(super) struct RequestAuth {
    client: Client,
    node: String,
    settings: AccessSettings,
    /// Users by the SHA-256 of their token; `None` for invalid tokens.
    users: ExpiringCache<[u8; 32], Option<UserInfo>>,
    decisions: ExpiringCache<AuthorizationKey, bool>,
}

impl RequestAuth {
    pub(super) fn new(client: Client, node: &str, settings: AccessSettings) -> Self {
        let (users, decisions) = (ExpiringCache(Mutex::default()), ExpiringCache(Mutex::default()));
        Self { client, node: node.to_owned(), settings, users, decisions }
    }

    /// Authenticates a request by its client certificate or bearer token. `None` means unauthorized.
    pub(super) async fn authenticate(&self, certificate: ClientCertificate, headers: &HeaderMap) -> Option<UserInfo> {
        let may_be_anonymous = self.settings.anonymous && !matches!(certificate, ClientCertificate::Ambiguous);
        if let ClientCertificate::Valid(mut user) = certificate {
            user.groups.get_or_insert_default().push(AUTHENTICATED.to_owned());
            return Some(user);
        }
        let authorization = headers.get(header::AUTHORIZATION).and_then(|v| v.to_str().ok());
        let token = authorization
            .and_then(|v| v.trim().split_once(' '))
            .filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"));
        match token {
            Some((_, token)) if self.settings.tokens => self.review_token(token.trim()).await,
            Some(_) => None,
            None if may_be_anonymous => {
                let groups = Some(vec!["system:unauthenticated".to_owned()]);
                Some(UserInfo { username: Some("system:anonymous".to_owned()), groups, ..UserInfo::default() })
            }
            None => None,
        }
    }

    async fn review_token(&self, token: &str) -> Option<UserInfo> {
        let hash: [u8; 32] = Sha256::digest(token).into();
        if let Some(cached) = self.users.get(&hash) {
            return cached;
        }
        let spec = TokenReviewSpec { token: Some(token.to_owned()), ..TokenReviewSpec::default() };
        let review = TokenReview { spec, ..TokenReview::default() };
        let answer = Api::<TokenReview>::all(self.client.clone()).create(&PostParams::default(), &review).await;
        let status =
            answer.inspect_err(|error| tracing::warn!(%error, "failed to create a TokenReview")).ok()?.status?;
        let user = status.user.filter(|_| status.authenticated == Some(true));
        self.users.put(hash, user.clone(), self.settings.token_ttl);
        user
    }

    /// Authorizes a request. The error is upstream's status code and message.
    pub(super) async fn authorize(
        &self,
        user: &UserInfo,
        method: &Method,
        path: &str,
        headers: &HeaderMap,
    ) -> Result<(), (u16, String)> {
        if self.settings.always {
            return Ok(());
        }
        let (verb, subresources) = (verb(method, path, headers), subresources(path));
        let name = user.username.as_deref().unwrap_or_default();
        let attributes = format!("(user={name}, verb={verb}, resource=nodes, subresource={})", subresources[0]);
        for subresource in subresources {
            match self.is_allowed(user, verb, subresource).await {
                Ok(true) => return Ok(()),
                Ok(false) => {}
                Err(error) => {
                    tracing::warn!(%error, "failed to create a SubjectAccessReview");
                    return Err((500, format!("Authorization error {attributes}")));
                }
            }
        }
        Err((403, format!("Forbidden {attributes}")))
    }

    async fn is_allowed(&self, user: &UserInfo, verb: &str, subresource: &str) -> Result<bool, kube::Error> {
        let key = format!("{verb} {subresource} {user:?}");
        if let Some(cached) = self.decisions.get(&key) {
            return Ok(cached);
        }
        let attributes = ResourceAttributes {
            verb: Some(verb.to_owned()),
            version: Some("v1".to_owned()),
            resource: Some("nodes".to_owned()),
            subresource: Some(subresource.to_owned()),
            name: Some(self.node.clone()),
            ..ResourceAttributes::default()
        };
        let UserInfo { username, uid, groups, extra } = user.clone();
        let resource_attributes = Some(attributes);
        let spec =
            SubjectAccessReviewSpec { user: username, uid, groups, extra, resource_attributes, ..Default::default() };
        let review = SubjectAccessReview { spec, ..SubjectAccessReview::default() };
        let answer =
            Api::<SubjectAccessReview>::all(self.client.clone()).create(&PostParams::default(), &review).await?;
        let allowed = answer.status.is_some_and(|status| status.allowed);
        let ttl = if allowed { self.settings.allowed_ttl } else { self.settings.refused_ttl };
        self.decisions.put(key, allowed, ttl);
        Ok(allowed)
    }
}

/// Returns the authorization verb. Requests that open a stream into a Pod are `create` for any method: a WebSocket is
/// opened with a GET, and `get` must not permit running commands.
fn verb(method: &Method, path: &str, headers: &HeaderMap) -> &'static str {
    let first = path.split('/').find(|part| !part.is_empty()).unwrap_or_default();
    if matches!(first, "exec" | "attach" | "portForward" | "run" | "cri") || headers.contains_key(header::UPGRADE) {
        return "create";
    }
    match *method {
        Method::POST => "create",
        Method::PUT => "update",
        Method::PATCH => "patch",
        Method::DELETE => "delete",
        Method::GET => "get",
        _ => "",
    }
}

/// Returns the node subresources of a path; permission for one of them suffices (`KubeletFineGrainedAuthz`).
fn subresources(path: &str) -> &'static [&'static str] {
    match path.split('/').nth(1).unwrap_or_default() {
        "stats" => &["stats"],
        "metrics" => &["metrics"],
        "logs" => &["log"],
        "checkpoint" => &["checkpoint"],
        "pods" | "runningpods" => &["pods", "proxy"],
        "healthz" => &["healthz", "proxy"],
        "configz" => &["configz", "proxy"],
        _ => &["proxy"],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_maps_to_node_subresources() {
        for (path, expected) in [
            ("/metrics/resource", &["metrics"][..]),
            ("/stats/summary", &["stats"]),
            ("/pods/", &["pods", "proxy"]),
            ("/healthz", &["healthz", "proxy"]),
            ("/exec/a/b/c", &["proxy"]),
            ("/metricsx", &["proxy"]),
            ("/", &["proxy"]),
        ] {
            assert_eq!(subresources(path), expected, "{path}");
        }
    }

    #[test]
    fn get_that_opens_a_stream_is_a_create() {
        let plain = HeaderMap::new();
        for path in ["/exec/a/b/c", "//exec/a/b/c", "/attach/a/b/c", "/portForward/a/b", "/run/a/b/c", "/cri/exec/x"] {
            assert_eq!(verb(&Method::GET, path, &plain), "create", "{path}");
        }
        let upgrade: HeaderMap = [(header::UPGRADE, http::HeaderValue::from_static("websocket"))].into_iter().collect();
        assert_eq!(verb(&Method::GET, "/%65xec/a/b/c", &upgrade), "create");
        assert_eq!(verb(&Method::GET, "/metrics", &plain), "get");
        assert_eq!(verb(&Method::GET, "/containerLogs/a/b/c", &plain), "get");
    }

    #[tokio::test(start_paused = true)]
    async fn cache_entries_expire_and_are_limited() {
        let cached = ExpiringCache(Mutex::default());
        cached.put(0, "a", Duration::from_secs(10));
        assert_eq!(cached.get(&0), Some("a"));
        (1..=2 * MAX_ENTRIES).for_each(|i| cached.put(i, "b", Duration::from_secs(20)));
        assert_eq!(cached.0.lock().len(), MAX_ENTRIES);
        tokio::time::advance(Duration::from_secs(11)).await;
        assert_eq!((cached.get(&0), cached.get(&1)), (None, Some("b")));
        cached.put(0, "c", Duration::from_secs(10));
        assert_eq!(cached.get(&0), Some("c"));
    }
}
