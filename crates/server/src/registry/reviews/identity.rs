//! SelfSubjectReview (`kubectl auth whoami`) and TokenReview (upstream's `pkg/registry/authentication`).

use super::ReviewError;
use crate::http::{authentication::Authentication, clock::now};
use auth::tokens::{self, AuthenticatedToken, TokenError};
use errors::ApiError;
use request::UserInfo;
use serde_json::{Value, json};

/// SelfSubjectReview.
pub(super) fn self_subject_review(user: &UserInfo, review: &mut Value) -> Result<(), ReviewError> {
    review["metadata"] = json!({"creationTimestamp": now()});
    review["status"] = json!({"userInfo": user_info(user)});
    Ok(())
}

/// TokenReview.
pub(super) fn token_review(authentication: &Authentication, review: &mut Value) -> Result<(), ReviewError> {
    let spec = &review["spec"];
    let token = spec["token"].as_str().unwrap_or("");
    if token.is_empty() {
        let message = "token is required for TokenReview in authentication";
        return Err(ReviewError::Other(ApiError::bad_request(message)));
    }
    let audiences: Option<Vec<String>> = serde_json::from_value(spec["audiences"].clone()).unwrap_or_default();
    let authenticated = authentication.authenticate_token(token, audiences.as_deref().unwrap_or_default(), now());
    let status = match authenticated {
        Ok(AuthenticatedToken { user, audiences }) => {
            json!({"authenticated": true, "user": user_info(&user.authenticated()), "audiences": audiences})
        }
        Err(TokenError::Unknown) => json!({"user": {}, "error": tokens::INVALID_TOKEN}),
        Err(error) => json!({"user": {}, "error": format!("[{}, {error}]", tokens::INVALID_TOKEN)}),
    };
    review["status"] = status;
    Ok(())
}

/// Returns the `UserInfo` without empty fields.
fn user_info(user: &UserInfo) -> Value {
    let mut user_info = json!({"username": user.name});
    if !user.uid.is_empty() {
        user_info["uid"] = json!(user.uid);
    }
    if !user.groups.is_empty() {
        user_info["groups"] = json!(user.groups);
    }
    if !user.extra.is_empty() {
        user_info["extra"] = json!(user.extra);
    }
    user_info
}
