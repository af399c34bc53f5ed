//! The cluster's own certificate authorities, and the certificates that they issue: serving ones and those of clients in
//! memory, renewed while they are used; the administrator's in a file (docs/certificates.md).

mod admin;
mod authority;
mod ca;
mod clients;
mod clock;
mod profile;
mod usages;
mod validity;

pub use admin::is_admin_kubeconfig;
pub use authority::Authority;
pub use clients::ServerTls;
pub use clock::Clock;

use crate::{FrontProxy, SigningKey};
use base64::{Engine, engine::general_purpose::STANDARD};
use ca::{Ca, Renewing};
use clients::Anybody;
use jiff::Timestamp;
use rcgen::KeyPair;
use rustls::{
    CipherSuite, RootCertStore, ServerConfig,
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

/// The key of service account tokens.
const SIGNING_KEY: &str = "sa.key";

/// Why there are no certificates.
#[derive(Debug, thiserror::Error)]
pub enum PkiError {
    /// A file could not be read or written.
    #[error("cannot use {path}: {source}")]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A certificate could not be made.
    #[error("cannot make a certificate: {0}")]
    Make(#[from] rcgen::Error),
    /// A certificate could not be used.
    #[error("cannot use a certificate: {0}")]
    Use(String),
}

/// All certificates of a cluster.
#[derive(Debug, Clone)]
pub struct Pki {
    dir: PathBuf,
    ca: Arc<Ca>,
    front_proxy_ca: Arc<Ca>,
    serving: Arc<Renewing>,
    front_proxy: Arc<Renewing>,
}

impl Pki {
    /// Reads the certificate authorities from a directory, or makes them, and issues certificates for this start.
    ///
    /// # Errors
    /// When the directory cannot be used, or holds something else than an authority.
    pub fn load_or_create(dir: &Path, names: &[String], ips: &[IpAddr]) -> Result<Self, PkiError> {
        Self::load_or_create_at(dir, names, ips, Clock::system())
    }

    /// The same, by another clock.
    ///
    /// # Errors
    /// As [`Self::load_or_create`].
    pub fn load_or_create_at(dir: &Path, names: &[String], ips: &[IpAddr], clock: Clock) -> Result<Self, PkiError> {
        files::create_private_dir_all(dir).map_err(file(dir))?;
        let ca = Arc::new(Ca::load_or_create(dir, "ca", "podium-ca", clock.clone())?);
        let serving = Renewing::new(Arc::clone(&ca), profile::serving(names, ips)?)?;
        // Another authority: whoever is signed by it may speak for others, which no client may.
        let front_proxy_ca = Arc::new(Ca::load_or_create(dir, "front-proxy-ca", "podium-front-proxy-ca", clock)?);
        let front_proxy = Renewing::new(Arc::clone(&front_proxy_ca), profile::client("front-proxy-client"))?;
        keep_key(&dir.join(SIGNING_KEY))?;
        Ok(Self { dir: dir.to_owned(), ca, front_proxy_ca, serving, front_proxy })
    }

    /// The authorities that end soon: the file of each, and when it ends.
    #[must_use]
    pub fn ending_authorities(&self) -> Vec<(PathBuf, Timestamp)> {
        let all = [&self.ca, &self.front_proxy_ca];
        all.into_iter().filter_map(|ca| Some((ca.path.clone(), ca.near_end()?))).collect()
    }

    /// By which other servers know this one.
    #[must_use]
    pub fn front_proxy(&self) -> FrontProxy {
        FrontProxy { authority: self.front_proxy_ca.pem.clone(), client: self.front_proxy.clone() }
    }

    /// The authority's certificate.
    #[must_use]
    pub fn ca_pem(&self) -> &str {
        &self.ca.pem
    }

    /// The authority itself, which issues certificates for others.
    ///
    /// # Errors
    /// When its key or its certificate cannot be used.
    pub fn authority(&self) -> Result<Authority, PkiError> {
        Authority::of(&self.ca)
    }

    /// The key of service account tokens. It is kept, for tokens outlive the server.
    ///
    /// # Errors
    /// When the directory holds another kind of key.
    pub fn signing_key(&self) -> Result<SigningKey, PkiError> {
        let path = self.dir.join(SIGNING_KEY);
        SigningKey::from_pem(&fs::read_to_string(&path).map_err(file(&path))?)
    }

    /// TLS for the server: a client may show a certificate, and is known by it when this authority has signed it.
    ///
    /// # Errors
    /// When a certificate cannot be used.
    pub fn server_tls(&self) -> Result<ServerTls, PkiError> {
        let (provider, known) = (provider(), known(&self.ca.pem)?);
        let mut config = tls(self.serving.clone(), provider, Arc::new(Anybody(Arc::clone(&known))))?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(ServerTls { config: config.into(), known, clock: self.ca.clock.clone() })
    }

    /// TLS for a node's own API, with a certificate that this authority issues for it: a client may show a certificate of
    /// `clients`, in PEM, or else of this authority.
    ///
    /// # Errors
    /// When a certificate cannot be made or used.
    pub fn node_config(
        &self,
        node: &str,
        ips: &[IpAddr],
        clients: Option<&str>,
    ) -> Result<Arc<ServerConfig>, PkiError> {
        let serving = Renewing::new(Arc::clone(&self.ca), profile::node(node, ips)?)?;
        Ok(tls(serving, provider(), known(clients.unwrap_or(&self.ca.pem))?)?.into())
    }
}

fn unusable(e: impl std::fmt::Display) -> PkiError {
    PkiError::Use(e.to_string())
}

fn certificates(pem: &str) -> Result<Vec<CertificateDer<'static>>, PkiError> {
    CertificateDer::pem_slice_iter(pem.as_bytes()).collect::<Result<_, _>>().map_err(unusable)
}

fn provider() -> Arc<CryptoProvider> {
    let mut provider = rustls::crypto::ring::default_provider();
    // AES-128 before AES-256 whatever a client prefers, as servers in Go: ten rounds for a block and not fourteen. (The sort is
    // stable: TLS 1.3 stays before 1.2.)
    provider.cipher_suites.sort_by_key(|suite| !matches!(suite.suite(), CipherSuite::TLS13_AES_128_GCM_SHA256));
    provider.into()
}

/// Knows clients by certificates that one of these authorities has signed.
fn known(authorities: &str) -> Result<Arc<dyn ClientCertVerifier>, PkiError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(authorities)? {
        roots.add(certificate).map_err(unusable)?;
    }
    let builder = WebPkiClientVerifier::builder_with_provider(roots.into(), provider());
    builder.allow_unauthenticated().build().map_err(unusable)
}

