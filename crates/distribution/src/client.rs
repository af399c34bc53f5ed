//! HTTP client: single requests with deadlines, bodies with limits, and errors with Go's messages.

use crate::{
    PullError, PullErrorKind,
    connector::{ConnectError, Connector, Network, proxy_of},
    error::printable,
    manifest::too_large,
};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Uri, header};
use http_body_util::{BodyExt, Full};
use hyper::body::{Body as _, Incoming};
use hyper_util::{
    client::{legacy, proxy::matcher::Matcher},
    rt::{TokioExecutor, TokioTimer},
};
use serde::Deserialize;
use std::{error::Error, sync::Arc, time::Duration};

const USER_AGENT: &str = concat!("podium/", env!("CARGO_PKG_VERSION"));
/// Maximum size of a body that describes an error, as containerd's.
const MAX_ERROR_SIZE: u64 = 64_000;
/// Maximum number of errors of a body that are reported.
const MAX_ERRORS: usize = 4;
/// Time after which an unused connection is closed.
const POOL_IDLE_TIMEOUT: Duration = Duration::from_secs(30);

/// Deadlines and delays of a pull.
#[derive(Debug, Clone, Copy)]
pub struct Timeouts {
    /// For a connection, unless `hosts.toml` has another one.
    pub dial: Duration,
    /// From a request to the head of its response.
    pub response: Duration,
    /// Without any progress of a transfer, as the kubelet's image pull progress deadline.
    pub idle: Duration,
    /// For a whole manifest, config or token.
    pub document: Duration,
    /// Before the second attempt of a request; it doubles with each further one.
    pub backoff: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            dial: Duration::from_secs(30),
            response: Duration::from_secs(30),
            idle: Duration::from_secs(60),
            document: Duration::from_secs(120),
            backoff: Duration::from_millis(250),
        }
    }
}

/// Client for a host.
pub(crate) struct HttpClient {
    client: legacy::Client<Connector, Full<Bytes>>,
    proxies: Arc<Matcher>,
    timeouts: Timeouts,
}

impl HttpClient {
    pub(crate) fn new(network: &Network, connector: Connector, timeouts: Timeouts) -> Self {
        let mut builder = legacy::Client::builder(TokioExecutor::new());
        builder.pool_timer(TokioTimer::new()).pool_idle_timeout(POOL_IDLE_TIMEOUT);
        Self { client: builder.build(connector), proxies: Arc::clone(&network.proxies), timeouts }
    }

    /// Sends a request, and returns when the head of the response is here.
    ///
    /// # Errors
    /// If the connection fails, or the deadline passes. A status is no error.
    pub(crate) async fn send(
        &self,
        method: Method,
        uri: &Uri,
        headers: HeaderMap,
        body: Bytes,
    ) -> Result<Response<Incoming>, PullError> {
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = method.clone();
        *request.uri_mut() = uri.clone();
        *request.headers_mut() = headers;
        let proxy = proxy_of(&self.proxies, uri).filter(|_| uri.scheme_str() == Some("http"));
        let headers = request.headers_mut();
        headers.entry(header::USER_AGENT).or_insert(HeaderValue::from_static(USER_AGENT));
        // Digests are of the content as it is stored.
        headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        if let Some(credentials) = proxy.as_ref().and_then(|proxy| proxy.basic_auth()) {
            headers.insert(header::PROXY_AUTHORIZATION, credentials.clone());
        }
        // Connecting has a deadline of its own, which expires first.
        let deadline = self.timeouts.dial.saturating_add(self.timeouts.response);
        let sent = tokio::time::timeout(deadline, self.client.request(request)).await;
        sent.map_err(|_| {
            let error = PullError::new(PullErrorKind::Timeout, "net/http: timeout awaiting response headers");
            request_error(&method, uri, error)
        })?
        .map_err(|error| request_error(&method, uri, transport_error(&error)))
    }
}

/// Prefixes an error with the request, as Go's `url.Error`.
fn request_error(method: &Method, uri: &Uri, error: PullError) -> PullError {
    let method = if *method == Method::POST { "Post" } else { "Get" };
    error.context(&format!("failed to do request: {method} \"{}\"", display(uri)))
}

