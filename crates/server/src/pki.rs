//! The cluster's own certificate authority, its serving certificate, and the administrator's.

mod authority;
mod clients;
mod usages;

pub use authority::Authority;
pub use clients::ServerTls;

use crate::{FrontProxy, SigningKey};
use base64::{Engine, engine::general_purpose::STANDARD};
use clients::Anybody;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    SanType,
};
use rustls::{
    CipherSuite, RootCertStore, ServerConfig,
    crypto::CryptoProvider,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    server::{WebPkiClientVerifier, danger::ClientCertVerifier},
};
use serde_json::{Value, json};
use std::{
    fs, io,
    io::Write,
    net::IpAddr,
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
    sync::Arc,
};

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

/// All certificates of a cluster, in PEM.
#[derive(Debug, Clone)]
pub struct Pki {
    ca: String,
    ca_key: String,
    serving: (String, String),
    admin: (String, String),
    service_accounts: String,
    front_proxy: FrontProxy,
}

impl Pki {
    /// Reads the certificate authority from a directory, or makes it, and issues certificates for this start.
    ///
    /// # Errors
    /// When the directory cannot be used, or holds something else than an authority.
    pub fn load_or_create(dir: &Path, names: &[String], ips: &[IpAddr]) -> Result<Self, PkiError> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(file(dir))?;
        let (ca, ca_key) = kept_authority(dir, "ca", "podium-ca")?;
        let issuer = Issuer::from_ca_cert_pem(&ca, KeyPair::from_pem(&ca_key)?)?;
        let (serving, admin) = (issue(&serving_params(names, ips)?, &issuer)?, issue(&admin_params(), &issuer)?);
        // Another authority: whoever is signed by it may speak for others, which no client may.
        let (authority, key) = kept_authority(dir, "front-proxy-ca", "podium-front-proxy-ca")?;
        let front = Issuer::from_ca_cert_pem(&authority, KeyPair::from_pem(&key)?)?;
        let front_proxy = FrontProxy { client: issue(&client_params("front-proxy-client"), &front)?, authority };
        Ok(Self { ca, ca_key, serving, admin, service_accounts: kept_key(&dir.join("sa.key"))?, front_proxy })
    }

    /// By which other servers know this one.
    #[must_use]
    pub fn front_proxy(&self) -> FrontProxy {
        self.front_proxy.clone()
    }

    /// The authority's certificate.
    #[must_use]
    pub fn ca_pem(&self) -> &str {
        &self.ca
    }

    /// The authority itself, which issues certificates for others.
    ///
    /// # Errors
    /// When its key or its certificate cannot be used.
    pub fn authority(&self) -> Result<Authority, PkiError> {
        Authority::of(&self.ca, &self.ca_key)
    }

    /// The key of service account tokens. It is kept, for tokens outlive the server.
    ///
    /// # Errors
    /// When the directory holds another kind of key.
    pub fn signing_key(&self) -> Result<SigningKey, PkiError> {
        SigningKey::from_pem(&self.service_accounts)
    }

    /// TLS for the server: a client may show a certificate, and is known by it when this authority has signed it.
    ///
    /// # Errors
    /// When a certificate cannot be used.
    pub fn server_tls(&self) -> Result<ServerTls, PkiError> {
        let (provider, known) = (provider(), known(&self.ca)?);
        let mut config = tls(&self.serving, provider, Arc::new(Anybody(Arc::clone(&known))))?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(ServerTls { config: config.into(), known })
    }

    /// TLS for a node's own API, with a certificate that this authority issues for it now: a client may show a certificate
    /// of `clients`, in PEM, or else of this authority.
    ///
    /// # Errors
    /// When a certificate cannot be made or used.
    pub fn node_config(
        &self,
        node: &str,
        ips: &[IpAddr],
        clients: Option<&str>,
    ) -> Result<Arc<ServerConfig>, PkiError> {
        let issuer = Issuer::from_ca_cert_pem(&self.ca, KeyPair::from_pem(&self.ca_key)?)?;
        let serving = issue(&node_params(node, ips)?, &issuer)?;
        Ok(tls(&serving, provider(), known(clients.unwrap_or(&self.ca))?)?.into())
    }

    /// Writes the administrator's kubeconfig, whole or not at all, for its owner's eyes only.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn write_admin_kubeconfig(&self, path: &Path, server: &str) -> Result<(), PkiError> {
        let data = |pem: &str| STANDARD.encode(pem);
        // JSON is YAML, and every client reads it.
        let config = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "podium",
            "clusters": [{"name": "podium", "cluster": {"server": server, "certificate-authority-data": data(&self.ca)}}],
            "users": [{"name": "podium-admin", "user": {"client-certificate-data": data(&self.admin.0), "client-key-data": data(&self.admin.1)}}],
            "contexts": [{"name": "podium", "context": {"cluster": "podium", "user": "podium-admin"}}],
        });
        let text = serde_json::to_string_pretty(&config).map_err(|e| PkiError::Use(e.to_string()))?;
        write_private(path, text.as_bytes())
    }
}

