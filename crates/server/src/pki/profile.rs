//! What the cluster's own certificates are for. Their validity is the authority's affair.

use rcgen::{BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, KeyUsagePurpose, SanType};
use std::net::IpAddr;

/// The administrator's subject, as x509 writes it.
pub(super) const ADMIN: &str = "CN=kubernetes-admin, O=system:masters";

pub(super) fn authority(name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign, KeyUsagePurpose::DigitalSignature];
    params
}

pub(super) fn serving(names: &[String], ips: &[IpAddr]) -> Result<CertificateParams, rcgen::Error> {
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
pub(super) fn node(node: &str, ips: &[IpAddr]) -> Result<CertificateParams, rcgen::Error> {
    let mut params = CertificateParams::new(vec![node.to_owned()])?;
    params.subject_alt_names.extend(ips.iter().map(|ip| SanType::IpAddress(*ip)));
    params.distinguished_name.push(DnType::OrganizationName, "system:nodes");
    params.distinguished_name.push(DnType::CommonName, format!("system:node:{node}"));
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    Ok(params)
}

pub(super) fn admin() -> CertificateParams {
    let mut params = client("kubernetes-admin");
    params.distinguished_name.push(DnType::OrganizationName, "system:masters");
    params
}

pub(super) fn client(name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, name);
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    params
}
