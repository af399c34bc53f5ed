//! Legacy service account tokens, which are stored in Secrets and do not expire (`pkg/serviceaccount/legacy.go`).

use super::{ISSUER, SigningKey, TokenError, token_request::get_object};
use crate::api_server::ApiServer;
use base64::{Engine, engine::general_purpose::STANDARD};
use futures::FutureExt;
use http::Method;
use jiff::{SignedDuration, Timestamp, civil::Date};
use request::{UserInfo, user};
use serde_json::{Value, json};
use store::Key;

/// Issuer of legacy tokens.
pub(super) const LEGACY_ISSUER: &str = "kubernetes/serviceaccount";

/// Claims of legacy tokens.
const NAMESPACE: &str = "kubernetes.io/serviceaccount/namespace";
const SECRET_NAME: &str = "kubernetes.io/serviceaccount/secret.name";
const SERVICE_ACCOUNT_NAME: &str = "kubernetes.io/serviceaccount/service-account.name";
const SERVICE_ACCOUNT_UID: &str = "kubernetes.io/serviceaccount/service-account.uid";
/// Label of a Secret with an unused token, which is invalid.
pub(super) const INVALID_SINCE: &str = "kubernetes.io/legacy-token-invalid-since";
/// Label of a Secret with the date of the last use of its token.
const LAST_USED: &str = "kubernetes.io/legacy-token-last-used";
/// Date in UTC.
const DATE_FORMAT: &str = "%Y-%m-%d";

impl SigningKey {
    /// Returns the token for the Secret of a service account, or `None` without a source of randomness.
    #[must_use]
    pub fn legacy_token(&self, namespace: &str, account: &str, uid: &str, secret: &str) -> Option<String> {
        self.sign(&json!({
            "iss": LEGACY_ISSUER, "sub": user::service_account_user_name(namespace, account),
            NAMESPACE: namespace, SECRET_NAME: secret, SERVICE_ACCOUNT_NAME: account, SERVICE_ACCOUNT_UID: uid,
        }))
    }
}

/// Returns the user of a legacy token, and its audience: legacy tokens are valid for the API server only.
pub(super) fn authenticate(
    server: &ApiServer,
    token: &str,
    claims: &Value,
    audiences: &[String],
    now: Timestamp,
) -> Result<(UserInfo, Vec<String>), TokenError> {
    if !audiences.is_empty() && !audiences.iter().any(|audience| audience == ISSUER) {
        let target = crate::authorization::go_quoted_list(audiences);
        return Err(TokenError::InvalidAudience { actual: format!("[\"{ISSUER}\"]"), target });
    }
    Ok((validate_claims(server, token, claims, now)?, vec![ISSUER.to_owned()]))
}

fn validate_claims(server: &ApiServer, token: &str, claims: &Value, now: Timestamp) -> Result<UserInfo, TokenError> {
    let text = |claim: &str| claims[claim].as_str().unwrap_or("");
    let (namespace, name, uid) = (text(NAMESPACE), text(SERVICE_ACCOUNT_NAME), text(SERVICE_ACCOUNT_UID));
    if text("sub").is_empty() || text("sub") != user::service_account_user_name(namespace, name) {
        return Err(TokenError::InvalidSubject);
    }
    let secret = get_object(server, "secrets", namespace, text(SECRET_NAME)).ok_or(TokenError::Invalidated)?;
    if !secret["metadata"]["deletionTimestamp"].is_null() {
        return Err(TokenError::Invalidated);
    }
    if secret["data"]["token"].as_str() != Some(&STANDARD.encode(token)) {
        return Err(TokenError::Mismatch);
    }
    let account = get_object(server, "serviceaccounts", namespace, name).ok_or(TokenError::Invalidated)?;
    if !account["metadata"]["deletionTimestamp"].is_null() || account["metadata"]["uid"] != *uid {
        return Err(TokenError::Invalidated);
    }
    // Also recorded for an invalidated token, because a client still uses it.
    record_use(server, namespace, text(SECRET_NAME), &secret, now);
    if secret["metadata"]["labels"][INVALID_SINCE].as_str().is_some_and(|since| !since.is_empty()) {
        return Err(TokenError::MarkedInvalid {
            namespace: namespace.to_owned(),
            secret: text(SECRET_NAME).to_owned(),
            service_account: name.to_owned(),
        });
    }
    let (groups, name) = (user::service_account_groups(namespace), user::service_account_user_name(namespace, name));
    Ok(UserInfo { name, uid: uid.to_owned(), groups, ..UserInfo::default() })
}

/// Records in the background that the token of a Secret was used today.
fn record_use(server: &ApiServer, namespace: &str, name: &str, secret: &Value, now: Timestamp) {
    let today = now.strftime(DATE_FORMAT).to_string();
    let last_used = secret["metadata"]["labels"][LAST_USED].as_str().unwrap_or("");
    // The clock of another server may be a day ahead.
    if last_used == today || last_used == (now + SignedDuration::from_hours(24)).strftime(DATE_FORMAT).to_string() {
        return;
    }
    let (server, path) = (server.clone(), format!("/api/v1/namespaces/{namespace}/secrets/{name}"));
    let label = json!({"metadata": {"uid": secret["metadata"]["uid"], "labels": {LAST_USED: today}}});
    tokio::spawn(async move { server.request_as_apiserver(Method::PATCH, &path, &label).await }.boxed());
}

/// ConfigMap with the date since which the use of legacy tokens is tracked.
pub(crate) const TRACKING_CONFIG_MAP: &str = "kube-apiserver-legacy-service-account-token-tracking";

impl ApiServer {
    /// Records the date since which the use of legacy tokens is tracked (`legacytokentracking`).
    pub async fn bootstrap_token_tracking(&self) {
        let (namespace, name) = ("kube-system", TRACKING_CONFIG_MAP);
        let all = format!("/api/v1/namespaces/{namespace}/configmaps");
        let data = json!({"since": Timestamp::now().strftime(DATE_FORMAT).to_string()});
        let Some(existing) = self.store.get(&Key::new("configmaps", namespace, name)) else {
            let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data});
            return self.ensure_created(&all, &object).await;
        };
        let existing: Value = serde_json::from_slice(&existing.data).unwrap_or_default();
        if existing["data"]["since"].as_str().is_none_or(|since| Date::strptime(DATE_FORMAT, since).is_err()) {
            self.request_as_apiserver(Method::PATCH, &format!("{all}/{name}"), &json!({"data": data})).await;
        }
    }
}
