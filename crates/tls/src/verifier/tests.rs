use super::*;
use crate::go_error_text;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, date_time_ymd};
use rustls::{
    ClientConfig, ClientConnection, ServerConfig, ServerConnection,
    crypto::ring,
    pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer, pem::PemObject},
    server::{ClientHello, ResolvesServerCert},
    sign::CertifiedKey,
};
use std::io;

const NAME: &str = "web.default.svc";

/// Certificate of a server and the key that it has.
#[derive(Debug)]
struct Server(Arc<CertifiedKey>);

impl Server {
    fn new(certificate: &CertificateDer<'static>, key: &KeyPair) -> Self {
        let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let key = ring::default_provider().key_provider.load_private_key(key).unwrap();
        // Unlike a configuration of rustls, this permits a key of another certificate.
        Self(Arc::new(CertifiedKey::new(vec![certificate.clone()], key)))
    }
}

impl ResolvesServerCert for Server {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0))
    }
}

fn params() -> CertificateParams {
    CertificateParams::new(vec![NAME.to_owned()]).unwrap()
}

fn ca_params() -> CertificateParams {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params
}

fn self_signed(params: &CertificateParams, key: &KeyPair) -> CertificateDer<'static> {
    params.self_signed(key).unwrap().der().clone()
}

fn verifier(bundle: &[&CertificateDer<'static>]) -> ServerVerifier {
    let mut roots = RootCertStore::empty();
    let (_, _) = roots.add_parsable_certificates(bundle.iter().map(|certificate| (*certificate).clone()));
    let bundle = bundle.iter().map(|certificate| (*certificate).clone()).collect();
    ServerVerifier::new(roots, bundle, Arc::new(ring::default_provider())).unwrap()
}

/// Connects in memory; returns Go's text of the client's error.
fn handshake(verifier: ServerVerifier, server: Server, name: &'static str) -> Result<(), String> {
    let provider = Arc::new(ring::default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider)).with_safe_default_protocol_versions();
    let config = builder.unwrap().with_no_client_auth().with_cert_resolver(Arc::new(server));
    let mut server = ServerConnection::new(Arc::new(config)).unwrap();
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let builder = builder.unwrap().dangerous().with_custom_certificate_verifier(Arc::new(verifier));
    let config = Arc::new(builder.with_no_client_auth());
    let mut client = ClientConnection::new(config, ServerName::try_from(name).unwrap()).unwrap();
    while client.is_handshaking() {
        let mut bytes = Vec::new();
        while client.wants_write() {
            client.write_tls(&mut bytes).unwrap();
        }
        server.read_tls(&mut bytes.as_slice()).unwrap();
        server.process_new_packets().unwrap();
        let mut bytes = Vec::new();
        while server.wants_write() {
            server.write_tls(&mut bytes).unwrap();
        }
        client.read_tls(&mut bytes.as_slice()).unwrap();
        client.process_new_packets().map_err(|error| go_error_text(&io::Error::other(error)))?;
    }
    Ok(())
}

#[track_caller]
fn check_refused(result: Result<(), String>, error: &str) {
    assert_eq!(result, Err(format!("tls: failed to verify certificate: x509: {error}")));
}

#[test]
fn certificate_of_a_trusted_authority_is_accepted_for_its_names() {
    let authority = CertifiedIssuer::self_signed(ca_params(), KeyPair::generate().unwrap()).unwrap();
    let key = KeyPair::generate().unwrap();
    let certificate = params().signed_by(&key, &authority).unwrap().der().clone();
    let authority: &CertificateDer<'static> = authority.der();

    assert_eq!(handshake(verifier(&[authority]), Server::new(&certificate, &key), NAME), Ok(()));
    let result = handshake(verifier(&[authority]), Server::new(&certificate, &key), "other");
    check_refused(result, &format!("certificate is valid for {NAME}, not other"));
    // The last one has the issuer's name.
    let replaced = CertifiedIssuer::self_signed(ca_params(), KeyPair::generate().unwrap()).unwrap();
    let unrelated = self_signed(&params(), &key);
    for bundle in [&[][..], &[&unrelated], &[replaced.der()]] {
        let result = handshake(verifier(bundle), Server::new(&certificate, &key), NAME);
        check_refused(result, "certificate signed by unknown authority");
    }
}

#[test]
fn certificate_of_the_bundle_is_accepted_while_valid() {
    let key = KeyPair::generate().unwrap();
    let certificate = self_signed(&params(), &key);
    assert_eq!(handshake(verifier(&[&certificate]), Server::new(&certificate, &key), NAME), Ok(()));
    let result = handshake(verifier(&[&certificate]), Server::new(&certificate, &key), "other");
    check_refused(result, &format!("certificate is valid for {NAME}, not other"));

    for (from, to) in [(2000, 2001), (2200, 2201)] {
        let mut params = params();
        params.not_before = date_time_ymd(from, 1, 1);
        params.not_after = date_time_ymd(to, 1, 1);
        let certificate = self_signed(&params, &key);
        let result = handshake(verifier(&[&certificate]), Server::new(&certificate, &key), NAME);
        check_refused(result, "certificate has expired or is not yet valid");
    }
}

#[test]
fn trusted_certificate_needs_its_key() {
    let (key, other_key) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
    let certificate = self_signed(&params(), &key);
    let result = handshake(verifier(&[&certificate]), Server::new(&certificate, &other_key), NAME);
    assert_eq!(result, Err("tls: invalid signature by the server certificate".to_owned()));
}

/// Certificate of version 1, which rustls does not read, and its key: `openssl x509 -req -signkey` without extensions.
const VERSION_1: &str = "-----BEGIN CERTIFICATE-----
MIIBFDCBuwIUd+hwJPt56LTnlKQ5nLWUcfe1t8EwCgYIKoZIzj0EAwIwDTELMAkG
A1UEAwwCdjEwHhcNMjYxMTI4MTUzMjMxWhcNMjYxMTI5MTUzMjMxWjANMQswCQYD
VQQDDAJ2MTBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IABD6uTpp429JdPIJwyNAJ
W2ravtI9M6/Ne/XtyFw4CgL5R6i3CgVvHe0UzsgIcYQUYsJHshVOb7r4SJ06oAju
Z5cwCgYIKoZIzj0EAwIDSAAwRQIgKHw6gLa80mHE88lTKlDAVWUCMnbTIHHk3EFf
HsWNHfQCIQDO1pjwq3+JjqSsijxnC3fRPGMra+rlf0LnOaANyVplmA==
-----END CERTIFICATE-----
";
const VERSION_1_KEY: &str = "-----BEGIN PRIVATE KEY-----
MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgsBn3OErueGKbKYNK
nA7HsseDnremA7r+m7gpAsK+teahRANCAAQ+rk6aeNvSXTyCcMjQCVtq2r7SPTOv
zXv17chcOAoC+UeotwoFbx3tFM7ICHGEFGLCR7IVTm+6+EidOqAI7meX
-----END PRIVATE KEY-----
";

#[test]
fn every_certificate_is_accepted_without_verification() {
    let key = KeyPair::generate().unwrap();
    let certificate = self_signed(&params(), &key);
    let old = CertificateDer::from_pem_slice(VERSION_1.as_bytes()).unwrap();
    let old_key = KeyPair::from_pem(VERSION_1_KEY).unwrap();
    for (certificate, key) in [(&certificate, &key), (&old, &old_key)] {
        let verifier = ServerVerifier::accept_any(Arc::new(ring::default_provider()));
        assert_eq!(handshake(verifier, Server::new(certificate, key), "other"), Ok(()));
    }
}
