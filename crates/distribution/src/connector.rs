//! Connections to registries: name resolution, TCP, proxies of the environment, and TLS.

use crate::{hosts::is_loopback, tls_config};
use http::Uri;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::{
    client::{
        legacy::connect::{Connected, Connection, HttpConnector, dns::Name, proxy::Tunnel},
        proxy::matcher::{Intercept, Matcher},
    },
    rt::TokioIo,
};
use rustls::{ClientConfig, pki_types::ServerName};
use std::{
    collections::HashMap,
    error::Error,
    io,
    net::{IpAddr, SocketAddr},
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tower::Service;

type BoxError = Box<dyn Error + Send + Sync>;
type BoxFuture<T> = Pin<Box<dyn Future<Output = Result<T, BoxError>> + Send>>;

/// TLS handshake timeout, as Go's default transport.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// Name resolution and proxies.
#[derive(Clone)]
pub(crate) struct Network {
    pub(crate) resolver: Resolver,
    pub(crate) proxies: Arc<Matcher>,
}

impl Network {
    /// Uses the machine's resolver, and the proxies of `HTTPS_PROXY`, `HTTP_PROXY` and `NO_PROXY`.
    pub(crate) fn system() -> Self {
        Self { resolver: Resolver::System, proxies: Arc::new(Matcher::from_env()) }
    }
}

/// Returns the proxy for a URL. Hosts of this machine have none.
pub(crate) fn proxy_of(proxies: &Matcher, uri: &Uri) -> Option<Intercept> {
    uri.host().filter(|host| !is_loopback(host)).and_then(|_| proxies.intercept(uri))
}

/// Resolver of names.
#[derive(Clone)]
pub(crate) enum Resolver {
    /// The C library.
    System,
    /// A fixed list, for tests.
    #[cfg_attr(not(test), expect(dead_code, reason = "for tests"))]
    Static(Arc<HashMap<String, IpAddr>>),
}

impl Service<Name> for Resolver {
    type Response = std::vec::IntoIter<SocketAddr>;
    type Error = ConnectError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, ConnectError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), ConnectError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, name: Name) -> Self::Future {
        let resolver = self.clone();
        Box::pin(async move {
            let host = name.as_str();
            let failed = |problem: String| ConnectError::Lookup { host: host.to_owned(), problem };
            let found: Vec<SocketAddr> = match resolver {
                Self::System => {
                    tokio::net::lookup_host((host, 0)).await.map_err(|error| failed(lookup_problem(&error)))?.collect()
                }
                Self::Static(names) => {
                    names.get(host).map(|address| SocketAddr::new(*address, 0)).into_iter().collect()
                }
            };
            if found.is_empty() { Err(failed("no such host".to_owned())) } else { Ok(found.into_iter()) }
        })
    }
}

/// Returns Go's text of a failed lookup.
fn lookup_problem(error: &io::Error) -> String {
    let text = error.to_string();
    let text = text.strip_prefix("failed to lookup address information: ").unwrap_or(&text);
    let unknown = ["Name or service not known", "No address associated with hostname"];
    if unknown.contains(&text) { "no such host".to_owned() } else { text.to_owned() }
}

/// Failed connection, with Go's messages.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConnectError {
    #[error("dial tcp: lookup {host}: {problem}")]
    Lookup { host: String, problem: String },
    #[error("dial tcp {address}: connect: {}", go_text(.error))]
    Dial { address: String, error: io::Error },
    #[error("dial tcp {address}: i/o timeout")]
    Timeout { address: String },
    #[error("proxyconnect tcp: {0}")]
    Proxy(String),
    #[error("{}", tls::go_error_text(.0))]
    Tls(io::Error),
    #[error("net/http: TLS handshake timeout")]
    HandshakeTimeout,
}

/// Returns the text of an error without Rust's suffix: `connection refused`.
fn go_text(error: &io::Error) -> String {
    let text = error.to_string();
    let text = text.split(" (os error").next().unwrap_or_default();
    let mut chars = text.chars();
    chars.next().map_or(String::new(), |first| first.to_lowercase().chain(chars).collect())
}

/// Connector for HTTP clients.
#[derive(Clone)]
pub(crate) struct Connector {
    http: HttpConnector<Resolver>,
    tls: TlsConnector,
    proxies: Arc<Matcher>,
    dial_timeout: Duration,
    /// Set when the host turned out to speak no TLS; `None` if it must.
    plain_text: Option<Arc<AtomicBool>>,
}

impl Connector {
    /// Creates a connector. If `plain_text` is given, connections to servers without TLS are made without it, and the
    /// flag is set.
    pub(crate) fn new(
        network: &Network,
        config: ClientConfig,
        dial_timeout: Duration,
        plain_text: Option<Arc<AtomicBool>>,
    ) -> Self {
        let mut http = HttpConnector::new_with_resolver(network.resolver.clone());
        http.enforce_http(false);
        http.set_nodelay(true);
        http.set_keepalive(Some(Duration::from_secs(30)));
        let tls = TlsConnector::from(Arc::new(config));
        Self { http, tls, proxies: Arc::clone(&network.proxies), dial_timeout, plain_text }
    }

