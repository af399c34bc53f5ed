//! The interface of whatever handles requests: the API server, for the listener and for its own requests.

use futures::future::BoxFuture;
use http::{Request, Response};
use request::UserInfo;
use response::Body;

/// Handles requests (Go's `http.Handler`).
pub(crate) trait RequestHandler: Send + Sync {
    /// Handles a request of a user who is authenticated by a certificate, or of another one.
    fn handle_request(&self, user: Option<UserInfo>, request: Request<Body>) -> BoxFuture<'_, Response<Body>>;
}
