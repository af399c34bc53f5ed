//! Subjects, names and usages of the cluster's certificates. The CA sets their validity.

use rcgen::{BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, KeyUsagePurpose, SanType};
use std::net::IpAddr;

/// Subject of the administrator's certificate, as `x509-parser` formats it.
pub(super) const ADMIN: &str = "CN=kubernetes-admin, O=system:masters";

/// Returns the profile of a CA.
pub(super) fn authority(name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign, KeyUsagePurpose::DigitalSignature];
    params
}

/// Returns the profile of the API server's serving certificate.
pub(super) fn serving(names: &[String], ips: &[IpAddr]) -> Result<CertificateParams, rcgen::Error> {
    let default_names = [
        "localhost",
        "kubernetes",
        "kubernetes.default",
        "kubernetes.default.svc",
        "kubernetes.default.svc.cluster.local",
    ];
    let all: Vec<String> = default_names.into_iter().map(str::to_owned).chain(names.iter().cloned()).collect();
    let mut params = CertificateParams::new(all)?;
    params.subject_alt_names.extend(ips.iter().map(|ip| SanType::IpAddress(*ip)));
    params.distinguished_name.push(DnType::CommonName, "kube-apiserver");
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    Ok(params)
}

/// Returns the profile of a kubelet serving certificate (`kubernetes.io/kubelet-serving`).
pub(super) fn node(node: &str, ips: &[IpAddr]) -> Result<CertificateParams, rcgen::Error> {
    let mut params = CertificateParams::new(vec![node.to_owned()])?;
    params.subject_alt_names.extend(ips.iter().map(|ip| SanType::IpAddress(*ip)));
    params.distinguished_name.push(DnType::OrganizationName, "system:nodes");
    params.distinguished_name.push(DnType::CommonName, format!("system:node:{node}"));
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    Ok(params)
}

/// Returns the profile of the administrator's client certificate.
pub(super) fn admin() -> CertificateParams {
    let mut params = client("kubernetes-admin");
    params.distinguished_name.push(DnType::OrganizationName, "system:masters");
    params
}

/// Returns the profile of a client certificate.
pub(super) fn client(name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, name);
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    params
}
