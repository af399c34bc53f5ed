//! Legacy service account tokens, which are stored in Secrets and do not expire (`pkg/serviceaccount/legacy.go`).

use super::{ISSUER, SigningKey, TokenError, are_for_api_server};
use crate::{authorization::go_quoted_list, stored_object};
use base64::{Engine, engine::general_purpose::STANDARD};
use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use request::{UserInfo, user};
use serde_json::{Value, json};
use std::sync::atomic::{AtomicBool, Ordering};
use store::Store;

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
/// Form of dates, in UTC.
pub const DATE_FORMAT: &str = "%Y-%m-%d";

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
    store: &Store,
    uses: &LegacyTokenUses,
    token: &str,
    claims: &Value,
    audiences: &[String],
    now: Timestamp,
) -> Result<(UserInfo, Vec<String>), TokenError> {
    if !are_for_api_server(audiences) {
        let target = go_quoted_list(audiences);
        return Err(TokenError::InvalidAudience { actual: format!("[\"{ISSUER}\"]"), target });
    }
    Ok((validate_claims(store, uses, token, claims, now)?, vec![ISSUER.to_owned()]))
}

fn validate_claims(
    store: &Store,
    uses: &LegacyTokenUses,
    token: &str,
    claims: &Value,
    now: Timestamp,
) -> Result<UserInfo, TokenError> {
    let text = |claim: &str| claims[claim].as_str().unwrap_or("");
    let (namespace, name, uid) = (text(NAMESPACE), text(SERVICE_ACCOUNT_NAME), text(SERVICE_ACCOUNT_UID));
    if text("sub").is_empty() || text("sub") != user::service_account_user_name(namespace, name) {
        return Err(TokenError::InvalidSubject);
    }
    let secret = stored_object::get(store, "secrets", namespace, text(SECRET_NAME)).ok_or(TokenError::Invalidated)?;
    if !secret["metadata"]["deletionTimestamp"].is_null() {
        return Err(TokenError::Invalidated);
    }
    if secret["data"]["token"].as_str() != Some(&STANDARD.encode(token)) {
        return Err(TokenError::Mismatch);
    }
    let account = stored_object::get(store, "serviceaccounts", namespace, name).ok_or(TokenError::Invalidated)?;
    if !account["metadata"]["deletionTimestamp"].is_null() || account["metadata"]["uid"] != *uid {
        return Err(TokenError::Invalidated);
    }
    // Also recorded for an invalidated token, because a client still uses it.
    uses.record(namespace, text(SECRET_NAME), &secret, now);
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

/// A use of a legacy token that its Secret does not record yet.
#[derive(Debug, Clone, PartialEq)]
pub struct LegacyTokenUse {
    /// Namespace of the Secret.
    pub namespace: String,
    /// Name of the Secret.
    pub secret: String,
    /// The merge patch that records the use.
    pub patch: Value,
}

/// Uses of legacy tokens, until the API server records them in the Secrets.
#[derive(Debug, Default)]
pub struct LegacyTokenUses {
    uses: Mutex<Vec<LegacyTokenUse>>,
    /// Whether there is any use: a fast path for most requests.
    has_uses: AtomicBool,
}

impl LegacyTokenUses {
    /// Takes the uses, to record them.
    #[must_use]
    pub fn take(&self) -> Vec<LegacyTokenUse> {
        if !self.has_uses.swap(false, Ordering::AcqRel) {
            return Vec::new();
        }
        std::mem::take(&mut self.uses.lock())
    }

    /// Adds a use of today, unless it is recorded already.
    fn record(&self, namespace: &str, name: &str, secret: &Value, now: Timestamp) {
        let today = now.strftime(DATE_FORMAT).to_string();
        let last_used = secret["metadata"]["labels"][LAST_USED].as_str().unwrap_or("");
        // The clock of another server may be a day ahead.
        if last_used == today || last_used == (now + SignedDuration::from_hours(24)).strftime(DATE_FORMAT).to_string() {
            return;
        }
        let patch = json!({"metadata": {"uid": secret["metadata"]["uid"], "labels": {LAST_USED: today}}});
        let new = LegacyTokenUse { namespace: namespace.to_owned(), secret: name.to_owned(), patch };
        self.uses.lock().push(new);
        self.has_uses.store(true, Ordering::Release);
    }
}
