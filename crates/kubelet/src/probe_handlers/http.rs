//! `httpGet` of probes and lifecycle hooks: one GET over HTTP or HTTPS on a new connection.

use super::{
    MAX_OUTPUT, PortError, USER_AGENT_VERSION, go_http_errors, join_host_port, resolve_port,
    tcp::{self, DialError},
    tls::{self, HandshakeError, TlsError},
    truncated_output,
    url::{self, UrlError},
    with_deadline,
    write_first::{ResponseHead, WriteFirst},
};
use bytes::Bytes;
use fluent_uri::Uri;
use http::{
    HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode,
    header::{self, InvalidHeaderValue},
};
use http_body_util::{BodyExt, Empty};
use hyper::{
    body::Incoming,
    client::conn::{http1, http2},
};
use hyper_util::rt::{TokioExecutor, TokioIo};
use k8s_openapi::api::core::v1::{Container, HTTPGetAction};
use lifecycle::ProbeOutcome;
use std::{error::Error as _, io, net::IpAddr, sync::Arc, time::Duration};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    time::Instant,
};
use tokio_util::task::AbortOnDropHandle;

/// Limit of requests in a chain of redirects, including the first, as in Go's client.
const MAX_REQUESTS: usize = 10;

/// Error of an HTTP GET.
#[derive(Debug, thiserror::Error)]
pub(crate) enum GetError {
    /// The request failed.
    #[error("Get {url:?}: {source}")]
    Send { url: String, source: SendError },
    /// An HTTPS request was answered by a server that speaks plain HTTP.
    #[error("Get {url:?}: http: server gave HTTP response to HTTPS client")]
    PlainHttp { url: String },
}

