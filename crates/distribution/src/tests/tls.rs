//! Tests of registries with TLS.

use super::{
    image::{Image, noise},
    memory_store::MemoryStore,
    options_with_hosts, pull,
    registry::{Registry, redirect},
};
use crate::{PullError, PullErrorKind, PullOptions};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, Issuer, KeyPair};
use runtime::RegistryAuth;
use rustls::{
    RootCertStore, ServerConfig,
    crypto::ring,
    pki_types::{PrivateKeyDer, pem::PemObject},
    server::WebPkiClientVerifier,
};
use std::{fs, path::Path, sync::Arc};
use tokio_rustls::TlsAcceptor;

const REFERENCE: &str = "registry.test/team/app:1";

/// A certificate authority.
pub(super) struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    pub(super) fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    fn issuer(&self) -> &Issuer<'static, KeyPair> {
        &self.0
    }

    /// Returns a server with a certificate for a name, which may require client certificates of the authority.
    pub(super) fn server(&self, name: &str, requires_client: bool) -> TlsAcceptor {
        let key = KeyPair::generate().unwrap();
        let certificate = CertificateParams::new([name.to_owned()]).unwrap().signed_by(&key, self.issuer()).unwrap();
        let provider = Arc::new(ring::default_provider());
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider));
        let builder = builder.with_safe_default_protocol_versions().unwrap();
        let builder = if requires_client {
            let mut roots = RootCertStore::empty();
            roots.add(self.0.der().clone()).unwrap();
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
            builder.with_client_cert_verifier(verifier.build().unwrap())
        } else {
            builder.with_no_client_auth()
        };
        let key = PrivateKeyDer::from_pem_slice(key.serialize_pem().as_bytes()).unwrap();
        let config = builder.with_single_cert(vec![certificate.der().clone()], key).unwrap();
        TlsAcceptor::from(Arc::new(config))
    }

    /// Writes `ca.crt`, `client.cert` and `client.key`.
    fn write_files(&self, dir: &Path) {
        let key = KeyPair::generate().unwrap();
        let client = CertificateParams::new(["client".to_owned()]).unwrap().signed_by(&key, self.issuer()).unwrap();
        fs::write(dir.join("ca.crt"), self.0.pem()).unwrap();
        fs::write(dir.join("client.cert"), client.pem()).unwrap();
        fs::write(dir.join("client.key"), key.serialize_pem()).unwrap();
    }
}

/// Options with the files of an authority, and a `hosts.toml`.
fn options(dir: &tempfile::TempDir, authority: &Authority, registry: &Registry, lines: &str) -> PullOptions {
    let text = format!("server = \"https://registry.test:{}\"\n{lines}\n", registry.port());
    let options = options_with_hosts(dir.path(), "registry.test", &text);
    authority.write_files(&dir.path().join("registry.test"));
    options
}

async fn try_pull(options: &PullOptions) -> Result<(), PullError> {
    pull(REFERENCE, options, &Arc::new(MemoryStore::default())).await.map(drop)
}

#[tokio::test]
async fn certificate_is_verified_with_configured_authorities() {
    let image = Image::new(&[noise(1, 1000)]);
    let authority = Authority::new();
    let dir = tempfile::tempdir().unwrap();
    let registry = Registry::start(image.tagged(), Some(authority.server("registry.test", false)), |_| None).await;
    for lines in ["ca = \"ca.crt\"", "ca = [\"ca.crt\"]", "skip_verify = true"] {
        try_pull(&options(&dir, &authority, &registry, lines)).await.unwrap();
    }
    let error = try_pull(&options(&dir, &authority, &registry, "")).await.unwrap_err();
    assert_eq!(error.kind(), PullErrorKind::Tls, "{error}");
    let message = "tls: failed to verify certificate: x509: certificate signed by unknown authority";
    assert!(error.to_string().ends_with(message), "{error}");
    let error = try_pull(&options(&dir, &authority, &registry, "ca = \"missing.crt\"")).await.unwrap_err();
    assert_eq!(error.kind(), PullErrorKind::InvalidConfiguration, "{error}");
    assert!(error.to_string().contains("registry.test/missing.crt"), "{error}");
    let other = Registry::start(image.tagged(), Some(authority.server("other.test", false)), |_| None).await;
    let error = try_pull(&options(&dir, &authority, &other, "ca = \"ca.crt\"")).await.unwrap_err();
    assert_eq!(error.kind(), PullErrorKind::Tls, "{error}");
}

