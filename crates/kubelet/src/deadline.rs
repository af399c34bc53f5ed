//! Every request to the API has a deadline: a connection that hangs is given up and the request made again.

use std::time::Duration;

/// Longer than the API server takes for anything but a watch.
const LIMIT: Duration = Duration::from_secs(30);

/// The answer, or an error when none came in time.
pub(crate) async fn within_deadline<T>(
    request: impl Future<Output = Result<T, kube::Error>>,
) -> Result<T, kube::Error> {
    match tokio::time::timeout(LIMIT, request).await {
        Ok(answer) => answer,
        Err(_) => Err(kube::Error::Service(format!("the API did not answer within {LIMIT:?}").into())),
    }
}
