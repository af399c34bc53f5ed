//! Who shows a bearer token, of whichever kind it is: one of the file, a service account's, or a bootstrap token.

use super::{ISSUER, authenticate, bootstrap};
use crate::{UserInfo, service::ApiServer};
use http::{HeaderMap, header};
use jiff::Timestamp;

/// The token that somebody shows.
pub(crate) fn shown(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = value.trim().split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim()).filter(|token| !token.is_empty())
}

/// Who shows a token that holds.
pub(crate) fn bearer(server: &ApiServer, headers: &HeaderMap, now: Timestamp) -> Option<UserInfo> {
    identify(server, shown(headers)?, &[], now).ok().map(|(user, _)| user)
}

/// Whom a token stands for, and for which of these audiences; without any, the API's own is meant.
///
/// # Errors
/// When the token does not hold, with upstream's words for that where it has some.
pub(crate) fn identify(
    server: &ApiServer,
    token: &str,
    audiences: &[String],
    now: Timestamp,
) -> Result<(UserInfo, Vec<String>), String> {
    // What is not made for an audience is for the API itself.
    if audiences.is_empty() || audiences.iter().any(|a| a == ISSUER) {
        let listed = server.tokens.as_ref().and_then(|tokens| tokens.get(token)).cloned();
        if let Some(user) = listed.or_else(|| bootstrap::authenticate(server, token, now)) {
            return Ok((user, vec![ISSUER.to_owned()]));
        }
    }
    authenticate::authenticate(server, token, audiences, now)
}