#[tokio::test]
async fn client_certificate_is_presented() {
    let image = Image::new(&[noise(1, 1000)]);
    let authority = Authority::new();
    let dir = tempfile::tempdir().unwrap();
    let registry = Registry::start(image.tagged(), Some(authority.server("registry.test", true)), |_| None).await;
    let lines = "ca = \"ca.crt\"\nclient = [[\"client.cert\", \"client.key\"]]";
    try_pull(&options(&dir, &authority, &registry, lines)).await.unwrap();
    try_pull(&options(&dir, &authority, &registry, "ca = \"ca.crt\"")).await.unwrap_err();
}

#[tokio::test]
async fn redirect_to_another_host_gets_no_client_certificate() {
    let image = Image::new(&[noise(1, 1000)]);
    let authority = Authority::new();
    let dir = tempfile::tempdir().unwrap();
    for requires_client in [false, true] {
        let server = authority.server("cdn.test", requires_client);
        let storage = Registry::start(image.tagged(), Some(server), |_| None).await;
        let port = storage.port();
        let server = authority.server("registry.test", true);
        let registry = Registry::start(image.tagged(), Some(server), move |request| {
            request.is_blob().then(|| redirect(&format!("https://cdn.test:{port}{}", request.path)))
        })
        .await;
        let lines = "ca = \"ca.crt\"\nclient = [[\"client.cert\", \"client.key\"]]";
        let pulled = try_pull(&options(&dir, &authority, &registry, lines)).await;
        assert_eq!(pulled.is_ok(), !requires_client);
    }
}

#[tokio::test]
async fn redirect_without_tls_is_only_for_verified_content() {
    let image = Image::new(&[noise(1, 1000)]);
    let authority = Authority::new();
    let dir = tempfile::tempdir().unwrap();
    let storage = Registry::serve(image.tagged()).await;
    let port = storage.port();
    for redirects_all in [false, true] {
        let server = authority.server("registry.test", false);
        let registry = Registry::start(image.tagged(), Some(server), move |request| {
            let is_redirected = redirects_all || request.is_blob();
            is_redirected.then(|| redirect(&format!("http://cdn.test:{port}{}", request.path)))
        })
        .await;
        let pulled = try_pull(&options(&dir, &authority, &registry, "ca = \"ca.crt\"")).await;
        if redirects_all {
            let error = pulled.unwrap_err();
            assert!(error.to_string().ends_with("refused a redirect from HTTPS to HTTP"), "{error}");
        } else {
            pulled.unwrap();
        }
    }
    assert_eq!(storage.requests().len(), 2);
}

#[tokio::test]
async fn credentials_are_not_sent_to_token_endpoint_without_tls() {
    let image = Image::new(&[noise(1, 1000)]);
    let authority = Authority::new();
    let dir = tempfile::tempdir().unwrap();
    let endpoint = Registry::serve(image.tagged()).await;
    let port = endpoint.port();
    let server = authority.server("registry.test", false);
    let registry = Registry::start(image.tagged(), Some(server), move |_| {
        let response = super::registry::reply(http::StatusCode::UNAUTHORIZED, "");
        let challenge = format!("Bearer realm=\"http://auth.test:{port}/token\"");
        Some(super::registry::with_header(response, "www-authenticate", &challenge))
    })
    .await;
    let mut options = options(&dir, &authority, &registry, "ca = \"ca.crt\"");
    options.credentials =
        vec![RegistryAuth { username: "user".to_owned(), password: "pass".to_owned(), ..RegistryAuth::default() }];
    let error = try_pull(&options).await.unwrap_err();
    assert!(error.to_string().contains("refused to send credentials to a token endpoint without TLS"), "{error}");
    assert_eq!(endpoint.requests().len(), 0);
}

#[tokio::test]
async fn local_registry_may_have_any_certificate() {
    let image = Image::new(&[noise(1, 1000)]);
    let authority = Authority::new();
    let registry = Registry::start(image.tagged(), Some(authority.server("other.test", false)), |_| None).await;
    let store = Arc::new(MemoryStore::default());
    pull(&registry.reference(), &super::options(), &store).await.unwrap();
}

#[tokio::test]
async fn other_registry_does_not_fall_back_to_http() {
    let image = Image::new(&[noise(1, 1000)]);
    let authority = Authority::new();
    let dir = tempfile::tempdir().unwrap();
    let registry = Registry::serve(image.tagged()).await;
    let error = try_pull(&options(&dir, &authority, &registry, "skip_verify = true")).await.unwrap_err();
    assert_eq!(error.kind(), PullErrorKind::Tls, "{error}");
    assert!(error.to_string().ends_with("http: server gave HTTP response to HTTPS client"), "{error}");
    // Unless hosts.toml names HTTP, too.
    let text = format!("server = \"http://registry.test:{}\"\nskip_verify = true\n", registry.port());
    try_pull(&options_with_hosts(dir.path(), "registry.test", &text)).await.unwrap();
}
