//! Connections to servers to which requests are proxied.

use crate::proxy::{
    backend_tls::{self, TlsConfigError},
    node_dialer::DialedStream,
};
use errors::ApiError;
use rustls::{ClientConfig, client::ResolvesClientCert, crypto::ring, pki_types::ServerName};
use std::{io, net::SocketAddr, sync::Arc, time::Duration};
use tls::ServerVerifier;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// Dial timeout (that of Go's `http.DefaultTransport`).
const DIAL_TIMEOUT: Duration = Duration::from_secs(30);

/// Returns a 503 (`NewServiceUnavailable`).
pub(crate) fn unavailable(message: impl Into<String>) -> ApiError {
    ApiError::new(503, "ServiceUnavailable", message)
}

/// Connects, with TLS if a configuration is given; the server's certificate must be valid for the name.
pub(crate) async fn connect(
    to: SocketAddr,
    tls: Option<(Arc<ClientConfig>, ServerName<'static>)>,
) -> io::Result<Box<dyn DialedStream>> {
    let dial = async {
        let stream = TcpStream::connect(to)
            .await
            .map_err(|e| io::Error::new(e.kind(), format!("dial tcp {to}: {}", go_error_text(&e))))?;
        let _ = stream.set_nodelay(true);
        Ok(match tls {
            None => Box::new(stream) as Box<dyn DialedStream>,
            Some((config, name)) => Box::new(TlsConnector::from(config).connect(name, stream).await?),
        })
    };
    let timed_out = || io::Error::new(io::ErrorKind::TimedOut, format!("dial tcp {to}: i/o timeout"));
    tokio::time::timeout(DIAL_TIMEOUT, dial).await.unwrap_or_else(|_| Err(timed_out()))
}

/// Go's text of common connection errors.
pub(crate) fn go_error_text(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => "connect: connection refused".to_owned(),
        io::ErrorKind::HostUnreachable => "connect: no route to host".to_owned(),
        io::ErrorKind::NetworkUnreachable => "connect: network is unreachable".to_owned(),
        _ => error.to_string(),
    }
}

/// Builds a TLS client configuration. The server's certificate must be signed by one of these CAs (PEM); without any,
/// every certificate is accepted. `client_certificate` is the client certificate.
///
/// # Errors
/// When a certificate cannot be parsed.
pub(crate) fn tls_config(
    ca_bundle: Option<&[u8]>,
    client_certificate: Option<&Arc<dyn ResolvesClientCert>>,
) -> Result<Arc<ClientConfig>, TlsConfigError> {
    let provider = Arc::new(ring::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider)).with_safe_default_protocol_versions()?;
    let verifier = match ca_bundle {
        Some(pem) => backend_tls::ca_verifier(pem, provider)?,
        None => ServerVerifier::accept_any(provider),
    };
    let builder = builder.dangerous().with_custom_certificate_verifier(Arc::new(verifier));
    let config = match client_certificate {
        None => builder.with_no_client_auth(),
        Some(client_certificate) => builder.with_client_cert_resolver(Arc::clone(client_certificate)),
    };
    Ok(Arc::new(config))
}
