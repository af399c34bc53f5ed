//! Client certificates. A handshake accepts any certificate whose key the client has. The CA is verified afterwards, so
//! that a client with an unknown certificate gets an HTTP response (Go's `tls.RequestClientCert`).

use super::Clock;
use rustls::{
    DigitallySignedStruct, DistinguishedName, Error, ServerConfig, SignatureScheme,
    client::danger::HandshakeSignatureValid,
    pki_types::{CertificateDer, UnixTime},
    server::danger::{ClientCertVerified, ClientCertVerifier},
};
use std::{sync::Arc, time::Duration};

/// TLS configuration of a server, and its verifier of client certificates.
#[derive(Debug, Clone)]
pub struct ServerTls {
    /// The configuration.
    pub config: Arc<ServerConfig>,
    pub(crate) client_verifier: Arc<dyn ClientCertVerifier>,
    pub(super) clock: Clock,
}

impl ServerTls {
    /// Whether a client certificate is signed by a CA and valid now.
    pub fn verifies(&self, chain: &[CertificateDer<'_>]) -> bool {
        let Some((certificate, intermediates)) = chain.split_first() else { return false };
        let now = u64::try_from(self.clock.now().as_second()).unwrap_or_default();
        let now = UnixTime::since_unix_epoch(Duration::from_secs(now));
        self.client_verifier.verify_client_cert(certificate, intermediates, now).is_ok()
    }
}

/// Accepts every certificate whose key the client has.
#[derive(Debug)]
pub(super) struct AnyClientCertificate(pub(super) Arc<dyn ClientCertVerifier>);

impl ClientCertVerifier for AnyClientCertificate {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.0.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        _certificate: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}
