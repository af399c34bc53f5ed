//! How long a request may take: a minute, but for those that are meant to last.

use crate::{
    authorization::{About, Attributes},
    duration,
    request::Query,
    response::Reply,
    status::ApiError,
};
use std::{future::Future, time::Duration};

/// Upstream's `--request-timeout`.
const LONGEST: Duration = Duration::from_secs(60);
/// Subresources that last as long as their clients want.
const LASTING: [&str; 5] = ["attach", "exec", "log", "portforward", "proxy"];

/// Whether a request lasts for as long as its client wants (`BasicLongRunningRequestCheck`).
pub(crate) fn lasts(wanted: &Attributes) -> bool {
    let About::Resource(about) = &wanted.about else { return false };
    wanted.verb == "watch" || LASTING.contains(&about.subresource.as_str())
}

/// The time for a request: what its query asks for, at most a minute; `None` for what lasts. Kept in the request's
/// extensions.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limit(pub(crate) Option<Duration>);

impl Default for Limit {
    fn default() -> Self {
        Self(Some(LONGEST))
    }
}

impl Limit {
    /// An error when the query's `timeout` is not a duration.
    pub(crate) fn of(wanted: &Attributes, query: &Query) -> Result<Self, ApiError> {
        if lasts(wanted) {
            return Ok(Self(None));
        }
        let asked = match query.get("timeout") {
            None => None,
            Some(text) => Some(duration::read(text).ok_or_else(|| {
                let why = format!("time: invalid duration {text:?}");
                ApiError::bad_request(format!("invalid timeout specified in the request URL - {why}"))
            })?),
        };
        Ok(Self(Some(asked.filter(|d| !d.is_zero()).map_or(LONGEST, |d| d.min(LONGEST)))))
    }
}

/// The answer, or a 504 when there is none in time; a write may be done all the same.
pub(crate) async fn within(limit: Option<Duration>, answer: impl Future<Output = Reply>) -> Reply {
    let Some(limit) = limit else { return answer.await };
    tokio::time::timeout(limit, answer).await.unwrap_or_else(|_| {
        Err(ApiError::new(504, "Timeout", "Timeout: request did not complete within the allotted timeout"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_takes_too_long_is_given_up() {
        let never = std::future::pending::<Reply>();
        let error = within(Some(LONGEST), never).await.map(drop).unwrap_err();
        assert_eq!((error.code, error.reason), (504, "Timeout"));
    }
}
