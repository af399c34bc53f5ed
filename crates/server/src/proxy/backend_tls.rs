//! Verification of the certificates of servers that this server calls.

use rustls::{
    ClientConfig, Error, RootCertStore,
    crypto::{CryptoProvider, ring},
    pki_types::{
        CertificateDer,
        pem::{self, PemObject},
    },
    server::VerifierBuilderError,
};
use std::sync::Arc;
use tls::ServerVerifier;

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
    let builder =
        builder.dangerous().with_custom_certificate_verifier(Arc::new(ServerVerifier::new(roots, bundle, provider)?));
    let mut config = builder.with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}

/// Returns a verifier that accepts certificates signed by these CAs (PEM), and the bundle's certificates themselves.
pub(crate) fn ca_verifier(ca_bundle: &[u8], provider: Arc<CryptoProvider>) -> Result<ServerVerifier, TlsConfigError> {
    let bundle = CertificateDer::pem_slice_iter(ca_bundle).collect::<Result<Vec<_>, _>>()?;
    let mut roots = RootCertStore::empty();
    for certificate in &bundle {
        roots.add(certificate.clone())?;
    }
    Ok(ServerVerifier::new(roots, bundle, provider)?)
}
