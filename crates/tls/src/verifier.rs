//! Verification of servers' certificates.

#[cfg(test)]
mod tests;

use rustls::{
    CertificateError, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
    client::{
        WebPkiServerVerifier,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
        verify_server_name,
    },
    crypto::{CryptoProvider, WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature},
    pki_types::{CertificateDer, ServerName, UnixTime},
    server::{ParsedCertificate, VerifierBuilderError},
};
use std::sync::Arc;
use x509_parser::prelude::{FromDer, X509Certificate};

/// Verifier of the certificates that a server presents.
#[derive(Debug)]
pub struct ServerVerifier {
    trust: Trust,
    provider: Arc<CryptoProvider>,
}

/// The certificates that a server may present.
#[derive(Debug)]
enum Trust {
    Any,
    Certificates { web_pki: Option<Arc<WebPkiServerVerifier>>, bundle: Vec<CertificateDer<'static>> },
}

impl ServerVerifier {
    /// Accepts certificates that one of `roots` has signed, and those of `bundle` themselves: a self-signed certificate is its
    /// own CA, as in Go.
    ///
    /// # Errors
    /// When the verifier of `roots` cannot be built.
    pub fn new(
        roots: RootCertStore,
        bundle: Vec<CertificateDer<'static>>,
        provider: Arc<CryptoProvider>,
    ) -> Result<Self, VerifierBuilderError> {
        let web_pki = if roots.is_empty() {
            None
        } else {
            Some(WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider)).build()?)
        };
        Ok(Self { trust: Trust::Certificates { web_pki, bundle }, provider })
    }

    /// Accepts every certificate (Go's `InsecureSkipVerify`), also those that rustls cannot read: of version 1, or with a short key.
    /// So it does not verify that the server has the certificate's key, which would authenticate nobody.
    #[must_use]
    pub fn accept_any(provider: Arc<CryptoProvider>) -> Self {
        Self { trust: Trust::Any, provider }
    }

    /// Verifies the handshake's signature, unless every certificate is accepted.
    fn verify_signature(
        &self,
        verify: impl FnOnce(&WebPkiSupportedAlgorithms) -> Result<HandshakeSignatureValid, Error>,
    ) -> Result<HandshakeSignatureValid, Error> {
        match self.trust {
            Trust::Any => Ok(HandshakeSignatureValid::assertion()),
            Trust::Certificates { .. } => verify(&self.provider.signature_verification_algorithms),
        }
    }
}

impl ServerCertVerifier for ServerVerifier {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let Trust::Certificates { web_pki, bundle } = &self.trust else { return Ok(ServerCertVerified::assertion()) };
        if bundle.iter().any(|trusted| trusted == certificate) {
            is_valid_at(certificate, now)?;
            verify_server_name(&ParsedCertificate::try_from(certificate)?, name)?;
            return Ok(ServerCertVerified::assertion());
        }
        match web_pki {
            Some(web_pki) => {
                let verified = web_pki.verify_server_cert(certificate, intermediates, name, ocsp, now);
                verified.map_err(|error| match error {
                    // A CA with the issuer's name and another key, for example after its key was replaced.
                    Error::InvalidCertificate(CertificateError::BadSignature) => CertificateError::UnknownIssuer.into(),
                    other => other,
                })
            }
            None => Err(CertificateError::UnknownIssuer.into()),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.verify_signature(|algorithms| verify_tls12_signature(message, certificate, signed, algorithms))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.verify_signature(|algorithms| verify_tls13_signature(message, certificate, signed, algorithms))
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

fn is_valid_at(certificate: &CertificateDer<'_>, now: UnixTime) -> Result<(), Error> {
    let (_, parsed) = X509Certificate::from_der(certificate).map_err(|_| CertificateError::BadEncoding)?;
    let (validity, now) = (parsed.validity(), i64::try_from(now.as_secs()).unwrap_or(i64::MAX));
    if now < validity.not_before.timestamp() {
        return Err(CertificateError::NotValidYet.into());
    }
    if now > validity.not_after.timestamp() { Err(CertificateError::Expired.into()) } else { Ok(()) }
}
