//! Verification of the certificates of servers that this server calls, and Go's text of TLS errors.

use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
    client::{
        WebPkiServerVerifier,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
        verify_server_name,
    },
    crypto::{CryptoProvider, ring},
    pki_types::{
        CertificateDer, ServerName, UnixTime,
        pem::{self, PemObject},
    },
    server::{ParsedCertificate, VerifierBuilderError},
};
use std::{io, sync::Arc};
use x509_parser::prelude::{FromDer, X509Certificate};

/// Error of a TLS client configuration.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TlsConfigError {
    #[error("unable to load root certificates: unable to parse bytes as PEM block")]
    NoCertificates,
    #[error(transparent)]
    Pem(#[from] pem::Error),
    #[error(transparent)]
    Tls(#[from] Error),
    #[error(transparent)]
    Verifier(#[from] VerifierBuilderError),
}

/// Builds the configuration for a webhook; an empty CA bundle (PEM) selects the machine's trusted CAs.
pub(crate) fn webhook_config(ca_bundle: &[u8]) -> Result<ClientConfig, TlsConfigError> {
    let mut roots = RootCertStore::empty();
    let mut bundle = Vec::new();
    if ca_bundle.is_empty() {
        let (_, _) = roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    } else {
        bundle = CertificateDer::pem_slice_iter(ca_bundle).filter_map(Result::ok).collect();
        if bundle.is_empty() {
            return Err(TlsConfigError::NoCertificates);
        }
        let (_, _) = roots.add_parsable_certificates(bundle.iter().cloned());
    }
    let provider = Arc::new(ring::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider));
    let builder = builder.with_safe_default_protocol_versions()?;
    let builder = builder.dangerous().with_custom_certificate_verifier(build_verifier(roots, bundle, provider)?);
    let mut config = builder.with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}

/// Returns a verifier that accepts certificates signed by these CAs (PEM), and the bundle's certificates themselves.
pub(crate) fn ca_verifier(
    ca_bundle: &[u8],
    provider: Arc<CryptoProvider>,
) -> Result<Arc<dyn ServerCertVerifier>, TlsConfigError> {
    let bundle = CertificateDer::pem_slice_iter(ca_bundle).collect::<Result<Vec<_>, _>>()?;
    let mut roots = RootCertStore::empty();
    for certificate in &bundle {
        roots.add(certificate.clone())?;
    }
    build_verifier(roots, bundle, provider)
}

fn build_verifier(
    roots: RootCertStore,
    bundle: Vec<CertificateDer<'static>>,
    provider: Arc<CryptoProvider>,
) -> Result<Arc<dyn ServerCertVerifier>, TlsConfigError> {
    let web_pki = if roots.is_empty() {
        None
    } else {
        Some(WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider)).build()?)
    };
    Ok(Arc::new(Verifier { trust: Trust::CaBundle { web_pki, bundle }, provider }))
}

/// Returns a verifier that accepts every certificate whose key the server has (`insecureSkipTLSVerify`).
pub(crate) fn accept_any(provider: Arc<CryptoProvider>) -> Arc<dyn ServerCertVerifier> {
    Arc::new(Verifier { trust: Trust::Any, provider })
}

/// The certificates that a server may present.
#[derive(Debug)]
enum Trust {
    Any,
    /// Those signed by a CA, and those in the bundle itself: a self-signed certificate is its own CA, as in Go.
    CaBundle {
        web_pki: Option<Arc<WebPkiServerVerifier>>,
        bundle: Vec<CertificateDer<'static>>,
    },
}

#[derive(Debug)]
struct Verifier {
    trust: Trust,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let Trust::CaBundle { web_pki, bundle } = &self.trust else { return Ok(ServerCertVerified::assertion()) };
        if bundle.iter().any(|trusted| trusted == certificate) {
            is_valid_at(certificate, now)?;
            verify_server_name(&ParsedCertificate::try_from(certificate)?, name)?;
            return Ok(ServerCertVerified::assertion());
        }
        match web_pki {
            Some(web_pki) => web_pki.verify_server_cert(certificate, intermediates, name, ocsp, now),
            None => Err(CertificateError::UnknownIssuer.into()),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, certificate, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signed, algorithms)
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

/// Go's text of a failed TLS handshake.
pub(crate) fn go_error_text(error: &io::Error) -> String {
    let inner = error.get_ref().and_then(|e| e.downcast_ref::<Error>());
    let error_kind = match inner {
        Some(Error::InvalidCertificate(error_kind)) => error_kind,
        Some(Error::InvalidMessage(_)) => return "http: server gave HTTP response to HTTPS client".to_owned(),
        _ if error.kind() == io::ErrorKind::UnexpectedEof => return "EOF".to_owned(),
        _ => return error.to_string(),
    };
    let unknown = || "certificate signed by unknown authority".to_owned();
    let text = match error_kind {
        CertificateError::UnknownIssuer => unknown(),
        // The certificate of a CA that is not trusted.
        CertificateError::Other(other) if other.to_string().contains("CaUsedAsEndEntity") => unknown(),
        CertificateError::Expired
        | CertificateError::ExpiredContext { .. }
        | CertificateError::NotValidYet
        | CertificateError::NotValidYetContext { .. } => "certificate has expired or is not yet valid".to_owned(),
        CertificateError::NotValidForNameContext { expected, presented } => {
            let names: Vec<&str> = presented.iter().map(|n| unquote_name(n)).collect();
            format!("certificate is valid for {}, not {}", names.join(", "), expected.to_str())
        }
        other => other.to_string(),
    };
    format!("tls: failed to verify certificate: x509: {text}")
}

/// Returns the name in `DnsName("name")`, rustls' debug form of a subject alternative name.
fn unquote_name(certificate: &str) -> &str {
    certificate.split('"').nth(1).unwrap_or(certificate)
}
