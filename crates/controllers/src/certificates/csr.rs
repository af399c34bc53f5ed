//! Parses certificate requests and validates them against their signer (`pkg/apis/certificates/helpers.go`).

use api::certificate::{SubjectError, subject_user};
use k8s_openapi::api::certificates::v1::CertificateSigningRequestSpec;
use std::collections::BTreeSet;
use x509_parser::{
    certification_request::X509CertificationRequest,
    error::{PEMError, X509Error},
    extensions::{GeneralName, ParsedExtension},
    nom,
    pem::parse_x509_pem,
    prelude::FromDer,
};

/// Client certificates for the API server.
pub(super) const CLIENT: &str = "kubernetes.io/kube-apiserver-client";
/// Client certificates of kubelets for the API server.
pub(super) const KUBELET_CLIENT: &str = "kubernetes.io/kube-apiserver-client-kubelet";
/// Serving certificates of kubelets.
const KUBELET_SERVING: &str = "kubernetes.io/kubelet-serving";
/// Certificates without guarantees. The v1 API does not accept this signer.
const LEGACY: &str = "kubernetes.io/legacy-unknown";

/// Signers that [`mod@super::signer`] implements.
pub(super) const SIGNERS: [&str; 4] = [CLIENT, KUBELET_CLIENT, KUBELET_SERVING, LEGACY];

const NODE: &str = "system:node:";