/// Finds the cause of a failed request.
fn transport_error(error: &(dyn Error + 'static)) -> PullError {
    let mut cause = Some(error);
    let mut last = error.to_string();
    while let Some(error) = cause {
        if let Some(error) = error.downcast_ref::<ConnectError>() {
            return connect_error(error);
        }
        last = error.to_string();
        cause = error.source();
    }
    PullError::new(PullErrorKind::Connection, last).transient(Duration::ZERO)
}

fn connect_error(error: &ConnectError) -> PullError {
    let is_eof = |error: &std::io::Error| {
        matches!(error.kind(), std::io::ErrorKind::UnexpectedEof | std::io::ErrorKind::ConnectionReset)
    };
    let message = error.to_string();
    match error {
        ConnectError::Lookup { .. } => PullError::new(PullErrorKind::NameResolution, message),
        ConnectError::Dial { error, .. } if error.kind() == std::io::ErrorKind::ConnectionRefused => {
            PullError::new(PullErrorKind::ConnectionRefused, message)
        }
        ConnectError::Dial { .. } | ConnectError::Proxy(_) => PullError::new(PullErrorKind::Connection, message),
        ConnectError::Tls(error) if is_eof(error) => {
            PullError::new(PullErrorKind::Connection, message).transient(Duration::ZERO)
        }
        ConnectError::Tls(_) => PullError::new(PullErrorKind::Tls, message),
        ConnectError::Timeout { .. } | ConnectError::HandshakeTimeout => {
            PullError::new(PullErrorKind::Timeout, message)
        }
    }
}

/// Returns a URL for an error. Of the query, which may contain credentials, only the registry's name remains.
pub(crate) fn display(uri: &Uri) -> String {
    let (scheme, authority) = (uri.scheme_str().unwrap_or_default(), uri.authority().map_or("", |a| a.as_str()));
    let is_name = |name: &str| name.bytes().all(|b| b.is_ascii_alphanumeric() || b".-_%".contains(&b));
    let namespace = uri.query().filter(|query| query.strip_prefix("ns=").is_some_and(is_name));
    let query = namespace.map_or(String::new(), |query| format!("?{query}"));
    format!("{scheme}://{authority}{}{query}", printable(uri.path()))
}

/// Body of a response.
pub(crate) struct Body {
    incoming: Incoming,
    idle: Duration,
}

impl Body {
    pub(crate) fn new(response: Response<Incoming>, timeouts: Timeouts) -> Self {
        Self { incoming: response.into_body(), idle: timeouts.idle }
    }

    /// Returns the next bytes; `None` at the end.
    ///
    /// # Errors
    /// If the connection breaks, or nothing arrives in time.
    pub(crate) async fn next(&mut self) -> Result<Option<Bytes>, PullError> {
        loop {
            let frame = tokio::time::timeout(self.idle, self.incoming.frame()).await.map_err(|_| {
                let message = format!("no progress for {} s", self.idle.as_secs_f64());
                PullError::new(PullErrorKind::Timeout, message)
            })?;
            match frame {
                None => return Ok(None),
                Some(Err(error)) => return Err(transport_error(&error)),
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        return Ok(Some(data));
                    }
                }
            }
        }
    }

    /// Reads the whole body.
    ///
    /// # Errors
    /// [`PullErrorKind::TooLarge`] if it has more bytes than `limit`.
    pub(crate) async fn read(mut self, name: &str, limit: u64) -> Result<Vec<u8>, PullError> {
        let announced = self.incoming.size_hint().lower();
        if announced > limit {
            return Err(too_large(name, announced, limit));
        }
        let mut content = Vec::new();
        while let Some(data) = self.next().await? {
            let size = (content.len() as u64).saturating_add(data.len() as u64);
            if size > limit {
                return Err(too_large(name, size, limit));
            }
            content.extend_from_slice(&data);
        }
        Ok(content)
    }
}

#[derive(Deserialize)]
struct ErrorBody {
    errors: Vec<RegistryError>,
}