/// Cause of [`GetError::Send`], with the message of Go's client where it has one.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SendError {
    #[error(transparent)]
    Dial(#[from] DialError),
    #[error("dial tcp {address}: i/o timeout (Client.Timeout exceeded while awaiting headers)")]
    DialTimeout { address: String },
    #[error("context deadline exceeded (Client.Timeout exceeded while awaiting headers)")]
    Timeout,
    #[error(transparent)]
    Handshake(#[from] HandshakeError),
    #[error("unsupported protocol scheme {0:?}")]
    UnsupportedScheme(String),
    #[error(transparent)]
    Request(#[from] http::Error),
    /// The response is not HTTP.
    #[error("{0}")]
    StatusLine(String),
    #[error("{}", go_error_text(.0))]
    Exchange(#[source] hyper::Error),
    #[error(transparent)]
    Redirect(#[from] UrlError),
    #[error("stopped after {} redirects", MAX_REQUESTS)]
    TooManyRedirects,
}

/// Invalid `httpGet`: no request is sent.
#[derive(Debug, thiserror::Error)]
pub(crate) enum InvalidGetError {
    #[error("the Pod has no address")]
    NoAddress,
    #[error(transparent)]
    Port(#[from] PortError),
    #[error(transparent)]
    Url(#[from] UrlError),
    #[error("net/http: invalid header field name for {0:?}")]
    HeaderName(String),
    #[error("net/http: invalid header field value for {0:?}")]
    HeaderValue(String),
    #[error(transparent)]
    UserAgent(InvalidHeaderValue),
}

/// The body of a response is incomplete.
#[derive(Debug, thiserror::Error)]
enum BodyError {
    #[error("context deadline exceeded (Client.Timeout or context cancellation while reading body)")]
    Timeout,
    #[error("{}", go_error_text(.0))]
    Read(#[source] hyper::Error),
}

/// GET request of a probe or a hook.
#[derive(Debug, Clone)]
pub(crate) struct Get {
    uri: Uri<String>,
    /// `Host` header, if it differs from the URL's host and port.
    host: Option<HeaderValue>,
    headers: HeaderMap,
}

/// Response of a server, without its body.
pub(crate) struct GetResponse {
    response: Response<Incoming>,
    _connection: AbortOnDropHandle<()>,
}

/// Executes an `httpGet` probe. Status 200..299 is a success, 300..399 a success with a warning, everything else a
/// failure. An incomplete body has an unknown outcome.
pub(crate) async fn probe(
    action: &HTTPGetAction,
    container: &Container,
    ip: Option<IpAddr>,
    limit: Duration,
) -> ProbeOutcome {
    let deadline = Some(Instant::now() + limit);
    let get = match Get::new(action, container, ip, "kube-probe") {
        Ok(get) => get,
        Err(error) => return ProbeOutcome::Unknown(error.to_string()),
    };
    let answer = match get.send(deadline).await {
        Ok(answer) => answer,
        Err(error) => return ProbeOutcome::Failure(error.to_string()),
    };
    let status = answer.response.status();
    match answer.body(deadline).await {
        Err(error) => ProbeOutcome::Unknown(error.to_string()),
        Ok(_) if status.is_success() => ProbeOutcome::Success,
        Ok(body) if status.is_redirection() => {
            ProbeOutcome::Warning(format!("Probe terminated redirects, Response body: {}", truncated_output(&body)))
        }
        // The body may be confidential; it must not appear in Events.
        Ok(_) => ProbeOutcome::Failure(format!("HTTP probe failed with statuscode: {}", status.as_u16())),
    }
}

impl Get {
    /// Builds the request of an `httpGet`, to the Pod's IP by default; `agent` is the product name in `User-Agent`.
    pub(crate) fn new(
        action: &HTTPGetAction,
        container: &Container,
        ip: Option<IpAddr>,
        agent: &str,
    ) -> Result<Self, InvalidGetError> {
        let action_host = action.host.clone().filter(|h| !h.is_empty());
        let host = action_host.or_else(|| ip.map(|ip| ip.to_string())).ok_or(InvalidGetError::NoAddress)?;
        let port = resolve_port(&action.port, container)?;
        let scheme = action.scheme.as_deref().unwrap_or("http").to_ascii_lowercase();
        let uri = url::build(&scheme, &host, port, action.path.as_deref().unwrap_or_default())?;
        let mut headers = HeaderMap::new();
        for given in action.http_headers.iter().flatten() {
            let name = HeaderName::from_bytes(given.name.as_bytes());
            let name = name.map_err(|_| InvalidGetError::HeaderName(given.name.clone()))?;
            let value = HeaderValue::from_bytes(given.value.as_bytes());
            let value = value.map_err(|_| InvalidGetError::HeaderValue(given.name.clone()))?;
            headers.append(name, value);
        }
        let agent = HeaderValue::from_str(&format!("{agent}/{USER_AGENT_VERSION}"));
        let agent = agent.map_err(InvalidGetError::UserAgent)?;
        headers.entry(header::USER_AGENT).or_insert(agent);
        headers.entry(header::ACCEPT).or_insert(HeaderValue::from_static("*/*"));
        // An empty value removes the default header.
        for name in [header::USER_AGENT, header::ACCEPT] {
            if headers.get(&name).is_some_and(HeaderValue::is_empty) {
                headers.remove(&name);
            }
        }
        let host = headers.remove(header::HOST).filter(|h| !h.is_empty());
        // Go's client sets these headers itself.
        for name in [header::CONTENT_LENGTH, header::TRANSFER_ENCODING, header::TRAILER, header::CONNECTION] {
            headers.remove(name);
        }
        Ok(Self { uri, host, headers })
    }

    /// Returns host and port of the URL.
    pub(crate) fn authority(&self) -> &str {
        self.uri.authority().map(|a| a.as_str()).unwrap_or_default()
    }

    /// Returns the request over plain HTTP, without its `Authorization` header.
    pub(crate) fn over_plain_http(&self) -> Self {
        let mut get = self.clone();
        get.headers.remove(header::AUTHORIZATION);
        let text = format!("http{}", get.uri.as_str().trim_start_matches("https"));
        get.uri = Uri::parse(text).unwrap_or(get.uri);
        get
    }

    /// Sends the request, and follows redirects to the same host.
    ///
    /// # Errors
    /// If the request fails, or there are too many redirects.
    pub(crate) async fn send(&self, deadline: Option<Instant>) -> Result<GetResponse, GetError> {
        let first = url::host(&self.uri);
        let mut get = self.clone();
        for _ in 0..MAX_REQUESTS {
            let answer = get.exchange(deadline).await?;
            let Some(next) = answer.redirect_target(&get.uri)? else { return Ok(answer) };
            if url::host(&next) != first {
                return Ok(answer);
            }
            if !answer.is_relative() {
                get.host = None;
            }
            get.uri = next;
        }
        Err(get.failed(SendError::TooManyRedirects))
    }

    fn failed(&self, cause: impl Into<SendError>) -> GetError {
        GetError::Send { url: self.uri.as_str().to_owned(), source: cause.into() }
    }

    async fn exchange(&self, deadline: Option<Instant>) -> Result<GetResponse, GetError> {
        let (host, port) = (url::host(&self.uri), url::port(&self.uri));
        let dialled = with_deadline(deadline, tcp::dial(&host, port)).await;
        let dialled =
            dialled.map_err(|_| self.failed(SendError::DialTimeout { address: join_host_port(&host, port) }))?;
        let tcp = dialled.map_err(|error| self.failed(error))?;
        let exchange = Box::pin(async {
            match self.uri.scheme().as_str() {
                "http" => self.exchange_on(tcp, false).await,
                "https" => match tls::connect(tcp, &host).await {
                    Ok((stream, http2)) => self.exchange_on(stream, http2).await,
                    Err(TlsError::PlainHttp) => Err(GetError::PlainHttp { url: self.uri.as_str().to_owned() }),
                    Err(TlsError::Handshake(error)) => Err(self.failed(error)),
                },
                other => Err(self.failed(SendError::UnsupportedScheme(other.to_owned()))),
            }
        });
        with_deadline(deadline, exchange).await.map_err(|_| self.failed(SendError::Timeout))?
    }

    async fn exchange_on<S>(&self, stream: S, http2: bool) -> Result<GetResponse, GetError>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let request = self.request(http2).map_err(|error| self.failed(error))?;
        let response_head = ResponseHead::default();
        let exchange = async {
            if http2 {
                let (mut sender, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await?;
                let connection = AbortOnDropHandle::new(tokio::spawn(async move { drop(connection.await) }));
                Ok((sender.send_request(request).await?, connection))
            } else {
                let (mut builder, io) =
                    (http1::Builder::new(), TokioIo::new(WriteFirst::new(stream, Arc::clone(&response_head))));
                let (mut sender, connection) = builder.title_case_headers(true).handshake(io).await?;
                let connection = AbortOnDropHandle::new(tokio::spawn(async move { drop(connection.await) }));
                Ok((sender.send_request(request).await?, connection))
            }
        };
        let answer: Result<_, hyper::Error> = exchange.await;
        let (response, _connection) = answer.map_err(|e| {
            let malformed = e.is_parse().then(|| go_http_errors::status_line_error(&response_head.lock())).flatten();
            self.failed(malformed.map_or_else(|| SendError::Exchange(e), SendError::StatusLine))
        })?;
        Ok(GetResponse { response, _connection })
    }

    fn request(&self, http2: bool) -> Result<Request<Empty<Bytes>>, http::Error> {
        let path = url::path(&self.uri);
        let authority = HeaderValue::from_str(self.authority())?;
        let host = self.host.clone().unwrap_or(authority);
        let mut request = Request::get(if http2 {
            format!("https://{}{path}", host.to_str().unwrap_or_else(|_| self.authority()))
        } else {
            path
        });
        if let Some(headers) = request.headers_mut() {
            headers.extend(self.headers.clone());
            if !http2 {
                headers.insert(header::HOST, host);
                headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
            }
        }
        request.body(Empty::new())
    }
}

impl GetResponse {
    /// Returns the URL of a redirect, if the response is one.
    fn redirect_target(&self, here: &Uri<String>) -> Result<Option<Uri<String>>, GetError> {
        let redirects = [
            StatusCode::MOVED_PERMANENTLY,
            StatusCode::FOUND,
            StatusCode::SEE_OTHER,
            StatusCode::TEMPORARY_REDIRECT,
            StatusCode::PERMANENT_REDIRECT,
        ];
        let location = self.location().filter(|_| redirects.contains(&self.response.status()));
        let failed = |error: UrlError| GetError::Send { url: here.as_str().to_owned(), source: error.into() };
        location.map(|location| url::resolve(here, &location)).transpose().map_err(failed)
    }

    fn location(&self) -> Option<String> {
        let location = self.response.headers().get(header::LOCATION).filter(|l| !l.is_empty())?;
        Some(String::from_utf8_lossy(location.as_bytes()).into_owned())
    }

    /// Whether `Location` has no host: the user's `Host` header is kept then.
    fn is_relative(&self) -> bool {
        self.location().is_some_and(|l| !l.contains("//"))
    }

    /// Reads the first [`MAX_OUTPUT`] bytes of the body.
    async fn body(mut self, deadline: Option<Instant>) -> Result<Vec<u8>, BodyError> {
        let mut body = Vec::new();
        while body.len() < MAX_OUTPUT {
            let frame = with_deadline(deadline, self.response.body_mut().frame()).await;
            let frame = frame.map_err(|_| BodyError::Timeout)?;
            match frame {
                None => break,
                Some(Ok(frame)) => body.extend(frame.into_data().unwrap_or_default()),
                Some(Err(error)) => return Err(BodyError::Read(error)),
            }
        }
        Ok(body)
    }
}

/// Returns Go's message for an error where Go has one.
fn go_error_text(error: &hyper::Error) -> String {
    let source = error.source();
    let io = source.and_then(|s| s.downcast_ref::<io::Error>());
    if let Some(text) = io.and_then(tcp::os_error_text) {
        return format!("read: {text}");
    }
    if io.is_some_and(|e| e.kind() == io::ErrorKind::UnexpectedEof) {
        return "unexpected EOF".to_owned();
    }
    if error.is_incomplete_message() {
        return "EOF".to_owned();
    }
    let detail = source.map(|s| format!(": {s}")).unwrap_or_default();
    if error.is_parse() {
        return format!("net/http: HTTP/1.x transport connection broken: malformed HTTP response: {error}{detail}");
    }
    format!("{error}{detail}")
}

#[cfg(test)]
mod tests;
