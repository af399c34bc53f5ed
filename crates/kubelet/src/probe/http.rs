//! `httpGet`, of probes and of hooks: one GET over HTTP or HTTPS, on a connection of its own.

use super::{
    KEPT, VERSION, before, kept, malformed, resolve_port, tcp, tls, uri,
    write_first::{Beginning, WriteFirst},
};
use bytes::Bytes;
use fluent_uri::Uri;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Empty};
use hyper::{
    body::Incoming,
    client::conn::{http1, http2},
};
use hyper_util::rt::{TokioExecutor, TokioIo};
use k8s_openapi::api::core::v1::{Container, HTTPGetAction};
use lifecycle::ProbeOutcome;
use std::{error::Error as _, io, net::IpAddr, sync::Arc, time::Duration};
use tls::TlsError;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    time::Instant,
};
use tokio_util::task::AbortOnDropHandle;

/// How many requests a chain of redirects may take, the first one counted, as with Go's client.
const REQUESTS: usize = 10;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum GetError {
    /// The request was made in vain.
    #[error("Get {url:?}: {why}")]
    Send { url: String, why: String },
    /// An HTTPS request was answered by a server that speaks plain HTTP.
    #[error("Get {url:?}: http: server gave HTTP response to HTTPS client")]
    PlainHttp { url: String },
}

/// A GET as a probe or a hook asks for it.
#[derive(Debug, Clone)]
pub(crate) struct Get {
    uri: Uri<String>,
    /// Instead of the URL's own host and port.
    host: Option<HeaderValue>,
    headers: HeaderMap,
}

/// What a server said, up to its body.
pub(crate) struct Answer {
    response: Response<Incoming>,
    _connection: AbortOnDropHandle<()>,
}

/// What a probe says: 200..299 is a success, 300..399 one with a word of caution, all else a failure. A body that
/// breaks off gives no verdict.
pub(crate) async fn probe(
    action: &HTTPGetAction,
    container: &Container,
    ip: Option<IpAddr>,
    limit: Duration,
) -> ProbeOutcome {
    let deadline = Some(Instant::now() + limit);
    let get = match Get::new(action, container, ip, "kube-probe") {
        Ok(get) => get,
        Err(why) => return ProbeOutcome::Unknown(why),
    };
    let answer = match get.send(deadline).await {
        Ok(answer) => answer,
        Err(error) => return ProbeOutcome::Failure(error.to_string()),
    };
    let status = answer.response.status();
    match answer.body(deadline).await {
        Err(why) => ProbeOutcome::Unknown(why),
        Ok(_) if status.is_success() => ProbeOutcome::Success,
        Ok(body) if status.is_redirection() => {
            ProbeOutcome::Warning(format!("Probe terminated redirects, Response body: {}", kept(&body)))
        }
        // The body may hold what is not for everybody who reads events.
        Ok(_) => ProbeOutcome::Failure(format!("HTTP probe failed with statuscode: {}", status.as_u16())),
    }
}

impl Get {
    /// The request of an `httpGet`, to the Pod unless it names another host; `agent` is the first part of `User-Agent`.
    ///
    /// # Errors
    /// When there is no such request.
    pub(crate) fn new(
        action: &HTTPGetAction,
        container: &Container,
        ip: Option<IpAddr>,
        agent: &str,
    ) -> Result<Self, String> {
        let own = action.host.clone().filter(|h| !h.is_empty());
        let host = own.or_else(|| ip.map(|ip| ip.to_string())).ok_or("the Pod has no address")?;
        let port = resolve_port(&action.port, container)?;
        let scheme = action.scheme.as_deref().unwrap_or("http").to_ascii_lowercase();
        let uri = uri::of(&scheme, &host, port, action.path.as_deref().unwrap_or_default())?;
        let mut headers = HeaderMap::new();
        for given in action.http_headers.iter().flatten() {
            let wrong = |what| format!("net/http: invalid header field {what} for {:?}", given.name);
            let name = HeaderName::from_bytes(given.name.as_bytes()).map_err(|_| wrong("name"))?;
            let value = HeaderValue::from_bytes(given.value.as_bytes()).map_err(|_| wrong("value"))?;
            headers.append(name, value);
        }
        let agent = HeaderValue::from_str(&format!("{agent}/{VERSION}")).map_err(|e| e.to_string())?;
        headers.entry(header::USER_AGENT).or_insert(agent);
        headers.entry(header::ACCEPT).or_insert(HeaderValue::from_static("*/*"));
        // Given and empty, they are left out.
        for name in [header::USER_AGENT, header::ACCEPT] {
            if headers.get(&name).is_some_and(HeaderValue::is_empty) {
                headers.remove(&name);
            }
        }
        let host = headers.remove(header::HOST).filter(|h| !h.is_empty());
        // Go's client sets these itself.
        for name in [header::CONTENT_LENGTH, header::TRANSFER_ENCODING, header::TRAILER, header::CONNECTION] {
            headers.remove(name);
        }
        Ok(Self { uri, host, headers })
    }

    /// Host and port of the URL.
    pub(crate) fn authority(&self) -> &str {
        self.uri.authority().map(|a| a.as_str()).unwrap_or_default()
    }

    /// The same request without encryption, and so without what is secret in it.
    pub(crate) fn over_plain_http(&self) -> Self {
        let mut get = self.clone();
        get.headers.remove(header::AUTHORIZATION);
        let text = format!("http{}", get.uri.as_str().trim_start_matches("https"));
        get.uri = Uri::parse(text).unwrap_or(get.uri);
        get
    }

