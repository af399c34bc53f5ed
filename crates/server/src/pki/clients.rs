//! Clients and their certificates. A handshake takes any certificate whose key its client has; whether an authority has
//! signed it is asked afterwards, so that who shows a wrong one is told so in an answer (Go's `tls.RequestClientCert`).

use super::Clock;
use rustls::{
    DigitallySignedStruct, DistinguishedName, Error, ServerConfig, SignatureScheme,
    client::danger::HandshakeSignatureValid,
    pki_types::{CertificateDer, UnixTime},
    server::danger::{ClientCertVerified, ClientCertVerifier},
};
use std::{sync::Arc, time::Duration};

/// How a server speaks TLS, and whose certificates it knows.
#[derive(Debug, Clone)]
pub struct ServerTls {
    pub(crate) config: Arc<ServerConfig>,
    pub(crate) known: Arc<dyn ClientCertVerifier>,
    pub(super) clock: Clock,
}

impl ServerTls {
    /// Whether one of the authorities has signed what a client shows, and it holds now.
    pub(crate) fn knows(&self, chain: &[CertificateDer<'_>]) -> bool {
        let Some((own, between)) = chain.split_first() else { return false };
        let now = u64::try_from(self.clock.now().as_second()).unwrap_or_default();
        let now = UnixTime::since_unix_epoch(Duration::from_secs(now));
        self.known.verify_client_cert(own, between, now).is_ok()
    }
}

/// Takes every certificate whose key the client has.
#[derive(Debug)]
pub(super) struct Anybody(pub(super) Arc<dyn ClientCertVerifier>);

impl ClientCertVerifier for Anybody {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.0.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        _own: &CertificateDer<'_>,
        _between: &[CertificateDer<'_>],
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