/// Whether this is what [`Pki::write_admin_kubeconfig`] writes, of whatever cluster, and nothing of anybody else. `kubectl
/// config` may have written it again, in YAML.
#[must_use]
pub fn is_admin_kubeconfig(text: &str) -> bool {
    let Ok(config) = serde_saphyr::from_str::<Value>(text) else { return false };
    [("clusters", "podium"), ("users", "podium-admin"), ("contexts", "podium")].iter().all(|(list, name)| {
        config[list].as_array().is_some_and(|all| matches!(all.as_slice(), [only] if only["name"] == *name))
    })
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

/// TLS with a certificate and its key, for clients that show one of theirs.
fn tls(
    (serving, key): &(String, String),
    provider: Arc<CryptoProvider>,
    clients: Arc<dyn ClientCertVerifier>,
) -> Result<ServerConfig, PkiError> {
    let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).map_err(unusable)?;
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(unusable)?
        .with_client_cert_verifier(clients)
        .with_single_cert(certificates(serving)?, key)
        .map_err(unusable)?;
    config.ignore_client_order = true;
    Ok(config)
}

fn file(path: &Path) -> impl FnOnce(io::Error) -> PkiError + use<> {
    let path = path.to_path_buf();
    move |source| PkiError::File { path, source }
}

/// Writes a file for its owner alone, whole or not at all, in place of whatever had its name. Others may be able to make
/// links where the administrator wants the kubeconfig, so the draft must be a file that did not exist.
fn write_private(path: &Path, data: &[u8]) -> Result<(), PkiError> {
    let draft = path.with_extension("new");
    let write = || {
        match fs::remove_file(&draft) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut file = fs::OpenOptions::new().create_new(true).write(true).mode(0o600).open(&draft)?;
        file.write_all(data)?;
        fs::rename(&draft, path)
    };
    write().map_err(file(path))
}

/// An authority and its key in PEM, made when they are not there.
fn kept_authority(dir: &Path, file_name: &str, name: &str) -> Result<(String, String), PkiError> {
    let (key_path, ca_path) = (dir.join(format!("{file_name}.key")), dir.join(format!("{file_name}.crt")));
    if !key_path.exists() {
        let key = KeyPair::generate()?;
        write_private(&ca_path, ca_params(name).self_signed(&key)?.pem().as_bytes())?;
        write_private(&key_path, key.serialize_pem().as_bytes())?;
    }
    let read = |path: &Path| fs::read_to_string(path).map_err(file(path));
    Ok((read(&ca_path)?, read(&key_path)?))
}

/// A key in PEM, made when it is not there.
fn kept_key(path: &Path) -> Result<String, PkiError> {
    if !path.exists() {
        write_private(path, KeyPair::generate()?.serialize_pem().as_bytes())?;
    }
    fs::read_to_string(path).map_err(file(path))
}

fn ca_params(name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign, KeyUsagePurpose::DigitalSignature];
    params
}

fn serving_params(names: &[String], ips: &[IpAddr]) -> Result<CertificateParams, PkiError> {
    let usual = [
        "localhost",
        "kubernetes",
        "kubernetes.default",
        "kubernetes.default.svc",
        "kubernetes.default.svc.cluster.local",
    ];
    let all: Vec<String> = usual.into_iter().map(str::to_owned).chain(names.iter().cloned()).collect();
    let mut params = CertificateParams::new(all)?;
    params.subject_alt_names.extend(ips.iter().map(|ip| SanType::IpAddress(*ip)));
    params.distinguished_name.push(DnType::CommonName, "kube-apiserver");
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    Ok(params)
}

/// As kubelets ask for (`kubernetes.io/kubelet-serving`).
fn node_params(node: &str, ips: &[IpAddr]) -> Result<CertificateParams, PkiError> {
    let mut params = CertificateParams::new(vec![node.to_owned()])?;
    params.subject_alt_names.extend(ips.iter().map(|ip| SanType::IpAddress(*ip)));
    params.distinguished_name.push(DnType::OrganizationName, "system:nodes");
    params.distinguished_name.push(DnType::CommonName, format!("system:node:{node}"));
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    Ok(params)
}

fn admin_params() -> CertificateParams {
    let mut params = client_params("kubernetes-admin");
    params.distinguished_name.push(DnType::OrganizationName, "system:masters");
    params
}

fn client_params(name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, name);
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    params
}

fn issue(params: &CertificateParams, issuer: &Issuer<'_, KeyPair>) -> Result<(String, String), PkiError> {
    let key = KeyPair::generate()?;
    Ok((params.signed_by(&key, issuer)?.pem(), key.serialize_pem()))
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
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    #[test]
    fn kubeconfig_does_not_write_through_links() {
        let dir = tempfile::tempdir().unwrap();
        let (victim, path) = (dir.path().join("victim"), dir.path().join("config"));
        fs::write(&victim, "precious").unwrap();
        symlink(&victim, &path).unwrap();
        symlink(&victim, path.with_extension("new")).unwrap();
        let pki = Pki::load_or_create(&dir.path().join("pki"), &[], &[]).unwrap();
        pki.write_admin_kubeconfig(&path, "https://127.0.0.1:6443").unwrap();
        assert_eq!(fs::read_to_string(&victim).unwrap(), "precious");
        let written = fs::symlink_metadata(&path).unwrap();
        assert!(written.is_file());
        assert_eq!(written.permissions().mode() & 0o777, 0o600);
        let modes = fs::symlink_metadata(dir.path().join("pki")).unwrap().permissions().mode();
        assert_eq!(modes & 0o777, 0o700);
    }
}
