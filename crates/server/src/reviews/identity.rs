//! SelfSubjectReview (`kubectl auth whoami`) and TokenReview (upstream's `pkg/registry/authentication`).

use super::Refused;
use crate::{ApiServer, UserInfo, status::ApiError, tokens, write::now};
use serde_json::{Value, json};

/// SelfSubjectReview.
pub(super) fn oneself(user: &UserInfo, review: &mut Value) -> Result<(), Refused> {
    review["metadata"] = json!({"creationTimestamp": now()});
    review["status"] = json!({"userInfo": shown(user)});
    Ok(())
}

/// TokenReview.
pub(super) fn token(server: &ApiServer, review: &mut Value) -> Result<(), Refused> {
    let spec = &review["spec"];
    let token = spec["token"].as_str().unwrap_or("");
    if token.is_empty() {
        let why = "token is required for TokenReview in authentication";
        return Err(Refused::Other(ApiError::bad_request(why)));
    }
    let asked: Option<Vec<String>> = serde_json::from_value(spec["audiences"].clone()).unwrap_or_default();
    let status = match tokens::identify(server, token, asked.as_deref().unwrap_or_default(), now()) {
        Ok((user, audiences)) => {
            json!({"authenticated": true, "user": shown(&user.authenticated()), "audiences": audiences})
        }
        Err(why) => {
            let why = if why.is_empty() { tokens::INVALID.to_owned() } else { format!("[{}, {why}]", tokens::INVALID) };
            json!({"user": {}, "error": why})
        }
    };
    review["status"] = status;
    Ok(())
}

/// Returns the `UserInfo` without empty fields.
fn shown(user: &UserInfo) -> Value {
    let mut shown = json!({"username": user.name});
    if !user.uid.is_empty() {
        shown["uid"] = json!(user.uid);
    }
    if !user.groups.is_empty() {
        shown["groups"] = json!(user.groups);
    }
    if !user.extra.is_empty() {
        shown["extra"] = json!(user.extra);
    }
    shown
}
