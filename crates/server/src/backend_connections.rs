//! Connections to servers that the API passes requests on to.

use crate::{backend_tls, node_proxy::DialedStream, status::ApiError};
use rustls::{ClientConfig, client::ResolvesClientCert, crypto::ring, pki_types::ServerName};
use std::{io, net::SocketAddr, sync::Arc, time::Duration};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// Go's default for proxies.
const CONNECT: Duration = Duration::from_secs(30);

/// A 503 in upstream's form.
pub(crate) fn unavailable(message: impl Into<String>) -> ApiError {
    ApiError::new(503, "ServiceUnavailable", message)
}

/// A connection, encrypted if there is a configuration for that; the name is what a certificate must be for.
pub(crate) async fn connect(
    to: SocketAddr,
    tls: Option<(Arc<ClientConfig>, ServerName<'static>)>,
) -> io::Result<Box<dyn DialedStream>> {
    let work = async {
        let stream = TcpStream::connect(to)
            .await
            .map_err(|e| io::Error::new(e.kind(), format!("dial tcp {to}: {}", words(&e))))?;
        let _ = stream.set_nodelay(true);
        Ok(match tls {
            None => Box::new(stream) as Box<dyn DialedStream>,
            Some((config, name)) => Box::new(TlsConnector::from(config).connect(name, stream).await?),
        })
    };
    let late = || io::Error::new(io::ErrorKind::TimedOut, format!("dial tcp {to}: i/o timeout"));
    tokio::time::timeout(CONNECT, work).await.unwrap_or_else(|_| Err(late()))
}

/// Go's words for what happens every day.
pub(crate) fn words(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => "connect: connection refused".to_owned(),
        io::ErrorKind::HostUnreachable => "connect: no route to host".to_owned(),
        io::ErrorKind::NetworkUnreachable => "connect: network is unreachable".to_owned(),
        _ => error.to_string(),
    }
}

/// How a connection is encrypted: the server must show a certificate of these authorities (in PEM), or without any
/// whichever it likes; we show this one.
///
/// # Errors
/// When a certificate makes no sense.
pub(crate) fn tls(
    authorities: Option<&[u8]>,
    own: Option<&Arc<dyn ResolvesClientCert>>,
) -> Result<Arc<ClientConfig>, String> {
    let failed = |e: &dyn std::fmt::Display| e.to_string();
    let provider = Arc::new(ring::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider)).with_safe_default_protocol_versions();
    let builder = builder.map_err(|e| failed(&e))?;
    let verifier = match authorities {
        Some(pem) => backend_tls::of(pem, provider)?,
        None => backend_tls::anybody(provider),
    };
    let builder = builder.dangerous().with_custom_certificate_verifier(verifier);
    let config = match own {
        None => builder.with_no_client_auth(),
        Some(own) => builder.with_client_cert_resolver(Arc::clone(own)),
    };
    Ok(Arc::new(config))
}
