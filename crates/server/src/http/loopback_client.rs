//! The API server's own requests, as `system:apiserver` (upstream's `LoopbackClientConfig`).

use super::request_handler::RequestHandler;
use bytes::Bytes;
use http::{HeaderValue, Method, Request, StatusCode, header};
use http_body_util::{BodyExt, Full};
use request::UserInfo;
use serde_json::Value;
use std::{sync::Arc, time::Duration};

/// First and maximal backoff of a failed creation.
const MIN_BACKOFF: Duration = Duration::from_secs(1);
const MAX_BACKOFF: Duration = Duration::from_secs(30);

/// A client of this server. Cheap to clone.
#[derive(Clone)]
pub(crate) struct LoopbackClient(Arc<dyn RequestHandler>);

impl LoopbackClient {
    pub(crate) fn new(handler: Arc<dyn RequestHandler>) -> Self {
        Self(handler)
    }

    pub(crate) async fn create_object(&self, path: &str, object: &Value) {
        self.request(Method::POST, path, object).await;
    }

    /// Creates an object that the system requires. A failure, such as a full store, is retried in the background with
    /// backoff.
    pub(crate) async fn ensure_created(&self, path: &str, object: &Value) {
        if self.request(Method::POST, path, object).await {
            return;
        }
        let (client, path, object) = (self.clone(), path.to_owned(), object.clone());
        tokio::spawn(async move {
            let mut backoff = MIN_BACKOFF;
            loop {
                tokio::time::sleep(backoff).await;
                backoff = (backoff * 2).min(MAX_BACKOFF);
                if client.send(Method::POST, &path, &object).await.is_ok() {
                    return;
                }
            }
        });
    }

    /// Sends a request; a PATCH is a merge patch. Returns whether nothing is left to do.
    pub(crate) async fn request(&self, method: Method, path: &str, object: &Value) -> bool {
        let failed = self.send(method.clone(), path, object).await.err();
        if let Some(status) = failed {
            let name = &object["metadata"]["name"];
            tracing::error!(%name, path, %method, %status, "failed to send the API server's own request");
        }
        failed.is_none()
    }

    async fn send(&self, method: Method, path: &str, object: &Value) -> Result<(), StatusCode> {
        let body = if object.is_null() { String::new() } else { object.to_string() };
        let mut request = Request::new(Full::<Bytes>::from(body).map_err(|never| match never {}).boxed_unsync());
        let Ok(uri) = path.parse() else { return Ok(()) };
        (*request.method_mut(), *request.uri_mut()) = (method.clone(), uri);
        let headers = request.headers_mut();
        headers.insert(header::USER_AGENT, HeaderValue::from_static("kube-apiserver"));
        if method == Method::PATCH {
            headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/merge-patch+json"));
        }
        let response = self.0.handle_request(Some(UserInfo::component("system:apiserver")), request).await;
        let status = response.status();
        if status.is_success() || is_benign_error(&method, status) { Ok(()) } else { Err(status) }
    }
}

/// Whether an error leaves nothing to do: the object exists already or was changed, or the object to change or delete is
/// gone.
fn is_benign_error(method: &Method, status: StatusCode) -> bool {
    status == StatusCode::CONFLICT
        || (status == StatusCode::NOT_FOUND && matches!(*method, Method::DELETE | Method::PATCH))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conflict_and_absence_are_benign_errors() {
        for (method, status, expected) in [
            (Method::POST, 409, true),
            (Method::PUT, 409, true),
            (Method::DELETE, 404, true),
            (Method::PATCH, 404, true),
            (Method::POST, 404, false),
            (Method::PUT, 404, false),
            (Method::DELETE, 403, false),
            (Method::POST, 422, false),
        ] {
            assert_eq!(is_benign_error(&method, StatusCode::from_u16(status).unwrap()), expected, "{method} {status}");
        }
    }
}