/// TLS with a certificate, for clients that show one of theirs.
fn tls(
    serving: Arc<Renewing>,
    provider: Arc<CryptoProvider>,
    clients: Arc<dyn ClientCertVerifier>,
) -> Result<ServerConfig, PkiError> {
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(unusable)?
        .with_client_cert_verifier(clients)
        .with_cert_resolver(serving);
    config.ignore_client_order = true;
    Ok(config)
}

fn file(path: &Path) -> impl FnOnce(io::Error) -> PkiError + use<> {
    let path = path.to_path_buf();
    move |source| PkiError::File { path, source }
}

/// Makes a key that is not there yet.
fn keep_key(path: &Path) -> Result<(), PkiError> {
    if !path.exists() {
        files::replace_private(path, KeyPair::generate()?.serialize_pem().as_bytes()).map_err(file(path))?;
    }
    Ok(())
}

/// Bytes as text between two lines that say what they are (RFC 7468).
fn pem(label: &str, bytes: &[u8]) -> String {
    let encoded = STANDARD.encode(bytes);
    let mut text = format!("-----BEGIN {label}-----\n");
    for line in encoded.as_bytes().chunks(64) {
        text.push_str(&String::from_utf8_lossy(line));
        text.push('\n');
    }
    text + &format!("-----END {label}-----\n")
}

#[cfg(test)]
mod tests;
