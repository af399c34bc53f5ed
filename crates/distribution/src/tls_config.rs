//! TLS configuration of a host.

use crate::{
    PullError,
    hosts::{TlsFiles, configuration},
};
use rustls::{
    ClientConfig, Error, RootCertStore, SignatureScheme,
    client::ResolvesClientCert,
    crypto::{CryptoProvider, ring},
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    sign::CertifiedKey,
};
use std::{io, path::Path, sync::Arc};
use tls::ServerVerifier;
use x509_parser::prelude::{FromDer, X509Certificate};

/// Builds the configuration of a client. `presents_certificates` tells whether it has the host's client certificates.
///
/// # Errors
/// If a file cannot be read. The error names the file.
pub(crate) fn client_config(files: &TlsFiles, presents_certificates: bool) -> Result<ClientConfig, PullError> {
    let provider = Arc::new(ring::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| configuration(&format!("TLS: {error}")))?;
    let verifier = verifier(files, &provider)?;
    let builder = builder.dangerous().with_custom_certificate_verifier(Arc::new(verifier));
    let mut config = if presents_certificates && !files.client.is_empty() {
        let mut keys = Vec::new();
        for (certificate, key) in &files.client {
            keys.push(client_key(certificate, key.as_deref().unwrap_or(certificate), &provider)?);
        }
        builder.with_client_cert_resolver(Arc::new(ClientCertificates(keys)))
    } else {
        builder.with_no_client_auth()
    };
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}

fn verifier(files: &TlsFiles, provider: &Arc<CryptoProvider>) -> Result<ServerVerifier, PullError> {
    if files.skip_verify == Some(true) {
        return Ok(ServerVerifier::accept_any(Arc::clone(provider)));
    }
    let mut roots = RootCertStore::empty();
    let (_, _) = roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    let mut bundle = Vec::new();
    for path in &files.ca {
        let unloadable =
            |problem: &str| configuration(&format!("unable to load CA cert {:?}: {problem}", path.display()));
        let found = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
        let found = found.map_err(|error| unloadable(&error.to_string()))?;
        if found.is_empty() {
            return Err(unloadable("the file contains no certificate"));
        }
        let (_, _) = roots.add_parsable_certificates(found.iter().cloned());
        bundle.extend(found);
    }
    let verifier = ServerVerifier::new(roots, bundle, Arc::clone(provider));
    verifier.map_err(|error| configuration(&format!("TLS: {error}")))
}

fn client_key(certificate: &Path, key: &Path, provider: &CryptoProvider) -> Result<Arc<CertifiedKey>, PullError> {
    let unreadable = |path: &Path, error: &dyn std::fmt::Display| {
        configuration(&format!("unable to read CERT file {:?}: {error}", path.display()))
    };
    let chain = CertificateDer::pem_file_iter(certificate).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let chain = chain.map_err(|error| unreadable(certificate, &error))?;
    let private = PrivateKeyDer::from_pem_file(key).map_err(|error| unreadable(key, &error))?;
    let pair = CertifiedKey::from_der(chain, private, provider);
    pair.map(Arc::new).map_err(|error| configuration(&format!("failed to load X509 key pair: {error}")))
}

/// Client certificates, of which the server's list of CAs selects one, as in Go.
#[derive(Debug)]
struct ClientCertificates(Vec<Arc<CertifiedKey>>);

impl ResolvesClientCert for ClientCertificates {
    fn resolve(&self, issuers: &[&[u8]], _schemes: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        let is_acceptable = |key: &&Arc<CertifiedKey>| {
            key.cert.iter().any(|certificate| {
                let parsed = X509Certificate::from_der(certificate).ok();
                parsed.is_some_and(|(_, parsed)| issuers.contains(&parsed.issuer().as_raw()))
            })
        };
        self.0.iter().find(is_acceptable).or_else(|| self.0.first()).cloned()
    }

    fn has_certs(&self) -> bool {
        !self.0.is_empty()
    }
}

/// Returns whether a failed handshake means that the server speaks no TLS.
pub(crate) fn is_plain_text(error: &io::Error) -> bool {
    let inner = error.get_ref().and_then(|e| e.downcast_ref::<Error>());
    matches!(inner, Some(Error::InvalidMessage(_)))
        || matches!(error.kind(), io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset)
}
