//! Connection to a webhook: TLS to the URL's host, or to a ready endpoint of a Service.

use super::target::{Peer, Service};
use crate::proxy::{
    backend_connections,
    backend_tls::{self, TlsConfigError},
    resolve_endpoint::{self, ServiceDestination},
};
use futures::{FutureExt, future::BoxFuture};
use http::Uri;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::{
    client::legacy::connect::{Connected, Connection},
    rt::TokioIo,
};
use rustls::{ClientConfig, pki_types::ServerName};
use std::{
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};
use store::Store;
use tokio::net::TcpStream;
use tokio_rustls::{TlsConnector, client::TlsStream};

/// Connects to a webhook's host, or to a Service, with one set of certificate authorities.
#[derive(Clone)]
pub(super) struct Connector {
    store: Store,
    service: Option<Service>,
    tls: TlsConnector,
}

impl Connector {
    pub(super) fn new(store: Store, peer: &Peer) -> Result<Self, TlsConfigError> {
        let config: ClientConfig = backend_tls::webhook_config(&peer.ca_bundle)?;
        Ok(Self { store, service: peer.service.clone(), tls: TlsConnector::from(Arc::new(config)) })
    }

    async fn connect(self, url: Uri) -> Result<TlsConnection, io::Error> {
        let host = url.host().unwrap_or("").trim_matches(['[', ']']).to_owned();
        let port = url.port_u16().unwrap_or(443);
        let (address, port) = match &self.service {
            None => (host.clone(), port),
            Some(Service { namespace, name, port }) => {
                match resolve_endpoint::resolve(&self.store, namespace, name, i64::from(*port))
                    .map_err(io::Error::other)?
                {
                    ServiceDestination::Endpoint(to) => (to.ip().to_string(), to.port()),
                    ServiceDestination::ExternalName(name) => (name, *port),
                }
            }
        };
        let stream = TcpStream::connect((address.as_str(), port)).await.map_err(|e| dial_error(&e, &address, port))?;
        let _ = stream.set_nodelay(true);
        let name = ServerName::try_from(host).map_err(io::Error::other)?;
        let stream = self.tls.connect(name, stream).await.map_err(|e| io::Error::other(tls::go_error_text(&e)))?;
        Ok(TlsConnection(TokioIo::new(stream)))
    }
}

/// Returns Go's error of a failed connection.
fn dial_error(error: &io::Error, address: &str, port: u16) -> io::Error {
    let at = if address.contains(':') { format!("[{address}]:{port}") } else { format!("{address}:{port}") };
    if error.to_string().contains("failed to lookup address") {
        return io::Error::other(format!("dial tcp: lookup {address}: no such host"));
    }
    io::Error::other(format!("dial tcp {at}: {}", backend_connections::go_error_text(error)))
}

impl tower::Service<Uri> for Connector {
    type Response = TlsConnection;
    type Error = io::Error;
    type Future = BoxFuture<'static, Result<TlsConnection, io::Error>>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), io::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, url: Uri) -> Self::Future {
        self.clone().connect(url).boxed()
    }
}

/// A TLS connection for HTTP/1.1.
pub(super) struct TlsConnection(TokioIo<TlsStream<TcpStream>>);

impl Connection for TlsConnection {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}

impl Read for TlsConnection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: ReadBufCursor<'_>,
    ) -> Poll<Result<(), io::Error>> {
        Pin::new(&mut self.0).poll_read(cx, buf)
    }
}

impl Write for TlsConnection {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<Result<usize, io::Error>> {
        Pin::new(&mut self.0).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), io::Error>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), io::Error>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}
