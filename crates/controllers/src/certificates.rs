//! CertificateSigningRequests: approves those of kubelets, signs approved ones of Kubernetes' own signers, and
//! deletes old ones (`pkg/controller/certificates`).
//!
//! The controllers have no access to the CA key; they use a [`Signer`].

mod approver;
mod cleaner;
mod csr;
mod signer;

pub(crate) use approver::run as approver;
pub(crate) use cleaner::run as cleaner;
pub(crate) use signer::run as signer;

use informer::{CacheEvent, SharedInformer, key};
use jiff::Timestamp;
use k8s_openapi::api::certificates::v1::{CertificateSigningRequest, CertificateSigningRequestCondition};
use std::{error::Error, fmt, sync::Arc};

/// A certificate to issue.
#[derive(Debug)]
pub struct CertificateOrder<'a> {
    /// The PKCS#10 request in PEM.
    pub request: &'a [u8],
    /// The usages in the form of `certificates.k8s.io`.
    pub uses: &'a [String],
    /// Start of validity (`notBefore`).
    pub from: Timestamp,
    /// End of validity (`notAfter`).
    pub until: Timestamp,
}

/// Error of a [`Signer`].
pub type SignerError = Box<dyn Error + Send + Sync>;

type Sign = dyn Fn(&CertificateOrder<'_>) -> Result<String, SignerError> + Send + Sync;

/// Issues certificates. Clones share the implementation.
#[derive(Clone)]
pub struct Signer(Arc<Sign>);

impl Signer {
    /// Creates a signer from a function that returns a certificate in PEM.
    pub fn new(sign: impl Fn(&CertificateOrder<'_>) -> Result<String, SignerError> + Send + Sync + 'static) -> Self {
        Self(Arc::new(sign))
    }

    fn sign(&self, order: &CertificateOrder<'_>) -> Result<String, SignerError> {
        (self.0)(order)
    }
}

impl fmt::Debug for Signer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Signer").finish_non_exhaustive()
    }
}

/// Returns the keys of the changed requests that `concerns` accepts.
fn affected_requests(
    requests: &SharedInformer<CertificateSigningRequest>,
    seen: CacheEvent<CertificateSigningRequest>,
    concerns: impl Fn(&CertificateSigningRequest) -> bool,
) -> Vec<String> {
    let changed = match seen {
        CacheEvent::Changed { after, .. } => after.into_iter().collect(),
        CacheEvent::Resync => requests.all(),
    };
    changed.iter().filter(|request| concerns(request)).map(|request| key(request.as_ref())).collect()
}

/// Returns a true condition.
fn condition(kind: &str, reason: &str, message: String) -> CertificateSigningRequestCondition {
    CertificateSigningRequestCondition {
        type_: kind.to_owned(),
        status: "True".to_owned(),
        reason: Some(reason.to_owned()),
        message: Some(message),
        ..CertificateSigningRequestCondition::default()
    }
}

fn conditions(request: &CertificateSigningRequest) -> impl Iterator<Item = &CertificateSigningRequestCondition> {
    request.status.iter().flat_map(|status| status.conditions.iter().flatten())
}

fn has(request: &CertificateSigningRequest, condition: &str) -> bool {
    conditions(request).any(|c| c.type_ == condition)
}

/// Returns the issued certificate.
fn certificate_of(request: &CertificateSigningRequest) -> Option<&[u8]> {
    let certificate = request.status.as_ref()?.certificate.as_ref()?;
    Some(certificate.0.as_slice()).filter(|pem| !pem.is_empty())
}
