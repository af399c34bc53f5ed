//! Who shows a token: the account it was made for, as long as that and what it is bound to are there
//! (upstream's `pkg/serviceaccount/claims.go`, `Validate`).

use super::{ISSUER, request::stored};
use crate::{UserInfo, service::ApiServer, user};
use jiff::Timestamp;
use serde_json::Value;
use std::collections::BTreeMap;

/// How far clocks may be apart, and how long what is being deleted still counts, in seconds.
const LEEWAY: i64 = 60;

/// The account that a bearer token stands for; `None` when the token does not hold.
pub(crate) fn authenticate(server: &ApiServer, token: &str, now: Timestamp) -> Option<UserInfo> {
    let claims = server.signing_key.as_ref()?.verify(token)?;
    let (time, second) = (|claim: &str| claims[claim].as_i64(), now.as_second());
    let in_time = time("exp")? > second.saturating_sub(LEEWAY) && time("nbf")? <= second.saturating_add(LEEWAY);
    let audience = claims["aud"].as_array().is_some_and(|all| all.iter().any(|a| a == ISSUER));
    if claims["iss"] != ISSUER || !in_time || !audience {
        return None;
    }
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
    Some(UserInfo { name, uid, groups: user::groups_of_accounts(namespace), extra: extra(&claims) })
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