/// Error for a malformed request.
#[derive(Debug, thiserror::Error)]
pub(super) enum ParseError {
    #[error("unable to parse csr: {0}")]
    Pem(#[from] nom::Err<PEMError>),
    #[error("unable to parse csr: {0}")]
    Request(#[from] nom::Err<X509Error>),
}

/// Why a signer rejects a request, with upstream's message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum ValidationError {
    #[error(transparent)]
    Subject(#[from] SubjectError),
    #[error("subject organization is not system:nodes")]
    Organization,
    #[error("subject common name does not begin with system:node:")]
    CommonName,
    #[error("{0} subjectAltNames are not allowed")]
    AlternativeName(&'static str),
    #[error("DNS or IP subjectAltName is required")]
    MissingAlternativeName,
    #[error("invalid usage for client certificate: {0}")]
    ClientUsage(String),
    #[error("missing required usage for client certificate: client auth")]
    MissingClientUsage,
    #[error("usages did not match [{0}]")]
    Usages(String),
}

/// The validated part of a request.
#[derive(Debug, Default)]
pub(super) struct ParsedCsr {
    pub(super) common_name: String,
    /// Why the subject identifies no user.
    subject_error: Option<SubjectError>,
    organizations: Vec<String>,
    dns: usize,
    ips: usize,
    emails: usize,
    uris: usize,
}

impl ParsedCsr {
    /// Parses a PKCS#10 request in PEM.
    ///
    /// # Errors
    ///
    /// If the request is malformed.
    pub(super) fn parse(request: &[u8]) -> Result<Self, ParseError> {
        let (_, pem) = parse_x509_pem(request)?;
        let (_, parsed) = X509CertificationRequest::from_der(&pem.contents)?;
        let subject = &parsed.certification_request_info.subject;
        let mut all = match subject_user(subject) {
            Ok(user) => Self { common_name: user.name, organizations: user.groups, ..Self::default() },
            Err(error) => Self { subject_error: Some(error), ..Self::default() },
        };
        for extension in parsed.requested_extensions().into_iter().flatten() {
            let ParsedExtension::SubjectAlternativeName(names) = extension else { continue };
            for name in &names.general_names {
                match name {
                    GeneralName::DNSName(_) => all.dns += 1,
                    GeneralName::IPAddress(_) => all.ips += 1,
                    GeneralName::RFC822Name(_) => all.emails += 1,
                    GeneralName::URI(_) => all.uris += 1,
                    _ => {}
                }
            }
        }
        Ok(all)
    }

    /// Validates the request against the rules of its signer.
    pub(super) fn validate(&self, spec: &CertificateSigningRequestSpec) -> Result<(), ValidationError> {
        if let Some(error) = self.subject_error {
            return Err(error.into());
        }
        let uses = spec.usages.as_deref().unwrap_or_default();
        match spec.signer_name.as_str() {
            CLIENT => client(uses),
            KUBELET_CLIENT => self.kubelet_client(uses),
            KUBELET_SERVING => self.kubelet_serving(uses),
            _ => Ok(()),
        }
    }

    fn is_of_nodes(&self) -> Result<(), ValidationError> {
        if self.organizations == ["system:nodes"] {
            return Ok(());
        }
        Err(ValidationError::Organization)
    }

    fn is_a_node(&self) -> Result<(), ValidationError> {
        if self.common_name.starts_with(NODE) {
            return Ok(());
        }
        Err(ValidationError::CommonName)
    }

    fn kubelet_client(&self, uses: &[String]) -> Result<(), ValidationError> {
        self.is_of_nodes()?;
        none(self.dns, "DNS")?;
        none(self.emails, "Email")?;
        none(self.ips, "IP")?;
        none(self.uris, "URI")?;
        self.is_a_node()?;
        exactly(uses, "client auth")
    }

    fn kubelet_serving(&self, uses: &[String]) -> Result<(), ValidationError> {
        self.is_of_nodes()?;
        if self.dns == 0 && self.ips == 0 {
            return Err(ValidationError::MissingAlternativeName);
        }
        none(self.emails, "Email")?;
        none(self.uris, "URI")?;
        exactly(uses, "server auth")?;
        self.is_a_node()
    }
}

fn none(names: usize, kind: &'static str) -> Result<(), ValidationError> {
    if names == 0 { Ok(()) } else { Err(ValidationError::AlternativeName(kind)) }
}

fn client(uses: &[String]) -> Result<(), ValidationError> {
    let usual = ["digital signature", "key encipherment", "client auth"];
    match uses.iter().find(|usage| !usual.contains(&usage.as_str())) {
        Some(other) => Err(ValidationError::ClientUsage(other.clone())),
        None if uses.iter().any(|usage| usage == "client auth") => Ok(()),
        None => Err(ValidationError::MissingClientUsage),
    }
}

/// Requires exactly these usages. Key encipherment is optional, because only RSA keys support it.
fn exactly(uses: &[String], purpose: &str) -> Result<(), ValidationError> {
    let uses: BTreeSet<&str> = uses.iter().map(String::as_str).collect();
    let mut expected = BTreeSet::from(["digital signature", "key encipherment", purpose]);
    let words = expected.iter().copied().collect::<Vec<_>>().join(" ");
    let all = uses == expected;
    expected.remove("key encipherment");
    if all || uses == expected { Ok(()) } else { Err(ValidationError::Usages(words)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node() -> ParsedCsr {
        let (common_name, organizations) = ("system:node:n".to_owned(), vec!["system:nodes".to_owned()]);
        ParsedCsr { common_name, organizations, ..ParsedCsr::default() }
    }

    #[track_caller]
    fn check(signer: &str, requested: &ParsedCsr, uses: &str, expected: Result<(), &str>) {
        let spec = CertificateSigningRequestSpec {
            signer_name: signer.to_owned(),
            usages: Some(uses.split(',').map(str::to_owned).collect()),
            ..CertificateSigningRequestSpec::default()
        };
        assert_eq!(requested.validate(&spec).map_err(|error| error.to_string()), expected.map_err(str::to_owned));
    }

    #[test]
    fn client_csr_requires_client_usages() {
        let any = ParsedCsr::default();
        check(CLIENT, &any, "client auth", Ok(()));
        check(CLIENT, &any, "client auth,digital signature,key encipherment", Ok(()));
        check(CLIENT, &any, "client auth,server auth", Err("invalid usage for client certificate: server auth"));
        let missing = "missing required usage for client certificate: client auth";
        check(CLIENT, &any, "digital signature", Err(missing));
        check(LEGACY, &any, "server auth", Ok(()));
    }

    #[test]
    fn kubelet_client_csr_identifies_only_a_node() {
        let uses = "digital signature,client auth";
        check(KUBELET_CLIENT, &node(), uses, Ok(()));
        check(KUBELET_CLIENT, &node(), "key encipherment,digital signature,client auth", Ok(()));
        let words = "usages did not match [client auth digital signature key encipherment]";
        check(KUBELET_CLIENT, &node(), "client auth", Err(words));
        for (requested, message) in [
            (ParsedCsr { organizations: vec![], ..node() }, "subject organization is not system:nodes"),
            (ParsedCsr { dns: 1, ..node() }, "DNS subjectAltNames are not allowed"),
            (ParsedCsr { emails: 1, ..node() }, "Email subjectAltNames are not allowed"),
            (ParsedCsr { ips: 1, ..node() }, "IP subjectAltNames are not allowed"),
            (ParsedCsr { uris: 1, ..node() }, "URI subjectAltNames are not allowed"),
            (
                ParsedCsr { common_name: "n".to_owned(), ..node() },
                "subject common name does not begin with system:node:",
            ),
        ] {
            check(KUBELET_CLIENT, &requested, uses, Err(message));
        }
    }

    #[test]
    fn kubelet_serving_csr_requires_a_san() {
        let uses = "digital signature,server auth";
        check(KUBELET_SERVING, &node(), uses, Err("DNS or IP subjectAltName is required"));
        let named = || ParsedCsr { dns: 1, ..node() };
        check(KUBELET_SERVING, &named(), uses, Ok(()));
        check(KUBELET_SERVING, &ParsedCsr { ips: 1, ..node() }, uses, Ok(()));
        let words = "usages did not match [digital signature key encipherment server auth]";
        check(KUBELET_SERVING, &named(), "client auth", Err(words));
        check(KUBELET_SERVING, &ParsedCsr { uris: 1, ..named() }, uses, Err("URI subjectAltNames are not allowed"));
    }
}
