//! Users for tests, with certificates of the cluster's CA or of another one.

use rcgen::{CertificateParams, DnType, ExtendedKeyUsagePurpose, Issuer, KeyPair};
use serde_json::json;
use std::path::{Path, PathBuf};

/// Creates a CA and returns its certificate and key in PEM.
pub(crate) fn authority() -> (String, String) {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::default();
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    params.distinguished_name.push(DnType::CommonName, "others");
    (params.self_signed(&key).unwrap().pem(), key.serialize_pem())
}

/// Writes a kubeconfig whose user has a certificate of `signer`, or an invalid token without one.
pub(crate) fn kubeconfig(
    dir: &Path,
    name: &str,
    server: &str,
    ca: &str,
    signer: Option<(&str, &str)>,
    group: &str,
) -> PathBuf {
    let write = |file: &str, text: &str| {
        let path = dir.join(format!("{name}.{file}"));
        std::fs::write(&path, text).unwrap();
        path
    };
    let user = signer.map_or(json!({"token": "of-nobody"}), |(certificate, key)| {
        let issuer = Issuer::from_ca_cert_pem(certificate, KeyPair::from_pem(key).unwrap()).unwrap();
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.distinguished_name.push(DnType::OrganizationName, group);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let own = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&own, &issuer).unwrap().pem();
        json!({"client-certificate": write("crt", &certificate), "client-key": write("key", &own.serialize_pem())})
    });
    let config = json!({"apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": server,
            "certificate-authority": write("ca", ca)}}],
        "users": [{"name": "u", "user": user}], "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}]});
    write("kubeconfig", &config.to_string())
}
