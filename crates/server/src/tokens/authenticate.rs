//! Who shows a token: the account it was made for, as long as that and what it is bound to are there
//! (upstream's `pkg/serviceaccount/claims.go`, `Validate`).

use super::{
    ISSUER,
    legacy::{self, LEGACY_ISSUER},
    request::stored,
};
use crate::{UserInfo, authorization::quoted, service::ApiServer, user};
use jiff::Timestamp;
use serde_json::Value;
use std::collections::BTreeMap;

/// How far clocks may be apart, and how long what is being deleted still counts, in seconds.
const LEEWAY: i64 = 60;

/// The account that a bearer token stands for, and for which of these audiences it was made; without any, the API's own is
/// meant.
///
/// # Errors
/// When the token does not hold, with upstream's words for that where it has some.
pub(super) fn authenticate(
    server: &ApiServer,
    token: &str,
    audiences: &[String],
    now: Timestamp,
) -> Result<(UserInfo, Vec<String>), String> {
    let claims = server.signing_key.as_ref().and_then(|key| key.verify(token)).ok_or_else(String::new)?;
    if claims["iss"] == LEGACY_ISSUER {
        return legacy::authenticate(server, token, &claims, audiences, now);
    }
    if claims["iss"] != ISSUER {
        return Err(String::new());
    }
    let own = [ISSUER.to_owned()];
    let audiences = if audiences.is_empty() { &own } else { audiences };
    let has: Vec<String> = serde_json::from_value(claims["aud"].clone()).unwrap_or_default();
    let matching: Vec<String> = audiences.iter().filter(|a| has.contains(a)).cloned().collect();
    if matching.is_empty() {
        let (has, wanted) = (quoted(&has), quoted(audiences));
        return Err(format!("token audiences {has} is invalid for the target audiences {wanted}"));
    }
    let (time, second) = (|claim: &str| claims[claim].as_i64().unwrap_or(0), now.as_second());
    if time("exp") <= second.saturating_sub(LEEWAY) {
        return Err("service account token has expired".to_owned());
    }
    if time("nbf") > second.saturating_add(LEEWAY) {
        return Err("service account token is not valid yet".to_owned());
    }
    let user = holder(server, &claims, second).ok_or("service account token has been invalidated")?;
    Ok((user, matching))
}

/// The account that the claims are about, if it and what they are bound to are there.
fn holder(server: &ApiServer, claims: &Value, second: i64) -> Option<UserInfo> {
    let about = &claims["kubernetes.io"];
    let namespace = about["namespace"].as_str()?;
    let there = |plural: &'static str, namespace: &str, claim: &Value| {
        let found = stored(server, plural, namespace, claim["name"].as_str()?)?;
        let deleted: Option<Timestamp> = found["metadata"]["deletionTimestamp"].as_str().and_then(|t| t.parse().ok());
        let gone = deleted.is_some_and(|at| at.as_second().saturating_add(LEEWAY) < second);
        (found["metadata"]["uid"] == claim["uid"] && !gone).then_some(())
    };
    let account = &about["serviceaccount"];
    there("serviceaccounts", namespace, account)?;
    for (claim, plural) in [("pod", "pods"), ("secret", "secrets")] {
        if about.get(claim).is_some() {
            there(plural, namespace, &about[claim])?;
        }
    }
    // The node of a Pod is said, not bound to.
    if about.get("node").is_some() && about.get("pod").is_none() {
        there("nodes", "", &about["node"])?;
    }
    let name = user::of_account(namespace, account["name"].as_str()?);
    let uid = account["uid"].as_str()?.to_owned();
    Some(UserInfo { name, uid, groups: user::groups_of_accounts(namespace), extra: extra(claims) })
}

/// What is told of the token: its own id, and the Pod and node that it was made for.
fn extra(claims: &Value) -> BTreeMap<String, Vec<String>> {
    let about = &claims["kubernetes.io"];
    let mut extra = BTreeMap::new();
    let mut tell = |name: &str, value: &Value| {
        if let Some(text) = value.as_str() {
            extra.insert(format!("authentication.kubernetes.io/{name}"), vec![text.to_owned()]);
        }
    };
    for object in ["pod", "node"] {
        tell(&format!("{object}-name"), &about[object]["name"]);
        tell(&format!("{object}-uid"), &about[object]["uid"]);
    }
    if let Some(id) = claims["jti"].as_str() {
        tell("credential-id", &Value::from(format!("JTI={id}")));
    }
    extra
}
