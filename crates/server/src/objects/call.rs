//! A resource request while it is handled.

use audit::AuditContext;
use bytes::Bytes;
use http::{HeaderMap, Method};
use hyper::upgrade::OnUpgrade;
use parking_lot::Mutex;
use request::{Query, UserInfo};
use tokio::time::Instant;

/// A resource request: caller, method, query, headers and body.
pub(crate) struct Call {
    pub(crate) user: UserInfo,
    pub(crate) method: Method,
    pub(crate) query: Query,
    pub(crate) raw_query: String,
    pub(crate) accept: String,
    pub(crate) content_type: String,
    pub(crate) body: Bytes,
    pub(crate) headers: HeaderMap,
    /// The connection, for requests that upgrade to another protocol.
    pub(crate) upgrade: Option<OnUpgrade>,
    /// Deadline of the response; `None` for long-running requests.
    pub(crate) deadline: Option<Instant>,
    /// Audit event of the request; streams keep a clone of it after the response has begun.
    pub(crate) audit: AuditContext,
    /// `Warning` headers, sent with the response even if it is an error.
    pub(crate) warnings: Mutex<Vec<String>>,
}
