//! Certificate authority of the cluster: stored key and certificate, and the certificates that it issues for this
//! process.

use super::{Clock, PkiError, certificate_profiles, file_error, unusable, validity::Validity};
use parking_lot::RwLock;
use rcgen::{CertificateParams, Issuer, KeyPair};
use rustls::{
    SignatureScheme,
    client::ResolvesClientCert,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    server::{ClientHello, ResolvesServerCert},
    sign::CertifiedKey,
};
use std::{
    fmt, fs,
    path::{Path, PathBuf},
    sync::Arc,
};
use x509_parser::{pem::parse_x509_pem, prelude::X509Certificate};

/// A certificate authority.
pub(super) struct Ca {
    /// File of the certificate.
    pub(super) path: PathBuf,
    /// Certificate, in PEM.
    pub(super) pem: String,
    /// Private key, in PEM.
    pub(super) key: String,
    pub(super) clock: Clock,
    validity: Validity,
    issuer: Issuer<'static, KeyPair>,
}

impl fmt::Debug for Ca {
    /// Omits the private key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ca").field("path", &self.path).field("validity", &self.validity).finish_non_exhaustive()
    }
}

/// A certificate and its key, in PEM.
#[derive(Clone)]
pub(super) struct Credential {
    pub(super) certificate: String,
    pub(super) key: String,
}

impl Ca {
    /// Loads a CA from `NAME.crt` and `NAME.key`. Creates an absent key, and signs an absent certificate with the key,
    /// so that older certificates of the key stay valid.
    pub(super) fn load_or_create(dir: &Path, name: &str, subject: &str, clock: Clock) -> Result<Self, PkiError> {
        let (key_path, path) = (dir.join(format!("{name}.key")), dir.join(format!("{name}.crt")));
        let write = |path: &Path, pem: &str| files::replace_private(path, pem.as_bytes()).map_err(file_error(path));
        let is_new = !key_path.exists();
        if is_new {
            // A certificate without its key is useless.
            remove(&path)?;
            write(&key_path, &KeyPair::generate()?.serialize_pem())?;
        }
        let read = |path: &Path| fs::read_to_string(path).map_err(file_error(path));
        let key = read(&key_path)?;
        if !path.exists() {
            let mut params = certificate_profiles::authority(subject);
            Validity::of_ca(clock.now()).write(&mut params)?;
            write(&path, &params.self_signed(&KeyPair::from_pem(&key)?)?.pem())?;
            if !is_new {
                tracing::info!(path = %path.display(), "signed a certificate authority anew with its key");
            }
        }
        let pem = read(&path)?;
        let issuer = Issuer::from_ca_cert_pem(&pem, KeyPair::from_pem(&key)?)?;
        let validity = with_certificate(&pem, Validity::of_certificate)??;
        Ok(Self { path, pem, key, clock, validity, issuer })
    }

    /// Returns the expiry, if it is near.
    pub(super) fn expires_soon(&self) -> Option<jiff::Timestamp> {
        self.validity.needs_warning(self.clock.now()).then_some(self.validity.not_after)
    }

    /// Issues a certificate with a new key.
    pub(super) fn issue(&self, params: &CertificateParams) -> Result<(Credential, Validity), PkiError> {
        let (mut params, key) = (params.clone(), KeyPair::generate()?);
        let validity = Validity::of_leaf(self.clock.now(), self.validity);
        validity.write(&mut params)?;
        let certificate = params.signed_by(&key, &self.issuer)?.pem();
        Ok((Credential { certificate, key: key.serialize_pem() }, validity))
    }

    fn is_due(&self, validity: Validity) -> bool {
        validity.is_due(self.clock.now(), self.validity)
    }

    /// Whether a certificate is signed by this CA for this subject, does not expire soon, and matches its key.
    pub(super) fn is_valid_credential(&self, credential: &Credential, subject: &str) -> bool {
        let checked = with_certificate(&credential.certificate, |certificate| {
            let is_signed = with_certificate(&self.pem, |ca| {
                certificate.issuer().as_raw() == ca.subject().as_raw()
                    && certificate.verify_signature(Some(ca.public_key())).is_ok()
            });
            let is_valid = Validity::of_certificate(certificate).is_ok_and(|validity| !self.is_due(validity));
            is_signed.unwrap_or(false) && is_valid && certificate.subject().to_string() == subject
        });
        checked.unwrap_or(false) && certified_key(credential).is_ok()
    }
}

fn remove(path: &Path) -> Result<(), PkiError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(file_error(path)(error)),
        _ => Ok(()),
    }
}

fn with_certificate<T>(pem: &str, read: impl FnOnce(&X509Certificate<'_>) -> T) -> Result<T, PkiError> {
    let (_, pem) = parse_x509_pem(pem.as_bytes()).map_err(unusable)?;
    Ok(read(&pem.parse_x509().map_err(unusable)?))
}

/// Converts a credential for rustls. The key must match the certificate.
fn certified_key(credential: &Credential) -> Result<CertifiedKey, PkiError> {
    let chain = super::certificates(&credential.certificate)?.into_iter().map(CertificateDer::into_owned).collect();
    let key = PrivateKeyDer::from_pem_slice(credential.key.as_bytes()).map_err(unusable)?;
    CertifiedKey::from_der(chain, key, &ring::default_provider()).map_err(unusable)
}

/// An in-memory certificate of this process. A handshake renews it when it expires soon, so that a long-running process
/// never presents an expired one. Open connections are not affected.
pub(super) struct RenewedCertificate {
    ca: Arc<Ca>,
    params: CertificateParams,
    current: RwLock<(Arc<CertifiedKey>, Validity)>,
}

impl fmt::Debug for RenewedCertificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RenewedCertificate").field("ca", &self.ca).finish_non_exhaustive()
    }
}

impl RenewedCertificate {
    pub(super) fn new(ca: Arc<Ca>, params: CertificateParams) -> Result<Arc<Self>, PkiError> {
        let current = RwLock::new(issue(&ca, &params)?);
        Ok(Arc::new(Self { ca, params, current }))
    }

    fn certificate(&self) -> Arc<CertifiedKey> {
        let (certificate, validity) = self.current.read().clone();
        if !self.ca.is_due(validity) {
            return certificate;
        }
        let mut current = self.current.write();
        if self.ca.is_due(current.1) {
            match issue(&self.ca, &self.params) {
                Ok(new) => {
                    tracing::info!(not_after = %new.1.not_after, names = ?self.params.subject_alt_names, "renewed a certificate");
                    *current = new;
                }
                Err(error) => tracing::warn!(%error, "failed to renew a certificate"),
            }
        }
        Arc::clone(&current.0)
    }
}

fn issue(ca: &Ca, params: &CertificateParams) -> Result<(Arc<CertifiedKey>, Validity), PkiError> {
    let (credential, validity) = ca.issue(params)?;
    Ok((Arc::new(certified_key(&credential)?), validity))
}

impl ResolvesServerCert for RenewedCertificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.certificate())
    }
}

impl ResolvesClientCert for RenewedCertificate {
    fn resolve(&self, _: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        Some(self.certificate())
    }

    fn has_certs(&self) -> bool {
        true
    }
}
