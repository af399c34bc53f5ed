//! Requests that upgrade their connection to another protocol.

use http::{HeaderMap, header};
use http_body_util::{BodyExt, Empty};
use response::{Body, BoxError};

/// Whether a request upgrades its connection to another protocol.
pub(crate) fn is_upgrade(headers: &HeaderMap) -> bool {
    headers.contains_key(header::UPGRADE)
        && connection_options(headers).any(|name| name.eq_ignore_ascii_case("upgrade"))
}

/// Returns the names in `Connection` headers.
pub(crate) fn connection_options(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    headers.get_all(header::CONNECTION).iter().filter_map(|v| v.to_str().ok()).flat_map(|v| v.split(',')).map(str::trim)
}

/// Returns the empty body of an upgrade's response.
pub(crate) fn empty_body() -> Body {
    Empty::new().map_err(|never| -> BoxError { match never {} }).boxed_unsync()
}
