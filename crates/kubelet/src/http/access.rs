//! Who asks the node, and whether they may: the API decides both, and what it said holds for a while
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

/// How many answers are remembered of each sort.
const MOST: usize = 4096;
const AUTHENTICATED: &str = "system:authenticated";

/// What was said, and until when it holds.
struct Remembered<K, V>(Mutex<HashMap<K, (V, Instant)>>);

impl<K: Hash + Eq, V: Clone> Remembered<K, V> {
    fn get(&self, key: &K) -> Option<V> {
        let known = self.0.lock();
        known.get(key).filter(|(_, until)| *until > Instant::now()).map(|(value, _)| value.clone())
    }

    fn put(&self, key: K, value: V, ttl: Duration) {
        let (mut known, now) = (self.0.lock(), Instant::now());
        if known.len() >= MOST {
            known.retain(|_, (_, until)| *until > now);
        }
        if known.len() < MOST {
            known.insert(key, (value, now + ttl));
        }
    }
}

/// A user, a verb and a part of the node, in one text.
type Question = String;

/// The certificate that a connection's client presents.
#[derive(Debug, Clone)]
pub(super) enum ClientCertificate {
    Absent,
    Of(UserInfo),
    /// Its subject does not identify a user. Such a client is not anonymous.
    Ambiguous,
}

pub(super) struct Access {
    client: Client,
    node: String,
    settings: AccessSettings,
    /// By the hash of a token: whom it stands for, if it does for anybody.
    users: Remembered<[u8; 32], Option<UserInfo>>,
    decisions: Remembered<Question, bool>,
}

impl Access {
    pub(super) fn new(client: Client, node: &str, settings: AccessSettings) -> Self {
        let (users, decisions) = (Remembered(Mutex::default()), Remembered(Mutex::default()));
        Self { client, node: node.to_owned(), settings, users, decisions }
    }

    /// Who asks: whom the certificate names, or for whom the token stands.
    pub(super) async fn user(&self, certificate: ClientCertificate, headers: &HeaderMap) -> Option<UserInfo> {
        let may_be_anonymous = self.settings.anonymous && !matches!(certificate, ClientCertificate::Ambiguous);
        if let ClientCertificate::Of(mut user) = certificate {
            user.groups.get_or_insert_default().push(AUTHENTICATED.to_owned());
            return Some(user);
        }
        let shown = headers.get(header::AUTHORIZATION).and_then(|v| v.to_str().ok());
        let token =
            shown.and_then(|v| v.trim().split_once(' ')).filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"));
        match token {
            Some((_, token)) if self.settings.tokens => self.holder(token.trim()).await,
            Some(_) => None,
            None if may_be_anonymous => {
                let groups = Some(vec!["system:unauthenticated".to_owned()]);
                Some(UserInfo { username: Some("system:anonymous".to_owned()), groups, ..UserInfo::default() })
            }
            None => None,
        }
    }

    async fn holder(&self, token: &str) -> Option<UserInfo> {
        let hash: [u8; 32] = Sha256::digest(token).into();
        if let Some(known) = self.users.get(&hash) {
            return known;
        }
        let spec = TokenReviewSpec { token: Some(token.to_owned()), ..TokenReviewSpec::default() };
        let review = TokenReview { spec, ..TokenReview::default() };
        let answer = Api::<TokenReview>::all(self.client.clone()).create(&PostParams::default(), &review).await;
        let status =
            answer.inspect_err(|error| tracing::warn!(%error, "the API cannot be asked for a token")).ok()?.status?;
        let user = status.user.filter(|_| status.authenticated == Some(true));
        self.users.put(hash, user.clone(), self.settings.token_ttl);
        user
    }

    /// Refuses what the user may not do, in upstream's words.
    pub(super) async fn check(
        &self,
        user: &UserInfo,
        method: &Method,
        path: &str,
        headers: &HeaderMap,
    ) -> Result<(), (u16, String)> {
        if self.settings.always {
            return Ok(());
        }
        let (verb, parts) = (verb(method, path, headers), parts(path));
        let name = user.username.as_deref().unwrap_or_default();
        let words = format!("(user={name}, verb={verb}, resource=nodes, subresource={})", parts[0]);
        for part in parts {
            match self.may(user, verb, part).await {
                Ok(true) => return Ok(()),
                Ok(false) => {}
                Err(error) => {
                    tracing::warn!(%error, "the API cannot be asked who may what on this node");
                    return Err((500, format!("Authorization error {words}")));
                }
            }
        }
        Err((403, format!("Forbidden {words}")))
    }

    async fn may(&self, user: &UserInfo, verb: &str, part: &str) -> Result<bool, kube::Error> {
        let question = format!("{verb} {part} {user:?}");
        if let Some(known) = self.decisions.get(&question) {
            return Ok(known);
        }
        let attributes = ResourceAttributes {
            verb: Some(verb.to_owned()),
            version: Some("v1".to_owned()),
            resource: Some("nodes".to_owned()),
            subresource: Some(part.to_owned()),
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
        self.decisions.put(question, allowed, ttl);
        Ok(allowed)
    }
}

/// Opening a stream into a Pod is `create` whatever the method: a WebSocket is opened with a GET, which must not make
/// `get` a right to run commands.
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

/// Which parts of the node a path is of: whoever may use one of them may ask (`KubeletFineGrainedAuthz`).
fn parts(path: &str) -> &'static [&'static str] {
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
    fn a_path_is_of_a_part_of_the_node() {
        for (path, expected) in [
            ("/metrics/resource", &["metrics"][..]),
            ("/stats/summary", &["stats"]),
            ("/pods/", &["pods", "proxy"]),
            ("/healthz", &["healthz", "proxy"]),
            ("/exec/a/b/c", &["proxy"]),
            ("/metricsx", &["proxy"]),
            ("/", &["proxy"]),
        ] {
            assert_eq!(parts(path), expected, "{path}");
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
    async fn what_was_said_holds_for_a_while_and_takes_no_more_than_its_room() {
        let known = Remembered(Mutex::default());
        known.put(0, "a", Duration::from_secs(10));
        assert_eq!(known.get(&0), Some("a"));
        (1..=2 * MOST).for_each(|i| known.put(i, "b", Duration::from_secs(20)));
        assert_eq!(known.0.lock().len(), MOST);
        tokio::time::advance(Duration::from_secs(11)).await;
        assert_eq!((known.get(&0), known.get(&1)), (None, Some("b")));
        known.put(0, "c", Duration::from_secs(10));
        assert_eq!(known.get(&0), Some("c"));
    }
}
