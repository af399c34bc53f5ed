//! TLS without verification of the server's certificate, as upstream's HTTPS probes connect (`InsecureSkipVerify`).

use ::tls::ServerVerifier;
use rustls::{
    ClientConfig, Error, InvalidMessage,
    crypto::ring,
    pki_types::{InvalidDnsNameError, ServerName},
};
use std::{
    io,
    sync::{Arc, LazyLock},
};
use tokio::net::TcpStream;
use tokio_rustls::{TlsConnector, client::TlsStream};

/// TLS connection error.
#[derive(Debug)]
pub(super) enum TlsError {
    /// The server responded with plain HTTP.
    PlainHttp,
    /// Any other error.
    Handshake(HandshakeError),
}

/// Failed TLS handshake.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HandshakeError {
    #[error("EOF")]
    Eof,
    #[error("tls: {0}")]
    ServerName(#[source] InvalidDnsNameError),
    #[error("tls: {0}")]
    Config(#[source] Error),
    #[error("tls: {0}")]
    Io(#[source] io::Error),
}

/// Performs the TLS handshake. Returns the stream, and whether HTTP/2 was negotiated.
pub(super) async fn connect(tcp: TcpStream, host: &str) -> Result<(TlsStream<TcpStream>, bool), TlsError> {
    let failed = TlsError::Handshake;
    let name = ServerName::try_from(host.to_owned()).map_err(|error| failed(HandshakeError::ServerName(error)))?;
    let config = CONFIG.as_ref().map_err(|error| failed(HandshakeError::Config(error.clone())))?;
    let stream = TlsConnector::from(Arc::clone(config)).connect(name, tcp).await.map_err(|error| {
        match error.get_ref().and_then(|e| e.downcast_ref()) {
            // The first byte of `HTTP/1.1` is not a TLS content type.
            Some(Error::InvalidMessage(InvalidMessage::InvalidContentType)) => TlsError::PlainHttp,
            _ if error.kind() == io::ErrorKind::UnexpectedEof => failed(HandshakeError::Eof),
            _ => failed(HandshakeError::Io(error)),
        }
    })?;
    let http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
    Ok((stream, http2))
}

static CONFIG: LazyLock<Result<Arc<ClientConfig>, Error>> = LazyLock::new(|| {
    let provider = Arc::new(ring::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider)).with_safe_default_protocol_versions()?;
    let verifier = Arc::new(ServerVerifier::accept_any(provider));
    let mut config = builder.dangerous().with_custom_certificate_verifier(verifier).with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Arc::new(config))
});
