//! Certificate authorities of the cluster, and their certificates: serving and client certificates in memory, which are
//! renewed while they are used, and the administrator's in a file (docs/certificates.md).

mod admin_kubeconfig;
mod ca;
mod certificate_profiles;
mod client_certificates;
mod clock;
mod credential_error;
mod key_usages;
mod signer;
mod validity;

pub use admin_kubeconfig::is_admin_kubeconfig;
pub use client_certificates::ServerTls;
pub use clock::Clock;
pub use credential_error::CredentialError;
pub use key_usages::UnknownUsages;
pub use signer::CertificateSigner;

use crate::tokens::SigningKey;
use ca::{Ca, RenewedCertificate};
use client_certificates::AnyClientCertificate;
use jiff::Timestamp;
use rcgen::KeyPair;
use rustls::{
    CipherSuite, RootCertStore, ServerConfig,
    client::ResolvesClientCert,
    crypto::CryptoProvider,
    pki_types::{CertificateDer, pem::PemObject},
    server::{WebPkiClientVerifier, danger::ClientCertVerifier},
};
use std::{
    fs, io,
    net::IpAddr,
    path::{Path, PathBuf},
    sync::Arc,
};

/// File of the signing key of service account tokens.
const SIGNING_KEY: &str = "sa.key";

/// Front-proxy client certificate, by which extension API servers authenticate this server.
#[derive(Debug, Clone)]
pub struct FrontProxy {
    /// PEM bundle of the CA that signed it, which extension API servers must trust.
    pub ca_pem: String,
    /// Resolves certificate and key.
    pub client: Arc<dyn ResolvesClientCert>,
}

