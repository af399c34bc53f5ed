//! Deadline of API requests, so that a hanging connection does not block the kubelet.

use std::time::Duration;

/// Request timeout, longer than the API server's own limit for requests other than watches.
const LIMIT: Duration = Duration::from_secs(30);

/// Returns the response, or an error after the deadline.
pub(crate) async fn within_deadline<T>(
    request: impl Future<Output = Result<T, kube::Error>>,
) -> Result<T, kube::Error> {
    match tokio::time::timeout(LIMIT, request).await {
        Ok(answer) => answer,
        Err(_) => Err(kube::Error::Service(format!("the API did not answer within {LIMIT:?}").into())),
    }
}
