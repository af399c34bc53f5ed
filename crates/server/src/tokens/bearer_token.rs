//! Authentication of bearer tokens of all kinds: of the token file, of service accounts, and bootstrap tokens.

use super::{ISSUER, TokenError, bootstrap_token, service_account};
use crate::api_server::ApiServer;
use http::{HeaderMap, header};
use jiff::Timestamp;
use request::UserInfo;

/// Returns the bearer token of a request.
pub(crate) fn bearer_token(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = value.trim().split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim()).filter(|token| !token.is_empty())
}

/// Returns the user of a request with a valid bearer token.
pub(crate) fn authenticate_request(server: &ApiServer, headers: &HeaderMap, now: Timestamp) -> Option<UserInfo> {
    authenticate_token(server, bearer_token(headers)?, &[], now).ok().map(|(user, _)| user)
}

/// Returns the user of a token, and those of the audiences for which it is valid. Without audiences, the API server's
/// own is used.
///
/// # Errors
/// When the token is invalid.
pub(crate) fn authenticate_token(
    server: &ApiServer,
    token: &str,
    audiences: &[String],
    now: Timestamp,
) -> Result<(UserInfo, Vec<String>), TokenError> {
    // Tokens without audiences are valid for the API server only.
    if audiences.is_empty() || audiences.iter().any(|a| a == ISSUER) {
        let from_file = server.tokens.as_ref().and_then(|tokens| tokens.get(token)).cloned();
        if let Some(user) = from_file.or_else(|| bootstrap_token::authenticate(server, token, now)) {
            return Ok((user, vec![ISSUER.to_owned()]));
        }
    }
    service_account::authenticate(server, token, audiences, now)
}
