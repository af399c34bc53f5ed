//! Request timeout: at most 60 s, except for long-running requests.

use api::duration;
use errors::ApiError;
use request::{RequestInfo, is_long_running};
use response::HandlerResult;
use std::{future::Future, time::Duration};

/// Upstream's `--request-timeout`.
const DEFAULT_REQUEST_TIMEOUT: Duration = Duration::from_secs(60);
/// Timeout of a request: its query's `timeout`, at most 60 s; `None` for long-running requests. Kept in the request's
/// extensions.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RequestTimeout(pub(crate) Option<Duration>);

impl Default for RequestTimeout {
    fn default() -> Self {
        Self(Some(DEFAULT_REQUEST_TIMEOUT))
    }
}

impl RequestTimeout {
    /// Returns a 400 when the query's `timeout` is not a duration.
    pub(crate) fn of(info: &RequestInfo) -> Result<Self, ApiError> {
        if is_long_running(&info.attributes) {
            return Ok(Self(None));
        }
        let requested = match info.query.get("timeout") {
            None => None,
            Some(text) => Some(duration::parse_non_negative(text).ok_or_else(|| {
                let cause = format!("time: invalid duration {text:?}");
                ApiError::bad_request(format!("invalid timeout specified in the request URL - {cause}"))
            })?),
        };
        Ok(Self(Some(
            requested.filter(|d| !d.is_zero()).map_or(DEFAULT_REQUEST_TIMEOUT, |d| d.min(DEFAULT_REQUEST_TIMEOUT)),
        )))
    }
}

/// Returns the response, or a 504 after the timeout; a write may still be committed then.
pub(crate) async fn with_timeout(
    timeout: Option<Duration>,
    response: impl Future<Output = HandlerResult>,
) -> HandlerResult {
    let Some(timeout) = timeout else { return response.await };
    tokio::time::timeout(timeout, response).await.unwrap_or_else(|_| {
        Err(ApiError::new(504, "Timeout", "Timeout: request did not complete within the allotted timeout"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn request_past_its_timeout_returns_504() {
        let never = std::future::pending::<HandlerResult>();
        let error = with_timeout(Some(DEFAULT_REQUEST_TIMEOUT), never).await.map(drop).unwrap_err();
        assert_eq!((error.code, error.reason), (504, "Timeout"));
    }
}