    /// Sends it, and follows redirects that stay on the host.
    ///
    /// # Errors
    /// When there is no answer, or too many redirects.
    pub(crate) async fn send(&self, deadline: Option<Instant>) -> Result<Answer, GetError> {
        let first = uri::host(&self.uri);
        let mut get = self.clone();
        for _ in 0..REQUESTS {
            let answer = get.exchange(deadline).await?;
            let Some(next) = answer.leads_to(&get.uri)? else { return Ok(answer) };
            if uri::host(&next) != first {
                return Ok(answer);
            }
            if !answer.is_relative() {
                get.host = None;
            }
            get.uri = next;
        }
        Err(get.failed(format!("stopped after {REQUESTS} redirects")))
    }

    fn failed(&self, why: String) -> GetError {
        GetError::Send { url: self.uri.as_str().to_owned(), why }
    }

    async fn exchange(&self, deadline: Option<Instant>) -> Result<Answer, GetError> {
        let (host, port) = (uri::host(&self.uri), uri::port(&self.uri));
        let waiting = "(Client.Timeout exceeded while awaiting headers)";
        let dialled = before(deadline, tcp::dial(&host, port)).await;
        let tcp = dialled.map_err(|_| self.failed(format!("{} {waiting}", tcp::late(&host, port))))?;
        let tcp = tcp.map_err(|why| self.failed(why))?;
        let exchange = Box::pin(async {
            match self.uri.scheme().as_str() {
                "http" => self.ask(tcp, false).await,
                "https" => match tls::connect(tcp, &host).await {
                    Ok((stream, http2)) => self.ask(stream, http2).await,
                    Err(TlsError::PlainHttp) => Err(GetError::PlainHttp { url: self.uri.as_str().to_owned() }),
                    Err(TlsError::Failed(why)) => Err(self.failed(why)),
                },
                other => Err(self.failed(format!("unsupported protocol scheme {other:?}"))),
            }
        });
        before(deadline, exchange).await.map_err(|_| self.failed(format!("context deadline exceeded {waiting}")))?
    }

    async fn ask<S>(&self, stream: S, http2: bool) -> Result<Answer, GetError>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let request = self.request(http2).map_err(|e| self.failed(e.to_string()))?;
        let beginning = Beginning::default();
        let exchange = async {
            if http2 {
                let (mut sender, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await?;
                let connection = AbortOnDropHandle::new(tokio::spawn(async move { drop(connection.await) }));
                Ok((sender.send_request(request).await?, connection))
            } else {
                let (mut builder, io) =
                    (http1::Builder::new(), TokioIo::new(WriteFirst::new(stream, Arc::clone(&beginning))));
                let (mut sender, connection) = builder.title_case_headers(true).handshake(io).await?;
                let connection = AbortOnDropHandle::new(tokio::spawn(async move { drop(connection.await) }));
                Ok((sender.send_request(request).await?, connection))
            }
        };
        let answer: Result<_, hyper::Error> = exchange.await;
        let (response, _connection) = answer.map_err(|e| {
            let malformed = e.is_parse().then(|| malformed::words(&beginning.lock())).flatten();
            self.failed(malformed.unwrap_or_else(|| words(&e)))
        })?;
        Ok(Answer { response, _connection })
    }

    fn request(&self, http2: bool) -> Result<Request<Empty<Bytes>>, http::Error> {
        let path = uri::path(&self.uri);
        let own = HeaderValue::from_str(self.authority())?;
        let host = self.host.clone().unwrap_or(own);
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

impl Answer {
    /// Where the server sends the client instead, if it says so.
    fn leads_to(&self, here: &Uri<String>) -> Result<Option<Uri<String>>, GetError> {
        let redirects = [
            StatusCode::MOVED_PERMANENTLY,
            StatusCode::FOUND,
            StatusCode::SEE_OTHER,
            StatusCode::TEMPORARY_REDIRECT,
            StatusCode::PERMANENT_REDIRECT,
        ];
        let location = self.location().filter(|_| redirects.contains(&self.response.status()));
        let failed = |why| GetError::Send { url: here.as_str().to_owned(), why };
        location.map(|location| uri::resolve(here, &location)).transpose().map_err(failed)
    }

    fn location(&self) -> Option<String> {
        let location = self.response.headers().get(header::LOCATION).filter(|l| !l.is_empty())?;
        Some(String::from_utf8_lossy(location.as_bytes()).into_owned())
    }

    /// Whether `Location` names no host: then a `Host` that the user has set stays.
    fn is_relative(&self) -> bool {
        self.location().is_some_and(|l| !l.contains("//"))
    }

    /// The body's beginning.
    async fn body(mut self, deadline: Option<Instant>) -> Result<Vec<u8>, String> {
        let mut body = Vec::new();
        while body.len() < KEPT {
            let frame = before(deadline, self.response.body_mut().frame()).await.map_err(|_| {
                "context deadline exceeded (Client.Timeout or context cancellation while reading body)".to_owned()
            })?;
            match frame {
                None => break,
                Some(Ok(frame)) => body.extend(frame.into_data().unwrap_or_default()),
                Some(Err(error)) => return Err(words(&error)),
            }
        }
        Ok(body)
    }
}

/// What went wrong, in Go's words where there are some.
fn words(error: &hyper::Error) -> String {
    let source = error.source();
    let io = source.and_then(|s| s.downcast_ref::<io::Error>());
    if let Some(words) = io.and_then(tcp::os_words) {
        return format!("read: {words}");
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
