//! Authentication of service account tokens (JWT), which are valid while the account and the bound object exist
//! (upstream's `jwtTokenAuthenticator.AuthenticateToken`, and `Validate` in `pkg/serviceaccount/claims.go`).

use super::{
    AuthenticateToken, AuthenticatedToken, ISSUER, SigningKey, TokenError,
    legacy::{self, LEGACY_ISSUER, LegacyTokenUses},
};
use crate::{authorization::go_quoted_list, stored_object};
use jiff::Timestamp;
use request::{UserInfo, user};
use serde_json::Value;
use std::{collections::BTreeMap, sync::Arc};
use store::Store;

/// Tolerated clock skew, and the time for which a deleted object still counts, in seconds.
const LEEWAY_SECONDS: i64 = 60;

/// Authenticates service account tokens.
pub struct ServiceAccountTokenAuthenticator {
    /// The store of service accounts and bound objects.
    pub store: Store,
    /// The key by which the tokens are signed.
    pub key: Arc<SigningKey>,
    /// Receives the uses of legacy tokens.
    pub legacy_uses: Arc<LegacyTokenUses>,
}

impl AuthenticateToken for ServiceAccountTokenAuthenticator {
    fn authenticate_token(
        &self,
        token: &str,
        audiences: &[String],
        now: Timestamp,
    ) -> Result<Option<AuthenticatedToken>, TokenError> {
        let Some(claims) = self.key.verify(token) else { return Ok(None) };
        let (user, audiences) = if claims["iss"] == LEGACY_ISSUER {
            legacy::authenticate(&self.store, &self.legacy_uses, token, &claims, audiences, now)?
        } else if claims["iss"] == ISSUER {
            authenticate(&self.store, &claims, audiences, now)?
        } else {
            return Ok(None);
        };
        Ok(Some(AuthenticatedToken { user, audiences }))
    }
}

/// Returns the user of a token with these claims, and those of the audiences for which it is valid. Without audiences,
/// the API server's own is used.
fn authenticate(
    store: &Store,
    claims: &Value,
    audiences: &[String],
    now: Timestamp,
) -> Result<(UserInfo, Vec<String>), TokenError> {
    let default_audiences = [ISSUER.to_owned()];
    let audiences = if audiences.is_empty() { &default_audiences } else { audiences };
    let token_audiences: Vec<String> = serde_json::from_value(claims["aud"].clone()).unwrap_or_default();
    let matching: Vec<String> = audiences.iter().filter(|a| token_audiences.contains(a)).cloned().collect();
    if matching.is_empty() {
        let (actual, target) = (go_quoted_list(&token_audiences), go_quoted_list(audiences));
        return Err(TokenError::InvalidAudience { actual, target });
    }
    let (time, second) = (|claim: &str| claims[claim].as_i64().unwrap_or(0), now.as_second());
    if time("exp") <= second.saturating_sub(LEEWAY_SECONDS) {
        return Err(TokenError::Expired);
    }
    if time("nbf") > second.saturating_add(LEEWAY_SECONDS) {
        return Err(TokenError::NotValidYet);
    }
    let user = validate_claims(store, claims, second).ok_or(TokenError::Invalidated)?;
    Ok((user, matching))
}

/// Returns the user of the claims, if the account and the bound object exist.
fn validate_claims(store: &Store, claims: &Value, second: i64) -> Option<UserInfo> {
    let private_claims = &claims["kubernetes.io"];
    let namespace = private_claims["namespace"].as_str()?;
    let require_object = |plural: &'static str, namespace: &str, claim: &Value| {
        let object = stored_object::get(store, plural, namespace, claim["name"].as_str()?)?;
        let deleted: Option<Timestamp> = object["metadata"]["deletionTimestamp"].as_str().and_then(|t| t.parse().ok());
        let is_deleted = deleted.is_some_and(|at| at.as_second().saturating_add(LEEWAY_SECONDS) < second);
        (object["metadata"]["uid"] == claim["uid"] && !is_deleted).then_some(())
    };
    let account = &private_claims["serviceaccount"];
    require_object("serviceaccounts", namespace, account)?;
    for (claim, plural) in [("pod", "pods"), ("secret", "secrets")] {
        if private_claims.get(claim).is_some() {
            require_object(plural, namespace, &private_claims[claim])?;
        }
    }
    // With a bound Pod, the node is informational.
    if private_claims.get("node").is_some() && private_claims.get("pod").is_none() {
        require_object("nodes", "", &private_claims["node"])?;
    }
    let name = user::service_account_user_name(namespace, account["name"].as_str()?);
    let uid = account["uid"].as_str()?.to_owned();
    Some(UserInfo { name, uid, groups: user::service_account_groups(namespace), extra: extra(claims) })
}

/// Returns the `extra` of the user: ID of the token, and Pod and node to which it is bound.
fn extra(claims: &Value) -> BTreeMap<String, Vec<String>> {
    let private_claims = &claims["kubernetes.io"];
    let mut extra = BTreeMap::new();
    let mut insert = |name: &str, value: &Value| {
        if let Some(text) = value.as_str() {
            extra.insert(format!("authentication.kubernetes.io/{name}"), vec![text.to_owned()]);
        }
    };
    for object in ["pod", "node"] {
        insert(&format!("{object}-name"), &private_claims[object]["name"]);
        insert(&format!("{object}-uid"), &private_claims[object]["uid"]);
    }
    if let Some(id) = claims["jti"].as_str() {
        insert("credential-id", &Value::from(format!("JTI={id}")));
    }
    extra
}
