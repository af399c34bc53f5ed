//! TLS configuration of a host.

use crate::{
    PullError,
    hosts::{TlsFiles, configuration},
};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
    client::{
        ResolvesClientCert, WebPkiServerVerifier,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
        verify_server_name,
    },
    crypto::{CryptoProvider, ring},
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime, pem::PemObject},
    server::ParsedCertificate,
    sign::CertifiedKey,
};
use std::{io, path::Path, sync::Arc};
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
    let verifier = Verifier { trust: trust(files, &provider)?, provider: Arc::clone(&provider) };
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

fn trust(files: &TlsFiles, provider: &Arc<CryptoProvider>) -> Result<Trust, PullError> {
    if files.skip_verify == Some(true) {
        return Ok(Trust::Any);
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
    let web_pki = if roots.is_empty() {
        None
    } else {
        let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(provider)).build();
        Some(verifier.map_err(|error| configuration(&format!("TLS: {error}")))?)
    };
    Ok(Trust::Certificates { web_pki, bundle })
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

/// The certificates that a server may present.
#[derive(Debug)]
enum Trust {
    Any,
    /// Those signed by a CA, and those in the bundle itself: a self-signed certificate is its own CA, as in Go.
    Certificates {
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
        let Trust::Certificates { web_pki, bundle } = &self.trust else { return Ok(ServerCertVerified::assertion()) };
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

/// Returns whether a failed handshake means that the server speaks no TLS.
pub(crate) fn is_plain_text(error: &io::Error) -> bool {
    let inner = error.get_ref().and_then(|e| e.downcast_ref::<Error>());
    matches!(inner, Some(Error::InvalidMessage(_)))
        || matches!(error.kind(), io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset)
}

/// Go's text of a failed handshake.
pub(crate) fn go_error_text(error: &io::Error) -> String {
    let cause = match error.get_ref().and_then(|e| e.downcast_ref::<Error>()) {
        Some(Error::InvalidCertificate(cause)) => cause,
        Some(Error::InvalidMessage(_)) => return "http: server gave HTTP response to HTTPS client".to_owned(),
        _ if error.kind() == io::ErrorKind::UnexpectedEof => return "EOF".to_owned(),
        _ => return error.to_string(),
    };
    let text = match cause {
        CertificateError::UnknownIssuer => "certificate signed by unknown authority".to_owned(),
        // The certificate of a CA that is not trusted.
        CertificateError::Other(other) if other.to_string().contains("CaUsedAsEndEntity") => {
            "certificate signed by unknown authority".to_owned()
        }
        CertificateError::Expired
        | CertificateError::ExpiredContext { .. }
        | CertificateError::NotValidYet
        | CertificateError::NotValidYetContext { .. } => "certificate has expired or is not yet valid".to_owned(),
        other => other.to_string(),
    };
    format!("tls: failed to verify certificate: x509: {text}")
}