/// Error of the distribution API.
#[derive(Deserialize)]
struct RegistryError {
    #[serde(default)]
    code: String,
    #[serde(default)]
    message: String,
}

/// Returns the error of a response with an unexpected status, with containerd's message.
pub(crate) async fn unexpected_status(
    method: &Method,
    uri: &Uri,
    response: Response<Incoming>,
    timeouts: Timeouts,
) -> PullError {
    let status = response.status();
    let kind = match status {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => PullErrorKind::Unauthorized,
        StatusCode::NOT_FOUND => PullErrorKind::NotFound,
        StatusCode::TOO_MANY_REQUESTS => PullErrorKind::TooManyRequests,
        _ => PullErrorKind::UnexpectedResponse,
    };
    let is_transient =
        status.is_server_error() || [StatusCode::TOO_MANY_REQUESTS, StatusCode::REQUEST_TIMEOUT].contains(&status);
    let retry_after = response.headers().get(header::RETRY_AFTER).and_then(parse_retry_after).unwrap_or_default();
    let mut message = format!("unexpected status from {method} request to {}: {status}", display(uri));
    // The body only explains the error: without it, the status remains.
    let body = Body::new(response, timeouts);
    if let Ok(Ok(body)) = tokio::time::timeout(timeouts.response, body.read("error", MAX_ERROR_SIZE)).await {
        message.push_str(&registry_errors(&body));
    }
    let error = PullError::new(kind, message);
    if is_transient { error.transient(retry_after) } else { error }
}

/// Returns the errors of a body, each on a line of its own, as containerd does.
fn registry_errors(body: &[u8]) -> String {
    let Ok(body) = serde_json::from_slice::<ErrorBody>(body) else { return String::new() };
    let mut text = String::new();
    for error in body.errors.iter().take(MAX_ERRORS) {
        text.push('\n');
        text.push_str(&printable(&error.code.to_lowercase().replace('_', " ")));
        if !error.message.is_empty() {
            text.push_str(": ");
            text.push_str(&printable(&error.message));
        }
    }
    text
}

/// Parses `Retry-After`: seconds, or a date.
fn parse_retry_after(value: &HeaderValue) -> Option<Duration> {
    let text = value.to_str().ok()?.trim();
    if let Ok(seconds) = text.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let date = jiff::fmt::rfc2822::parse(text).ok()?.timestamp();
    date.duration_since(jiff::Timestamp::now()).try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_in_errors_contain_no_query_and_no_credentials() {
        for (uri, expected) in [
            ("https://r.test/v2/a/manifests/1?ns=docker.io", "https://r.test/v2/a/manifests/1?ns=docker.io"),
            ("https://cdn.test:1/a?X-Amz-Signature=secret", "https://cdn.test:1/a"),
            ("https://cdn.test/a?ns=a&token=secret", "https://cdn.test/a"),
            ("https://cdn.test/a?ns=a?token=secret", "https://cdn.test/a"),
            ("https://m.test/a?ns=r.test%3A5000", "https://m.test/a?ns=r.test%3A5000"),
        ] {
            assert_eq!(display(&uri.parse().unwrap()), expected);
        }
    }

    #[test]
    fn retry_after_is_parsed_as_seconds_or_date() {
        let parse = |text: &str| parse_retry_after(&HeaderValue::from_str(text).unwrap());
        assert_eq!(parse("7"), Some(Duration::from_secs(7)));
        assert_eq!(parse("Wed, 21 Oct 2015 07:28:00 GMT"), None);
        assert!(parse("Wed, 21 Oct 2933 07:28:00 GMT").unwrap() > Duration::from_secs(1 << 30));
        for invalid in ["", "-1", "soon", "99999999999999999999999"] {
            assert_eq!(parse(invalid), None, "{invalid}");
        }
    }

    #[test]
    fn errors_of_the_registry_are_listed() {
        let body = r#"{"errors":[{"code":"TOOMANYREQUESTS","message":"slow\ndown"},{"code":"NAME_UNKNOWN"}]}"#;
        assert_eq!(registry_errors(body.as_bytes()), "\ntoomanyrequests: slow down\nname unknown");
        assert_eq!(registry_errors(b"<html>"), "");
    }
}
