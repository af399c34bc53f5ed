//! By what the servers that this one asks are known, and what is said when one is not.

use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
    client::{
        WebPkiServerVerifier,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
        verify_server_name,
    },
    crypto::{CryptoProvider, ring},
    pki_types::{CertificateDer, ServerName, UnixTime, pem::PemObject},
    server::ParsedCertificate,
};
use std::{io, sync::Arc};
use x509_parser::prelude::{FromDer, X509Certificate};

/// For a webhook: its certificates (PEM), none of which stand for those that the machine trusts.
pub(crate) fn webhook(authorities: &[u8]) -> Result<ClientConfig, String> {
    let mut roots = RootCertStore::empty();
    let mut named = Vec::new();
    if authorities.is_empty() {
        let (_, _) = roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    } else {
        named = CertificateDer::pem_slice_iter(authorities).filter_map(Result::ok).collect();
        if named.is_empty() {
            return Err("unable to load root certificates: unable to parse bytes as PEM block".to_owned());
        }
        let (_, _) = roots.add_parsable_certificates(named.iter().cloned());
    }
    let provider = Arc::new(ring::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider));
    let builder = builder.with_safe_default_protocol_versions().map_err(|e| e.to_string())?;
    let builder = builder.dangerous().with_custom_certificate_verifier(known(roots, named, provider)?);
    let mut config = builder.with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}

/// Takes the certificates that these authorities (PEM) have signed, and those that stand there themselves.
pub(crate) fn of(authorities: &[u8], provider: Arc<CryptoProvider>) -> Result<Arc<dyn ServerCertVerifier>, String> {
    let named: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(authorities).collect();
    let named = named.map_err(|e| e.to_string())?;
    let mut roots = RootCertStore::empty();
    for certificate in &named {
        roots.add(certificate.clone()).map_err(|e| e.to_string())?;
    }
    known(roots, named, provider)
}

fn known(
    roots: RootCertStore,
    named: Vec<CertificateDer<'static>>,
    provider: Arc<CryptoProvider>,
) -> Result<Arc<dyn ServerCertVerifier>, String> {
    let usual = if roots.is_empty() {
        None
    } else {
        let built = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider)).build();
        Some(built.map_err(|e| e.to_string())?)
    };
    Ok(Arc::new(Verifier { trust: Trust::Known { usual, named }, provider }))
}

/// Takes every certificate whose key the server has.
pub(crate) fn anybody(provider: Arc<CryptoProvider>) -> Arc<dyn ServerCertVerifier> {
    Arc::new(Verifier { trust: Trust::Anybody, provider })
}

/// Whose certificate a server may show.
#[derive(Debug)]
enum Trust {
    Anybody,
    /// What an authority has signed, and what is named itself: a certificate that signed itself is its own authority,
    /// as in Go.
    Known {
        usual: Option<Arc<WebPkiServerVerifier>>,
        named: Vec<CertificateDer<'static>>,
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
        shown: &CertificateDer<'_>,
        between: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let Trust::Known { usual, named } = &self.trust else { return Ok(ServerCertVerified::assertion()) };
        if named.iter().any(|named| named == shown) {
            is_valid_at(shown, now)?;
            verify_server_name(&ParsedCertificate::try_from(shown)?, name)?;
            return Ok(ServerCertVerified::assertion());
        }
        match usual {
            Some(usual) => usual.verify_server_cert(shown, between, name, ocsp, now),
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

/// Go's words for a handshake that failed.
pub(crate) fn refusal(error: &io::Error) -> String {
    let inner = error.get_ref().and_then(|e| e.downcast_ref::<Error>());
    let why = match inner {
        Some(Error::InvalidCertificate(why)) => why,
        Some(Error::InvalidMessage(_)) => return "http: server gave HTTP response to HTTPS client".to_owned(),
        _ if error.kind() == io::ErrorKind::UnexpectedEof => return "EOF".to_owned(),
        _ => return error.to_string(),
    };
    let unknown = || "certificate signed by unknown authority".to_owned();
    let told = match why {
        CertificateError::UnknownIssuer => unknown(),
        // An authority that is not trusted itself.
        CertificateError::Other(other) if other.to_string().contains("CaUsedAsEndEntity") => unknown(),
        CertificateError::Expired
        | CertificateError::ExpiredContext { .. }
        | CertificateError::NotValidYet
        | CertificateError::NotValidYetContext { .. } => "certificate has expired or is not yet valid".to_owned(),
        CertificateError::NotValidForNameContext { expected, presented } => {
            let names: Vec<&str> = presented.iter().map(|n| between(n)).collect();
            format!("certificate is valid for {}, not {}", names.join(", "), expected.to_str())
        }
        other => other.to_string(),
    };
    format!("tls: failed to verify certificate: x509: {told}")
}

/// The name in `DnsName("name")`, as rustls shows what a certificate is for.
fn between(shown: &str) -> &str {
    shown.split('"').nth(1).unwrap_or(shown)
}
