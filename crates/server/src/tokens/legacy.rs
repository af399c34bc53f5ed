//! Tokens without an end, which are kept in Secrets and hold while these are there (`pkg/serviceaccount/legacy.go`).

use super::{ISSUER, SigningKey, request::stored};
use crate::{UserInfo, service::ApiServer, user};
use base64::{Engine, engine::general_purpose::STANDARD};
use futures::FutureExt;
use http::Method;
use jiff::{SignedDuration, Timestamp, civil::Date};
use serde_json::{Value, json};
use store::Key;

/// Who issues them.
pub(super) const LEGACY_ISSUER: &str = "kubernetes/serviceaccount";

/// What such a token says.
const NAMESPACE: &str = "kubernetes.io/serviceaccount/namespace";
const SECRET: &str = "kubernetes.io/serviceaccount/secret.name";
const ACCOUNT: &str = "kubernetes.io/serviceaccount/service-account.name";
const UID: &str = "kubernetes.io/serviceaccount/service-account.uid";
/// Marks a Secret whose token nobody uses any more.
const INVALID_SINCE: &str = "kubernetes.io/legacy-token-invalid-since";
/// Says on which day a token was used last.
const LAST_USED: &str = "kubernetes.io/legacy-token-last-used";
/// A day, in UTC.
const DAY: &str = "%Y-%m-%d";

impl SigningKey {
    /// A token for a Secret of an account; `None` when the machine has no randomness to give.
    #[must_use]
    pub fn legacy_token(&self, namespace: &str, account: &str, uid: &str, secret: &str) -> Option<String> {
        self.sign(&json!({
            "iss": LEGACY_ISSUER, "sub": user::of_account(namespace, account),
            NAMESPACE: namespace, SECRET: secret, ACCOUNT: account, UID: uid,
        }))
    }
}

/// The account that such a token stands for, and for which of these audiences it holds: it is for the API itself.
pub(super) fn authenticate(
    server: &ApiServer,
    token: &str,
    claims: &Value,
    audiences: &[String],
    now: Timestamp,
) -> Result<(UserInfo, Vec<String>), String> {
    if !audiences.is_empty() && !audiences.iter().any(|audience| audience == ISSUER) {
        let wanted = crate::authorization::quoted(audiences);
        return Err(format!("token audiences [\"{ISSUER}\"] is invalid for the target audiences {wanted}"));
    }
    Ok((holder(server, token, claims, now)?, vec![ISSUER.to_owned()]))
}

fn holder(server: &ApiServer, token: &str, claims: &Value, now: Timestamp) -> Result<UserInfo, String> {
    let text = |claim: &str| claims[claim].as_str().unwrap_or("");
    let (namespace, name, uid) = (text(NAMESPACE), text(ACCOUNT), text(UID));
    if text("sub").is_empty() || text("sub") != user::of_account(namespace, name) {
        return Err("sub claim is invalid".to_owned());
    }
    let invalidated = || "service account token has been invalidated".to_owned();
    let secret = stored(server, "secrets", namespace, text(SECRET)).ok_or_else(invalidated)?;
    if !secret["metadata"]["deletionTimestamp"].is_null() {
        return Err(invalidated());
    }
    if secret["data"]["token"].as_str() != Some(&STANDARD.encode(token)) {
        return Err("token does not match server's copy".to_owned());
    }
    let account = stored(server, "serviceaccounts", namespace, name).ok_or_else(invalidated)?;
    if !account["metadata"]["deletionTimestamp"].is_null() || account["metadata"]["uid"] != *uid {
        return Err(invalidated());
    }
    // Of one that does not hold any more, too: somebody misses it.
    note_use(server, namespace, text(SECRET), &secret, now);
    if secret["metadata"]["labels"][INVALID_SINCE].as_str().is_some_and(|since| !since.is_empty()) {
        let secret = text(SECRET);
        return Err(format!(
            "the token in secret {namespace}/{secret} for service account {namespace}/{name} has been marked invalid. Use tokens from the TokenRequest API or manually created secret-based tokens, or remove the '{INVALID_SINCE}' label from the secret to temporarily allow use of this token"
        ));
    }
    let (groups, name) = (user::groups_of_accounts(namespace), user::of_account(namespace, name));
    Ok(UserInfo { name, uid: uid.to_owned(), groups, ..UserInfo::default() })
}

/// Says of a Secret that its token was used today, unless it says so already. Nobody waits for that.
fn note_use(server: &ApiServer, namespace: &str, name: &str, secret: &Value, now: Timestamp) {
    let today = now.strftime(DAY).to_string();
    let told = secret["metadata"]["labels"][LAST_USED].as_str().unwrap_or("");
    // The clock of another server may be ahead.
    if told == today || told == (now + SignedDuration::from_hours(24)).strftime(DAY).to_string() {
        return;
    }
    let (server, path) = (server.clone(), format!("/api/v1/namespaces/{namespace}/secrets/{name}"));
    let label = json!({"metadata": {"uid": secret["metadata"]["uid"], "labels": {LAST_USED: today}}});
    tokio::spawn(async move { server.request_as_apiserver(Method::PATCH, &path, &label).await }.boxed());
}

/// The ConfigMap that says since when the use of tokens is noted.
pub(crate) const TRACKING: &str = "kube-apiserver-legacy-service-account-token-tracking";

impl ApiServer {
    /// Says since when the use of tokens in Secrets is noted (`legacytokentracking`): before that day nobody knows of it.
    pub async fn bootstrap_token_tracking(&self) {
        let (namespace, name) = ("kube-system", TRACKING);
        let all = format!("/api/v1/namespaces/{namespace}/configmaps");
        let data = json!({"since": Timestamp::now().strftime(DAY).to_string()});
        let Some(there) = self.store.get(&Key::new("configmaps", namespace, name)) else {
            let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data});
            return self.ensure_created(&all, &object).await;
        };
        let there: Value = serde_json::from_slice(&there.data).unwrap_or_default();
        if there["data"]["since"].as_str().is_none_or(|since| Date::strptime(DAY, since).is_err()) {
            self.request_as_apiserver(Method::PATCH, &format!("{all}/{name}"), &json!({"data": data})).await;
        }
    }
}
