//! A certificate authority of the cluster: a key and a certificate that are kept, and what it issues for this process.

use super::{Clock, PkiError, file, profile, unusable, validity::Validity};
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
    /// The file that holds its certificate.
    pub(super) path: PathBuf,
    /// Its certificate, in PEM.
    pub(super) pem: String,
    /// Its key, in PEM.
    pub(super) key: String,
    pub(super) clock: Clock,
    validity: Validity,
    issuer: Issuer<'static, KeyPair>,
}

impl fmt::Debug for Ca {
    /// Never shows the key.
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
    /// Reads an authority from `NAME.crt` and `NAME.key`. Without a key it is made, and without a certificate that is signed
    /// (anew) with the key: what the key has signed before stays valid.
    pub(super) fn load_or_create(dir: &Path, name: &str, subject: &str, clock: Clock) -> Result<Self, PkiError> {
        let (key_path, path) = (dir.join(format!("{name}.key")), dir.join(format!("{name}.crt")));
        let write = |path: &Path, pem: &str| files::replace_private(path, pem.as_bytes()).map_err(file(path));
        let is_new = !key_path.exists();
        if is_new {
            // A certificate without its key is of no use.
            remove(&path)?;
            write(&key_path, &KeyPair::generate()?.serialize_pem())?;
        }
        let read = |path: &Path| fs::read_to_string(path).map_err(file(path));
        let key = read(&key_path)?;
        if !path.exists() {
            let mut params = profile::authority(subject);
            Validity::of_authority(clock.now()).write(&mut params)?;
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

    /// The end of its validity, if that is near.
    pub(super) fn near_end(&self) -> Option<jiff::Timestamp> {
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

    /// Whether this authority has signed a certificate for this subject, which is valid for long enough, with this key.
    pub(super) fn holds(&self, credential: &Credential, subject: &str) -> bool {
        let checked = with_certificate(&credential.certificate, |certificate| {
            let is_signed = with_certificate(&self.pem, |own| {
                certificate.issuer().as_raw() == own.subject().as_raw()
                    && certificate.verify_signature(Some(own.public_key())).is_ok()
            });
            let is_valid = Validity::of_certificate(certificate).is_ok_and(|validity| !self.is_due(validity));
            is_signed.unwrap_or(false) && is_valid && certificate.subject().to_string() == subject
        });
        checked.unwrap_or(false) && certified(credential).is_ok()
    }
}

fn remove(path: &Path) -> Result<(), PkiError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(file(path)(error)),
        _ => Ok(()),
    }
}

fn with_certificate<T>(pem: &str, read: impl FnOnce(&X509Certificate<'_>) -> T) -> Result<T, PkiError> {
    let (_, pem) = parse_x509_pem(pem.as_bytes()).map_err(unusable)?;
    Ok(read(&pem.parse_x509().map_err(unusable)?))
}

/// As rustls shows it; the key must be the certificate's.
fn certified(credential: &Credential) -> Result<CertifiedKey, PkiError> {
    let chain = super::certificates(&credential.certificate)?.into_iter().map(CertificateDer::into_owned).collect();
    let key = PrivateKeyDer::from_pem_slice(credential.key.as_bytes()).map_err(unusable)?;
    CertifiedKey::from_der(chain, key, &ring::default_provider()).map_err(unusable)
}

/// A certificate of this process, in memory only. It is renewed when a handshake needs it and it ends soon, so that a process
/// that runs for years never shows one that has expired. Connections that are open keep what they were opened with.
pub(super) struct Renewing {
    ca: Arc<Ca>,
    params: CertificateParams,
    current: RwLock<(Arc<CertifiedKey>, Validity)>,
}

impl fmt::Debug for Renewing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Renewing").field("ca", &self.ca).finish_non_exhaustive()
    }
}

impl Renewing {
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
    Ok((Arc::new(certified(&credential)?), validity))
}

impl ResolvesServerCert for Renewing {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.certificate())
    }
}

impl ResolvesClientCert for Renewing {
    fn resolve(&self, _: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        Some(self.certificate())
    }

    fn has_certs(&self) -> bool {
        true
    }
}