/// Error of the certificates.
#[derive(Debug, thiserror::Error)]
pub enum PkiError {
    /// A file could not be read or written.
    #[error("cannot use {path}: {source}")]
    File {
        /// Path of the file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// A certificate could not be created.
    #[error("cannot make a certificate: {0}")]
    Make(#[from] rcgen::Error),
    /// A certificate or its key is unusable.
    #[error("cannot use a certificate: {0}")]
    Certificate(#[source] CredentialError),
    /// The certificate authority or its key is unusable.
    #[error("cannot use a certificate: the authority: {0}")]
    Authority(#[source] CredentialError),
    /// A certificate signing request is unusable.
    #[error("cannot use a certificate: the request: {0}")]
    Request(#[source] CredentialError),
    /// The signing key of service account tokens is unusable.
    #[error("cannot use a certificate: the key of service account tokens: {0}")]
    SigningKey(#[source] CredentialError),
    /// The certificate authority has expired. The text is upstream's (`PermissiveSigningPolicy`).
    #[error("cannot use a certificate: refusing to sign a certificate that expired in the past: NotAfter={0}")]
    Expired(String),
}

/// The certificates of a cluster.
#[derive(Debug, Clone)]
pub struct Pki {
    dir: PathBuf,
    ca: Arc<Ca>,
    front_proxy_ca: Arc<Ca>,
    serving: Arc<RenewedCertificate>,
    front_proxy: Arc<RenewedCertificate>,
}

impl Pki {
    /// Loads the certificate authorities from a directory, or creates them, and issues the certificates of this
    /// process.
    ///
    /// # Errors
    /// When the directory cannot be used, or its files are not certificate authorities.
    pub fn load_or_create(dir: &Path, names: &[String], ips: &[IpAddr]) -> Result<Self, PkiError> {
        Self::load_or_create_at(dir, names, ips, Clock::system())
    }

    /// Same as [`Self::load_or_create`], with another clock.
    ///
    /// # Errors
    /// As [`Self::load_or_create`].
    pub fn load_or_create_at(dir: &Path, names: &[String], ips: &[IpAddr], clock: Clock) -> Result<Self, PkiError> {
        files::create_private_dir_all(dir).map_err(file_error(dir))?;
        let ca = Arc::new(Ca::load_or_create(dir, "ca", "podium-ca", clock.clone())?);
        let serving = RenewedCertificate::new(Arc::clone(&ca), certificate_profiles::serving(names, ips)?)?;
        // A CA of its own: the front proxy may impersonate users, which no client may.
        let front_proxy_ca = Arc::new(Ca::load_or_create(dir, "front-proxy-ca", "podium-front-proxy-ca", clock)?);
        let front_proxy =
            RenewedCertificate::new(Arc::clone(&front_proxy_ca), certificate_profiles::client("front-proxy-client"))?;
        create_signing_key(&dir.join(SIGNING_KEY))?;
        Ok(Self { dir: dir.to_owned(), ca, front_proxy_ca, serving, front_proxy })
    }

    /// Returns the CAs that expire soon: file and expiry of each.
    #[must_use]
    pub fn expiring_cas(&self) -> Vec<(PathBuf, Timestamp)> {
        let all = [&self.ca, &self.front_proxy_ca];
        all.into_iter().filter_map(|ca| Some((ca.path.clone(), ca.expires_soon()?))).collect()
    }

    /// Returns the client certificate for extension API servers.
    #[must_use]
    pub fn front_proxy(&self) -> FrontProxy {
        FrontProxy { ca_pem: self.front_proxy_ca.pem.clone(), client: self.front_proxy.clone() }
    }

    /// The certificate of the CA, in PEM.
    #[must_use]
    pub fn ca_pem(&self) -> &str {
        &self.ca.pem
    }

    /// Returns a signer of certificate signing requests.
    ///
    /// # Errors
    /// When its key or its certificate cannot be used.
    pub fn signer(&self) -> Result<CertificateSigner, PkiError> {
        CertificateSigner::new(&self.ca)
    }

    /// Returns the signing key of service account tokens. It is stored, because tokens outlive the server.
    ///
    /// # Errors
    /// When the file cannot be read, or has another kind of key.
    pub fn signing_key(&self) -> Result<SigningKey, PkiError> {
        let path = self.dir.join(SIGNING_KEY);
        SigningKey::from_pem(&fs::read_to_string(&path).map_err(file_error(&path))?)
    }

    /// Returns the TLS configuration of the API server. Clients may present a certificate of the CA.
    ///
    /// # Errors
    /// When a certificate cannot be used.
    pub fn server_tls(&self) -> Result<ServerTls, PkiError> {
        let (provider, client_verifier) = (provider(), client_verifier(&self.ca.pem)?);
        let mut config = server_config(
            self.serving.clone(),
            provider,
            Arc::new(AnyClientCertificate(Arc::clone(&client_verifier))),
        )?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(ServerTls { config: config.into(), client_verifier, clock: self.ca.clock.clone() })
    }

    /// Returns the TLS configuration of a kubelet's API, with a serving certificate of the CA. Clients may present a
    /// certificate of `client_ca`, in PEM, or else of the CA.
    ///
    /// # Errors
    /// When a certificate cannot be created or used.
    pub fn node_server_config(
        &self,
        node: &str,
        ips: &[IpAddr],
        client_ca: Option<&str>,
    ) -> Result<Arc<ServerConfig>, PkiError> {
        let serving = RenewedCertificate::new(Arc::clone(&self.ca), certificate_profiles::node(node, ips)?)?;
        Ok(server_config(serving, provider(), client_verifier(client_ca.unwrap_or(&self.ca.pem))?)?.into())
    }
}

fn unusable(error: impl Into<CredentialError>) -> PkiError {
    PkiError::Certificate(error.into())
}

fn certificates(pem: &str) -> Result<Vec<CertificateDer<'static>>, PkiError> {
    CertificateDer::pem_slice_iter(pem.as_bytes()).collect::<Result<_, _>>().map_err(unusable)
}

fn provider() -> Arc<CryptoProvider> {
    let mut provider = rustls::crypto::ring::default_provider();
    // Prefer AES-128 to AES-256 regardless of the client, as Go: it has fewer rounds. The sort is stable: TLS 1.3 stays
    // before 1.2.
    provider.cipher_suites.sort_by_key(|suite| !matches!(suite.suite(), CipherSuite::TLS13_AES_128_GCM_SHA256));
    provider.into()
}

/// Returns a verifier of client certificates that one of these CAs has signed.
fn client_verifier(cas: &str) -> Result<Arc<dyn ClientCertVerifier>, PkiError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(cas)? {
        roots.add(certificate).map_err(unusable)?;
    }
    let builder = WebPkiClientVerifier::builder_with_provider(roots.into(), provider());
    builder.allow_unauthenticated().build().map_err(unusable)
}

/// Returns a TLS configuration with a serving certificate and a verifier of client certificates.
fn server_config(
    serving: Arc<RenewedCertificate>,
    provider: Arc<CryptoProvider>,
    client_verifier: Arc<dyn ClientCertVerifier>,
) -> Result<ServerConfig, PkiError> {
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(unusable)?
        .with_client_cert_verifier(client_verifier)
        .with_cert_resolver(serving);
    config.ignore_client_order = true;
    Ok(config)
}

fn file_error(path: &Path) -> impl FnOnce(io::Error) -> PkiError + use<> {
    let path = path.to_path_buf();
    move |source| PkiError::File { path, source }
}

/// Creates a key file if it does not exist.
fn create_signing_key(path: &Path) -> Result<(), PkiError> {
    if !path.exists() {
        files::replace_private(path, KeyPair::generate()?.serialize_pem().as_bytes()).map_err(file_error(path))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