    async fn connect(self, uri: Uri) -> Result<HttpStream, BoxError> {
        let host = uri.host().unwrap_or_default();
        let is_tls = uri.scheme_str() == Some("https");
        let is_plain_text = self.plain_text.as_ref().is_some_and(|flag| flag.load(Ordering::Relaxed));
        let proxy = proxy_of(&self.proxies, &uri);
        if let Some(scheme) = proxy.as_ref().and_then(|proxy| proxy.uri().scheme_str()).filter(|name| *name != "http") {
            // Without TLS to the proxy, its credentials would be sent in clear.
            return Err(ConnectError::Proxy(format!("unsupported proxy scheme {scheme:?}")).into());
        }
        if !is_tls || is_plain_text {
            // A proxy gets requests with the whole URL; clients add its credentials.
            let target = proxy.as_ref().map_or(&uri, |proxy| proxy.uri());
            let stream = self.dial(target.clone()).await?;
            return Ok(HttpStream { io: Box::new(stream), is_proxied: proxy.is_some() });
        }
        let stream = self.open(&uri, proxy.as_ref()).await?;
        let name = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let name = ServerName::try_from(name)
            .map_err(|error| ConnectError::Tls(io::Error::new(io::ErrorKind::InvalidInput, error)))?;
        let handshake = tokio::time::timeout(HANDSHAKE_TIMEOUT, self.tls.connect(name, stream.into_inner()));
        let error = match handshake.await {
            Ok(Ok(stream)) => return Ok(HttpStream { io: Box::new(TokioIo::new(stream)), is_proxied: false }),
            Ok(Err(error)) => error,
            Err(_) => return Err(ConnectError::HandshakeTimeout.into()),
        };
        match &self.plain_text {
            Some(flag) if tls_config::is_plain_text(&error) => {
                let stream = self.open(&uri, proxy.as_ref()).await?;
                flag.store(true, Ordering::Relaxed);
                Ok(HttpStream { io: Box::new(stream), is_proxied: false })
            }
            _ => Err(ConnectError::Tls(error).into()),
        }
    }

    /// Opens a connection for TLS, directly or through a proxy.
    async fn open(&self, uri: &Uri, proxy: Option<&Intercept>) -> Result<TokioIo<TcpStream>, ConnectError> {
        let Some(proxy) = proxy else { return self.dial(uri.clone()).await };
        let mut tunnel = Tunnel::new(proxy.uri().clone(), self.http.clone());
        if let Some(credentials) = proxy.basic_auth() {
            tunnel = tunnel.with_auth(credentials.clone());
        }
        let opened = tokio::time::timeout(self.dial_timeout, tunnel.call(uri.clone())).await;
        let opened = opened.map_err(|_| ConnectError::Proxy("i/o timeout".to_owned()))?;
        opened.map_err(|error| ConnectError::Proxy(error.to_string()))
    }

    async fn dial(&self, uri: Uri) -> Result<TokioIo<TcpStream>, ConnectError> {
        let port = uri.port_u16().unwrap_or(if uri.scheme_str() == Some("https") { 443 } else { 80 });
        let address = format!("{}:{port}", uri.host().unwrap_or_default());
        match tokio::time::timeout(self.dial_timeout, self.http.clone().call(uri)).await {
            Ok(Ok(stream)) => Ok(stream),
            Ok(Err(error)) => Err(dial_error(&error, address)),
            Err(_) => Err(ConnectError::Timeout { address }),
        }
    }
}

/// Finds the cause of a failed connection.
fn dial_error(error: &(dyn Error + 'static), address: String) -> ConnectError {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if let Some(ConnectError::Lookup { host, problem }) = error.downcast_ref() {
            return ConnectError::Lookup { host: host.clone(), problem: problem.clone() };
        }
        if let Some(error) = error.downcast_ref::<io::Error>() {
            let copy = error.raw_os_error().map(io::Error::from_raw_os_error);
            let copy = copy.unwrap_or_else(|| io::Error::new(error.kind(), error.to_string()));
            return ConnectError::Dial { address, error: copy };
        }
        cause = error.source();
    }
    ConnectError::Dial { address, error: io::Error::other(error.to_string()) }
}

impl Service<Uri> for Connector {
    type Response = HttpStream;
    type Error = BoxError;
    type Future = BoxFuture<HttpStream>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        Box::pin(self.clone().connect(uri))
    }
}

trait Io: Read + Write + Send + Unpin {}

impl<T: Read + Write + Send + Unpin> Io for T {}

/// Connection with or without TLS.
pub(crate) struct HttpStream {
    io: Box<dyn Io>,
    is_proxied: bool,
}

impl Connection for HttpStream {
    fn connected(&self) -> Connected {
        Connected::new().proxy(self.is_proxied)
    }
}

impl Read for HttpStream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: ReadBufCursor<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_read(cx, buf)
    }
}

impl Write for HttpStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}
